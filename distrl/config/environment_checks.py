"""Which algorithm fits which actions and networks, by the configuration and the environment's spec alone."""

from distrl.config.action_mask import mask_of
from distrl.config.algorithms import ExternalAlgorithmParameters, ProximalSection, QLearningSection, SacParameters
from distrl.config.run import RunConfig
from distrl.errors import ConfigError
from distrl.types import BoxSpec, EnvSpec


def check_fit(config: RunConfig, spec: EnvSpec) -> None:
    """Check what would otherwise be refused by the learner, after everything was launched.

    Raises:
        ConfigError: The algorithm cannot choose such actions, or cannot train a network with memory so.
    """
    algorithm = config.algorithm
    if isinstance(algorithm, SacParameters):
        check_bounded(spec, algorithm.name)
    if isinstance(algorithm, QLearningSection):
        check_choices(spec, algorithm.name)
    if config.network.has_memory:
        check_memory(config)


def unused_mask_note(config: RunConfig, spec: EnvSpec) -> str | None:
    """Return one line where the environment seems to show a mask that no head takes, else None."""
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
    """Check that the algorithm can train a network with memory.

    Raises:
        ConfigError: It learns from single transitions, or from minibatches that whole sequences do not make.
    """
    algorithm = config.algorithm
    if isinstance(algorithm, SacParameters):
        raise ConfigError("network.middleware_parameters: algorithm sac learns from single transitions; use fc")
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
    if parameters is not None and not parameters.samples_sequences:
        raise ConfigError(
            f"algorithm.replay.sampler.kind: {parameters.sampler.kind} samples single transitions, and "
            f"network.middleware_parameters: {config.network.middleware_parameters.kind} has memory; use sequences"
        )
