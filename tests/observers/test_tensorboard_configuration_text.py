"""Configuration and what else is told of a run, as Markdown."""

import pytest

from distrl.config.settings import settings_in
from distrl.observers.tensorboard import meta_text, settings_text

META = {
    "author": "Sutton | Barto",
    "seeds": [1, 2, 3],
    "nested": {"why": "a test", "deep": {"x": None, "empty": {}}},
    "matrix": [[1, 0.5], [True, "a"]],
    "ragged": [[1], [2, 3]],
}
TOLD = """\
**author**: Sutton \\| Barto

**seeds**: [1, 2, 3]

**nested.why**: a test

**nested.deep.x**: null

**nested.deep.empty**: {}

**matrix**

| 0 | 1 |
| --- | --- |
| 1 | 0.5 |
| true | a |

**ragged**: [[1], [2, 3]]"""


@pytest.mark.row("P04")
def test_nested_data_as_text():
    assert meta_text(META) == TOLD


@pytest.mark.row("P03")
def test_nine_rows_of_nine_are_a_table_of_nine_rows():
    header, line, *rows = meta_text({"ones": [[1] * 9] * 9}).splitlines()[2:]
    assert header.count("|") == line.count("|") == 10
    assert rows == ["| 1 | 1 | 1 | 1 | 1 | 1 | 1 | 1 | 1 |"] * 9


@pytest.mark.row("P02.12")
def test_every_setting_with_its_origin_and_secrets_masked():
    settings = settings_in("seed: 3  # flag --seed\nmemory:\n  url: redis://me:word@host  # default\n", "a test")
    assert settings_text(settings).splitlines() == [
        "| setting | value | from |",
        "| --- | --- | --- |",
        "| seed | 3 | flag --seed |",
        "| memory.url | redis://•••@host | default |",
    ]
