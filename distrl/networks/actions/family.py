"""Base classes of all families of actions: specification, sampler in NumPy and distribution in `keras.ops`.

A policy puts out one flat float32 array [..., P] per action, named by `policy_output`. The table in
`networks/actions/__init__.py` says what the numbers mean. The learner reads them by the family's `Distribution`, the
actor by its `ActionSampler`; tests hold the two together. Both stand in the family's file, although actors never import
Keras: `ops` and `random` import it when a distribution first computes something.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from distrl.types import ActionSpec, Array, FloatArray

Tensor: TypeAlias = Any
"""An array or tensor of whichever backend Keras runs on."""

Seed: TypeAlias = Any
"""A `keras.random.SeedGenerator`, which draws anew at every call, or an int, which draws the same at every call."""

MASKED = 1e9
"""Lowers the logit of a choice that is not allowed: its probability is exactly 0, and all gradients stay finite."""
UNIT_EDGE = 2.0**-20
"""A bounded action that is drawn is kept this far inside its bounds, as a fraction of their width: its log-probability
is finite, and equal on both sides, however saturated the policy is. tanh u comes within 1.9e-6 of ±1 (|u| <= 6.93)."""
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class ActionSampler(Protocol):
    """How an actor takes one action, given its parameters, float32 [B, P].

    A log-probability is that of the action as it travels, rounded and clipped: the learner sees nothing else.
    """

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        """Actions [B, ...], and their log-probabilities, float32 [B]."""

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        """Log-probabilities of any actions [B, ...] in range; float32 [B]."""

    def mode(self, parameters: FloatArray) -> Array:
        """The actions to take without exploration, [B, ...]."""


class ModeSampler(ABC):
    """Takes the mode and draws nothing: the sampler of families without a distribution."""

    @abstractmethod
    def mode(self, parameters: FloatArray) -> Array:
        """See `ActionSampler.mode`."""

    def sample(self, parameters: FloatArray, rng: np.random.Generator) -> tuple[Array, FloatArray]:
        return self.mode(parameters), np.zeros(len(parameters), np.float32)

    def log_probability(self, parameters: FloatArray, actions: Array) -> FloatArray:
        taken = (actions == self.mode(parameters)).reshape(len(actions), -1).all(axis=1)
        return np.where(taken, np.float32(0.0), np.float32(-np.inf))


class Distribution(ABC):
    """The distribution of one action, of any number of environments at once.

    Parameters are float32 [..., P] and finite, results are float32 [...] in nats. Numbers within one action are
    independent, so that log-probabilities, entropies and divergences are sums over them.
    """

    @abstractmethod
    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """Log-probability, or log-density in the environment's scale, of actions.

        Raises:
            ValueError: `parameters` and `actions` do not have ranks that belong together.
        """

    @abstractmethod
    def entropy(self, parameters: Tensor) -> Tensor:
        """Shannon entropy; differential, and possibly negative, where the action is continuous."""

    @abstractmethod
    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        """Kullback-Leibler divergence KL(p || q), the expectation taken under p."""

    @abstractmethod
    def mode(self, parameters: Tensor) -> Tensor:
        """The action to take without exploration."""

    @abstractmethod
    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        """One action for each row of parameters; differentiable in them for both Gaussians, and for no other."""

    def sample_with_log_probability(self, parameters: Tensor, seed: Seed) -> tuple[Tensor, Tensor]:
        """Actions as of `sample`, and their log-probabilities."""
        actions = self.sample(parameters, seed)
        return actions, self.log_probability(parameters, actions)


class ActionFamily(ABC):
    """One action's specification: a frozen dataclass of plain numbers, which policy bundles hold as JSON.

    Attributes:
        kind: Names the family in JSON.
        edge: How far inside the bounds actions are kept, as a fraction of their width.
        is_one_choice: The parameters are one number for each of n choices.
        is_tempered: The parameters are logits, which a softmax temperature divides.
        log_sigma: The usual source of a Gaussian's log deviation, the second half of the parameters; None: there is
            none.
    """

    kind: str
    edge: ClassVar[float] = 0.0
    is_one_choice: ClassVar[bool] = False
    is_tempered: ClassVar[bool] = False
    log_sigma: ClassVar[Literal["state_independent", "state_dependent"] | None] = None

    @property
    def may_be_masked(self) -> bool:
        """Whether a number below ``-MASKED / 2`` stands for a choice that is not allowed."""
        return True

    @property
    @abstractmethod
    def parameters_size(self) -> int:
        """P."""

    @abstractmethod
    def fits(self, action: ActionSpec) -> bool:
        """Whether the environment takes such actions."""

    @abstractmethod
    def sampler(self) -> ActionSampler:
        """How actors take the action."""

    @abstractmethod
    def distribution(self) -> Distribution:
        """How the learner computes with it."""

    def output_of(self, action: str, head: str = "policy") -> str:
        """Name of the network's output that holds the parameters."""
        return policy_output(action, head)

    def as_logits(self) -> "ActionFamily":
        """The family of the same choices whose parameters are logits."""
        return self


class UndrawnFamily(ActionFamily):
    """A family without a distribution: exploration alone makes its actions random.

    Attributes:
        output: The network's output that holds the parameters.
        holds: Noun phrase for these, in messages.
        explored_by: Kinds of exploration that fit, in messages.
    """

    output: str
    holds: ClassVar[str]
    explored_by: ClassVar[str]

    def distribution(self) -> Distribution:
        """Raise ValueError: there is none."""
        raise ValueError(f"output {self.output} holds {self.holds}, which no distribution is made of")

    def output_of(self, action: str, head: str = "policy") -> str:
        return self.output


def policy_output(action: str, head: str = "policy") -> str:
    """Name of the network's output that holds the parameters of this action's distribution."""
    return f"{head}/{action}"


def slices(sizes: Sequence[int]) -> tuple[slice, ...]:
    """Where each part lies among all of them, given how many numbers each part has."""
    stops = np.cumsum(sizes).tolist()
    return tuple(slice(stop - n, stop) for stop, n in zip(stops, sizes, strict=True))


def check_ranks(parameters: Tensor, actions: Tensor, action_axes: int) -> None:
    """Refuse actions that do not have the parameters' leading axes and `action_axes` of their own.

    Raises:
        ValueError: Another number of axes, which would broadcast to something meaningless.
    """
    expected = len(parameters.shape) - 1 + action_axes
    if len(actions.shape) != expected:
        raise ValueError(f"actions must have {expected} axes: {actions.shape} against parameters {parameters.shape}")


def total(terms: Iterable[Tensor]) -> Tensor:
    """Sum of at least one term."""
    return reduce(ops.add, terms)


class _Lazy:
    """A module that is imported when the first of its names is used."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)


ops: Any = _Lazy(lambda: import_module("keras.ops"))
random: Any = _Lazy(lambda: import_module("keras.random"))
