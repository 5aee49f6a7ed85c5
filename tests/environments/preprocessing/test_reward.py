import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.types import ArraySpec

SPEC = ArraySpec((1,), "float32")


def rewarded(made, *rewards, valid=None):
    valid = np.ones(len(rewards), bool) if valid is None else np.array(valid)
    out = made.rewards(np.float32(rewards), valid)
    assert out.dtype == np.float32
    return out.tolist()


@pytest.mark.row("D111", "L11")
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"low": -1, "high": 1}, [1, -1, 0.5]),
        ({"high": 0}, [0, -5, 0]),  # the ancestor took a limit of 0 for none
        ({"low": 0}, [5, 0, 0.5]),
    ],
)
def test_clip(pipeline, limits, expected):
    made = pipeline(SPEC, {"step": "clip", "of": "reward", **limits})
    assert rewarded(made, 5, -5, 0.5) == expected
    assert made.spec.observations == {"observation": SPEC}


@pytest.mark.row("D112")
def test_scale_multiplies(pipeline):
    assert rewarded(pipeline(SPEC, {"step": "scale", "of": "reward", "multiply": 0.1}), 5) == [0.5]
    assert rewarded(pipeline(SPEC, {"step": "scale", "of": "reward", "divide": 4}), 5) == [1.25]


@pytest.mark.row("D114")
def test_the_moving_average_is_subtracted(pipeline):
    made = pipeline(SPEC, {"step": "ewma_baseline", "alpha": 0.01})
    assert rewarded(made, 10) == [0]
    np.testing.assert_allclose(rewarded(made, 20), [9.9], rtol=1e-6)
    made.reset()
    assert rewarded(made, 20) == [0]


@pytest.mark.row("D114", "T09")
def test_each_environment_has_an_average_and_resets_pay_nothing(pipeline):
    made = pipeline(SPEC, {"step": "ewma_baseline", "alpha": 0.5})
    assert rewarded(made, 1, 0, valid=[True, False]) == [0, 0]
    assert rewarded(made, 0, 8, valid=[False, True]) == [0, 0]  # the second one's first
    assert rewarded(made, 3, 12) == [1, 2]  # averages 2 and 10


@pytest.mark.row("L11")
def test_steps_for_rewards_are_taken_in_order(pipeline):
    steps = [{"step": "scale", "of": "reward", "multiply": 10}, {"step": "clip", "of": "reward", "high": 15}]
    assert rewarded(pipeline(SPEC, *steps), 2) == [15]
    assert rewarded(pipeline(SPEC, *reversed(steps)), 2) == [20]


@pytest.mark.row("D111", "D112")
@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"step": "scale", "multiply": 1e300}, r"fit rewards, float32: 1e\+300 is more than float32 can hold"),
        ({"step": "scale", "divide": 1e300}, r"1e\+300 is more than float32 can hold"),
        ({"step": "scale", "divide": 1e-300}, "1e-300 is 0 in float32"),
        ({"step": "clip", "low": 1e300}, r"1e\+300 is more than float32 can hold"),
    ],
)
def test_numbers_that_float32_cannot_hold_are_refused(pipeline, step, why):
    with pytest.raises(ConfigError, match=why):
        pipeline(SPEC, {"of": "reward", **step})


def test_rows_that_are_not_valid_stay_without_reward(pipeline):
    made = pipeline(SPEC, {"step": "clip", "of": "reward", "low": 1})
    assert rewarded(made, 0, 0, valid=[True, False]) == [1, 0]


def test_only_what_is_for_rewards_may_target_them(pipeline):
    with pytest.raises(
        ConfigError, match=r"\[0\] \(flatten\) does not fit its target: there is no observation 'reward'"
    ):
        pipeline(SPEC, {"step": "flatten", "of": "reward"})
    with pytest.raises(ConfigError, match="'reward' is the reward, and an observation has that name, too"):
        pipeline({"reward": SPEC}, {"step": "clip", "of": "reward", "low": 0})
