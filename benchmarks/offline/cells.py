"""The cells of the table: recordings, trainings of both libraries, and their order."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

SEEDS = (0, 1, 2)
RETURNS = {
    "Hopper-v5": (-20.272305, 3234.3),
    "HalfCheetah-v5": (-280.178953, 12135.0),
    "Walker2d-v5": (1.629008, 4592.3),
}
"""Environment -> D4RL's mean returns of random actions and of an expert (`d4rl/infos.py`), of the v2 environments."""
SETS = ("medium-replay", "medium", "random", "medium-expert")
LIBRARIES = ("distrl", "d3rlpy")
QUICK, SLOW = ("td3_bc", "iql", "bc"), ("cql",)
"""CQL comes last: it samples actions for every update, and is by far the slowest."""


@dataclass(frozen=True)
class Cell:
    """One measurement, with a JSON of its own.

    Attributes:
        kind: sac: train SAC until it is medium, and record that; expert: go on; record: record a policy; offline: learn
            from a set; online: SAC after IQL.
        data: Name of the recorded set.
    """

    kind: Literal["sac", "expert", "record", "offline", "online"]
    environment: str
    data: str = ""
    algorithm: str = ""
    library: str = ""
    seed: int | None = None

    @property
    def name(self) -> str:
        """Return 'offline-hopper-medium-iql-distrl-0'."""
        seed = "" if self.seed is None else str(self.seed)
        parts = (self.kind, task(self.environment), self.data, self.algorithm, self.library, seed)
        return "-".join(part for part in parts if part)


def task(environment: str) -> str:
    """Return 'hopper' for Hopper-v5."""
    return environment.partition("-")[0].lower()


def all_cells(environments: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Return all cells in the order of measurement: one environment after the other, useful tables first.

    The first seed's quick algorithms learn from each set as soon as it is there, by both libraries in turns. Then come
    the other seeds, and CQL.
    """
    return [cell for environment in environments for cell in _of(environment, seeds)]


def _of(environment: str, seeds: Sequence[int]) -> Iterator[Cell]:
    online = [Cell("online", environment, "medium-replay", "sac", "distrl", seed) for seed in seeds]
    yield Cell("sac", environment)
    yield from _offline(environment, ("medium-replay",), QUICK, seeds[:1])
    yield Cell("record", environment, "medium")
    yield from _offline(environment, ("medium",), QUICK, seeds[:1])
    yield from online[:1]
    yield Cell("record", environment, "random")
    yield from _offline(environment, ("random",), QUICK, seeds[:1])
    yield Cell("expert", environment)
    yield Cell("record", environment, "expert")
    yield from _offline(environment, ("medium-expert",), QUICK, seeds[:1])
    yield from _offline(environment, SETS, QUICK, seeds[1:])
    yield from online[1:]
    yield from _offline(environment, SETS, SLOW, seeds)


def _offline(environment: str, sets: Sequence[str], algorithms: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    for seed, data, algorithm, library in product(seeds, sets, algorithms, LIBRARIES):
        yield Cell("offline", environment, data, algorithm, library, seed)


def missing(cells: Sequence[Cell], done: Collection[str]) -> list[Cell]:
    """Return the cells that are not among these names."""
    return [cell for cell in cells if cell.name not in done]


def remaining_s(todo: Sequence[Cell], done: Sequence[Mapping[str, Any]]) -> float | None:
    """Estimate the seconds left from finished cells of the same algorithm and library, else of the same kind.

    Returns:
        None: a kind has no finished cell yet.
    """
    total = 0.0
    for cell in todo:
        of_kind = [entry for entry in done if entry["kind"] == cell.kind]
        alike = [entry for entry in of_kind if (entry["algorithm"], entry["library"]) == (cell.algorithm, cell.library)]
        walls = [entry["wall_s"] for entry in alike or of_kind]
        if not walls:
            return None
        total += sum(walls) / len(walls)
    return total


def normalised(environment: str, mean_return: float) -> float:
    """Return D4RL's score: 0 is the mean return of random actions, 100 that of its expert (arXiv:2004.07219)."""
    random, expert = RETURNS[environment]
    return 100.0 * (mean_return - random) / (expert - random)
