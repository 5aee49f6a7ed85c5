"""The language in which the list of runs is filtered: `algo:ppo lr>=3e-4 -state:failed cartpole`.

Every term must hold. A word must occur in the run's texts; `field:value` compares a field; `name>=number` compares a
number or a setting. `-` before a term negates it, quotation marks keep spaces and signs: `name:"first try"`.
"""

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

from distrl.errors import ConfigError

STATES = (
    *("running", "paused", "stalled", "slow"),
    *("ended", "solved", "failed", "stopped", "gone", "damaged"),
)
"""Words of `state:`; a run may have several of them."""
FIELDS = {
    "algo": "algorithm",
    "algorithm": "algorithm",
    "env": "env",
    "environment": "env",
    "state": "state",
    "is": "state",
    "tag": "tag",
    "name": "name",
    "note": "note",
    "archived": "archived",
}
"""Name in a query -> the field."""
ARCHIVED = ("no", "yes", "any")
SHORT = {
    "return": "mean_return_100",
    "best": "best_mean_return_100",
    "eval": "evaluation_mean_return",
    "evaluation": "evaluation_mean_return",
    "best_eval": "best_evaluation_return",
    "steps": "env_steps",
    "speed": "env_steps_per_s",
    "time": "training_s",
    "lr": "learning_rate",
    "gamma": "discount",
}
"""Short name -> number, or last part of a setting's path."""
_PARTLY = ("env", "name", "note")  # fields of which a part is enough
_MOST_NAMED = 6
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_COMPARISON = re.compile(r"([A-Za-z_][\w.-]*)(>=|<=|!=|>|<|=|:)(.*)", re.DOTALL)
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
}


@dataclass(frozen=True)
class Term:
    """One condition of a query.

    Attributes:
        name: Field, number or setting as written; "" for a word.
        operator: `:`, `=`, `!=`, `<`, `<=`, `>` or `>=`.
        value: The right side, or the word.
    """

    name: str
    operator: str
    value: str
    negated: bool = False


class QueriedRuns(Protocol):
    """The runs that a query selects from, as columns of equal length."""

    def __len__(self) -> int:
        """Number of runs."""
        ...

    @property
    def numbers(self) -> Collection[str]:
        """Names of numbers."""
        ...

    @property
    def settings(self) -> Collection[str]:
        """Dotted paths of settings."""
        ...

    def texts(self) -> Sequence[str]:
        """For each run, the text in which words are looked for, in lower case."""
        ...

    def field(self, name: str) -> Sequence[Collection[str]]:
        """For each run, the values of one of `FIELDS`, in lower case."""
        ...

    def column(self, name: str) -> Sequence[Any]:
        """For each run, the value of a number or a setting; None: it has none."""
        ...


def parse(text: str) -> list[Term]:
    """Return the terms of a query.

    Raises:
        ConfigError: A term without a value, or with an unknown state.
    """
    return [_term(found[0]) for found in _TOKEN.finditer(text)]


def select(terms: Sequence[Term], facts: QueriedRuns) -> list[int]:
    """Return the positions of the runs for which every term holds; archived ones only if a term names `archived`.

    A run without the value of a comparison does not satisfy it, and satisfies its negation.

    Raises:
        ConfigError: A name that is unknown or ambiguous, or a value that does not fit.
    """
    if not any(FIELDS.get(term.name.lower()) == "archived" for term in terms):
        terms = [*terms, Term("archived", ":", "no")]
    found: Sequence[int] = range(len(facts))
    for term in terms:
        holds = _condition(term, facts)
        found = [at for at in found if holds(at) != term.negated]
    return [*found]


def resolved(name: str, numbers: Collection[str], settings: Collection[str]) -> str:
    """Return the number or the dotted path of the setting with this name, short name or unique end of its path.

    Raises:
        ConfigError: There is none, or several.
    """
    written, name = name, SHORT.get(name.lower(), name)
    if name in numbers or name in settings:
        return name
    ends = [path for path in settings if path.endswith(f".{name}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ConfigError(f"{written} is ambiguous: {_some(ends)}; write more of the path")
    last = {path.rpartition(".")[2] for path in settings}
    close = get_close_matches(name, sorted({*numbers, *settings, *last, *SHORT}), n=3)
    known = f"did you mean {' or '.join(close)}?" if close else f"numbers are {', '.join(numbers)}"
    raise ConfigError(f"no number or setting is named {written!r}; {known}")


def _term(token: str) -> Term:
    negated = token.startswith("-") and len(token) > 1
    body = token[1:] if negated else token
    found = _COMPARISON.fullmatch(body)
    if found is None:
        return Term("", ":", body.replace('"', ""), negated)
    name, operator, value = found[1], found[2], found[3].replace('"', "")
    if not value:
        raise ConfigError(f"{name}{operator} has no value; write it without spaces, such as {name}{operator}1")
    if name.lower() in FIELDS:
        _check_field(name.lower(), operator, value)
    return Term(name, operator, value, negated)


def _check_field(name: str, operator: str, value: str) -> None:
    if operator not in (":", "=", "!="):
        raise ConfigError(f"{name} has no order; write {name}:{value}")
    field = FIELDS[name]
    allowed = STATES if field == "state" else ARCHIVED if field == "archived" else None
    if allowed is not None and value.lower() not in allowed:
        raise ConfigError(f"{name} is one of {', '.join(allowed)}, not {value!r}")


def _condition(term: Term, facts: QueriedRuns) -> Callable[[int], bool]:
    wanted = term.value.lower()
    if not term.name:
        texts = facts.texts()
        return lambda at: wanted in texts[at]
    if term.name.lower() in FIELDS:
        return _field_condition(FIELDS[term.name.lower()], term.operator, wanted, facts)
    path = resolved(term.name, facts.numbers, facts.settings)
    values = facts.column(path)
    if term.operator in _ORDERS:
        limit, order = number_in(term.value), _ORDERS[term.operator]
        if limit is None:
            raise ConfigError(f"{path} is compared with a number, such as {term.name}{term.operator}3e-4")
        return lambda at: (known := amount(values[at])) is not None and order(known, limit)
    equal = _equals(term.value)
    if term.operator == "!=":
        return lambda at: values[at] is not None and not equal(values[at])
    return lambda at: equal(values[at])


def _field_condition(field: str, operator: str, wanted: str, facts: QueriedRuns) -> Callable[[int], bool]:
    if field == "archived" and wanted == "any":
        return lambda at: True
    values = facts.field(field)
    if field in _PARTLY:
        return lambda at: any(wanted in value for value in values[at]) != (operator == "!=")
    return lambda at: (wanted in values[at]) != (operator == "!=")


def _equals(text: str) -> Callable[[Any], bool]:
    """Return the comparison with a value: as numbers if both are, else as texts without regard to case."""
    number, words = number_in(text), text.lower()

    def equal(value: Any) -> bool:
        known = amount(value)
        if known is not None and number is not None:
            return math.isclose(known, number, rel_tol=1e-9)
        return word(value).lower() == words

    return equal


def amount(value: Any) -> float | None:
    """Return a value as a number, or None if it is none."""
    if type(value) not in (int, float):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return known if math.isfinite(known) else None


def word(value: Any) -> str:
    """Return a value as a query writes it: null, true, a number or a text."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def number_in(text: str) -> float | None:
    """Return the number that a text writes: 3e-4, 1_000, 20k, 1.5M."""
    unit = _UNITS.get(text[-1:], 1.0)
    digits = text[:-1] if unit > 1.0 else text
    if not re.fullmatch(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d{1,3})?", digits, re.IGNORECASE):
        return None
    value = float(digits.replace("_", "")) * unit
    return value if math.isfinite(value) else None


def _some(paths: Collection[str]) -> str:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(sorted(paths)[:_MOST_NAMED]) + more
