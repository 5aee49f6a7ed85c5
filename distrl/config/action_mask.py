"""The observation that says which choices of an action are allowed."""

from distrl.errors import ConfigError
from distrl.types import ActionSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

NAME = "action_mask"
"""An observation of this name, at any depth, is the mask of random actions where the configuration names none."""


def check_mask(mask: str, spec: EnvSpec) -> None:
    """Check that the observation `mask` holds one number for every choice of the environment's only action.

    Raises:
        ConfigError: It does not; the message says why.
    """
    if mask not in spec.observations:
        raise ConfigError(f"action_mask: no observation {mask!r}; there are {', '.join(spec.observations)}")
    sizes = [_choices(action) for action in spec.actions.values()]
    if len(sizes) != 1 or sizes[0] is None:
        kinds = ", ".join(action.kind for action in spec.actions.values())
        raise ConfigError(f"action_mask: needs one action of choices or switches; {spec.id} has {kinds}")
    shape = spec.observations[mask].shape
    if shape != (sizes[0],):
        raise ConfigError(
            f"action_mask: observation {mask!r} must be [{sizes[0]}], one for each choice, not {list(shape)}"
        )


def mask_of(spec: EnvSpec, configured: str | None) -> str | None:
    """Return the name of the observation that masks the action, or None.

    Args:
        configured: What `network.heads_parameters` names; None: the observation called `action_mask` if it fits.

    Raises:
        ConfigError: The configured one does not fit the environment.
    """
    if configured is not None:
        check_mask(configured, spec)
        return configured
    found = [name for name in spec.observations if name.rpartition("/")[2] == NAME]
    if len(found) != 1:
        return None
    try:
        check_mask(found[0], spec)
    except ConfigError:
        return None
    return found[0]


def _choices(action: ActionSpec) -> int | None:
    """Numbers that a mask has for the action; None for real numbers, which have no mask."""
    match action:
        case DiscreteSpec() | MultiBinarySpec():
            return action.n
        case MultiDiscreteSpec():
            return sum(action.choices)
    return None
