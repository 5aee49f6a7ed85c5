"""Batches joined by threads in memory that is used again: the same arrays as without, and none under an update."""

import subprocess
import sys
import threading
from importlib.util import find_spec

import numpy as np
import pytest
import tensorflow as tf

from distrl import frames
from distrl.learner import feeding
from distrl.learner.feeding import Buffers, Joining, feed_threads
from distrl.types import Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

T, B, FRAMES = 3, 5, 4
LARGE = (feeding.LEAST_BYTES,)
BYTE = np.dtype("uint8")


def an_unroll(number):
    random, shape = np.random.default_rng(number), (T, B)
    return Unroll(
        header=UnrollHeader(0, 1, number, 1, T * B),
        observations={
            "picture": random.integers(0, 256, (T + FRAMES, B, 150, 150, 1)).astype(np.uint8),
            "speed": random.random((T + 1, B, 2)).astype(np.float32),
        },
        actions={"action": random.integers(0, 3, shape).astype(np.int32)},
        rewards=random.random(shape).astype(np.float32),
        terminated=random.random(shape) < 0.5,
        truncated=random.random(shape) < 0.5,
        valid=random.random(shape) < 0.7,
        behaviour_log_probabilities=random.random(shape).astype(np.float32),
        recurrent_state={"h": random.random((2, B, 3)).astype(np.float32)},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
        reward_moments={"mean": np.array(float(number))},
        extras={"choice_probabilities": random.random((T, B, 3)).astype(np.float32)},
    )


def beside(arrays):
    return np.concatenate(arrays, axis=1)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_batches_are_the_unrolls_side_by_side_whatever_the_threads(threads):
    joining = Joining(2, {"picture": FRAMES}, threads)
    for first in (0, 2, 4):  # in memory that is used again
        both = [an_unroll(number) for number in (first, first + 1)]
        joining.begin()
        for unroll in both:
            joining.add(unroll)
        batch = joining.finish()
        valid = beside([unroll.valid for unroll in both])
        rows = beside([unroll.observations["picture"] for unroll in both])
        expected = frames.rebuilt(rows, valid, FRAMES)
        np.testing.assert_array_equal(batch.observations["picture"], expected, strict=True)
        np.testing.assert_array_equal(batch.observations["speed"], beside([u.observations["speed"] for u in both]))
        np.testing.assert_array_equal(batch.actions["action"], beside([u.actions["action"] for u in both]))
        for name in ("rewards", "terminated", "truncated", "valid", "behaviour_log_probabilities"):
            np.testing.assert_array_equal(getattr(batch, name), beside([getattr(u, name) for u in both]), strict=True)
        extra = beside([unroll.extras["choice_probabilities"] for unroll in both])
        np.testing.assert_array_equal(batch.extras["choice_probabilities"], extra)
        before = np.concatenate([unroll.recurrent_state["h"][0] for unroll in both])
        np.testing.assert_array_equal(batch.recurrent_state["h"], before)
        assert batch.reward_moments["mean"].tolist() == [first, first + 1]


def test_a_batch_that_was_abandoned_leaves_nothing_in_the_next():
    joining = Joining(1, {"picture": FRAMES}, 2)
    joining.begin()
    joining.add(an_unroll(1))
    joining.begin()
    joining.add(an_unroll(2))
    np.testing.assert_array_equal(joining.finish().rewards, an_unroll(2).rewards)


def test_an_error_of_a_thread_is_raised_when_the_batch_is_wanted(monkeypatch):
    joining = Joining(1, {"picture": FRAMES}, 2)
    monkeypatch.setattr(frames, "rebuilt", lambda *_: 1 // 0)
    joining.begin()
    joining.add(an_unroll(1))
    with pytest.raises(ZeroDivisionError):
        joining.finish()
    monkeypatch.undo()
    joining.begin()
    joining.add(an_unroll(2))
    np.testing.assert_array_equal(joining.finish().rewards, an_unroll(2).rewards)


def test_the_threads_end_with_the_joining():
    before = set(threading.enumerate())
    joining = Joining(1, {"picture": FRAMES}, 2)
    joining.begin()
    joining.add(an_unroll(1))
    batch = joining.finish()
    own = set(threading.enumerate()) - before
    assert own
    del joining
    for thread in own:
        thread.join(10.0)
        assert not thread.is_alive()
    np.testing.assert_array_equal(batch.rewards, an_unroll(1).rewards)


KEEPERS = {
    "the array": lambda array: array,
    "a row": lambda array: array[1],
    "a view of a view": lambda array: array[1:][:, 2:].reshape(2, -1)[:, ::2],
    "transposed": lambda array: array.T,
    "as another dtype": lambda array: array.view(np.int8).view(np.recarray),
    "its buffer": memoryview,
    "DLPack": np.from_dlpack,
    "one element's view": lambda array: np.lib.stride_tricks.as_strided(array, (1,), (1,)),
    "an iterator": lambda array: array.flat,
    "TensorFlow": lambda array: tf.convert_to_tensor(array),
    "TensorFlow by DLPack": lambda array: tf.experimental.dlpack.from_dlpack(array.__dlpack__()),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_what_is_kept_of_a_batch_is_never_written_to(keep, threads):
    joining = Joining(1, {"picture": FRAMES}, threads)

    def kept_of(number):
        joining.begin()
        joining.add(an_unroll(number))
        picture = joining.finish().observations["picture"]
        return keep(picture), np.array(keep(picture.copy()))

    for kept, copied in [kept_of(number) for number in range(4)]:
        np.testing.assert_array_equal(np.array(kept), copied)


def test_memory_is_used_again_once_no_array_refers_to_it():
    buffers = Buffers()
    array = buffers.empty(LARGE, BYTE)
    at, view = array.ctypes.data, array[1:][2:].reshape(-1, 1)
    del array
    other = buffers.empty(LARGE, BYTE)
    assert other.ctypes.data != at
    del view
    assert buffers.empty((LARGE[0] // 4,), np.dtype("float32")).ctypes.data == at
    assert at % 64 == 0


def test_another_thread_may_end_an_arrays_use():
    buffers = Buffers()
    held = [buffers.empty(LARGE, BYTE)]
    at = held[0].ctypes.data
    ends = threading.Thread(target=held.clear)
    ends.start()
    ends.join()
    assert buffers.empty(LARGE, BYTE).ctypes.data == at


def test_memory_outlives_its_buffers():
    array = Buffers().empty(LARGE, BYTE)
    array[:] = 7
    assert array.sum() == 7 * LARGE[0]


SHARED_WITH_JAX = """
import gc

import jax
import numpy as np
from distrl.learner.feeding import LEAST_BYTES, Buffers

buffers = Buffers()
array = buffers.empty((LEAST_BYTES,), np.dtype("uint8"))
array[:] = 1
at = array.ctypes.data
theirs = jax.device_put(array)
assert theirs.unsafe_buffer_pointer() == at  # JAX on the CPU copies nothing
del array
other = buffers.empty((LEAST_BYTES,), np.dtype("uint8"))
other[:] = 2
assert (np.asarray(theirs) == 1).all()
del theirs, other
gc.collect()  # JAX lets go of arrays at its next call, or here
both = [buffers.empty((LEAST_BYTES,), np.dtype("uint8")) for _ in range(2)]
assert at in [array.ctypes.data for array in both]
"""


@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_memory_that_jax_shares_is_not_written_to():
    done = subprocess.run(
        [sys.executable, "-c", SHARED_WITH_JAX], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("cores", "paths", "threads"),
    [
        (8, {}, 4),
        (6, {"actors__count": 3}, 2),
        (6, {"actors__count": 3, "learner__threads": 2}, 1),
        (2, {"actors__count": 2}, 1),
        (2, {"actors__count": 2, "learner__feed_threads": 3}, 3),
        (8, {"actors__count": 0, "learner__feed_threads": 3}, 1),
    ],
)
def test_threads_are_as_many_as_cores_are_left(monkeypatch, toy_config, toy_spec, cores, paths, threads):
    monkeypatch.setattr(feeding.os, "sched_getaffinity", lambda _: range(cores), raising=False)
    config = toy_config(**{"actors__count": 1} | paths)
    small = UnrollSchema.of(toy_spec, 4, 2, {})
    large = UnrollSchema.of(toy_spec, 4, feeding.LEAST_BYTES, {})
    assert feed_threads(config, large) == threads
    given = config.learner.feed_threads
    assert feed_threads(config, small) == (1 if given == "auto" or config.deterministic else given)
