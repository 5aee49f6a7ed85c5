"""States of runs in words, and which of them need a person: failed, gone, stalled, slow, solved."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from distrl.dashboard.jobs import NOT_YET, Look
from distrl.errors import EXIT_INTERRUPTED
from distrl.memory_backend.records import SILENT_S
from distrl.metrics.snapshot import Snapshot, number
from distrl.runs.summary import REASONS

STALLED_S = 60.0
"""A run without new environment steps for that much training time is stalled."""
SILENT_FOR_S = 3.0 * SILENT_S
"""A run with a role without a heartbeat for that long is stalled."""
SLOW_SHARE = 0.5
"""A run is slow if its rate is below this share of its own earlier median."""
NEWEST, EARLIER = 5, 20
"""Rows of metrics of which the median is the present rate, and least number of earlier ones."""
TOLD = ("failed", "gone", "stalled", "slow", "solved")
"""Words that are counted at the top of the list."""
_OWN_WORDS = ("solved", "stopped")
"""Ends that have a word of their own, see `REASONS`."""


def words_of(state: str, numbers: Mapping[str, Any], look: Look | None, *, has_redis: bool = True) -> tuple[str, ...]:
    """Return the words for a run's state, the most telling first; `state:` of a query compares them.

    Args:
        state: "running", "ended", "gone" or "damaged".
        numbers: The run's numbers in the list.
        look: The live state of a running job.
        has_redis: Whether the running job should be reachable in a Redis.
    """
    if state == "ended":
        code, reason = numbers.get("exit_code"), REASONS.get(str(numbers.get("stop_reason")))
        if code:
            return "interrupted" if code == EXIT_INTERRUPTED else "failed", "ended"
        return (reason.short, "ended") if reason is not None and reason.short in _OWN_WORDS else ("ended",)
    if state != "running" or look is None:
        return (state,)
    if look.control.paused:
        return "paused", "running"
    if has_redis and stalls(look):
        return "stalled", "running"
    return ("slow", "running") if slows(look) else ("running",)


def stalls(look: Look) -> bool:
    """Whether a job makes no progress: no new steps, a silent role, or a Redis that is unreachable."""
    if look.problem is not None:
        return look.problem != NOT_YET
    if any(age_s > SILENT_FOR_S for age_s in look.seen_s.values()):
        return True
    return without_steps_s([snapshot for _, snapshot in look.snapshots]) >= STALLED_S


def without_steps_s(snapshots: Sequence[Snapshot]) -> float:
    """Return the training seconds since the number of environment steps last grew, as far as snapshots tell."""
    if not snapshots:
        return 0.0
    steps, now = snapshots[-1].get("env_steps"), number(snapshots[-1].get("wall_s"))
    since = now
    for snapshot in reversed(snapshots):
        if snapshot.get("env_steps") != steps:
            break
        since = number(snapshot.get("wall_s"))
    return 0.0 if now is None or since is None else now - since


def slows(look: Look) -> bool:
    """Whether a job's rate is far below its own earlier median."""
    rates = [rate for _, snapshot in look.snapshots if (rate := number(snapshot.get("env_steps_per_s"))) is not None]
    if len(rates) < NEWEST + EARLIER:
        return False
    return statistics.median(rates[-NEWEST:]) < SLOW_SHARE * statistics.median(rates[:-NEWEST])


def counted(words: Collection[Collection[str]]) -> dict[str, int]:
    """Return how many runs each of `TOLD` applies to; words that apply to none are left out."""
    counts = {word: sum(word in each for each in words) for word in TOLD}
    return {word: count for word, count in counts.items() if count}
