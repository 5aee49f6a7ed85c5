"""ALE's vector against single games on the same actions: the same in all but the screen of a lost game."""

import numpy as np
import pytest

pytest.importorskip("ale_py")

from gymnasium.vector import AutoresetMode, SyncVectorEnv

from distrl.config.atari import AtariParameters
from distrl.environments.atari_game import AtariGame
from distrl.environments.vectors.ale_vector import AleVector

COUNT = 2


def both(name: str = "breakout", **values):
    """ALE's, and single games; without sticky actions, whose draws differ."""
    parameters = AtariParameters(repeat_action_probability=0.0, **values)
    games = [lambda: AtariGame(parameters, name)] * COUNT
    return AleVector(parameters, name, COUNT), SyncVectorEnv(games, autoreset_mode=AutoresetMode.NEXT_STEP)


def compare(vectors, steps: int, seed: int = 0) -> list[tuple[np.ndarray, ...]]:
    """Steps both, asserts that they agree, and returns (terminated, truncated, whether the screens are equal)."""
    ale, single = vectors
    assert ale.single_observation_space == single.single_observation_space
    assert ale.single_action_space == single.single_action_space
    first, _ = ale.reset(seed=[1, 2])
    np.testing.assert_array_equal(first, single.reset(seed=[1, 2])[0], strict=True)
    random, rows = np.random.default_rng(seed), []
    for _ in range(steps):
        actions = random.integers(ale.single_action_space.n, size=COUNT)
        mine, theirs = ale.step(actions), single.step(actions)
        for position in (1, 2, 3):
            np.testing.assert_array_equal(mine[position], theirs[position])
        for name in ("lives", "episode_frames"):
            np.testing.assert_array_equal(mine[4][name], theirs[4][name])
        rows.append((mine[2], mine[3], (mine[0] == theirs[0]).all(axis=(1, 2, 3))))
    ale.close()
    return [np.array(column) for column in zip(*rows, strict=True)]


def test_games_are_the_same_beyond_their_end_and_only_the_screen_of_a_lost_game_is_old():
    terminated, truncated, equal = compare(both(), 400)
    assert terminated.sum() >= 2
    assert not truncated.any()
    assert equal[~terminated].all()
    assert not equal[terminated].all()  # some last screens are as the ones before; if all are, ALE shows the true one


@pytest.mark.long
def test_a_truncated_game_shows_its_true_screen_and_the_next_begins():
    terminated, truncated, equal = compare(both(max_frames_per_episode=150), 80)
    assert truncated.sum() >= 4
    assert not terminated.any()
    assert equal.all()
    ended = np.flatnonzero(truncated[:, 0])
    assert set(np.diff(ended)) == {39}  # 38 steps of four frames, and the row of the reset


def test_games_end_apart_from_each_other():
    """One of two games is truncated; the other has begun later, because an earlier one was over."""
    terminated, truncated, equal = compare(both(max_frames_per_episode=700), 250, seed=4)
    assert terminated.any()
    assert truncated.any()
    assert (truncated.any(axis=1) & ~truncated.all(axis=1)).any()
    assert equal[~terminated].all()


@pytest.mark.parametrize(
    "values",
    [
        {"max_pool": False, "frame_skip": 3, "fire_reset": True},
        *(
            pytest.param(values, marks=pytest.mark.long)
            for values in ({"max_pool": False}, {"frame_skip": 1}, {"frame_skip": 3}, {"fire_reset": True})
        ),
    ],
    ids=str,
)
def test_options_are_the_same(values):
    _, _, equal = compare(both(**values), 25)
    assert equal.all()


@pytest.mark.long
def test_colours_size_and_all_actions_are_the_same():
    _, _, equal = compare(both("pong", greyscale=False, size=(42, 40), full_action_space=True), 20)
    assert equal.all()


def test_seeds_repeat_sticky_games():
    def play(seed):
        vector = AleVector(AtariParameters(threads=2), "breakout", COUNT)
        vector.reset(seed=seed)
        seen = [vector.step(np.array([k % 4, (k + 1) % 4]))[0] for k in range(25)]
        vector.close()
        return np.array(seen)

    played = play([7, 8])
    np.testing.assert_array_equal(play([7, 8]), played)
    assert (played != play([9, 8])).any()
