"""Episodes of unrolls are those that the environment logged, wherever unrolls begin and end."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.data import unroll_episodes
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
    # Nor is it known whether one ended with the last step before the gap, or began with the first one after it.
    held = {float(r) for r in (*lost.rewards[lost.valid], *shipped[0].rewards[-1], *shipped[2].rewards[0])}
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


def stacked(frames, sequence=0, ends=False):
    """Return an unroll of 2 steps, of frames [4], with a third one that begins the next episode if one ends."""
    rows = 3 if ends else 2
    zeros = np.zeros((rows, 1), np.float32)
    valid = np.ones((rows, 1), np.bool_)
    valid[2:] = False
    return Unroll(
        UnrollHeader(0, 1, sequence, 1, 2),
        {"observation": np.array(frames, np.uint8)[:, None, None]},
        {"action": np.array([[1], [0], [0]][:rows], np.int32)},
        zeros,
        np.arange(rows)[:, None] == (1 if ends else rows),
        np.zeros((rows, 1), np.bool_),
        valid,
        zeros,
        {},
        np.zeros(1, np.float32),
        np.full(1, 2, np.int32),
    )


@pytest.fixture
def joining_stacks():
    spec = EnvSpec(
        "an environment", {"observation": ArraySpec((2,), "uint8", frames=2)}, {"action": DiscreteSpec(2)}, None, None
    )
    return UnrollEpisodes(spec, Spaces(Box(0, 255, (2,), np.uint8), Discrete(2), 2, None))


def test_stacks_of_frames_are_rebuilt(joining_stacks):
    assert not joining_stacks.add(stacked([7, 7, 8, 9]))
    (episode,) = joining_stacks.add(stacked([8, 9, 4, 3, 5], sequence=1, ends=True))
    assert episode.observations.tolist() == [[7, 7], [7, 8], [8, 9], [9, 4], [4, 3]]
    assert (episode.terminated, episode.actions.tolist()) == (True, [1, 0, 1, 0])


def test_open_episodes_have_a_bound_in_bytes_of_single_frames(joining_stacks, monkeypatch):
    piece_bytes = unroll_episodes._PIECE_BYTES + 2 * (1 + 4 + 4 + 4)  # a frame, and the other numbers of a step
    monkeypatch.setattr(unroll_episodes, "OPEN_BYTES", 3 * piece_bytes)
    for sequence in range(3):
        assert not joining_stacks.add(stacked([7, 7, 8, 9], sequence))
    assert joining_stacks.too_long == 0
    assert not joining_stacks.add(stacked([7, 7, 8, 9], 3))
    assert joining_stacks.too_long == 1
    assert not joining_stacks.add(stacked([8, 9, 4, 3, 5], 4, ends=True))  # the end of what was left out
    (episode,) = joining_stacks.add(stacked([3, 5, 4, 3, 5], 5, ends=True))
    assert episode.observations.tolist() == [[5, 5], [5, 4], [4, 3]]


def test_the_longest_open_episode_is_left_out_first(unrolls, monkeypatch):
    """Episodes that end take the place of those that do not."""
    joining, shipped, _ = unrolls()
    endless = [
        replace(
            shipped[0],
            header=replace(shipped[0].header, actor=7, sequence=sequence),
            valid=np.ones_like(shipped[0].valid),
            terminated=np.zeros_like(shipped[0].terminated),
        )
        for sequence in range(20)
    ]
    whole = [episode.rewards.tolist() for episode in joined(joining, shipped)]
    joining._actors.clear()
    monkeypatch.setattr(unroll_episodes, "OPEN_BYTES", 15_000 * (rows := shipped[0].valid.shape[1]))
    assert not joined(joining, endless[:5])
    found = joined(joining, shipped)
    assert [episode.rewards.tolist() for episode in found] == whole
    assert (joining.too_long, not joined(joining, endless[5:])) == (0, True)
    assert joining.too_long == rows
    assert sum(actor.size_bytes for actor in joining._actors.values()) <= 15_000 * rows


def test_text_is_refused(config):
    run = config(kind="nested")
    with pytest.raises(ConfigError, match="observation '1/words' is text, and tokens do not tell its words"):
        UnrollEpisodes(spec_of(run), spaces_of(run.environment))
