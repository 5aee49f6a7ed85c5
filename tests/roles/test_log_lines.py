import logging
import re

from distrl.apps.jobs.run_logs import parsed
from distrl.roles.log_lines import RoleLines


def test_the_time_of_a_line_is_a_moment_in_every_zone(monkeypatch):
    record = logging.LogRecord("distrl", logging.INFO, "file.py", 1, "acts in %d rows", (8,), None)
    record.created = 1767323045.25
    line = RoleLines("actor 3").format(record)
    assert re.fullmatch(r"2026-01-0[123] \d\d:\d\d:05\.250[+-]\d\d:\d\d actor 3 INFO acts in 8 rows", line)
    assert parsed(line.encode()) == (1767323045.25, "actor 3 INFO acts in 8 rows")
