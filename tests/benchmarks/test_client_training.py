"""Clients of a training, against a server that a test answers for."""

import json
import threading

import gymnasium
import numpy as np
import pytest

from benchmarks import client_training
from benchmarks.client_training import accepted, client_seeds, environment_of, plain, play
from benchmarks.clients import MASKED
from distrl.config.environment import EnvironmentConfig
from distrl.environments.worlds.toy import StepCounter


class Server:
    """Answers each message with an action, and keeps it."""

    def __init__(self, action):
        self.action, self.messages = action, []

    def __call__(self, message):
        self.messages.append(json.loads(json.dumps(message)))
        return {"action": self.action}


@pytest.mark.parametrize(
    ("ends", "last"),
    [
        ({"terminate_at_steps": 2}, {"terminated": True}),
        ({"terminate_at_steps": None, "truncate_at_steps": 2}, {"observation": [2.0], "truncated": True}),
        ({"terminate_at_steps": 2, "truncate_at_steps": 2}, {"terminated": True}),
    ],
)
def test_an_episode_is_reported_to_its_end(ends, last):
    server = Server(1)
    play(StepCounter(**ends), server, 3, threading.Event())
    assert server.messages == [
        {"observation": [0.0], "begins": True},
        {"reward": 1.0, "step": 0, "observation": [1.0]},
        {"reward": 2.0, "step": 1, **last},
    ]


def test_an_episode_is_left_once_the_run_is_over():
    server, over = Server(1), threading.Event()
    over.set()
    play(StepCounter(), server, None, over)
    assert server.messages == [{"observation": [0.0], "begins": True}]


@pytest.mark.parametrize(("name", "action"), [("Pendulum-v1", [0.5]), ("FrozenLake-v1", 2)])
def test_actions_are_taken_as_json_has_them(name, action):
    server, steps = Server(action), []
    environment = gymnasium.make(name)
    play(environment, lambda message: steps.append(message) or server(message), 0, threading.Event())
    assert steps[-1].get("terminated") or steps[-1].get("truncated")
    assert {type(message.get("reward", 0.0)) for message in steps} == {float}


def test_masks_are_a_part_of_the_observation():
    environment = environment_of(EnvironmentConfig(id=MASKED, kwargs={"n": 3}))
    observation, _ = environment.reset(seed=0)
    shown = plain(observation)
    assert shown.keys() == {"action_mask", "x"}
    assert sorted(shown["action_mask"]) == [0, 1, 1]
    assert plain(np.float32([0.5])) == [0.5]


def test_clients_have_seeds_of_their_own():
    assert len({*client_seeds(1), *client_seeds(2)}) == 2 * client_training.CLIENTS
    assert client_seeds(1) == client_seeds(1)


def test_a_refusal_ends_the_training():
    assert accepted({"action": 1}) == {"action": 1}
    with pytest.raises(RuntimeError, match=r"^refused with status 409: no such session$"):
        accepted({"error": "no such session", "status": 409})
