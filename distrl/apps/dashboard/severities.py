"""Severity of each line of logs/events.log: one table of patterns, the first match counts."""

import re
from typing import Literal

from distrl.role_kinds import KINDS

Severity = Literal["info", "warning", "bad"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "bad")

_NAMES = (kind.name + r" \d+" * kind.numbered for kind in KINDS.values())
_ROLE = f"({'|'.join(_NAMES)})"
TABLE: tuple[tuple[str, Severity], ...] = (
    (rf"{_ROLE} started again", "warning"),
    (r"(learning again|checkpoints are (written|stored) again|rounds have every worker again)", "info"),
    (r"asked: end without an evaluation", "warning"),
    (r"asked: ", "info"),
    (rf"{_ROLE} ended \(", "bad"),
    (rf"{_ROLE} failed \d+ times", "bad"),
    (rf"{_ROLE} ended more often than", "bad"),
    (r"nothing learned for", "bad"),
    (r"no checkpoint can be written", "bad"),
    (r"Redis has failed over or was restarted", "bad"),
    (r"[\d,]+ unrolls were lost", "bad"),
    (r"the numbers are those of the last look", "bad"),
    (rf"{_ROLE}, joined by hand, has been silent", "warning"),
    (r"no place for ", "warning"),
    (r"not scaled to ", "warning"),
    (r"no actor is there", "warning"),
    (r"(networks not taken|not taken over): ", "warning"),
    (r"the data store lacks", "warning"),
    (r"rounds go on without", "warning"),
    (r"ignored ", "warning"),
    (r"passed over ckpt-", "warning"),
    (r"environment\.metrics: info of the last", "warning"),
    (r"(.+) cannot be (written|removed|read)\b", "warning"),
    (r"(learner: )?nothing is recorded: ", "warning"),
    (r"(learner: )?[\d,]+ episodes are recorded: ", "info"),
    (rf"{_ROLE}: ", "warning"),
    (r"stopping: asked", "info"),
    (r"stopping: ", "warning"),
)
"""Pattern at the begin of a line -> severity. A line without a match is "info"."""
_COMPILED = tuple((re.compile(pattern), severity) for pattern, severity in TABLE)


def severity(text: str) -> Severity:
    """Return the severity of an event's text."""
    return next((found for pattern, found in _COMPILED if pattern.match(text)), "info")
