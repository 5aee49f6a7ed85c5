"""Lines of a log on another host are collected within bounds, and none is lost in silence."""

import contextlib
import logging

from distrl.launch.collected_log import PrintedLines, UncollectedLines


def test_lines_are_taken_once_and_the_oldest_are_left_out_beyond_the_bound():
    lines = UncollectedLines(most=84)
    lines.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    for text in ("one", "two"):
        lines.handle(logging.makeLogRecord({"msg": text, "levelname": "INFO"}))
    assert lines.take() == "INFO one\nINFO two\n"
    assert lines.take() == ""
    for number in range(10):
        lines.handle(logging.makeLogRecord({"msg": f"{number} {'é' * 8}", "levelname": "INFO"}))
    assert lines.take() == "WARNING 7 lines before the next one are only in the log on the role's host\n" + "".join(
        f"INFO {number} {'é' * 8}\n" for number in (7, 8, 9)
    )
    assert lines.take() == ""


def test_printed_lines_are_logged_whole(caplog):
    caplog.set_level("INFO")
    with contextlib.redirect_stdout(PrintedLines()):
        print("level", 3, "of 5 %s")
        print("half", end=" ")
        print("ü\n")
        print("not ended", end="")
    assert [record.getMessage() for record in caplog.records] == ["level 3 of 5 %s", "half ü", ""]
