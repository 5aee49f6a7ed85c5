import pytest
from pydantic import ValidationError

from distrl.config.remote_environment import BoxDescription, RemoteParameters, Spaces

SWITCH = {"type": "Discrete", "n": 2}


def test_nothing_need_be_said():
    parameters = RemoteParameters()
    assert (parameters.observation_space, parameters.token_file) == (None, None)
    assert parameters.first_connection_s(dial=True) < parameters.give_up_s
    assert parameters.max_message_bytes == 99_999_999  # what eight digits can say


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"observation_space": SWITCH}, "come together or not at all"),
        ({"action_space": SWITCH}, "come together or not at all"),
        ({"max_episode_steps": 5}, "the environment reports them"),
        ({"reward_threshold": 5.0}, "the environment reports them"),
        ({"prot": 6025}, "prot"),
        ({"give_up_s": 0}, "greater than 0"),
        ({"max_message_bytes": 10**8}, "less than or equal to 99999999"),
    ],
)
def test_what_contradicts_itself_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        RemoteParameters.model_validate(values)


def test_spaces_given_here_may_have_limits():
    given = {"observation_space": SWITCH, "action_space": SWITCH, "max_episode_steps": 9, "reward_threshold": 0.5}
    parameters = RemoteParameters.model_validate(given)
    assert (parameters.max_episode_steps, parameters.reward_threshold) == (9, 0.5)
    assert Spaces.model_validate(parameters.model_dump()).observation_space == parameters.observation_space


def test_bounds_keep_their_kind():
    box = BoxDescription.model_validate({"type": "Box", "shape": [2], "low": 2**53 + 1, "high": [1.5, None]})
    assert (box.low, box.high) == (2**53 + 1, (1.5, None))


def test_a_server_may_tell_more_than_this_version_knows():
    told = Spaces.model_validate({"status": "ok", "observation_space": SWITCH, "action_space": SWITCH, "game": "x"})
    assert told.max_episode_steps is None
