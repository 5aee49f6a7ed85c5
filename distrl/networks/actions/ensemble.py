"""The family of an ensemble's values: every member values n choices, and together they decide."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from distrl.networks.actions.categorical import greedy
from distrl.networks.actions.family import ActionSampler, ModeSampler, UndrawnFamily
from distrl.networks.actions.values import ValuesSpec
from distrl.types import ActionSpec, Array, DiscreteSpec, FloatArray, IntArray

Decides = Literal["vote", "mean"]


@dataclass(frozen=True)
class EnsembleSpec(UndrawnFamily):
    """Values of n choices by each of several members; `masked` as in `ValuesSpec`.

    Attributes:
        decides: How they choose without exploration. vote: the choice that most members value highest; mean: the one
            with the greatest mean value. The first of equals.
    """

    n: int
    members: int
    output: str
    decides: Decides = "vote"
    masked: bool = False
    kind: Literal["ensemble"] = "ensemble"
    is_one_choice: ClassVar[bool] = True
    holds: ClassVar[str] = "values of an ensemble"
    explored_by: ClassVar[str] = "member or ucb"

    @property
    def may_be_masked(self) -> bool:
        return self.masked

    @property
    def parameters_size(self) -> int:
        return self.members * self.n

    @property
    def one(self) -> ValuesSpec:
        """The values of one member, or those that members are reduced to."""
        return ValuesSpec(self.n, self.output, self.masked)

    def fits(self, action: ActionSpec) -> bool:
        return isinstance(action, DiscreteSpec) and self.n == action.n

    def sampler(self) -> ActionSampler:
        return EnsembleSampler(self)

    def of_members(self, parameters: FloatArray) -> FloatArray:
        """Return the values of each member, float32 [B, P] -> [B, K, n]."""
        return parameters.reshape(len(parameters), self.members, self.n)


class EnsembleSampler(ModeSampler):
    """The choice that the members agree on."""

    def __init__(self, spec: EnsembleSpec) -> None:
        self._spec = spec

    def mode(self, parameters: FloatArray) -> Array:
        values = self._spec.of_members(parameters)
        return greedy(mean_values(values) if self._spec.decides == "mean" else votes(values))


def votes(values: FloatArray) -> FloatArray:
    """Return for how many members each choice is the best, the first of equals.

    Args:
        values: float32 [B, K, n].

    Returns:
        float32 [B, n].
    """
    best: IntArray = values.argmax(axis=2)
    counts: FloatArray = (best[..., np.newaxis] == np.arange(values.shape[2])).sum(axis=1).astype(np.float32)
    return counts


def mean_values(values: FloatArray) -> FloatArray:
    """Return the members' mean, float32 [B, K, n] -> [B, n]."""
    mean: FloatArray = values.mean(axis=1)
    return mean


def upper_bounds(values: FloatArray, deviations: float) -> FloatArray:
    """Return mean + deviations x deviation over the members (Chen et al. 2017, arXiv:1706.01502, algorithm 2).

    The deviation is the population's.

    Args:
        values: float32 [B, K, n].

    Returns:
        float32 [B, n].
    """
    bounds: FloatArray = values.mean(axis=1) + np.float32(deviations) * values.std(axis=1)
    return bounds
