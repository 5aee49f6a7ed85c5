"""Lengths of time on a command line."""

import pytest
import typer

from distrl.apps.commands.durations import seconds


@pytest.mark.parametrize(
    ("text", "length_s"), [("1", 1.0), ("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), (10.0, 10.0)]
)
def test_lengths_of_time(text, length_s):
    assert seconds(text) == length_s


@pytest.mark.parametrize("text", ["", "s", "0", "0.5", "-1s", "1d", "1 s", "1e3", "inf", "nan", "10 minutes"])
def test_what_is_none_is_refused_with_what_to_write(text):
    with pytest.raises(typer.BadParameter, match="write 90, 90s, 5m or 1h"):
        seconds(text)
