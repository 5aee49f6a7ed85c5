import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from distrl.errors import ConfigError
from distrl.files import check_place, open_regular, read_end, read_given, read_model, read_small


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


class Counts(BaseModel):
    one: int = 0
    many: dict[str, int] = {}


@pytest.mark.parametrize(("text", "field"), [('{"one": %s}', "one"), ('{"many": {"a": %s}}', "many")])
def test_numbers_that_no_float_holds_are_damage(tmp_path, text, field):
    path = tmp_path / "file.json"
    path.write_text(text % (2**63 - 1))
    assert read_model(Counts, path) in (Counts(one=2**63 - 1), Counts(many={"a": 2**63 - 1}))
    path.write_text(text % ("9" * 400))
    with pytest.raises(ConfigError, match=rf"file\.json is damaged: {field}: a number of more than 64 bits"):
        read_model(Counts, path)


def test_links_are_opened_only_where_they_may(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert read_small(tmp_path / "link") == b"1"
    with pytest.raises(OSError, match="it is a link"):
        open_regular(tmp_path / "link", links=False)
    with pytest.raises(OSError, match="it is not a regular file"):
        open_regular("/dev/zero")


@pytest.mark.parametrize("place", ["/dev/fd/{1}", "/proc/self/fd/{1}", "/proc/{0}/fd/{1}"])
def test_a_pipe_of_the_shell_is_read_within_the_bound(place):
    read, write = os.pipe()
    os.write(write, b"seed: 1")
    os.close(write)
    with os.fdopen(read, "rb"):
        assert read_given(Path(place.format(os.getpid(), read)), 7) == b"seed: 1"
    with pytest.raises(ConfigError, match="/dev/zero is not a regular file"):
        read_given(Path("/dev/zero"), 7)


@pytest.mark.parametrize(
    ("most", "begin", "end"),
    [(99, 0, b"aaa\nbbb\nccc\n"), (8, 0, b"bbb\nccc\n"), (7, 0, b"ccc\n"), (3, 0, b"cc\n"), (99, 8, b"ccc\n")],
)
def test_the_end_of_a_file_has_whole_lines_if_one_fits(tmp_path, most, begin, end):
    (tmp_path / "log").write_bytes(b"aaa\nbbb\nccc\n")
    assert read_end(tmp_path / "log", most, begin) == end


def test_no_output_takes_the_place_of_a_device(tmp_path):
    (tmp_path / "file").touch()
    for place in ("/dev/null", "/dev/stdout", "/dev/stdin", "/dev/fd/1"):
        with pytest.raises(ConfigError, match=f"--output {place} is no file, and one would take its place"):
            check_place(Path(place), "--output", force=True)
    check_place(tmp_path / "file", "--output", force=True)
