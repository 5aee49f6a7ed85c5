"""Scales of actions, for networks that take actions as an input."""

from dataclasses import dataclass

import numpy as np

from distrl.config.environment_checks import check_bounded
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.networks.assembly import action_input
from distrl.types import BoxSpec, EnvSpec, FloatArray


@dataclass(frozen=True)
class ActionScale:
    """Maps one action from the environment's scale to [-1, 1]; both arrays are float32 [n]."""

    middle: FloatArray
    half_width: FloatArray

    def __call__(self, actions: Tensor) -> Tensor:
        """Scale actions, float32 [..., n]."""
        return (actions - self.middle) / self.half_width


def action_scales(spec: EnvSpec, algorithm: str) -> dict[str, ActionScale]:
    """Return the scale of every action, for an algorithm that takes only bounded continuous actions.

    Raises:
        ConfigError: An action is not continuous, has no bounds or equal ones, or has the name of an observation.
    """
    check_bounded(spec, algorithm)
    scales = {}
    for name, action in spec.actions.items():
        assert isinstance(action, BoxSpec)
        what = f"algorithm {algorithm}: action {name!r} of {spec.id}"
        if action_input(name) in spec.observations:
            raise ConfigError(f"{what} and an observation are both called {action_input(name)!r}; rename one of them")
        low, high = np.array(action.low, np.float64), np.array(action.high, np.float64)
        if not (low < high).all():
            raise ConfigError(
                f"{what} has equal lower and upper bounds; remove such actions from the environment's space"
            )
        scales[name] = ActionScale((0.5 * (low + high)).astype(np.float32), (0.5 * (high - low)).astype(np.float32))
    return scales
