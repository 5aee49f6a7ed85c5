"""`evaluation.other_environments`: the further environments of a run's evaluations."""

from collections.abc import Callable
from contextlib import ExitStack

from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import VectorEnvironment
from distrl.types import EnvSpec


def make_others(
    config: RunConfig,
    spec: EnvSpec,
    make: Callable[[EnvironmentConfig, int], VectorEnvironment],
    cleanup: ExitStack,
) -> dict[str, VectorEnvironment]:
    """Return the environments by name, as many of each as of the training's; `cleanup` closes them.

    Args:
        spec: That of the training's environment.
        make: Make so many environments, as `VectorEnvironment` does.

    Raises:
        ConfigError: One cannot be made, or its observations or actions differ from the training's.
    """
    made: dict[str, VectorEnvironment] = {}
    for name, environment in config.other_environments.items():
        made[name] = make(environment, config.evaluation.environments_used)
        cleanup.callback(made[name].close)
        config.evaluation.check_spaces(name, spec, made[name].spec)
    return made
