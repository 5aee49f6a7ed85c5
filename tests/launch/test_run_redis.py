"""The Redis of a run: its password stays over launches, and is its owner's."""

import stat

import pytest

from distrl.errors import ConfigError
from distrl.launch.run_redis import make_password_file


@pytest.mark.row("S08")
def test_the_password_stays_and_is_its_owners(tmp_path):
    path = tmp_path / "redis.password"
    make_password_file(path)
    first = path.read_text()
    assert len(first) == 65
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    make_password_file(path)  # the run is resumed
    assert path.read_text() == first
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read"):
        make_password_file(path)
