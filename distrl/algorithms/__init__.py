"""Algorithms: each states its loss in one file; the line below is all that the rest of distrl knows of it."""

from collections.abc import Callable

from distrl.algorithms.a3c import ActorCritic
from distrl.algorithms.algorithm import Algorithm
from distrl.algorithms.appo import Appo
from distrl.algorithms.dqn import Dqn
from distrl.algorithms.external import external_class, with_own_parameters
from distrl.algorithms.impala import Impala
from distrl.algorithms.ppo import Ppo
from distrl.algorithms.sac import Sac
from distrl.algorithms.vpg import Vpg
from distrl.config import RunConfig
from distrl.config.algorithms import ExternalAlgorithmParameters

__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]

ALGORITHMS: dict[str, Callable[[RunConfig], Algorithm]] = {
    "impala": Impala,
    "a3c": ActorCritic,
    "a2c": ActorCritic,
    "dqn": Dqn,
    "apex": Dqn,
    "ppo": Ppo,
    "appo": Appo,
    "sac": Sac,
    "vpg": Vpg,
}


def make_algorithm(config: RunConfig) -> Algorithm:
    """The algorithm that `config.algorithm.name` selects.

    Raises:
        ConfigError: It is a class of the user's own that cannot be imported, or is no `Algorithm`.
    """
    if isinstance(config.algorithm, ExternalAlgorithmParameters):
        class_ = external_class(config.algorithm.name)
        return class_(with_own_parameters(config, class_))
    return ALGORITHMS[config.algorithm.name](config)
