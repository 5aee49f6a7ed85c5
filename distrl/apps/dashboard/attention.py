"""States of runs in words, and which of them need a person: failed, gone, stalled, slow, solved."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from distrl.apps.dashboard.alert_settings import SILENT_FOR_S, STALLED_S
from distrl.apps.dashboard.jobs import NOT_YET
from distrl.errors import EXIT_INTERRUPTED
from distrl.metrics.snapshot import Snapshot, number
from distrl.runs.reading import Reading
from distrl.runs.summary import REASONS, duration

SLOW_SHARE = 0.5
"""A run is slow if its rate is below this share of its own earlier median."""
NEWEST, EARLIER = 5, 20
"""Rows of metrics of which the median is the present rate, and least number of earlier ones."""
COUNTED = ("failed", "gone", "stalled", "slow", "solved")
"""Words that are counted at the top of the list."""
_OWN_WORDS = ("solved", "stopped")
"""Ends that have a word of their own, see `REASONS`."""


def words_of(
    state: str, numbers: Mapping[str, Any], look: Reading | None, *, has_redis: bool = True
) -> tuple[str, ...]:
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
    if look.control.stop is not None:
        return "stopping", "running"
    word, _ = trouble_of(look, has_redis=has_redis)
    return (word, "running") if word else ("running",)


def trouble_of(look: Reading, *, has_redis: bool = True) -> tuple[str, str]:
    """Return "stalled", "slow" or "", and the numbers that say so; "" for a job that is paused or stops, as asked.

    A job is stalled without new steps, with a silent role, or if its Redis is unreachable. The numbers are "" where
    the role or the Redis itself is named elsewhere.
    """
    if look.control.paused or look.control.stop is not None:
        return "", ""
    if has_redis:
        is_silent = any(age_s > SILENT_FOR_S for age_s in look.ages_s)
        if look.problem not in (None, NOT_YET) or (look.problem is None and is_silent):
            return "stalled", ""
        still_s = without_steps_s([snapshot for _, snapshot in look.snapshots])
        if look.problem is None and still_s >= STALLED_S:
            return "stalled", f"No new environment steps for {duration(still_s)}"
    now, earlier = present_rate(look), _rates(look)[:-NEWEST]
    if now is not None and len(earlier) >= EARLIER and now < SLOW_SHARE * (before := statistics.median(earlier)):
        return "slow", f"{now:,.0f} steps/s now, {before:,.0f} before"
    return "", ""


def present_rate(look: Reading) -> float | None:
    """Return the median environment steps per second of the newest snapshots; None while there are too few."""
    newest = _rates(look)[-NEWEST:]
    return statistics.median(newest) if len(newest) == NEWEST else None


def _rates(look: Reading) -> list[float]:
    return [rate for _, snapshot in look.snapshots if (rate := number(snapshot.get("env_steps_per_s"))) is not None]


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


def counted(words: Collection[Collection[str]]) -> dict[str, int]:
    """Return how many runs each of `COUNTED` applies to; words that apply to none are left out."""
    counts = {word: sum(word in each for each in words) for word in COUNTED}
    return {word: count for word, count in counts.items() if count}
