"""Hindsight experience replay: sampled transitions get a goal that was achieved (Andrychowicz et al. 2017).

Goals are exchanged in each sampled batch, and not in the memory. So every array stays there once, a transition gets
another goal each time it is sampled, and an item keeps its number and its priority. The random draws are those of the
memory's generator, whose state is saved with it.
"""

import numpy as np

from distrl.config.hindsight import ACHIEVED, DESIRED, HindsightParameters
from distrl.errors import ConfigError
from distrl.replay.goal_rewards import GoalReward, distances, goal_reward
from distrl.replay.ring import UnrollRing
from distrl.replay.sum_tree import Indices
from distrl.types import Array, ArraySpec, Batch, BoolArray, Form, IntArray, Unroll
from distrl.unroll_schema import UnrollSchema

FIRST, LAST = "episode_first", "episode_last"
"""Arrays of the ring, int32 [T, B]: first and last row of each row's episode within its unroll."""
PER_MILLE = 0.001
"""Share of steps that may contradict: goals travel as float32, so that a distance may fall on the other side of the
tolerance than it did in the environment."""
FEW = 3
"""Contradictions that are accepted in addition, so that one of the first steps is none too many."""
ENDS = 10
"""Terminations, all of them at the goal, after which it is clear that goals end episodes."""


def episode_bounds(terminated: BoolArray, truncated: BoolArray, valid: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the first and the last valid row of every row's episode within the unroll; undefined where not valid.

    Args:
        terminated, truncated, valid: bool [T, B].

    Returns:
        Two arrays int32 [T, B].
    """
    rows = np.arange(len(valid), dtype=np.int32)[:, None]
    ends = terminated | truncated
    ends[:-1] |= ~valid[1:]
    ends[-1] = True
    begins = np.ones_like(ends)
    begins[1:] = ends[:-1] | ~valid[:-1]
    first = np.maximum.accumulate(np.where(begins, rows, 0), axis=0)
    last = np.minimum.accumulate(np.where(ends, rows, len(valid))[::-1], axis=0)[::-1]
    return first.astype(np.int32), last.astype(np.int32)


def hindsight_forms(schema: UnrollSchema) -> dict[str, Form]:
    """Return the forms of the arrays that the ring keeps for `Hindsight`, by path."""
    return dict.fromkeys((FIRST, LAST), (np.dtype("int32"), (schema.unroll_length_steps, schema.environments)))


class Hindsight:
    """Gives a share ratio / (ratio + 1) of sampled transitions a goal that was achieved.

    A transition's new reward is that of the goal achieved after its step. Where goals end episodes, its new termination
    is whether that reaches the new goal; a termination for another reason stays.

    Args:
        schema: Schema of every unroll; its observations passed `check_goals`.
        goal: Spec of goals. Categories are compared and rewarded as the one-hot rows that networks meet.

    Raises:
        ConfigError: See `goal_reward`.
    """

    def __init__(self, parameters: HindsightParameters, schema: UnrollSchema, goal: ArraySpec) -> None:
        self._parameters = parameters
        self._shape = (schema.unroll_length_steps, schema.environments)
        self._path = f"observations/{[*schema.observations].index(ACHIEVED)}"
        self._share = parameters.ratio / (parameters.ratio + 1.0)
        self._reward = goal_reward(parameters)
        self._met = goal.expand
        self._check = GoalCheck(parameters, self._reward, goal)

    def arrays(self, unroll: Unroll) -> dict[str, Array]:
        """Return the arrays of `hindsight_forms`.

        Raises:
            ConfigError: The unroll's own rewards or terminations contradict the parameters.
        """
        self._check.compare(unroll)
        first, last = episode_bounds(unroll.terminated, unroll.truncated, unroll.valid)
        return {FIRST: first, LAST: last}

    def check(self, ring: UnrollRing, filled: int) -> None:
        """Raise ValueError if a bound of an episode in the first `filled` slots is none of a step within it."""
        rows = np.arange(self._shape[0])[:, None]
        valid, first, last = (ring.arrays[path][:filled] for path in ("valid", FIRST, LAST))
        if (valid & ((first < 0) | (first > rows) | (last < rows) | (last >= self._shape[0]))).any():
            raise ValueError("bounds of episodes lead out of their unroll")

    def relabel(
        self, batch: Batch, ring: UnrollRing, positions: Indices, filled: int, rng: np.random.Generator
    ) -> None:
        """Exchange goals in a batch of transitions in place.

        Args:
            batch: T = 1, of single steps; its arrays are fresh.
            positions: int64 [N], of the transitions: slot x (T x B) + row x B + environment.
            filled: Slots that hold an unroll, from 0 on.
        """
        at = np.flatnonzero(rng.random(len(positions)) < self._share)
        if not at.size:
            return
        goals = self._goals(ring, positions[at], filled, rng)
        achieved, desired = self._met(batch.observations[ACHIEVED][1, at]), batch.observations[DESIRED]
        wanted = self._met(goals)
        if self._parameters.terminates:
            otherwise = batch.terminated[0, at] & ~self._is_reached(achieved, self._met(desired[1, at]))
            batch.terminated[0, at] = otherwise | self._is_reached(achieved, wanted)
        desired[:, at] = goals
        batch.rewards[0, at] = self._reward(achieved, wanted)

    def _goals(self, ring: UnrollRing, positions: Indices, filled: int, rng: np.random.Generator) -> Array:
        """Return a goal for each of these transitions, [N, ...]; that of row t is achieved in row t + 1 or later."""
        slot, row, environment = self._places(positions)
        first, last = (ring.taken(path, slot, row, environment) for path in (FIRST, LAST))
        match self._parameters.strategy:
            case "final":
                step = last
            case "future":
                step = rng.integers(row, last, endpoint=True)
            case "episode":
                step = rng.integers(first, last, endpoint=True)
            case "random":
                slot, step, environment = self._places(self._any_steps(ring, len(positions), filled, rng))
        return ring.taken(self._path, slot, step + 1, environment)

    def _any_steps(self, ring: UnrollRing, count: int, filled: int, rng: np.random.Generator) -> Indices:
        valid, places = ring.arrays["valid"].reshape(-1), filled * self._shape[0] * self._shape[1]
        positions = rng.integers(places, size=count)
        while (absent := np.flatnonzero(~valid[positions])).size:
            positions[absent] = rng.integers(places, size=absent.size)
        return positions

    def _places(self, positions: Indices) -> tuple[Indices, Indices, Indices]:
        """Return slots, rows and environments."""
        rows, environment = np.divmod(positions, self._shape[1])
        slot, row = np.divmod(rows, self._shape[0])
        return slot, row, environment

    def _is_reached(self, achieved: Array, desired: Array) -> BoolArray:
        reached: BoolArray = distances(achieved, desired) <= self._parameters.tolerance
        return reached


class GoalCheck:
    """Compares the environment's own rewards and terminations with those of the parameters, on all inserted steps."""

    def __init__(self, parameters: HindsightParameters, reward: GoalReward, goal: ArraySpec) -> None:
        self._parameters = parameters
        self._reward = reward
        self._met = goal.expand
        self._steps = self._odd_rewards = self._odd_ends = 0
        self._ends_at_goals = self._ends_elsewhere = 0

    def compare(self, unroll: Unroll) -> None:
        """Count contradictions.

        Raises:
            ConfigError: There are more than rounding explains.
        """
        valid = unroll.valid
        achieved, desired = (self._met(unroll.observations[name][1:][valid]) for name in (ACHIEVED, DESIRED))
        if not len(achieved):
            return
        self._steps += len(achieved)
        apart = distances(achieved, desired)
        self._compare_rewards(
            unroll.rewards[valid], self._reward(achieved, desired), apart, _largest(achieved, desired)
        )
        reached = apart <= self._parameters.tolerance
        self._compare_ends(reached, unroll.terminated[valid], unroll.truncated[valid])

    def _compare_rewards(self, paid: Array, computed: Array, apart: Array, largest: float) -> None:
        odd = ~np.isclose(computed, paid, rtol=1e-4, atol=1e-5 * (1.0 + largest))
        self._odd_rewards += int(np.count_nonzero(odd))
        if self._is_rounding(self._odd_rewards) or not odd.any():
            return
        one = int(np.flatnonzero(odd)[0])
        raise ConfigError(
            f"algorithm.replay.hindsight.reward: kind {self._parameters.reward.kind} makes {computed[one]:g} of a step "
            f"for which the environment pays {paid[one]:g}, {apart[one]:.3g} from its goal; {self._odd_rewards} of "
            f"{self._steps} steps differ: set reward and tolerance ({self._parameters.tolerance:g}) as its "
            "compute_reward has them, or hindsight to null"
        )

    def _compare_ends(self, reached: BoolArray, terminated: BoolArray, truncated: BoolArray) -> None:
        if self._parameters.terminates:
            self._odd_ends += int(np.count_nonzero(reached & ~terminated & ~truncated))
            if not self._is_rounding(self._odd_ends):
                raise ConfigError(
                    f"algorithm.replay.hindsight.terminates: true, and {self._odd_ends} steps reached their goal "
                    "without the end of the episode; set it to false"
                )
            return
        self._ends_at_goals += int(np.count_nonzero(reached & terminated))
        self._ends_elsewhere += int(np.count_nonzero(reached != terminated))
        if self._ends_at_goals >= ENDS and not self._ends_elsewhere:
            raise ConfigError(
                f"algorithm.replay.hindsight.terminates: false, and the environment ends episodes at their goal, "
                f"{self._ends_at_goals} so far and none elsewhere; set it to true"
            )

    def _is_rounding(self, contradictions: int) -> bool:
        return contradictions <= FEW + PER_MILLE * self._steps


def _largest(*arrays: Array) -> float:
    return max(float(np.abs(array.astype(np.float64)).max()) for array in arrays)
