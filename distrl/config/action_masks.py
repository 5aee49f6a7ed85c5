"""Observations that mask actions."""

from distrl.config.algorithms import ExternalAlgorithmParameters
from distrl.config.run import RunConfig
from distrl.errors import ConfigError
from distrl.types import ActionSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

MASK = "action_mask"
"""An observation of this name, at any depth, masks random actions where the configuration names no mask."""


def unused_mask_note(config: RunConfig, spec: EnvSpec) -> str | None:
    """Return a warning if the environment seems to show a mask that no head uses, else None."""
    algorithm = config.algorithm
    # A class of the user's own that declares no such head may name the mask itself.
    own = isinstance(algorithm, ExternalAlgorithmParameters) and algorithm.masked_head is None
    found = None if own or config.network.action_mask is not None else mask_of(spec, None)
    if found is None:
        return None
    what = f"observation {found!r} looks like an action mask, which algorithm {algorithm.name}"
    if algorithm.masked_head is None:
        return f"{what} cannot use: its policy may take forbidden choices; use impala, ppo or dqn"
    heads = f"network.heads_parameters=[{{kind: {algorithm.masked_head}, action_mask: {found}}}]"
    return f"{what} does not use: its policy may take forbidden choices; set {heads}"


def check_mask(mask: str, spec: EnvSpec) -> None:
    """Check that the observation `mask` holds one number for every choice of the environment's only action."""
    if mask not in spec.observations:
        raise ConfigError(f"action_mask: no observation {mask!r}; there are {', '.join(spec.observations)}")
    sizes = [_choices(action) for action in spec.actions.values()]
    if len(sizes) != 1 or sizes[0] is None:
        kinds = ", ".join(action.kind for action in spec.actions.values())
        raise ConfigError(f"action_mask: needs one action of choices or switches; {spec.id} has {kinds}")
    if spec.observations[mask].one_hot is not None:
        raise ConfigError(f"action_mask: observation {mask!r} is of categories; declare it as a MultiBinary")
    shape = spec.observations[mask].shape
    if shape != (sizes[0],):
        raise ConfigError(
            f"action_mask: observation {mask!r} must be [{sizes[0]}], one for each choice, not {list(shape)}"
        )


def mask_of(spec: EnvSpec, configured: str | None) -> str | None:
    """Return the name of the observation that masks the action, or None.

    Args:
        configured: The name in `network.heads_parameters`; None: the observation called `action_mask` if it fits.
    """
    if configured is not None:
        check_mask(configured, spec)
        return configured
    found = [name for name in spec.observations if name.rpartition("/")[2] == MASK]
    if len(found) != 1:
        return None
    try:
        check_mask(found[0], spec)
    except ConfigError:
        return None
    return found[0]


def _choices(action: ActionSpec) -> int | None:
    """Return the size of the action's mask; None for real numbers, which have no mask."""
    match action:
        case DiscreteSpec() | MultiBinarySpec():
            return action.n
        case MultiDiscreteSpec():
            return sum(action.choices)
    return None
