"""Batches of recorded steps: what replaces what, and when; and the thread that reads ahead."""

import itertools
import threading

import numpy as np
import pytest

from distrl.learner.recorded_batches import ReadingAhead, RecordedBatches
from distrl.learner.state import LearnerState
from distrl.metrics.counters import Waits
from tests.replay.test_memory import drawn, make, unroll_of
from tests.waiting import wait_until


def numbered(first=0):
    return (unroll_of([[number]]) for number in itertools.count(first))


def batches_of(unrolls, state, **options):
    replay = make(3)
    replay.begin_at(options.get("first", 0))
    asked = {"size": 4, "state": state, "waits": Waits(), "stop": lambda: False, **options}
    return RecordedBatches(unrolls, 3, replay, **asked), replay


def update(batches, state):
    collected = batches.collect()
    for receipt in collected.receipts:
        receipt.count(state)
    return collected


def test_an_unroll_is_replaced_whenever_updates_have_used_so_many_steps():
    state = LearnerState(run_id="r")
    batches, replay = batches_of(numbered(), state, steps_each=6.0)  # batches have 4 steps
    assert batches.activity == "reading the data: 0%"
    held = []
    for _ in range(5):
        assert update(batches, state).items.size == 4
        held.append(sorted(drawn(replay)))
    # After 0, 4, 8, 12, 16 steps.
    assert held == [[0, 1, 2], [0, 1, 2], [1, 2, 3], [2, 3, 4], [2, 3, 4]]
    assert batches.activity == "training"
    resumed, other = batches_of(numbered(2), LearnerState(run_id="r", trained_steps=16), steps_each=6.0, first=2)
    resumed.collect()
    assert other.state_arrays()["ring/rewards"].ravel().tolist() == [3, 4, 2]  # in the same slots
    assert other.state_arrays()["ring/rewards"].tolist() == replay.state_arrays()["ring/rewards"].tolist()


@pytest.mark.row("D138")
def test_a_memory_that_holds_all_of_the_data_is_frozen():
    state, unrolls = LearnerState(run_id="r"), numbered()
    batches, replay = batches_of(unrolls, state)
    for _ in range(20):
        update(batches, state)
        assert sorted(drawn(replay)) == [0, 1, 2]
    assert next(unrolls).rewards.tolist() == [[3]]  # nothing more was read


def test_a_stop_ends_the_reading():
    read = []
    unrolls = (read.append(number) or unroll_of([[number]]) for number in itertools.count())
    batches, _ = batches_of(unrolls, LearnerState(run_id="r"), stop=lambda: len(read) == 2)
    assert batches.collect() is None
    assert read == [0, 1]


def test_a_thread_reads_ahead_in_order_within_bounds():
    read, stop = [], threading.Event()
    unrolls = (read.append(number) or unroll_of([[number]]) for number in itertools.count())
    ahead = ReadingAhead(unrolls, stop.is_set)
    found = [float(unroll.rewards[0, 0]) for unroll in itertools.islice(ahead, 3)]
    assert found == [0.0, 1.0, 2.0]
    wait_until(lambda: len(read) == 11, "eight unrolls beyond the three")
    ahead.close(None)
    assert len(read) == 11
    assert [*ahead] == []


def test_an_error_of_the_thread_reaches_the_learner():
    def broken():
        yield unroll_of([[0]])
        raise ValueError("damaged")

    ahead = ReadingAhead(broken(), lambda: False)
    unrolls = iter(ahead)
    assert np.array_equal(next(unrolls).rewards, [[0]])
    with pytest.raises(ValueError, match="damaged"):
        next(unrolls)
    ahead.close(None)
