"""Compiled calls: the function's own results, whatever trees go in and come out, and no more traces than needed."""

from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.networks.framework import tensorflow_calls
from distrl.networks.framework.tensorflow_calls import Compiled


class Pair(NamedTuple):
    first: object
    second: object = None


def numbers(tree):
    """The same tree with NumPy arrays as lists."""
    if isinstance(tree, Mapping):
        return {name: numbers(child) for name, child in tree.items()}
    if isinstance(tree, tuple | list):
        return [numbers(child) for child in tree]
    return np.asarray(tree).tolist()


def counted(function):
    """A compiled function, and the list that grows by one at each trace."""
    traces = []

    def traced(*arguments):
        traces.append(None)
        return function(*arguments)

    return Compiled(traced), traces


@pytest.mark.parametrize("on_gpu", [False, True])
def test_trees_go_in_and_come_out(monkeypatch, on_gpu):
    monkeypatch.setattr(tensorflow_calls, "on_gpu", lambda: on_gpu)

    def function(pair, scale):
        assert pair.second is None
        return {name: scale * array for name, array in pair.first.items()}, [tf.reduce_sum(pair.first["b"]), scale]

    compiled = Compiled(function)
    for value in (1.0, 2.0):
        told = compiled(Pair({"b": np.float32([value, 3.0]), "a": np.float32(4.0)}), np.float32(10.0))
        assert numbers(told) == [{"b": [10.0 * value, 30.0], "a": 40.0}, [value + 3.0, 10.0]]
        assert list(told[0]) == ["b", "a"]  # in the function's order


@pytest.mark.parametrize("on_gpu", [False, True])
def test_variables_are_read_and_assigned_at_every_call(monkeypatch, on_gpu):
    monkeypatch.setattr(tensorflow_calls, "on_gpu", lambda: on_gpu)
    count, total = keras.Variable(np.int32(0)), keras.Variable(np.float32(1.0))

    def function(added):
        count.assign(count.value + 1)
        total.assign(total.value * 2.0 + added)

    compiled, traces = counted(function)
    for added in (1.0, 2.0):
        assert not compiled(np.float32(added))  # a function that returns nothing
    assert (int(count), float(total)) == (2, (1.0 * 2.0 + 1.0) * 2.0 + 2.0)
    total.assign(np.float32(100.0))
    compiled(np.float32(0.0))
    assert (int(count), float(total), len(traces)) == (3, 200.0, 1)


def test_traced_once_per_structure_shape_and_dtype():
    def total(tree):
        present = [leaf for leaf in tf.nest.flatten(tree) if leaf is not None]
        return tf.add_n([tf.reduce_sum(tf.cast(leaf, "float32")) for leaf in present] or [0.0])

    compiled, traces = counted(total)
    known = [
        {"a": np.ones(3, np.float32)},
        {"b": np.ones(3, np.float32)},
        {"a": np.ones(4, np.float32)},
        {"a": np.ones((3, 1), np.float32)},
        {"a": np.ones(3, np.int32)},
        {"a": np.ones(3, bool)},
        {"a": {"a": np.ones(3, np.float32)}},
        {"a": None},
        {"a": {}},
        (np.ones(3, np.float32), None),
        Pair(np.ones(3, np.float32)),
        (None, np.ones(3, np.float32)),
    ]
    for _ in range(2):
        sums = [float(compiled(tree)) for tree in known]
        assert sums == [3.0, 3.0, 4.0, 3.0, 3.0, 3.0, 3.0, 0.0, 0.0, 3.0, 3.0, 3.0]
        assert len(traces) == len(known)


def test_every_structure_keeps_the_names_of_its_own_results():
    compiled = Compiled(lambda data: {f"{name}!": array for name, array in data.items()})
    one, other = {"x": np.float32(1.0)}, {"y": np.float32(2.0), "x": np.float32(3.0)}
    for _ in range(2):
        assert numbers(compiled(one)) == {"x!": 1.0}
        assert numbers(compiled(other)) == {"y!": 2.0, "x!": 3.0}


def test_nothing_shares_memory_with_what_went_in():
    """TensorFlow would use the memory of arrays at multiples of 64 bytes itself, and share it with variables."""
    memory, kept = np.zeros(128, np.uint8), tf.Variable(np.ones(4, np.float32))
    start = -memory.ctypes.data % 64
    given_array = memory[start : start + 16].view(np.float32)
    compiled = Compiled(lambda array: [array, kept.assign(array)])
    told = compiled(given_array)
    given_array[:] = 9.0
    assert [array.numpy().tolist() for array in (*told, kept)] == [[0.0] * 4] * 3


def test_numbers_of_python_are_of_32_bits():
    told = Compiled(lambda tree: tree)({"x": 0.5, "n": 3, "yes": True})
    assert {name: tensor.dtype for name, tensor in told.items()} == {"x": tf.float32, "n": tf.int32, "yes": tf.bool}


def test_branches_within_loops():
    """Collatz: 6 3 10 5 16 8 4 2 1."""

    def step(value, steps):
        halved = tf.cond(value % 2 == 0, lambda: value // 2, lambda: 3 * value + 1)
        return halved, steps + 1

    compiled = Compiled(lambda value: tf.while_loop(lambda value, _: value > 1, step, (value, tf.constant(0))))
    assert [[int(end), int(steps)] for end, steps in map(compiled, np.int32([6, 7, 1]))] == [[1, 8], [1, 16], [1, 0]]


def test_what_the_function_raises_comes_out_and_leaves_no_trace():
    refused = [True]

    def function(value):
        if refused:
            raise ValueError("not yet")
        return value + 1.0

    compiled = Compiled(function)
    with pytest.raises(ValueError, match="not yet"):
        compiled(np.float32(1.0))
    refused.clear()
    assert float(compiled(np.float32(1.0))) == 2.0


ARRAYS = st.integers(0, 99).map(np.int32)
TREES = st.recursive(
    st.none() | ARRAYS,
    lambda trees: (
        st.lists(trees, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), trees, max_size=3)
        | st.builds(Pair, trees, trees)
    ),
    max_leaves=6,
)


def leaves(tree):
    """In the order of tf.nest: dictionaries by their names."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, tuple | list):
        return [leaf for child in tree for leaf in leaves(child)]
    return [int(tree)]


EVERY_LEAF = Compiled(lambda tree: [leaf for leaf in tf.nest.flatten(tree) if leaf is not None])


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_no_leaf_takes_the_place_of_another(tree):
    assert [int(leaf) for leaf in EVERY_LEAF(tree)] == leaves(tree)
