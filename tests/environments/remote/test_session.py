"""Requests to one environment, without sockets."""

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph

from distrl import wire
from distrl.environments.remote.session import RemoteSession
from distrl.environments.worlds.toy import Identity, StepCounter
from distrl.errors import ConfigError


class Settable(StepCounter):
    """Shows x, which can be set."""

    def set_state(self, x: int) -> Any:
        if x < 0:
            raise ValueError("x is negative")
        self._steps = x
        return np.full(1, x, np.float32)


class Silent(StepCounter):
    def set_state(self, x: int) -> None:
        self._steps = x


class Breaks(StepCounter):
    def step(self, action: Any) -> Any:
        if action == 1:
            raise SystemExit(7)
        raise RuntimeError("the motor\nis hot")


class Named(gymnasium.Env):
    """Observations and actions by name."""

    observation_space = Dict({"camera": Box(0, 255, (2, 2), np.uint8), "arm": Box(-1.0, 1.0, (1,))})
    action_space = Dict({"grip": Discrete(2), "turn": Box(-1.0, 1.0, (1,))})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"camera": np.zeros((2, 2), np.uint8), "arm": np.zeros(1, np.float32)}, {}

    def step(self, action: Any) -> Any:
        camera = np.full((2, 2), action["grip"], np.uint8)
        return {"camera": camera, "arm": action["turn"]}, 1, False, False, {}


def session(environment) -> Any:
    """Every request and reply travels."""
    served = RemoteSession(environment)

    def ask(**request):
        return wire.unpack(wire.pack(served.handle(wire.unpack(wire.pack(request)))))

    ask.served = served
    return ask


class Measured(StepCounter):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"height": np.float32(0.5), "name": "hill", "large": np.zeros(9)}


def test_a_step_reports_the_numbers_of_info_that_it_names():
    ask = session(Measured())
    ask(cmd="reset")
    assert "info" not in ask(cmd="step", action=1)
    assert ask(cmd="step", action=1, info=["height", "width"])["info"] == {"height": 0.5}
    said = ask(cmd="step", action=1, info=["name"])["message"]
    assert said == "step: TypeError: environment.metrics.name needs a number, and info has a value of type str"
    for odd in ("height", [1], None):
        assert ask(cmd="step", action=1, info=odd)["message"] == "the info that a step names must be a list of texts"


def test_a_whole_episode_counted():
    ask = session(StepCounter(terminate_at_steps=2))
    assert ask(cmd="hello", token="whatever was let in") == {"status": "ok"}
    assert ask(cmd="seed", value=3) == {"status": "ok", "value": 3}
    assert ask(cmd="reset") == {"status": "ok", "obs_dict": {"observation": np.zeros(1, np.float32)}}
    assert ask(cmd="step", action=1) == {
        "status": "ok",
        "obs_dict": {"observation": np.ones(1, np.float32)},
        "reward": 1.0,
        "terminated": False,
        "truncated": False,
        "is_terminal": False,
    }
    last = ask(cmd="step", action=0)
    assert (last["reward"], last["terminated"], last["truncated"], last["is_terminal"]) == (2.0, True, False, True)
    assert (ask.served.steps, ask.served.episodes) == (2, 1)
    assert ask(cmd="step", action=0) == {"status": "error", "message": "step outside an episode; reset comes first"}
    assert ask(cmd="reset")["status"] == "ok"


def test_a_truncation_is_terminal_to_those_who_know_no_other_end():
    ask = session(StepCounter(None, truncate_at_steps=1))
    ask(cmd="reset")
    last = ask(cmd="step", action=0)
    assert (last["terminated"], last["truncated"], last["is_terminal"]) == (False, True, True)


def test_describe_tells_spaces_and_limits():
    told = session(gymnasium.make("CartPole-v1"))(cmd="describe")
    assert (told["status"], told["max_episode_steps"], told["reward_threshold"]) == ("ok", 500, 475.0)
    assert told["action_space"] == {"type": "Discrete", "n": 2, "start": 0}
    assert told["observation_space"]["shape"] == (4,)
    own = session(Identity(n=3, length_steps=4))(cmd="describe")
    assert (own["max_episode_steps"], own["reward_threshold"]) == (None, pytest.approx(3.8))


def test_a_seed_is_for_one_reset():
    ask = session(Identity(n=1000))
    ask(cmd="seed", value=7)
    first, second = (ask(cmd="reset")["obs_dict"]["observation"] for _ in range(2))
    expected = Identity(n=1000)
    assert [first, second] == [expected.reset(seed=7)[0], expected.reset()[0]]


def test_observations_and_actions_by_name():
    ask = session(Named())
    assert sorted(ask(cmd="reset")["obs_dict"]) == ["arm", "camera"]
    seen = ask(cmd="step", action={"grip": 1, "turn": (0.5,)})["obs_dict"]
    np.testing.assert_array_equal(seen["camera"], [[1, 1], [1, 1]])
    np.testing.assert_array_equal(seen["arm"], np.array([0.5], np.float32))


@pytest.mark.row("M16")
def test_set_state_shows_the_state():
    ask = session(Settable())
    ask(cmd="reset")
    assert ask(cmd="set_state", state={"x": 3}) == {"status": "ok", "obs_dict": {"observation": np.float32([3.0])}}
    assert ask(cmd="step", action=0)["obs_dict"] == {"observation": np.float32([4.0])}


@pytest.mark.row("M16")
@pytest.mark.parametrize(
    ("environment", "request_", "message"),
    [
        (Settable, {"state": {"y": 3}}, "set_state: got an unexpected keyword argument 'y'; it takes x"),
        (Settable, {"state": {"x": -1}}, "set_state: ValueError: x is negative"),
        (Settable, {"state": 3}, "needs a state, a map"),
        (Settable, {}, "needs a state, a map"),
        (Silent, {"state": {"x": 3}}, "returned nothing"),
        (StepCounter, {"state": {"x": 3}}, "has no set_state"),
    ],
)
def test_a_state_that_cannot_be_set_is_an_error(environment, request_, message):
    ask = session(environment())
    ask(cmd="reset")
    replied = ask(cmd="set_state", **request_)
    assert replied["status"] == "error"
    assert re.search(message, replied["message"])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"cmd": "fly"}, "unknown cmd 'fly'; there are hello, describe, seed, reset, step, set_state"),
        ({"cmd": "close"}, "unknown cmd 'close'"),
        ({"cmd": ("step",)}, "unknown cmd"),
        ({}, "unknown cmd 'None'"),
        ({"cmd": "seed"}, "seed needs a value that is a whole number from 0, not None"),
        ({"cmd": "seed", "value": -1}, "not -1"),
        ({"cmd": "seed", "value": True}, "not True"),
        ({"cmd": "step"}, "step needs an action"),
        ({"cmd": "step", "action": 2}, "'action' is 2, outside Discrete(2)"),
        ({"cmd": "step", "action": "left"}, "'action' must be one whole number, not left"),
    ],
)
def test_a_wrong_request_is_an_error_and_the_next_one_goes_on(request_, message):
    ask = session(StepCounter())
    ask(cmd="reset")
    replied = ask(**request_)
    assert replied["status"] == "error"
    assert message in replied["message"]
    assert ask(cmd="step", action=1)["reward"] == 1.0


def test_an_action_beyond_its_bounds_is_refused():
    ask = session(Named())
    ask(cmd="reset")
    assert "is not in" in ask(cmd="step", action={"grip": 1, "turn": (5.0,)})["message"]


def test_what_the_environment_raises_is_the_reply_in_one_line():
    ask = session(Breaks())
    ask(cmd="reset")
    assert ask(cmd="step", action=0) == {"status": "error", "message": "step: RuntimeError: the motor is hot"}
    assert ask(cmd="step", action=1) == {"status": "error", "message": "step: SystemExit: 7"}


def test_a_space_that_cannot_travel_is_refused_at_once():
    class Odd(StepCounter):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = Graph(Discrete(2), None)

    with pytest.raises(ConfigError, match="the space at 'action' cannot be served: it is a Graph"):
        RemoteSession(Odd())
