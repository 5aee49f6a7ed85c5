import os

import pytest

from distrl.errors import ConfigError
from distrl.runs.labels import FILE, Labels


def test_labels_are_read_back(tmp_path):
    assert Labels.read(tmp_path) == Labels()
    labels = Labels(name="  best so far ", tags=("paper", "v2"), note="two\nlines", archived=True)
    labels.write(tmp_path)
    assert Labels.read(tmp_path) == labels
    assert labels.name == "best so far"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_tags():
    labels = Labels(tags=("v10", "Paper"))
    assert labels.tagged(add=("v9",), remove=("paper",)) == ("v9", "v10")
    assert labels.tagged(add=("PAPER",)) == ("Paper", "v10")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "labels.json is damaged"),
        (b'{"colour": "red"}', "colour"),
        (b'{"name": "two\\nlines"}', "name: one line of at most 80 characters"),
        (b'{"name": "\\u202eknil"}', "name: one line"),
        (b'{"tags": ["\\u009b31m"]}', "tags.0: at most 20 words"),
        (b'{"note": "\\u2066"}', "note: a text"),
        (b'{"name": "%s"}' % (81 * b"x"), "name: one line of at most 80"),
        (b'{"tags": ["two words"]}', "tags.0: at most 20 words"),
        (b'{"tags": [%s]}' % b",".join([b'"x"'] * 21), "tags: at most 20 words"),
        (b'{"note": "%s"}' % (2001 * b"x"), "note: a text of at most 2000"),
        (b" " * 2**16, "is damaged: it has 65,536 bytes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, problem):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        Labels.read(tmp_path)
    assert problem in str(caught.value)
    assert FILE in str(caught.value)


@pytest.mark.parametrize("name", [FILE, f".tmp-{FILE}"])
def test_links_are_not_followed(tmp_path, name):
    other = tmp_path / "other"
    other.write_text("{}")
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(other)
    with pytest.raises((ConfigError, OSError)):
        Labels(note="x").write(run)
    assert other.read_text() == "{}"
    if name == FILE:
        with pytest.raises(ConfigError, match="is a link"):
            Labels.read(run)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(ConfigError, match="not a regular file"):
        Labels.read(tmp_path)
