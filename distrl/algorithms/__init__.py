"""Algorithms: each states its loss in one file. `config.algorithms.ALGORITHMS` lists them."""

from importlib import import_module

from distrl.algorithms.algorithm import Algorithm
from distrl.algorithms.external import external_class, with_own_parameters
from distrl.config import RunConfig
from distrl.config.algorithms import ExternalAlgorithmParameters

__all__ = ["Algorithm", "make_algorithm"]


def make_algorithm(config: RunConfig) -> Algorithm:
    """Make the algorithm that `config.algorithm.name` selects.

    Raises:
        ConfigError: It is a user's class that cannot be imported, or is no `Algorithm`.
    """
    section = config.algorithm
    if isinstance(section, ExternalAlgorithmParameters):
        class_ = external_class(section.name)
        return class_(with_own_parameters(config, class_))
    module, _, name = section.implementation.partition(":")
    made: Algorithm = getattr(import_module(module), name)(config)
    return made
