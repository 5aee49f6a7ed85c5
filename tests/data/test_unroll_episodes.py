"""Episodes of unrolls are those that the environment logged, wherever unrolls begin and end."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.data.episodes import Spaces
from distrl.data.playing import Playing, spaces_of
from distrl.data.unroll_episodes import UnrollEpisodes
from distrl.errors import ConfigError
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from tests.data.logged_env import SPACES
from tests.data.test_playing import row_of, same, spec_of


@pytest.fixture
def unrolls(recorded, config):
    """Returns what joins unrolls, all unrolls of a recording, and its episodes by their first reward."""

    def make(kind="plain"):
        logged, run = recorded(kind=kind), config(kind=kind)
        joining = UnrollEpisodes(spec_of(run), spaces_of(run.environment))
        return joining, [*Playing(run, spec_of(run)).unrolls({})], {np.float32(log.rewards[0]): log for log in logged}

    return make


def joined(joining, unrolls):
    return [episode for unroll in unrolls for episode in joining.add(unroll)]


@pytest.mark.parametrize("kind", [kind for kind in SPACES if kind != "nested"])
def test_unrolls_become_the_logged_episodes(unrolls, kind):
    joining, shipped, by_reward = unrolls(kind)
    found = joined(joining, shipped)
    assert len(by_reward) - 3 <= len(found) <= len(by_reward)  # without one that ends in a row's last step
    for episode in found:
        log = by_reward.pop(np.float32(episode.rewards[0]))
        assert episode.rewards.tolist() == np.float32(log.rewards).tolist()
        assert episode.terminated == log.terminated
        assert episode.log_probabilities.tolist() == [-0.5] * len(log.rewards)
        for row, observation in enumerate(log.observations):
            assert same(row_of(episode.observations, row), observation)
        for row, action in enumerate(log.actions):
            assert same(row_of(episode.actions, row), action)


def test_an_episode_with_a_gap_is_left_out(unrolls):
    joining, shipped, by_reward = unrolls()
    whole = [float(episode.rewards[0]) for episode in joined(joining, shipped)]
    lost = shipped[1]
    held = {float(reward) for reward in lost.rewards[lost.valid]}
    expected = [
        first for first in whole if not held & {float(np.float32(r)) for r in by_reward[np.float32(first)].rewards}
    ]
    assert 0 < len(expected) < len(whole)
    joining._actors.clear()
    found = joined(joining, [shipped[0], *shipped[2:]])
    assert [float(episode.rewards[0]) for episode in found] == expected
    # Another incarnation begins with new episodes.
    again = [replace(unroll, header=replace(unroll.header, incarnation=2)) for unroll in shipped]
    assert [float(episode.rewards[0]) for episode in joined(joining, again)] == whole
    # After a reset without a step of its own, the open ones are gone.
    joining.abandon_open()
    assert joined(
        joining, [replace(shipped[0], header=replace(shipped[-1].header, sequence=len(shipped), incarnation=2))]
    )


def test_stacks_of_frames_are_rebuilt():
    array = ArraySpec((1,), "uint8", frames=2)
    spec = EnvSpec("an environment", {"observation": array}, {"action": DiscreteSpec(2)}, None, None)
    own = Spaces(Box(0, 255, (2,), np.uint8), Discrete(2), 2, None)
    steps = np.zeros((3, 1), np.float32)
    unroll = Unroll(
        UnrollHeader(0, 1, 0, 1, 2),
        {"observation": np.array([7, 7, 8, 9, 5], np.uint8)[:, None, None]},
        {"action": np.array([[1], [0], [0]], np.int32)},
        steps,
        np.array([[False], [True], [False]]),
        np.zeros((3, 1), np.bool_),
        np.array([[True], [True], [False]]),
        steps,
        {},
        np.zeros(1, np.float32),
        np.full(1, 2, np.int32),
    )
    (episode,) = UnrollEpisodes(spec, own).add(unroll)
    assert (episode.observations.tolist(), episode.terminated) == ([[7, 7], [7, 8], [8, 9]], True)
    assert episode.actions.tolist() == [1, 0]


def test_text_is_refused(config):
    run = config(kind="nested")
    with pytest.raises(ConfigError, match="observation '1/words' is text, and tokens do not tell its words"):
        UnrollEpisodes(spec_of(run), spaces_of(run.environment))
