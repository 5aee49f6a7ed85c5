"""Algorithms: each states its loss in one file. `config.algorithms.ALGORITHMS` lists them."""

from distrl.algorithms.selection import built, context_of, make_algorithm

__all__ = ["built", "context_of", "make_algorithm"]
