"""The policy that is evaluated: the probabilities of actions under it, and the actions that it takes."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from distrl.actors.acting import Acting
from distrl.config.action_masks import mask_of
from distrl.data.episodes import DataError
from distrl.data.off_policy.estimators import Counts, Numbers
from distrl.data.recording import uniform_log_probability
from distrl.environments.random_actions import random_actions
from distrl.networks.actions.family import UndrawnFamily
from distrl.networks.actions.joint import ActionSelector
from distrl.types import (
    ActionSpec,
    Array,
    BoolArray,
    BoxSpec,
    DiscreteSpec,
    FloatArray,
    MultiBinarySpec,
    MultiDiscreteSpec,
)

MOST_CHOICES = 64
"""Joint actions that are enumerated; of more, and of real numbers, `DRAWS` are drawn at each observation."""
DRAWS = 8
_TOGETHER = 8_192


def sizes(specs: Mapping[str, ActionSpec]) -> tuple[int, ...] | None:
    """Return the number of choices for each number of an action, of all actions in turn; None: one is real."""
    found: list[int] = []
    for spec in specs.values():
        match spec:
            case DiscreteSpec():
                found.append(spec.n)
            case MultiDiscreteSpec():
                found += spec.choices
            case MultiBinarySpec():
                found += [2] * spec.n
            case BoxSpec():
                return None
    return tuple(found)


def columns(specs: Mapping[str, ActionSpec], actions: Mapping[str, Array]) -> Array:
    """Return actions, name -> [N, ...], as rows [N, k], in the order of `sizes`."""
    return np.concatenate([np.reshape(actions[name], (len(actions[name]), -1)) for name in specs], axis=1)


class Choices:
    """All joint actions of an environment whose actions are few choices, numbered from 0.

    Attributes:
        count: A.
    """

    def __init__(self, specs: Mapping[str, ActionSpec]) -> None:
        found = sizes(specs)
        assert found is not None, "real numbers are not enumerated"
        self._specs, self._sizes, self.count = specs, found, math.prod(found)

    @classmethod
    def of(cls, specs: Mapping[str, ActionSpec]) -> "Choices | None":
        """Return the choices; None: there are more than `MOST_CHOICES`, or real numbers."""
        found = sizes(specs)
        return cls(specs) if found is not None and math.prod(found) <= MOST_CHOICES else None

    def numbers(self, actions: Mapping[str, Array]) -> Counts:
        """Return the numbers of actions, name -> [N, ...], as int64 [N]."""
        found: Counts = np.ravel_multi_index(tuple(columns(self._specs, actions).T), self._sizes).astype(np.int64)
        return found

    def actions(self) -> dict[str, Array]:
        """Return all of them, name -> [A, ...]."""
        rows = np.stack(np.unravel_index(np.arange(self.count), self._sizes), axis=1).astype(np.int32)
        found, begin = {}, 0
        for name, spec in self._specs.items():
            width = math.prod(spec.array.shape)
            found[name] = rows[:, begin : begin + width].reshape(self.count, *spec.array.shape)
            begin += width
        return found


class Target:
    """A policy, with random actions in a share `epsilon` of the steps.

    Args:
        mask: As `network.action_mask` of the run.
        greedy: Take the best actions, and draw none of the distribution.

    Attributes:
        specs: The environment's actions.
        mask: The observation that is 0 where a choice is not allowed; None: every choice is.
        text: How it chooses, in words.
        has_probabilities: Whether its actions have any: not the real numbers of a deterministic policy.

    Raises:
        DataError: Random actions of the environment have no probability.
    """

    def __init__(self, policy: Acting, epsilon: float, mask: str | None, *, greedy: bool = False) -> None:
        self.specs, self._epsilon = policy.spec.actions, epsilon
        self._selector = ActionSelector(policy.distributions)
        self.mask = mask_of(policy.spec, mask)
        undrawn = {name for name, family in policy.distributions.items() if greedy or isinstance(family, UndrawnFamily)}
        self._is_greedy = len(undrawn) == len(self.specs)
        self.has_probabilities = not any(isinstance(self.specs[name], BoxSpec) for name in undrawn)
        self.text = "takes its best action" if self._is_greedy else "draws from its distribution"
        if epsilon:
            self.text += f", or a random one with probability {epsilon:g}"
            self._check_random()

    def _check_random(self) -> None:
        (first, *more) = self.specs.values()
        if self.mask is not None and (more or not isinstance(first, DiscreteSpec)):
            raise DataError(f"epsilon {self._epsilon:g}: with an action mask it goes with one choice; set it to 0")
        if uniform_log_probability(self.specs) is None:
            raise DataError(
                f"epsilon {self._epsilon:g}: random actions without bounds have no probability; set it to 0"
            )

    def log_probabilities(
        self, outputs: Mapping[str, FloatArray], actions: Mapping[str, Array], allowed: BoolArray | None
    ) -> Numbers:
        """Return log π(a | o), float64 [N].

        Args:
            outputs: The policy's, name -> [N, P].
            actions: name -> [N, ...].
            allowed: bool [N, A] of the mask; None: every choice is.
        """
        own = self._own_log_probabilities(outputs, actions)
        if not self._epsilon:
            return own
        uniform = np.full(len(own), uniform_log_probability(self.specs))
        if allowed is not None:
            (name,) = self.specs
            free = allowed | ~allowed.any(axis=1, keepdims=True)
            taken = np.take_along_axis(free, actions[name][:, None].astype(np.int64), axis=1)[:, 0]
            uniform = np.where(taken, -np.log(free.sum(axis=1)), -np.inf)
        mixed: Numbers = np.logaddexp(
            np.log1p(-self._epsilon) + own if self._epsilon < 1 else -np.inf, uniform + np.log(self._epsilon)
        )
        return mixed

    def _own_log_probabilities(self, outputs: Mapping[str, FloatArray], actions: Mapping[str, Array]) -> Numbers:
        if not self._is_greedy:
            return self._selector.log_probability(outputs, actions).astype(np.float64)
        best = self._selector.mode(outputs)
        is_best = columns(self.specs, actions) == columns(self.specs, best)
        return np.where(is_best.all(axis=1), 0.0, -np.inf)

    def probabilities(self, outputs: Mapping[str, FloatArray], choices: Choices, allowed: BoolArray | None) -> Numbers:
        """Return π of all choices at each of M observations, float64 [M, A]; arguments as `log_probabilities`."""
        all_of_them, count = choices.actions(), choices.count

        def repeated(rows: Array) -> Array:
            return np.repeat(rows, count, axis=0)

        found = []
        for part in _parts(outputs):
            here = {name: repeated(rows[part]) for name, rows in outputs.items()}
            rows = len(next(iter(here.values()))) // count
            actions = {name: np.concatenate([each] * rows) for name, each in all_of_them.items()}
            mask = None if allowed is None else repeated(allowed[part])
            found.append(np.exp(self.log_probabilities(here, actions, mask)).reshape(rows, count))
        return np.concatenate(found)

    def draws(
        self, outputs: Mapping[str, FloatArray], allowed: BoolArray | None, rng: np.random.Generator
    ) -> Iterator[dict[str, Array]]:
        """Yield the policy's actions at each of M observations, name -> [M, ...], equally likely; one if no other."""
        for _ in range(1 if self._is_greedy and not self._epsilon else DRAWS):
            actions = self._selector.mode(outputs) if self._is_greedy else self._selector.sample(outputs, rng)[0]
            if self._epsilon:
                count = len(next(iter(outputs.values())))
                explored = rng.random(count) < self._epsilon
                for name, drawn in random_actions(self.specs, count, rng, allowed).items():
                    actions[name] = actions[name].copy()
                    actions[name][explored] = drawn[explored]
            yield actions


def _parts(outputs: Mapping[str, FloatArray]) -> Iterator[slice]:
    count = len(next(iter(outputs.values())))
    return (slice(begin, begin + _TOGETHER) for begin in range(0, count, _TOGETHER))
