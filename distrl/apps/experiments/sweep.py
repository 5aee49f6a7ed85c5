"""A sweep as its file describes it: the settings that vary, the seeds, the budget; and the runs that follow from it.

preset: cartpole-ppo
set: {stop.env_steps: 50000}
method: random
vary:
  network.learning_rate: {low: 1e-4, high: 1e-2, log: true}
  algorithm.name: [ppo, a2c]
  algorithm.clip_range: {values: [0.1, 0.2], when: {algorithm.name: ppo}}
seeds: 1..3
budget: {runs: 24}
"""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from distrl.config.secrets import masked
from distrl.config.section import Section
from distrl.errors import ConfigError, printable

MOST_RUNS = 100_000
"""Most runs of a grid."""
MOST = 1e300
"""Greatest bound of an interval."""
RECORDS_ALONE = "several runs would record to one data set; train one with --record, and leave it out here"
REPEATS = 1000
"""Draws in a row of combinations that were drawn before, after which there are no others."""
_SEEDS = re.compile(r"(\d+)\.\.(\d+)")


def seeds_of(text: Any) -> Any:
    """Return the seeds that '1..5' or '1,4,9' names; anything else as it is.

    Raises:
        ValueError: The text names none.
    """
    if not isinstance(text, str):
        return text
    if interval := _SEEDS.fullmatch(text.strip()):
        first, last = (int(number) for number in interval.groups())
        if first > last or last - first >= MOST_RUNS:
            raise ValueError(f"{text} names no seeds: write the smaller number first, as in 1..5")
        return tuple(range(first, last + 1))
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} names no seeds; write 1..5, or 1,4,9") from None


def _check_values(values: Sequence[Any]) -> None:
    if not values:
        raise ValueError("the list of values is empty")
    try:
        texts = [json.dumps(value, allow_nan=False) for value in values]
    except ValueError:
        raise ValueError(f"values must be finite, not {list(values)}") from None
    if twice := [text for text, number in Counter(texts).items() if number > 1]:
        raise ValueError(f"{twice[0]} is there twice")


class Varied(Section):
    """Values that one setting takes."""

    values: tuple[Any, ...] | None = None
    """All of them, in a grid's order."""
    low: int | float | None = None
    high: int | float | None = None
    """Bounds of an interval, both included. If both are whole numbers, whole numbers are drawn."""
    log: bool = False
    """Draw the logarithm evenly."""
    when: Mapping[str, Any] = Field(default_factory=dict)
    """Earlier setting -> its value, or a list of values, with which this one varies; else it keeps its default."""

    @model_validator(mode="after")
    def _names_values(self) -> "Varied":
        if (self.values is None) == (self.low is None and self.high is None):
            raise ValueError("give either a list of values, or low and high")
        if self.values is not None:
            _check_values(self.values)
            if self.log:
                raise ValueError("log is for low and high, not for a list of values")
            return self
        if self.low is None or self.high is None:
            raise ValueError("low and high belong together")
        if max(abs(self.low), abs(self.high)) > MOST or not self.low < self.high:
            raise ValueError(f"low must be less than high, and both finite, not {self.low!s:.20} and {self.high!s:.20}")
        if self.log and self.low <= 0:
            raise ValueError(f"log needs a low above 0, not {self.low}")
        return self

    def draw(self, chance: random.Random) -> Any:
        """Draw one value."""
        if self.values is not None:
            return self.values[int(chance.random() * len(self.values))]
        assert self.low is not None
        assert self.high is not None
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        low, high = (self.low - 0.5, self.high + 0.5) if whole else (self.low, self.high)
        drawn = math.exp(chance.uniform(math.log(low), math.log(high))) if self.log else chance.uniform(low, high)
        return min(max(round(drawn), self.low), self.high) if whole else float(drawn)

    def holds(self, value: Any) -> bool:
        """Return whether it is one of the values."""
        if self.values is not None:
            return value in self.values
        assert self.low is not None
        assert self.high is not None
        return isinstance(value, int | float) and self.low <= value <= self.high

    def applies(self, chosen: Mapping[str, Any]) -> bool:
        """Return whether the condition holds with the values that were chosen for earlier settings."""
        allowed = {path: one if isinstance(one, list | tuple) else [one] for path, one in self.when.items()}
        return all(path in chosen and chosen[path] in values for path, values in allowed.items())


def _written_short(value: Any) -> Any:
    return {"values": value} if isinstance(value, list | tuple) else value


class SweepBudget(Section):
    """Limits of the whole sweep; null: none."""

    runs: int | None = Field(None, ge=1)
    """Runs of all settings and seeds together."""
    minutes: float | None = Field(None, gt=0.0)
    """Minutes of all launches together; runs that are under way then are stopped, and go on if this is raised."""
    env_steps: int | None = Field(None, ge=1)
    """Environment steps of all runs together, after which none begins."""


class Varying(Section):
    """Settings that vary between runs."""

    vary: dict[str, Annotated[Varied, BeforeValidator(_written_short)]] = Field(default_factory=dict)
    """Dotted path of a setting -> a list of values, or {low, high, log}, or {values, when}."""

    @model_validator(mode="after")
    def _has_conditions_on_earlier_settings(self) -> "Varying":
        earlier: set[str] = set()
        for path, varied in self.vary.items():
            if path == "seed":
                raise ValueError("vary.seed: every run has a seed already; leave it out")
            if path.partition(".")[0] == "recording":
                raise ValueError(f"vary.{path}: {RECORDS_ALONE}")
            if unknown := sorted(varied.when.keys() - earlier):
                raise ValueError(f"vary.{path}.when: {unknown[0]} is no setting that varies before it")
            for other, one in varied.when.items():
                allowed, taken = one if isinstance(one, list | tuple) else [one], self.vary[other].values
                if taken is not None and (never := [value for value in allowed if value not in taken]):
                    raise ValueError(f"vary.{path}.when: {other} never is {never[0]!r}")
            earlier.add(path)
        return self

    def chosen(self, choose: Callable[[str, Varied], Any]) -> dict[str, Any]:
        """Return a value for each setting whose condition holds.

        Args:
            choose: Takes the path of a setting, and returns one of its values.
        """
        found: dict[str, Any] = {}
        for path, varied in self.vary.items():
            if varied.applies(found):
                found[path] = choose(path, varied)
        return found


class Sweep(Varying):
    """Settings that vary, seeds, and the budget."""

    method: Literal["grid", "random"] = "grid"
    """grid: every combination; random: combinations are drawn until the budget is spent."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(seeds_of)] = (1,)
    """A run for each, of every combination: a list, or 1..5."""
    draw_seed: int = Field(0, ge=0)
    """Seed of the combinations that random draws."""
    budget: SweepBudget = SweepBudget()

    @model_validator(mode="after")
    def _compares(self) -> "Sweep":
        if len(set(self.seeds)) < len(self.seeds) or not self.seeds:
            raise ValueError(f"seeds must differ, and there must be one: {list(self.seeds)}")
        if not self.vary and len(self.seeds) == 1:
            raise ValueError("vary names no setting and seeds one seed, so there is nothing to compare; name some")
        if intervals := [path for path, varied in self.vary.items() if varied.values is None and self.method == "grid"]:
            raise ValueError(f"vary.{intervals[0]}: a grid needs a list of values; or set method: random")
        limits = self.budget.model_dump().values()
        if self.method == "random" and (not self.vary or all(limit is None for limit in limits)):
            raise ValueError("method random needs settings to draw and a budget, such as budget: {runs: 24}")
        return self


@dataclass(frozen=True)
class Planned:
    """A run of a sweep before it is trained.

    Attributes:
        number: Counted from 1, in the order in which runs begin.
        values: Dotted path -> value, of the settings that vary.
    """

    number: int
    values: Mapping[str, Any]
    seed: int

    @property
    def name(self) -> str:
        """Return '0007', the name of its directory."""
        return f"{self.number:04}"

    @property
    def sets(self) -> list[str]:
        """The values as --set takes them."""
        return [f"{path}={json.dumps(value)}" for path, value in self.values.items()]

    @property
    def combination(self) -> str:
        """Return 'network.learning_rate=0.001', secrets masked; empty where only seeds vary."""
        shown = (f"{path}={json.dumps(masked(path, value), ensure_ascii=False)}" for path, value in self.values.items())
        return printable(" ".join(shown))

    @property
    def words(self) -> str:
        """Return 'network.learning_rate=0.001 seed 2', secrets masked."""
        return f"{self.combination} seed {self.seed}".strip()


def every_run(sweep: Sweep) -> Iterator[Planned]:
    """Yield the runs in order, whatever the budget: each combination under every seed. Random may never end."""
    combinations = _grid(sweep, {}, [*sweep.vary]) if sweep.method == "grid" else _draws(sweep)
    pairs = ((values, seed) for values in combinations for seed in sweep.seeds)
    return (Planned(number, values, seed) for number, (values, seed) in enumerate(pairs, 1))


def planned_runs(sweep: Sweep) -> Iterator[Planned]:
    """Yield the first `budget.runs` runs, or all of them."""
    return islice(every_run(sweep), sweep.budget.runs)


def number_of_runs(sweep: Sweep) -> int | None:
    """Return the number of runs; None where only time or steps limit it.

    Raises:
        ConfigError: A grid has too many.
    """
    if sweep.method == "random":
        return sweep.budget.runs
    found = sum(1 for _ in islice(planned_runs(sweep), MOST_RUNS + 1))
    if found > MOST_RUNS:
        raise ConfigError(f"the grid has more than {MOST_RUNS:,} runs; set budget.runs, or method: random")
    return found


def _grid(sweep: Sweep, chosen: Mapping[str, Any], paths: list[str]) -> Iterator[Mapping[str, Any]]:
    if not paths:
        yield chosen
        return
    path, *rest = paths
    varied = sweep.vary[path]
    if not varied.applies(chosen):
        yield from _grid(sweep, chosen, rest)
        return
    for value in varied.values or ():
        yield from _grid(sweep, {**chosen, path: value}, rest)


def _draws(sweep: Sweep) -> Iterator[Mapping[str, Any]]:
    """Yield combinations, each once; end when `REPEATS` draws in a row were there already."""
    seen: set[str] = set()
    repeats = 0
    for index in count():
        # A generator of its own: another budget changes no combination.
        chance = random.Random(f"{sweep.draw_seed} {index}")
        drawn = {path: varied.draw(chance) for path, varied in sweep.vary.items()}  # a condition changes no other draw
        chosen = sweep.chosen(lambda path, _, drawn=drawn: drawn[path])  # type: ignore[misc]
        repeats = repeats + 1 if (key := json.dumps(chosen)) in seen else 0
        if repeats > REPEATS:
            return
        if not repeats:
            seen.add(key)
            yield chosen
