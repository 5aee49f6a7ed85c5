"""A person plays: the keys' actions are recorded, in a window of SDL's dummy driver."""

import importlib.util
from itertools import count
from pathlib import Path

import numpy as np
import pygame
import pytest

from distrl.apps.commands.main import main
from distrl.data.minari_sets import MinariEpisodes
from distrl.environments.vector import VectorEnvironment

PLAY = ("record", "human", "--output", "./typed", "--env")
KEYS = ("--keys", "{left: 0, right: 1}")


@pytest.fixture(autouse=True)
def _window(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame.quit()  # an environment of an earlier test may have opened a display
    yield
    pygame.quit()


@pytest.fixture
def typed(monkeypatch):
    """Posts the events of a key, down or up, before the steps of these numbers."""

    def make(events):
        pygame.display.init()
        steps = count()

        def post(step):
            for kind, name in events.get(step, ()):
                pygame.event.post(pygame.event.Event(kind, key=pygame.key.key_code(name)))

        def step(self, actions, original=VectorEnvironment.step):
            found = original(self, actions)
            post(next(steps))
            return found

        monkeypatch.setattr(VectorEnvironment, "step", step)
        post(-1)

    return make


def read():
    found = MinariEpisodes("./typed", Path.cwd() / "typed-v0" / "data")
    return [*found.read(range(len(found.lengths)))]


@pytest.mark.row("D30")
def test_what_a_person_plays_is_recorded(typed, capsys):
    typed({-1: [(pygame.KEYDOWN, "right")], 2: [(pygame.KEYUP, "right"), (pygame.KEYDOWN, "left")]})
    assert main([*PLAY, "CartPole-v1", *KEYS, "--episodes", "2"]) == 0
    first, second = read()
    steps = len(first.rewards) + len(second.rewards)
    assert capsys.readouterr().out.startswith(f"2 episodes, {steps} steps, mean return {steps / 2:g}: ")
    assert first.actions[:4].tolist() == [1, 1, 1, 0]
    assert {*first.actions[4:].tolist(), *second.actions.tolist()} == {0}
    for episode in (first, second):
        assert (len(episode.observations), episode.terminated) == (len(episode.rewards) + 1, True)
        moved = np.diff(episode.observations[:, 1])  # the cart's velocity follows the keys
        assert (np.sign(moved) == 2 * episode.actions - 1).all()


def test_escape_ends_it_and_keeps_the_episodes_that_have_ended(typed):
    typed({-1: [(pygame.KEYDOWN, "right")], 14: [(pygame.KEYDOWN, "escape")]})
    assert main([*PLAY, "CartPole-v1", *KEYS]) == 0
    (episode,) = read()
    assert len(episode.rewards) < 14


def test_the_environments_own_map_of_keys(typed):
    typed({})
    limit = ("--set", "environment.kwargs.max_episode_steps=3", "--episodes", "1")
    assert main([*PLAY, "MountainCar-v0", *limit]) == 0  # whose map has an action of no key
    assert read()[0].actions.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((*PLAY, "CartPole-v1"), "environment CartPole-v1 has no map of keys; write one: --keys '{left: 0, right: 1}'"),
        (
            (*PLAY, "CartPole-v1", "--keys", "{lft: 0}"),
            "--keys: no key is called 'lft'; write a, 1, space, return, left",
        ),
        ((*PLAY, "CartPole-v1", "--keys", "{left: 5}"), "the keys of CartPole-v1: action 'action': the action 5 of"),
        ((*PLAY, "CartPole-v1", "--keys", "left"), "--keys must hold a mapping"),
        ((*PLAY, "CartPole-v1", "--keys", "{}"), "--keys {} has no key; write --keys '{left: 0"),
        (PLAY[:-1], "human actions in which environment? distrl record human --env ID"),
        (("record", "random", "--output", "x", *KEYS), "--keys goes with a person who acts: distrl record human"),
    ],
)
def test_bad_keys_cost_one_line(capsys, tmp_path, arguments, line):
    assert main([*arguments]) == 2
    assert line in capsys.readouterr().err.splitlines()[-1]  # before it, a slow machine says what it waits for
    assert not [*tmp_path.iterdir()]


def test_without_a_display_or_pygame_it_costs_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nowhere")
    play = (*PLAY, "CartPole-v1", "--keys", "{none: 0}", "--episodes", "1")  # without the error it ends, too
    assert main([*play]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("distrl: error: record human needs a display for its window: ")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pygame" else find(name))
    assert main([*play]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("distrl: error: pygame, which opens the window of record human, is not installed: ")
    assert not [*tmp_path.iterdir()]
