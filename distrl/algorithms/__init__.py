"""Algorithms: each states its loss in one file. `config.algorithms.ALGORITHMS` lists them."""

from distrl.algorithms.selection import context_of, make_algorithm

__all__ = ["context_of", "make_algorithm"]
