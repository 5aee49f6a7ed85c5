"""Batches joined by threads in memory that is used again: the same arrays as without, and none under an update."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from distrl import frames, machine
from distrl.buffers import LEAST_BYTES
from distrl.learner.feeding import Joining, feed_threads
from distrl.types import Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

T, B, FRAMES = 3, 5, 4


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


@pytest.mark.parametrize("threads", [1, 2, 7])  # whole unrolls, then parts of them
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
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(cores), raising=False)
    config = toy_config(**{"actors__count": 1} | paths)
    small = UnrollSchema.of(toy_spec, 4, 2, {})
    large = UnrollSchema.of(toy_spec, 4, LEAST_BYTES, {})
    assert feed_threads(config, large) == threads
    given = config.learner.feed_threads
    assert feed_threads(config, small) == (1 if given == "auto" or config.deterministic else given)
