"""Checks of a configuration against the environment's spec: actions, memory and action masks."""

from distrl.config.algorithms import ExternalAlgorithmParameters, OffPolicySection, ProximalSection, QLearningSection
from distrl.config.run import RunConfig
from distrl.errors import ConfigError
from distrl.types import ActionSpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

MASK = "action_mask"
"""An observation of this name, at any depth, masks random actions where the configuration names no mask."""


def check_fit(config: RunConfig, spec: EnvSpec) -> None:
    """Refuse before the launch what the learner would refuse after it."""
    algorithm = config.algorithm
    if isinstance(algorithm, OffPolicySection):
        check_bounded(spec, algorithm.name)
    if isinstance(algorithm, QLearningSection):
        check_choices(spec, algorithm.name)
    if config.network.has_memory:
        check_memory(config)


def unused_mask_note(config: RunConfig, spec: EnvSpec) -> str | None:
    """Return a warning if the environment seems to show a mask that no head uses, else None."""
    own = isinstance(config.algorithm, ExternalAlgorithmParameters)  # its class may name the mask
    found = None if own or config.network.action_mask is not None else mask_of(spec, None)
    if found is None:
        return None
    what = f"observation {found!r} looks like an action mask, which algorithm {config.algorithm.name}"
    if isinstance(config.algorithm, QLearningSection):
        return f"{what} does not take: its policy may choose what is forbidden; use impala or ppo"
    kind = "ppo" if isinstance(config.algorithm, ProximalSection) else "policy"
    heads = f"network.heads_parameters=[{{kind: {kind}, action_mask: {found}}}]"
    return f"{what} is not told of: its policy may choose what is forbidden; set {heads}"


def check_bounded(spec: EnvSpec, algorithm: str) -> None:
    """Check that every action is real numbers within bounds."""
    for name, action in spec.actions.items():
        what = f"algorithm {algorithm}: action {name!r} of {spec.id}"
        if not isinstance(action, BoxSpec):
            raise ConfigError(f"{what} is {action.kind}, which it does not take; use algorithm impala")
        if None in (*action.low, *action.high):
            raise ConfigError(f"{what} has no bounds; bound the environment's action space, or use algorithm impala")


def check_choices(spec: EnvSpec, algorithm: str) -> None:
    """Check that no action is real numbers."""
    for name, action in spec.actions.items():
        if isinstance(action, BoxSpec):
            what = f"algorithm {algorithm}: action {name!r} of {spec.id}"
            raise ConfigError(f"{what} is {action.kind}, and only choices have values; use algorithm sac or ppo")


def check_memory(config: RunConfig) -> None:
    """Check that the algorithm can train a network with memory."""
    algorithm = config.algorithm
    if isinstance(algorithm, OffPolicySection):
        raise ConfigError(
            f"network.middleware_parameters: algorithm {algorithm.name} learns from single transitions; use fc"
        )
    if isinstance(algorithm, ProximalSection):
        if config.sequences_per_batch % algorithm.minibatches:
            raise ConfigError(
                f"algorithm.minibatches: a network with memory learns from whole sequences, and "
                f"{config.sequences_per_batch} of them (learner.batch_size x actors.environments) do not make "
                f"{algorithm.minibatches} equal parts"
            )
        sequences = config.sequences_per_batch // algorithm.minibatches
        if sequences % config.learner.replicas:
            raise ConfigError(
                f"learner.replicas: {config.learner.replicas} devices cannot share {sequences} sequences evenly, a "
                f"minibatch of algorithm {algorithm.name}, whose network has memory"
            )
    parameters = algorithm.replay_parameters
    if parameters is not None and parameters.item.kind == "transition":
        raise ConfigError(
            "algorithm.replay.item.kind: transition has no recurrent state, and network.middleware_parameters: "
            f"{config.network.middleware_parameters.kind} has memory; use sequence"
        )


def check_mask(mask: str, spec: EnvSpec) -> None:
    """Check that the observation `mask` holds one number for every choice of the environment's only action."""
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
