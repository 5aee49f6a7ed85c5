import json

import pytest

from distrl.errors import ConfigError
from distrl.runs.directories import Manifest
from tests.run_folders import MANIFEST


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(MANIFEST))
    found = Manifest.read(path)
    assert (found.environment, found.seed, found.command[1], found.packages) == (
        "Acrobot-v1",
        7,
        "train",
        {"numpy": "2.4.6"},
    )


def test_runs_of_before_have_none(tmp_path):
    assert Manifest.read(tmp_path / "manifest.json") is None


@pytest.mark.parametrize(
    ("text", "message"), [("{", "the file: Invalid JSON"), ('{"run_id": 3}', "run_id: Input should be a valid string")]
)
def test_a_damaged_one_is_told_in_one_line(tmp_path, text, message):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=f"manifest.json is damaged: {message}") as caught:
        Manifest.read(tmp_path / "manifest.json")
    assert "\n" not in str(caught.value)
