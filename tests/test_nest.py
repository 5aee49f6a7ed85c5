from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl import nest


class Pair(NamedTuple):
    first: object
    second: object


def arrays():
    return st.lists(st.integers(-9, 9), min_size=2, max_size=2).map(np.array)


def trees():
    return st.recursive(
        arrays(),
        lambda child: (
            st.dictionaries(st.text("abc", min_size=1, max_size=2), child, max_size=3)
            | st.tuples(child, child)
            | st.builds(Pair, child, child)
        ),
        max_leaves=6,
    )


def flat(tree):
    return [(path, leaf.tolist()) for path, leaf in nest.leaves(tree)]


def test_map_keeps_dicts_tuples_and_named_tuples():
    tree = {"a": 1, "b": (2, Pair(3, {"c": 4}))}
    assert nest.map(lambda x, y: 10 * x + y, tree, tree) == {"a": 11, "b": (22, Pair(33, {"c": 44}))}
    assert type(nest.map(abs, Pair(-1, -2))) is Pair


def test_leaves_have_paths_in_the_trees_own_order():
    tree = {"z": 1, "a": (2, {"x": 3})}
    assert list(nest.leaves(tree)) == [("z", 1), ("a/0", 2), ("a/1/x", 3)]
    assert list(nest.leaves(5)) == [("", 5)]


@pytest.mark.parametrize(
    ("one", "other"),
    [({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2}), ({"a": 1}, 1), ((1, 2), (1,)), ((1,), 1), ((1,), {"0": 1})],
)
def test_trees_that_differ_are_refused(one, other):
    with pytest.raises(ValueError, match="trees differ"):
        nest.map(lambda x, y: x, one, other)


def test_concatenate_by_hand():
    one, two = {"x": np.array([[1, 2]])}, {"x": np.array([[3, 4]])}
    assert nest.concatenate([one, two], axis=0)["x"].tolist() == [[1, 2], [3, 4]]
    assert nest.concatenate([one, two], axis=1)["x"].tolist() == [[1, 2, 3, 4]]


@given(trees())
def test_map_with_identity_changes_nothing(tree):
    assert flat(nest.map(lambda leaf: leaf, tree)) == flat(tree)


def test_none_is_a_tree_without_leaves():
    tree = {"a": 1, "b": None, "c": (None, 2)}
    assert nest.map(lambda leaf: 2 * leaf, tree) == {"a": 2, "b": None, "c": (None, 4)}
    assert dict(nest.leaves(tree)) == {"a": 1, "c/1": 2}
    with pytest.raises(ValueError, match="None against a tree"):
        nest.map(lambda one, other: one, None, 1)
