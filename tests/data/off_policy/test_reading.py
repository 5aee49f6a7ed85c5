"""The policy sees recorded observations as an actor's does: preprocessed, with its state, from each first step on."""

import numpy as np
import pytest

from distrl.actors.acting import PolicyOutput
from distrl.data.episodes import DataError
from distrl.data.minari_sets import MinariEpisodes, path_of
from distrl.data.off_policy.reading import Noted, Showing
from distrl.data.playing import spaces_of
from distrl.environments.spaces import action_reader
from distrl.environments.vector import VectorEnvironment
from tests.data.logged_env import SPACES


class Counting:
    """Puts out the number of observations that it has seen in an episode; its weights are nothing."""

    def __init__(self, spec):
        self.spec = spec

    def initial_state(self, batch):
        return {"seen": np.zeros((batch, 1), np.float32)}

    def step(self, observations, state):
        return PolicyOutput({"seen": state["seen"].copy()}, {"seen": state["seen"] + 1.0})


@pytest.fixture
def showing(recorded, config):
    """Records episodes, and shows them; returns the log too."""

    def make(kind="plain", **environment):
        logged = recorded(kind=kind)
        section = config(kind=kind, environment=environment).environment
        probe = VectorEnvironment(section, 1)
        probe.close()
        episodes = Noted(MinariEpisodes("test/random", path_of("test/random")))
        policy = Counting(probe.spec)
        shows = Showing(policy, section, episodes, spaces_of(section), None, expands=True, rng=np.random.default_rng(0))
        return logged, episodes, shows

    return make


@pytest.mark.parametrize("kind", [kind for kind in SPACES if kind != "nested"])
def test_every_observation_is_shown_once_with_the_state_of_its_episode(showing, kind):
    logged, episodes, shows = showing(kind)
    assert sorted(played.length_steps for played in shows.play()) == sorted(len(log.rewards) for log in logged)
    shown = shows.shown()
    expected = np.concatenate([np.arange(len(log.rewards) + 1) for log in logged])
    assert shown.outputs["seen"][:, 0].tolist() == expected.tolist()
    spaces = SPACES[kind]
    for name, rows in action_reader("LoggedEnv", spaces[1])(episodes_actions(episodes)).items():
        np.testing.assert_array_equal(shown.actions[name], rows)
    if kind == "plain":
        np.testing.assert_array_equal(shown.numbers, np.concatenate([log.observations for log in logged]))
    if kind == "masked":
        ours = [np.concatenate([each["mask"], each["numbers"]]) for log in logged for each in log.observations]
        np.testing.assert_array_equal(shown.numbers, np.array(ours, np.float32))


def episodes_actions(episodes):
    return np.concatenate([episode.actions for episode in episodes.read(range(len(episodes.lengths)))])


def test_rewards_and_ends_are_the_recordings(showing):
    logged, noted, shows = showing()
    assert [*shows.play()]
    assert noted.knows_behaviour
    found = noted.recorded
    assert found.rewards.tolist() == [reward for log in logged for reward in log.rewards]
    assert found.terminated.tolist() == [log.terminated for log in logged]
    assert found.log_behaviour.tolist() == [-0.5] * len(found.rewards)


def test_large_observations_are_projected(showing, monkeypatch):
    monkeypatch.setattr("distrl.data.off_policy.features.MOST_NUMBERS", 20)
    _, _, shows = showing("image")
    assert [*shows.play()]
    assert shows.shown().numbers.shape[1] == 20


def test_a_policy_of_other_observations_is_refused(showing, config):
    _, episodes, _ = showing()
    section = config().environment
    probe = VectorEnvironment(config(kind="image").environment, 1)
    probe.close()
    with pytest.raises(DataError, match=r"the policy does not fit tests\.data\.logged_env:LoggedEnv: its observation"):
        Showing(
            Counting(probe.spec),
            section,
            episodes,
            spaces_of(section),
            None,
            expands=True,
            rng=np.random.default_rng(0),
        )
