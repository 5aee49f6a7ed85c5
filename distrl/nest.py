"""Trees: dictionaries and tuples of any depth; everything else is a leaf. None is a tree without leaves, as in JAX."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Tree = Any


def map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:  # read as nest.map
    """Apply `function` to corresponding leaves; the result has the structure of `tree`.

    Raises:
        ValueError: The trees differ in structure.
    """
    if isinstance(tree, dict):
        for other in others:
            if not isinstance(other, dict) or other.keys() != tree.keys():
                raise ValueError(
                    f"trees differ: {sorted(tree)} against {other if not isinstance(other, dict) else sorted(other)}"
                )
        return {key: map(function, tree[key], *(other[key] for other in others)) for key in tree}
    if isinstance(tree, tuple):
        for other in others:
            if not isinstance(other, tuple) or len(other) != len(tree):
                raise ValueError(f"trees differ: a tuple of {len(tree)} against {other!r}")
        children = [map(function, *parts) for parts in zip(tree, *others, strict=True)]
        return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
    if tree is None:
        if any(other is not None for other in others):
            raise ValueError("trees differ: None against a tree with leaves")
        return None
    return function(tree, *others)


def leaves(tree: Tree) -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) in the tree's own order; keys and indices are joined by '/'."""
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, tuple):
        items = enumerate(tree)
    elif tree is None:
        return
    else:
        yield "", tree
        return
    for key, child in items:
        for path, leaf in leaves(child):
            yield (f"{key}/{path}" if path else str(key)), leaf


def concatenate(trees: Sequence[Tree], axis: int) -> Tree:
    """Concatenate corresponding leaves along an existing axis."""
    return map(lambda *arrays: np.concatenate(arrays, axis), *trees)
