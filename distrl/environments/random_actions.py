"""Random actions of an environment, drawn from the allowed ones."""

from collections.abc import Mapping

import numpy as np

from distrl.config.action_masks import mask_of
from distrl.errors import ConfigError
from distrl.types import ActionSpec, Array, BoolArray, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec


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


def require_a_choice(spec: EnvSpec, mask: str | None, observations: Mapping[str, Array]) -> None:
    """Check that the environment allows a choice wherever one is due.

    Args:
        spec: The environment, as the policy sees it.
        mask: The observation that masks its only action; None: there is none.
        observations: Name -> [N, ...], without rows whose action is ignored.

    Raises:
        ConfigError: A mask forbids every choice; off is a choice of every switch.
    """
    if mask is None:
        return
    (action,) = spec.actions.values()  # as `check_mask` says
    allowed = observations[mask] != 0
    if isinstance(action, MultiBinarySpec):
        return
    sizes = action.choices if isinstance(action, MultiDiscreteSpec) else (allowed.shape[1],)
    for part in np.split(allowed, np.cumsum(sizes)[:-1], axis=1):
        if not part.any(axis=1).all():
            raise ConfigError(
                f"{spec.id}: observation {mask!r} forbids every choice while the episode goes on; allow one, or end "
                "the episode (terminated, or truncated) at the step that leads there"
            )


def random_actions(
    specs: Mapping[str, ActionSpec], count: int, rng: np.random.Generator, allowed: BoolArray | None = None
) -> dict[str, Array]:
    """Draw `random_action` for each of `count` environments; `allowed` is of the only action."""
    return {name: random_action(spec, count, rng, allowed) for name, spec in specs.items()}


def random_action(spec: ActionSpec, count: int, rng: np.random.Generator, allowed: BoolArray | None = None) -> Array:
    """Return [count, ...] as `ActionSpec.array`: uniform; standard normal where a number lacks a bound.

    Args:
        allowed: bool [count, n], False where a choice, or a switch that is on, is not allowed; None: all are. A row
            that allows no choice, such as the one after an episode's end, counts as one that allows all choices.
    """
    if isinstance(spec, DiscreteSpec):
        if allowed is not None:
            return _allowed_choices(allowed, rng)
        return rng.integers(spec.n, size=count, dtype=np.int32)
    if isinstance(spec, MultiDiscreteSpec):
        if allowed is not None:
            parts = np.split(allowed, np.cumsum(spec.choices)[:-1], axis=1)
            return np.stack([_allowed_choices(part, rng) for part in parts], axis=1)
        return rng.integers(spec.choices, size=(count, len(spec.choices)), dtype=np.int32)
    if isinstance(spec, MultiBinarySpec):
        switches = rng.integers(2, size=(count, spec.n), dtype=np.int32)
        return switches if allowed is None else np.where(allowed, switches, np.int32(0))
    low, high = np.array(spec.low, np.float64), np.array(spec.high, np.float64)  # None becomes NaN
    share = rng.random((count, spec.n))
    normal = np.fmin(np.fmax(rng.standard_normal((count, spec.n)), low), high)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (1.0 - share) * low + share * high, normal).astype(np.float32)


def _allowed_choices(allowed: BoolArray, rng: np.random.Generator) -> Array:
    """Return int32 [count], uniform among the True columns of each row."""
    drawn = rng.random(allowed.shape)
    chosen: Array = np.argmax(np.where(allowed, drawn + 1.0, drawn), axis=1).astype(np.int32)
    return chosen
