"""Lines of a log on another host are collected within bounds, and none is lost in silence."""

import logging

from distrl.launch.collected_log import UncollectedLines


def test_lines_are_taken_once_and_the_oldest_are_left_out_beyond_the_bound():
    lines = UncollectedLines(most=60)
    lines.setFormatter(logging.Formatter("%(message)s"))
    for text in ("one", "two"):
        lines.handle(logging.makeLogRecord({"msg": text}))
    assert lines.take() == "one\ntwo\n"
    assert lines.take() == ""
    for number in range(10):
        lines.handle(logging.makeLogRecord({"msg": f"{number} {'é' * 8}"}))
    assert lines.take() == "[7 lines are only in the log on the role's host]\n" + "".join(
        f"{number} {'é' * 8}\n" for number in (7, 8, 9)
    )
    assert lines.take() == ""
