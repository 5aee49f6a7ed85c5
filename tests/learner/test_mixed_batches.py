"""Batches of recorded and of live items: how many of each, which are marked, whose priorities, and what comes first."""

import numpy as np
import pytest

from distrl.config.data import DataConfig
from distrl.config.replay import ReplayParameters
from distrl.learner.mixed_batches import MixedBatches
from distrl.learner.recorded_batches import RecordedBatches
from distrl.learner.replay_batches import Arrived, ReplayBatches
from distrl.learner.state import LearnerState
from distrl.metrics.counters import Waits
from distrl.replay.memory import Replay
from distrl.types import DEMONSTRATIONS
from distrl.unroll_schema import UnrollSchema
from tests.learner.conftest import SPEC, B, T, make_unroll

RECORDED = -1.0
"""Reward of every recorded step; live ones have the number of their unroll."""
LIVE, BESIDE = 6, 2


class Receipt:
    """Counts unrolls as the stream's receipts do."""

    def settle(self, outcome):
        pass

    def count(self, state):
        state.env_steps += T * B - 1
        state.trained_unrolls += 1


class Mixed:
    """The batches of a learner whose actors send an unroll whenever it waits for one.

    Attributes:
        asked: Number of unrolls that were awaited.
    """

    def __init__(self, unrolls=4, stop=lambda: False, ends_after=100, share=0.25, **settings):
        replay = {"capacity_steps": 48, "min_size_steps": 10, "samples_per_insert": 4.0} | settings.pop("replay", {})
        self.state, self.asked, self._ends_after = LearnerState(run_id="r"), 0, ends_after
        self.live = self._memory(replay)
        kept = {"capacity_steps": unrolls * T * B, "min_size_steps": 1, "samples_per_insert": None}
        self.kept = self._memory(replay | kept)
        data = DataConfig(sets="x", share=share, **settings)
        common = {"state": self.state, "waits": Waits()}
        read = (make_unroll(9, number, tag=RECORDED) for number in range(unrolls))
        self.batches = MixedBatches(
            RecordedBatches(read, unrolls, self.kept, size=LIVE + BESIDE, stop=stop, **common),
            ReplayBatches(self, self.live, size=LIVE, ended=lambda: None, **common),
            items=data.items_beside(LIVE),
            pretrain_updates=data.pretrain_updates,
            state=self.state,
        )

    @staticmethod
    def _memory(replay):
        parameters = ReplayParameters.model_validate(replay)
        schema = UnrollSchema.of(SPEC, T, B, {})
        return Replay(parameters, schema, discount=0.9, seeds=np.random.SeedSequence(1))

    def collect(self):
        self.asked += 1
        if self.asked > self._ends_after:
            return None
        return Arrived((make_unroll(0, self.asked - 1, tag=self.asked),), Receipt())

    def poll(self):
        return None

    def updates(self, count):
        """Collect the batches of so many updates."""
        made = []
        for _ in range(count):
            made.append(self.batches.collect())
            self.state.updates += 1
            for receipt in made[-1].receipts:
                receipt.count(self.state)
        return made


def is_recorded(made):
    return (made.batch.rewards == RECORDED)[0].tolist()


@pytest.mark.row("G32")
@pytest.mark.parametrize(
    ("share", "live", "beside"),
    [(0.2, 32, 8), (0.5, 256, 256), (0.25, 10, 3), (0.3, 7, 3), (0.1, 9, 1), (0.9, 1, 9), (0.7, 30, 70)],
)
def test_recorded_items_make_up_their_share_of_the_batch(share, live, beside):
    """int(p n / (1 - p)), exactly."""
    assert DataConfig(sets="x", share=share).items_beside(live) == beside
    assert DataConfig(sets="x").items_beside(live) == 0


def test_recorded_items_follow_the_live_ones_and_are_marked():
    mixed = Mixed(replay={"sampler": {"kind": "prioritized"}})
    (made,) = mixed.updates(1)
    assert is_recorded(made) == [False] * LIVE + [True] * BESIDE
    assert made.batch.extras[DEMONSTRATIONS].tolist() == [[0.0] * LIVE + [1.0] * BESIDE]
    assert made.batch.extras[DEMONSTRATIONS].dtype == np.float32
    assert made.batch.observations["observation"][0, :, 0].tolist() == [0.0] * LIVE + [9.0] * BESIDE  # of actor 9
    assert made.batch.importance_weights.shape == (LIVE + BESIDE,)
    # Live steps alone are those of the run: three unrolls until six samples are due, four for each over 10 steps.
    assert (mixed.state.env_steps, mixed.asked, made.lags_updates) == (15, 3, [-1, -1, -1])
    assert mixed.live.limiter.sampled_steps == LIVE
    assert mixed.kept.size_steps == 4 * (T * B - 1)


def test_sequences_are_joined_by_items():
    mixed = Mixed(replay={"item": {"kind": "sequence"}})
    (made,) = mixed.updates(1)
    assert made.batch.rewards.shape == (T, LIVE + BESIDE)
    assert made.batch.extras[DEMONSTRATIONS].sum(axis=0).tolist() == [0.0] * LIVE + [float(T)] * BESIDE


@pytest.mark.row("G32")
def test_each_memory_takes_the_priorities_of_its_own_items():
    mixed = Mixed(replay={"sampler": {"kind": "prioritized", "alpha": 1.0, "epsilon": 0.0}})
    (made,) = mixed.updates(1)
    priorities = np.arange(2.0, 2.0 + LIVE + BESIDE, dtype=np.float32)
    made.reprioritise(priorities)
    for memory, items, told in (
        (mixed.live, made.items, priorities[:LIVE]),
        (mixed.kept, made.recorded.items, priorities[LIVE:]),
    ):
        weights = memory.state_arrays()["sampler/weights"]
        assert {item: weights[item] for item in items} == dict(zip(items.tolist(), told.tolist(), strict=True))
    made.reprioritise(None)  # of an algorithm that has none


@pytest.mark.row("G32")
def test_the_first_updates_are_of_recorded_items_alone():
    mixed = Mixed(pretrain_updates=10)
    first = mixed.updates(10)
    assert all(all(is_recorded(made)) and len(is_recorded(made)) == LIVE + BESIDE for made in first)
    assert {mark for made in first for mark in made.batch.extras[DEMONSTRATIONS][0].tolist()} == {1.0}
    assert (mixed.asked, mixed.state.env_steps, mixed.state.updates) == (0, 0, 10)
    assert [made.publish for made in first] == [False] * 9 + [True]  # the actors' first live steps are by these
    first[0].reprioritise(np.ones(LIVE + BESIDE, np.float32))
    (made,) = mixed.updates(1)
    assert is_recorded(made) == [False] * LIVE + [True] * BESIDE


def test_a_resumed_run_does_not_repeat_them():
    mixed = Mixed(pretrain_updates=10)
    mixed.state.updates = 8
    assert [all(is_recorded(made)) for made in mixed.updates(4)] == [True, True, False, False]
    mixed = Mixed(pretrain_updates=10)
    mixed.state.updates = 10
    assert not all(is_recorded(mixed.updates(1)[0]))


def test_recorded_items_stay_while_live_ones_make_room():
    mixed = Mixed(unrolls=2)
    for made in mixed.updates(60):
        assert is_recorded(made)[LIVE:] == [True] * BESIDE
    assert mixed.asked > mixed.live.slots
    assert mixed.kept.size_steps == 2 * (T * B - 1)


def test_a_stop_ends_it_while_data_is_read_and_while_unrolls_are_awaited():
    asked = iter([False, False, True])
    mixed = Mixed(pretrain_updates=1, stop=lambda: next(asked))
    assert mixed.batches.collect() is None
    assert mixed.batches.activity == "reading the data: 50%"
    mixed = Mixed(ends_after=1)
    assert mixed.batches.collect() is None
    assert mixed.batches.activity == "filling the replay: 5 of 10"


def test_heartbeats_have_what_it_does():
    mixed = Mixed(pretrain_updates=1_000)
    assert (mixed.batches.activity, mixed.batches.progressed_at) == ("reading the data: 0%", 0.0)
    mixed.updates(1)
    read_at = mixed.batches.progressed_at
    assert mixed.batches.activity == "pretraining: 1 of 1,000 updates"
    mixed.state.updates = 1_000
    mixed.updates(1)
    assert mixed.batches.activity == "training"
    assert mixed.batches.progressed_at > read_at > 0.0
