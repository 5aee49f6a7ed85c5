"""Phrases for terminal, report and dashboard: states of roles, the bottleneck, returns."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from distrl.metrics.snapshot import Snapshot, amount, number
from distrl.role_kinds import KINDS

NO_EPISODE = "no episode finished yet"
COMPILING = "compiling the update"
READING = "reading the data"
"""Beginning of the learner's state while its first update takes long."""
PRETRAINING = "pretraining"
"""Beginning of its state while it learns from recorded steps alone, before those of its actors."""
UNKNOWN = "\u2013"  # an en dash in place of a number
HUGE = 1e15
"""Size from which on a number has few digits."""

RoleRow = Mapping[str, Any]
"""One role's heartbeat as a mapping: role, id, state, env_steps_per_s, weights_version, last_step_age_s."""


def role_states(roles: Sequence[RoleRow]) -> str:
    """Return 'learner starting, 2 actors acting', for the time before the first update."""
    if not roles:
        return "no role has reported yet"
    told = [f"{row['role']} {row['state']}" for row in roles if not KINDS[row["role"]].numbered]
    several = Counter((row["role"], row["state"]) for row in roles if KINDS[row["role"]].numbered)
    told += [f"{count} {_label(role)}{'' if count == 1 else 's'} {state}" for (role, state), count in several.items()]
    return ", ".join(told)


def _label(role: str) -> str:
    return KINDS[role].label or role


def verdict(snapshot: Snapshot) -> str:
    """Describe the bottleneck."""
    wait = amount(snapshot, "learner_wait_share")
    blocked = number(snapshot.get("actors_blocked_share"))
    share = "" if blocked is None else f" {blocked:.0%} of their time"
    words = {
        "actors": f"actors: the learner waits for unrolls {wait:.0%} of its time",
        "learner": f"learner: the queue is full and actors wait for it{share}",
        "environment": "environment: stepping it takes most of the actors' time",
        "-": "none: actors and learner keep pace",
    }
    return words.get(str(snapshot.get("bottleneck")), "not known yet")


def waiting_words(idle: float | None, blocked: float | None) -> str:
    """Return 'learner 3%, actors 81% of the time' of the shares spent waiting for each other; empty while unknown."""
    if idle is None:
        return ""
    return f"learner {idle:.0%}{'' if blocked is None else f', actors {blocked:.0%}'} of the time"


def used_words(trained: int, stored: int) -> str:
    """Return '12 trained', or '12 stored' where updates sample from a replay memory."""
    return f"{stored:,} stored" if stored and not trained else f"{trained:,} trained"


def lost_words(lost: int, to_failover: int) -> str:
    """Return '5 lost', or '5 lost (3 to a fail-over of Redis)'."""
    return f"{lost:,} lost" + (f" ({to_failover:,} to a fail-over of Redis)" if to_failover else "")


def return_words(value: float) -> str:
    """Return a return as text, with two decimals below 10, and few digits of what is huge."""
    if abs(value) >= HUGE:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) >= 10.0 else f"{value:,.2f}"


def count_words(value: float) -> str:
    """Return a number rounded to a whole one, with separators, and few digits of what is huge."""
    return f"{value:.3g}" if abs(value) >= HUGE else f"{value:,.0f}"


def digits_apart(numbers: Iterable[float]) -> int:
    """Return the least number of significant digits, three or more, that tells all numbers apart."""
    different = {repr(one) for one in numbers}
    return next(n for n in range(3, 18) if len({f"{float(one):.{n}g}" for one in different}) == len(different))


def known(value: float | None, words: Callable[[float], str], otherwise: str = UNKNOWN) -> str:
    """Return a value by `words`, or `otherwise` if it is unknown."""
    return otherwise if value is None else words(value)
