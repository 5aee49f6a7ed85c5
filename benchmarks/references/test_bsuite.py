"""bsuite's tasks as environments of distrl: they show, pay and record what bsuite's own do."""

import bsuite
import numpy as np
import pytest

from benchmarks.behaviour.environment import read_log, recorded
from distrl.config.load import load
from distrl.environments.gym_adapter import make_one


@pytest.mark.parametrize("bsuite_id", ["deep_sea/0", "memory_len/9", "discounting_chain/3"])
def test_a_recorded_task_is_bsuites(bsuite_id, tmp_path):
    ours, theirs = recorded(bsuite_id, str(tmp_path)), bsuite.load_from_id(bsuite_id)
    theirs._rng = np.random.RandomState(7)
    random = np.random.RandomState(0)
    returns = []
    for episode in range(10):
        shown, _ = ours.reset(seed=7 if episode == 0 else None)
        there, ended = theirs.reset(), False
        returns.append(0.0)
        while not ended:
            np.testing.assert_array_equal(shown, there.observation)
            action = random.randint(ours.action_space.n)
            shown, reward, ended, cut, _ = ours.step(action)
            there = theirs.step(action)
            assert (reward, ended, cut) == (there.reward, there.last(), False)
            returns[-1] += reward
    log = read_log(tmp_path)
    assert [row["episode"] for row in log] == [*range(1, 11)]
    np.testing.assert_allclose([row["total_return"] for row in log], np.cumsum(returns))
    assert {name: log[-1][name] for name in theirs.bsuite_info()} == theirs.bsuite_info()


def test_an_id_of_shimmy_is_an_environment():
    sets = ["environment.id=shimmy:bsuite/deep_sea-v0", "environment.kwargs.size=10"]
    environment = make_one(load(sets=sets).config.environment)
    assert environment.observation_space.shape == (10, 10)
