"""Algorithms: each states its loss in one file; the line below is all that the rest of distrl knows of it."""

from collections.abc import Callable

from distrl.algorithms.a3c import ActorCritic
from distrl.algorithms.algorithm import Algorithm
from distrl.algorithms.impala import Impala
from distrl.config import RunConfig

__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]

ALGORITHMS: dict[str, Callable[[RunConfig], Algorithm]] = {"impala": Impala, "a3c": ActorCritic, "a2c": ActorCritic}


def make_algorithm(config: RunConfig) -> Algorithm:
    """The algorithm that `config.algorithm.name` selects."""
    return ALGORITHMS[config.algorithm.name](config)
