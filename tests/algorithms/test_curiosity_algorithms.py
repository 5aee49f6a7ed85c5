"""Curiosity around every algorithm that takes it: it changes rewards, and at weight 0 nothing."""

import numpy as np
import pytest

from distrl.algorithms.curiosity import Curious
from distrl.config.algorithms import ALGORITHMS
from tests.algorithms.curious import CURIOUS, Recorder, make, make_batch
from tests.algorithms.one_of_each_kind import others_in_long
from tests.algorithms.states import assert_same, states

SOME = others_in_long(CURIOUS, kept=("impala", "dqn", "sac"))


@pytest.mark.row("D175")
@pytest.mark.parametrize("name", SOME)
def test_with_weight_0_every_algorithm_learns_as_without_bit_by_bit(name):
    found = []
    for curiosity in (None, {"kind": "rnd", "weight": 0.0}):
        made, networks = make(name, curiosity)
        assert isinstance(made, Curious) == (curiosity is not None)
        for seed in range(2):
            made.update(networks, make_batch(networks, name, seed))
        found.append(states({key: networks[key] for key in networks if not key.startswith("curiosity")}))
    assert_same(*found)


@pytest.mark.row("D175")
@pytest.mark.parametrize("name", SOME)
def test_every_algorithm_learns_from_it(name):
    """Its update is that by the sum of both rewards, which its own scale leaves as it is."""
    made, networks = make(name, {"kind": "rnd", "weight": 0.5}, reward_scale=0.25)
    recorder = made._algorithm = Recorder(made._algorithm)
    plain, own = make(name, reward_scale=1.0)
    told = made.update(networks, make_batch(networks, name)).metrics
    assert told["finite"]
    assert told["intrinsic_reward"] > 0.0
    batch = make_batch(own, name)
    summed = np.float32(0.25) * batch.rewards + recorder.batches[0].bonus
    expected = plain.update(own, batch._replace(rewards=summed)).metrics
    assert told["loss"] == pytest.approx(expected["loss"], rel=1e-5, abs=1e-6)
    assert told["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-4, abs=1e-6)


def test_algorithms_whose_actors_ship_unrolls_take_it():
    """All but cloning, which does without rewards."""
    assert [name for name, given in ALGORITHMS.items() if given.ships == "unrolls" and name != "bc"] == CURIOUS


def test_a_loss_of_plain_rewards_is_noticed(monkeypatch):
    monkeypatch.setattr("distrl.algorithms.dqn.learned_rewards", lambda batch, parameters: batch.rewards)
    with pytest.raises(AssertionError):
        test_every_algorithm_learns_from_it("dqn")
