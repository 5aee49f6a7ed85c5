import pytest

from distrl.dashboard.configuration import Leaf, read_configuration
from distrl.dashboard.files import NotThereError
from distrl.errors import ConfigError


def test_values_with_their_origins_and_no_secret(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 7  # flag --seed\nmemory:\n  url: redis://:pw@h  # flag --redis-url\n")
    assert read_configuration(tmp_path) == [
        Leaf("seed", 7, "flag --seed"),
        Leaf("memory.url", "redis://•••@h", "flag --redis-url"),
    ]


def test_no_file_and_a_damaged_one(tmp_path):
    with pytest.raises(NotThereError):
        read_configuration(tmp_path)
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML"):
        read_configuration(tmp_path)
