"""Random actions of an environment, drawn from the allowed ones."""

from collections.abc import Mapping

import numpy as np

from distrl.config.environment_checks import mask_of
from distrl.environments.spaces import random_actions
from distrl.types import Array, EnvSpec


class RandomActions:
    """Uniformly random actions; standard normal where a number lacks a bound.

    Attributes:
        mask: The observation that is 0 where a choice is not allowed; None: every choice is.

    Args:
        spec: The environment, as the policy sees it.
        rng: Advanced by every call.
        mask: As `network.heads_parameters` names it; None: an observation called `action_mask`, if there is one.

    Raises:
        ConfigError: The mask does not fit the action.
    """

    def __init__(self, spec: EnvSpec, rng: np.random.Generator, mask: str | None = None) -> None:
        self.mask = mask_of(spec, mask)
        self._specs = spec.actions
        self._rng = rng

    def __call__(self, observations: Mapping[str, Array]) -> dict[str, Array]:
        """Return actions, name -> [B, ...] as `ActionSpec.array` says, for observations name -> [B, ...]."""
        rows = len(next(iter(observations.values())))
        allowed = None if self.mask is None else observations[self.mask] != 0
        return random_actions(self._specs, rows, self._rng, allowed)
