"""What every action distribution can do, in `keras.ops`; `networks/actions/specs.py` says what parameters mean.

Parameters are float32 [..., P] and finite, results are float32 [...] in nats. Numbers within one action are
independent, so that log-probabilities, entropies and divergences are sums over them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeAlias

from keras import ops, random

Tensor: TypeAlias = Any
"""An array or tensor of whichever backend Keras runs on."""

Seed: TypeAlias = random.SeedGenerator | int
"""A generator draws anew at every call; an int draws the same numbers at every call."""


class Distribution(ABC):
    """The distribution of one action, of any number of environments at once."""

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
        """The action to take when not exploring."""

    @abstractmethod
    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        """One action for each row of parameters; differentiable in them for both Gaussians, and for no other."""

    def sample_with_log_probability(self, parameters: Tensor, seed: Seed) -> tuple[Tensor, Tensor]:
        """As `sample`, and the log-probability of what was drawn."""
        actions = self.sample(parameters, seed)
        return actions, self.log_probability(parameters, actions)


def check_ranks(parameters: Tensor, actions: Tensor, action_axes: int) -> None:
    """Refuses actions that do not have the parameters' leading axes and `action_axes` of their own.

    Raises:
        ValueError: Another number of axes, which would broadcast to something meaningless.
    """
    expected = len(parameters.shape) - 1 + action_axes
    if len(actions.shape) != expected:
        raise ValueError(f"actions must have {expected} axes: {actions.shape} against parameters {parameters.shape}")


def total(terms: Iterable[Tensor]) -> Tensor:
    """Sum of at least one term."""
    return reduce(ops.add, terms)
