"""States of runs in words, and which of them need a person: failed, gone, stalled, slow, solved."""

from collections.abc import Collection, Mapping
from typing import Any

from distrl.metrics.snapshot import amount
from distrl.runs.reading import Reading
from distrl.runs.summary import end_of

COUNTED = ("failed", "gone", "stalled", "slow", "solved")
"""Words that are counted at the top of the list."""


def words_of(
    state: str, numbers: Mapping[str, Any], look: Reading | None, *, has_redis: bool = True
) -> tuple[str, ...]:
    """Return the words for a run's state, the most telling first; `state:` of a query compares them.

    Args:
        state: "running", "ended", "gone" or "damaged".
        numbers: The run's numbers in the list.
        look: The live state of a live run.
        has_redis: Whether the live run should be reachable in a Redis.
    """
    if state == "ended":
        end = end_of(amount(numbers, "exit_code"), str(numbers.get("stop_reason")), numbers.get("error"))
        return tuple(dict.fromkeys((end, "ended")))
    if state != "running" or look is None:
        return (state,)
    word = look.verdict(has_redis=has_redis).word
    return ("running",) if word == "healthy" else (word, "running")


def counted(words: Collection[Collection[str]]) -> dict[str, int]:
    """Return how many runs each of `COUNTED` applies to; words that apply to none are left out."""
    counts = {word: sum(word in each for each in words) for word in COUNTED}
    return {word: count for word, count in counts.items() if count}
