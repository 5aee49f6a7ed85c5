"""Actions in a unit of their own: what networks see that take them as an input."""

from dataclasses import dataclass

import numpy as np

from distrl.config.environment_checks import check_bounded
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.networks.assembly import action_input
from distrl.types import BoxSpec, EnvSpec, FloatArray


@dataclass(frozen=True)
class ActionScale:
    """From the environment's scale of one action to [-1, 1]: float32 [n] each."""

    middle: FloatArray
    half_width: FloatArray

    def __call__(self, actions: Tensor) -> Tensor:
        """float32 [..., n] -> the same shape."""
        return (actions - self.middle) / self.half_width


def action_scales(spec: EnvSpec, algorithm: str) -> dict[str, ActionScale]:
    """Of every action of the environment, for an algorithm that takes bounded continuous ones alone.

    Args:
        algorithm: Its name.

    Raises:
        ConfigError: One is not continuous within bounds that have room between them, or an observation has its name.
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
                f"{what} has bounds without room between them; take such actions out of the environment's space"
            )
        scales[name] = ActionScale((0.5 * (low + high)).astype(np.float32), (0.5 * (high - low)).astype(np.float32))
    return scales
