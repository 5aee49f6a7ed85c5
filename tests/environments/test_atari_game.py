"""One game against the console itself, frame by frame, and against gymnasium's preprocessing where that is right."""

from collections import Counter
from itertools import pairwise

import cv2
import gymnasium
import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py.env import AtariEnv
from gymnasium.wrappers import AtariPreprocessing

from distrl.config.atari import AtariParameters
from distrl.environments.atari_game import AtariGame

RANDOM = 0  # Breakout, played at random from here, is over after 183 steps, at the first frame of the last


def game(name: str = "breakout", **parameters) -> AtariGame:
    return AtariGame(AtariParameters(repeat_action_probability=parameters.pop("sticky", 0.0), **parameters), name)


def scaled(*screens) -> np.ndarray:
    return cv2.resize(np.maximum.reduce(screens), (84, 84), interpolation=cv2.INTER_AREA)[..., None]


def play(made: AtariGame, steps: int = 1000):
    """(observation, reward, terminated, truncated, info) of every step of one game at random."""
    made.reset(seed=RANDOM)
    random = np.random.default_rng(RANDOM)
    for _ in range(steps):
        step = made.step(random.integers(4))
        yield step
        if step[2] or step[3]:
            return


@pytest.mark.parametrize("sticky", [pytest.param(0.0, marks=pytest.mark.long), 0.25])
def test_observations_and_rewards_are_gymnasiums_until_the_game_is_over(sticky):
    single = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=sticky, disable_env_checker=True)
    reference = AtariPreprocessing(single, noop_max=0, frame_skip=4, grayscale_newaxis=True)
    made = game(sticky=sticky)
    assert made.observation_space == reference.observation_space
    np.testing.assert_array_equal(made.reset(seed=5)[0], reference.reset(seed=5)[0], strict=True)
    random, rewards, over = np.random.default_rng(1), 0.0, False
    while not over:
        action = random.integers(4)
        expected, expected_reward, expected_over, _, _ = reference.step(action)
        observation, reward, over, truncated, _ = made.step(action)
        rewards += reward
        assert (reward, over, truncated) == (expected_reward, expected_over, False)
        if not over:
            np.testing.assert_array_equal(observation, expected, strict=True)
    assert rewards > 0


@pytest.mark.row("M03", "D190")
def test_frames_are_four_for_every_step_until_the_game_is_over():
    frames = [info["episode_frames"] for *_, info in play(game())]
    assert frames[:-1] == list(range(4, 4 * len(frames), 4))
    assert 0 < frames[-1] - frames[-2] <= 4


@pytest.mark.row("M03", "T12")
def test_a_game_that_is_over_inside_a_skip_shows_its_last_frame():
    """RLgraph showed what it had shown before, as gymnasium does."""
    console = AtariEnv("breakout", obs_type="grayscale", frameskip=1, repeat_action_probability=0.0)
    console.reset(seed=RANDOM)
    random, frames = np.random.default_rng(RANDOM), [console.ale.getScreenGrayscale()]
    while not console.ale.game_over():
        action = console.ale.getMinimalActionSet()[random.integers(4)]
        for _ in range(4):
            console.ale.act(action)
            frames.append(console.ale.getScreenGrayscale())
            if console.ale.game_over():
                break
    *_, before, last = play(game())
    assert last[2]
    skipped = last[4]["episode_frames"] - before[4]["episode_frames"]
    assert skipped == 1
    np.testing.assert_array_equal(last[0], scaled(frames[-1]), strict=True)
    assert (last[0] != before[0]).any()


class Console:
    """Stands in for ALE: the screen is the number of the frame, and the game is over at one of them."""

    def __init__(self, over_at):
        self.frame, self.over_at = 0, over_at

    def act(self, action):
        self.frame += 1
        return 1

    def game_over(self, with_truncation=True):
        return self.frame >= self.over_at

    def getScreenGrayscale(self, screen):  # noqa: N802
        # Even frames hide the left half, odd ones the right half.
        screen[:] = 0
        half = slice(80, None) if self.frame % 2 == 0 else slice(None, 80)
        screen[:, half] = self.frame

    def getEpisodeFrameNumber(self):  # noqa: N802
        return self.frame

    def lives(self):
        return 0


@pytest.mark.row("D190")
@pytest.mark.parametrize(
    ("over_at", "reward", "left", "right"),
    [(9, 4, 3, 4), (4, 4, 3, 4), (3, 3, 3, 0), (2, 2, 0, 2), (1, 1, 1, 0)],
    ids=["never", "last frame", "third", "second", "first"],
)
def test_the_maximum_is_over_the_last_two_frames_of_the_step(over_at, reward, left, right):
    made = game()
    made.reset(seed=0)
    made._screens[:] = 99  # of the step before
    made._ale, made._began_at = Console(over_at), 0
    observation, paid, over, _, info = made.step(0)
    assert (paid, over, info["episode_frames"]) == (reward, over_at <= 4, reward)
    assert (observation[:, :41] == left).all()
    assert (observation[:, 43:] == right).all()


def test_without_pooling_the_last_frame_is_shown():
    made = game(max_pool=False)
    made.reset(seed=0)
    made._ale, made._began_at = Console(9), 0
    observation = made.step(0)[0]
    assert (observation[:, :41] == 0).all()
    assert (observation[:, 43:] == 4).all()


@pytest.mark.row("M03", "T12")
def test_a_range_of_frames_is_drawn_anew_at_every_step():
    """RLgraph failed on the first step: range of a tuple."""
    frames = [info["episode_frames"] for *_, info in play(game("pong", frame_skip=(2, 5)), 300)]
    drawn = Counter(after - before for before, after in pairwise([0, *frames]))
    assert drawn.keys() == {2, 3, 4}
    assert all(75 <= count <= 125 for count in drawn.values()), drawn  # 100 each, three standard deviations
    again = [info["episode_frames"] for *_, info in play(game("pong", frame_skip=(2, 5)), 300)]
    assert again == frames


@pytest.mark.row("M03", "D190")
def test_a_game_begins_after_one_to_n_no_ops():
    made = game("pong", noop_max=30)
    counts = Counter()
    for seed in range(40):
        _, info = made.reset(seed=None if seed else 3)
        counts[made._ale.getEpisodeFrameNumber()] += 1
        assert info["episode_frames"] == 0
    assert min(counts) >= 1
    assert max(counts) <= 30
    assert len(counts) > 15
    few = game("pong", noop_max=2)
    few.reset(seed=0)
    assert {few.reset() and few._ale.getEpisodeFrameNumber() for _ in range(20)} == {1, 2}


def test_fire_is_pressed_once_where_the_game_knows_it():
    for name, frames in (("breakout", 1), ("freeway", 0)):
        made = game(name, fire_reset=True)
        made.reset(seed=0)
        assert made._ale.getEpisodeFrameNumber() == frames
    ball = game(fire_reset=True)
    ball.reset(seed=0)
    still = game()
    still.reset(seed=0)
    moves = [np.ptp([made.step(0)[0][40:75] for _ in range(8)], axis=0).any() for made in (ball, still)]
    assert moves == [True, False]


def test_half_an_hour_truncates_and_shows_the_screen_of_then():
    steps = list(play(game(max_frames_per_episode=38)))
    assert [step[3] for step in steps] == [False] * 9 + [True]
    assert not any(step[2] for step in steps)
    longer = list(play(game(), 10))
    np.testing.assert_array_equal(steps[-1][0], longer[-1][0], strict=True)


def test_colours_and_size():
    made = game(greyscale=False, size=(105, 80))
    observation, _ = made.reset(seed=0)
    assert made.observation_space.contains(observation)
    assert observation.shape == (105, 80, 3)
    expected = cv2.resize(made._ale.getScreenRGB(), (80, 105), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(observation, expected, strict=True)


@pytest.mark.row("M13")
def test_actions_have_names():
    assert game("pong").action_names == ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")
    every = game("pong", full_action_space=True)
    assert len(every.action_names) == every.action_space.n == 18


def test_mode_and_difficulty_reach_the_console():
    made = AtariGame(AtariParameters(), "breakout", mode=4, difficulty=1)
    assert (made._console._game_mode, made._console._game_difficulty) == (4, 1)


def test_people_see_the_console_s_screen():
    made = game()
    made.reset(seed=RANDOM)
    console = AtariEnv(game="breakout", frameskip=1, repeat_action_probability=0.0)
    console.reset(seed=RANDOM)
    np.testing.assert_array_equal(made.render(), console.ale.getScreenRGB(), strict=True)
    assert made.render().shape == (210, 160, 3)
    assert made.metadata["render_fps"] == 15.0  # 60 frames a second, 4 of them a step
