import os

import pytest

from distrl.config.small_files import read_small
from distrl.errors import ConfigError


def test_up_to_the_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_small(path, 5) == b"12345"
    with pytest.raises(ConfigError, match=r"file is damaged: it has 5 bytes, more than 4"):
        read_small(path, 4)


def test_a_pipe_does_not_block_its_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a regular file"):
        read_small(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["none", "folder"])
def test_what_cannot_be_read(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=name):
        read_small(tmp_path / name)
