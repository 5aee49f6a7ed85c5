"""AtariParameters: Machado et al. 2018 by default; what makes no sense is refused where it stands."""

import pytest
from pydantic import ValidationError

from distrl.config.atari import AtariParameters
from distrl.config.environment import EnvironmentConfig


def test_the_protocol_of_machado_et_al_is_the_default():
    parameters = AtariParameters()
    assert (parameters.repeat_action_probability, parameters.frame_skip, parameters.max_pool) == (0.25, 4, True)
    assert (parameters.noop_max, parameters.fire_reset, parameters.episodic_life) == (0, False, False)
    assert (parameters.max_frames_per_episode, parameters.size, parameters.stack) == (108_000, (84, 84), 4)


def test_a_range_of_frames_survives_json():
    config = EnvironmentConfig.model_validate({"id": "ALE/Pong-v5", "atari": {"frame_skip": [2, 5]}})
    again = EnvironmentConfig.model_validate(config.model_dump(mode="json"))
    assert again == config
    assert again.atari is not None
    assert again.atari.frame_skip == (2, 5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"frame_skip": 0}, "greater than or equal to 1"),
        ({"frame_skip": [0, 2]}, "greater than or equal to 1"),
        ({"frame_skip": [4, 4]}, r"frame_skip: \[4, 4\] holds no number"),
        ({"frame_skip": [2, 3, 4]}, "frame_skip"),
        ({"repeat_action_probability": 1.5}, "less than or equal to 1"),
        ({"life_loss_reward": float("nan")}, "finite"),
        ({"size": [84]}, "size"),
        ({"frameskip": 4}, "frameskip"),
    ],
    ids=str,
)
def test_nonsense_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        AtariParameters.model_validate(values)
