"""Curiosity around every algorithm that ships unrolls: it changes rewards, and at weight 0 nothing."""

import numpy as np
import pytest

from distrl.algorithms.curiosity import Curious
from tests.algorithms.curious import UNROLLED, Recorder, assert_equal, make, make_batch, weights_of


@pytest.mark.row("D175")
@pytest.mark.parametrize("name", UNROLLED)
def test_with_weight_0_every_algorithm_learns_as_without_bit_by_bit(name):
    found = []
    for curiosity in (None, {"kind": "rnd", "weight": 0.0}):
        made, networks = make(name, curiosity)
        assert isinstance(made, Curious) == (curiosity is not None)
        for seed in range(2):
            made.update(networks, make_batch(networks, name, seed))
        found.append(weights_of({key: networks[key] for key in networks if not key.startswith("curiosity")}))
    assert_equal(*found)


@pytest.mark.row("D175")
@pytest.mark.parametrize("name", UNROLLED)
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
