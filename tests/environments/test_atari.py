"""Atari games as actors see them: lives and games, stacks, and what travels to the learner."""

from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("ale_py")

from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TimeLimit

from distrl.actors.unroll import UnrollBuilder
from distrl.config.environment import EnvironmentConfig
from distrl.environments import atari
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError
from distrl.memory_backend.codec import decode_unroll, encode_unroll
from distrl.memory_backend.joining import stack
from distrl.unroll_schema import UnrollSchema


def configure(env_id: str = "ALE/Breakout-v5", vectorization: Any = "auto", kwargs: Any = None, **values: Any):
    return EnvironmentConfig(
        id=env_id,
        vectorization=vectorization,
        kwargs=kwargs or {},
        atari={"repeat_action_probability": 0.0, **values},
    )


def make(*args: Any, count: int = 1, **values: Any) -> VectorEnvironment:
    return VectorEnvironment(configure(*args, **values), count)


def refusal(*args: Any, **values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(*args, **values)
    message = str(caught.value)
    assert "\n" not in message
    return message


def play(environment: VectorEnvironment, steps: int):
    """Games at random: terminated, truncated, valid and rewards of the first environment, by step."""
    environment.reset(seed=3)
    random, rows = np.random.default_rng(0), []
    for _ in range(steps):
        step = environment.step({"action": random.integers(4, size=environment.rows, dtype=np.int32)})
        rows.append((step.terminated[0], step.truncated[0], step.valid[0], step.rewards[0]))
    environment.close()
    return [np.array(column) for column in zip(*rows, strict=True)]


@pytest.mark.row("M03")
@pytest.mark.parametrize("vectorization", ["sync", "ale"])
def test_a_lost_life_is_terminated_and_the_game_goes_on(vectorization):
    whole = play(make(vectorization=vectorization), 200)
    terminated, truncated, valid, rewards = play(make(vectorization=vectorization, episodic_life=True), 200)
    (over,) = np.flatnonzero(whole[0])
    assert np.flatnonzero(terminated)[4] == over
    assert len(np.flatnonzero(terminated)) == 5  # of Breakout's five lives the last one ends the game
    assert not truncated.any()
    np.testing.assert_array_equal(np.flatnonzero(~valid), [over + 1])
    np.testing.assert_array_equal(rewards, whole[3])  # the same game: nothing was reset in between


@pytest.mark.row("M13")
@pytest.mark.parametrize("vectorization", ["sync", "ale"])
def test_a_lost_life_costs_its_reward(vectorization):
    lives = play(make(vectorization=vectorization, episodic_life=True), 200)[0]
    plain = play(make(vectorization=vectorization), 200)[3]
    costly = play(make(vectorization=vectorization, life_loss_reward=-1.0), 200)
    np.testing.assert_array_equal(costly[3], plain - lives)
    assert costly[0].sum() == 1


@pytest.mark.row("M03", "T12")
@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("ALE/Pong-v5", {}),
        ("ale_py:Pong-v4", {}),  # registered with 2, 3 or 4 frames
        ("ale_py:PongNoFrameskip-v4", {}),
        ("ale_py.env:AtariEnv", {"game": "pong"}),
    ],
)
def test_a_game_is_known_by_what_makes_it(env_id, kwargs):
    """RLgraph looked for "NoFrameskip" in the name, and failed where it was given an environment."""
    vector = atari.make_vector(configure(env_id, kwargs=kwargs), 2).vector
    vector.reset(seed=[1, 2])
    frames = [vector.step(np.array([0, 3]))[4]["episode_frames"].tolist() for _ in range(5)]
    assert frames == [[4, 4], [8, 8], [12, 12], [16, 16], [20, 20]]
    vector.close()


@pytest.mark.row("D190")
def test_the_spec_says_what_is_seen():
    environment = make("ALE/Pong-v5", count=2)
    (spec,) = environment.spec.observations.values()
    assert (spec.shape, spec.frame_shape, spec.frames, spec.dtype) == ((84, 84, 4), (84, 84, 1), 4, "uint8")
    assert environment.spec.max_episode_steps == 27_000
    assert environment.vectorization == "sync"
    assert environment.reset(seed=0)["observation"].shape == (2, 84, 84, 4)
    environment.close()
    colours = make(stack=2, greyscale=False, size=(20, 30), frame_skip=(2, 5))
    (spec,) = colours.spec.observations.values()
    assert (spec.shape, spec.frame_shape, spec.frames) == ((20, 30, 6), (20, 30, 3), 2)
    assert colours.spec.max_episode_steps is None
    colours.close()
    single = make(stack=1)
    (spec,) = single.spec.observations.values()
    assert (spec.shape, spec.frames) == ((84, 84, 1), 1)
    single.close()


@pytest.mark.parametrize("vectorization", ["sync", "ale"])
def test_learner_batches_hold_gymnasiums_stacks_and_frames_travel_once(vectorization):
    """Pong over several episodes of ten steps: actor, bytes, learner; the same actions in gymnasium's own chain."""
    length, count, steps = 20, 2, 10
    environment = make("ALE/Pong-v5", vectorization, count=count, max_frames_per_episode=4 * steps)
    seeds = [int(word) >> 1 for word in np.random.SeedSequence(9).generate_state(count)]
    references = [reference(seed, steps) for seed in seeds]
    builder = UnrollBuilder(environment.spec, length, count)
    first = environment.reset(seed=9)
    builder.begin(first, {})
    schema = UnrollSchema.of(environment.spec, length, count, {})
    random, seen = np.random.default_rng(1), [[single.send(None)] for single in references]
    for sequence in range(2):
        while not builder.full:
            actions = random.integers(6, size=count, dtype=np.int32)
            builder.add({"action": actions}, np.zeros(count, np.float32), environment.step({"action": actions}), {})
            for single, rows, action in zip(references, seen, actions, strict=True):
                rows.append(single.send(action))
        unroll = builder.close((0, 1), sequence, 1)
        assert (~unroll.valid).sum() >= 2
        payload = encode_unroll(unroll)
        assert len(payload) / (length * count) <= 7056 * (length + 4) / length + 64
        batch = stack([decode_unroll(unroll.header, payload, schema)] * 2, schema.frames)
        expected = np.array(seen).swapaxes(0, 1)
        np.testing.assert_array_equal(batch.observations["observation"], np.tile(expected, (2, 1, 1, 1)), strict=True)
        seen = [rows[-1:] for rows in seen]
    environment.close()


def reference(seed: int, steps: int):
    """Takes actions, gives stacks: gymnasium's preprocessing, limit and frame stack, in NEXT_STEP autoreset."""
    single = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    limited = TimeLimit(AtariPreprocessing(single, noop_max=0, frame_skip=4), steps)
    environment = FrameStackObservation(limited, 4)
    observation, ended = environment.reset(seed=seed)[0], False
    while True:
        action = yield np.moveaxis(observation, 0, -1)
        if ended:
            observation, ended = environment.reset()[0], False
        else:
            observation, _, terminated, truncated, _ = environment.step(action)
            ended = terminated or truncated


def test_what_cannot_be_is_refused_in_one_line():
    assert "environment.atari is for games of the Arcade Learning Environment" in refusal("CartPole-v1")
    message = refusal(kwargs={"frameskip": 4, "mode": 0})
    assert "environment.kwargs has frameskip; with environment.atari" in message
    assert "must name the game, such as {game: pong}" in refusal("ale_py.env:AtariEnv")
    assert "goes with vectorization auto, sync or ale, not with own" in refusal(vectorization="own")
    for vectorization in ("auto", "sync"):
        message = refusal(vectorization=vectorization, threads=2)
        assert (
            f"environment.atari.threads: 2 goes with environment.vectorization: ale alone, not with {vectorization}"
            in message
        )
    assert "cannot be made with {'game': 'breakout', 'mode': 3}" in refusal(kwargs={"mode": 3})


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"frame_skip": (2, 5)}, "atari.frame_skip of several numbers"),
        ({"noop_max": 30}, "atari.noop_max"),
        ({"kwargs": {"mode": 4}}, "kwargs.mode"),
        ({"kwargs": {"difficulty": 1}}, "kwargs.difficulty"),
    ],
    ids=lambda value: str(value),
)
def test_what_ales_vector_cannot_do_is_refused(values, what):
    assert f"vectorization: ale cannot do environment.{what}; use sync or auto" in refusal(
        vectorization="ale", **values
    )
