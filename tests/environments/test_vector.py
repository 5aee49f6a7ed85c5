"""Vector stepping: NEXT_STEP tables on both vectorizations, true episode ends, and CartPole's own against singles."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.environment import EnvironmentConfig
from distrl.environments.random_actions import random_actions
from distrl.environments.vector import EnvironmentStep, VectorEnvironment, environment_seeds
from distrl.environments.worlds.toy import StepCounter
from distrl.errors import ConfigError, EnvironmentFailedError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec


class StepCounterVector(VectorEnv):
    """StepCounter's own vectorization. As badly behaved as NEXT_STEP allows: one buffer for all results, float64, and
    a reward for the ignored action."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, terminate_at_steps: int | None = 5, truncate_at_steps: int | None = None) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Box(0.0, np.inf, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ends = (terminate_at_steps, truncate_at_steps)
        self._count = np.zeros((num_envs, 1))
        self._flags = np.zeros((2, num_envs), np.bool_)
        self._rewards = np.zeros(num_envs)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._count[:] = 0
        self._flags[:] = False
        return self._count, {}

    def step(self, actions: Any) -> Any:
        over = self._flags.any(axis=0)
        self._count[:] = np.where(over[:, None], 0, self._count + 1)
        self._rewards[:] = np.where(over, np.nan, self._count[:, 0])
        for flags, end in zip(self._flags, self._ends, strict=True):
            flags[:] = self._count[:, 0] == end
        return self._count, self._rewards, self._flags[0], self._flags[1], {}


class WrongShapeVector(StepCounterVector):
    """Declares 3 numbers and returns 1."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.single_observation_space = Box(0.0, np.inf, (3,), np.float32)


class Mixed(gymnasium.Env):
    """A Dict of image and room; actions from 10; remembers the actions it was given."""

    given: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.observation_space = Dict({"room": Discrete(3, start=5), "image": Box(0, 255, (2, 2), np.uint8)})
        self.action_space = Discrete(3, start=10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"room": np.int64(5), "image": np.zeros((2, 2), np.uint8)}, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        Mixed.given.append(int(action))
        return {"room": np.int64(7), "image": np.full((2, 2), action, np.uint8)}, 1.5, False, False, {}


class Receiver(gymnasium.Env):
    """Remembers the actions it was given; they must be in its space. Writes into them, as an environment may."""

    given: ClassVar[list[Any]] = []
    space: ClassVar[Space] = Discrete(1)

    def __init__(self) -> None:
        self.observation_space = Box(0.0, 0.0, (1,), np.float32)
        self.action_space = Receiver.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        parts = action if isinstance(action, dict) else {"action": action}
        Receiver.given.append({name: np.asarray(part).tolist() for name, part in parts.items()})
        for part in parts.values():
            if isinstance(part, np.ndarray):
                part[...] = 0
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Strange(gymnasium.Env):
    """Shows and pays `what` at its second step."""

    def __init__(self, what: Any, space: Space) -> None:
        self.observation_space, self.action_space = space, Discrete(2)
        self.good = (np.zeros(space.shape, space.dtype), 1.0, False, False, {})
        self.what = what

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.good[0], {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return (*self.what, *self.good[2:]) if self.steps == 2 else self.good


class StrangeVector(VectorEnv):
    """Strange's own vectorization: whatever it shows is handed on as it is."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, what: Any, space: Space) -> None:
        self.single_observation_space, self.single_action_space = space, Discrete(2)
        self.num_envs, self.single = num_envs, Strange(what, space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([self.single.reset()[0]] * self.num_envs), {}

    def step(self, actions: Any) -> Any:
        observation, reward, *_ = self.single.step(0)
        never = np.zeros(self.num_envs, np.bool_)
        return np.array([observation] * self.num_envs), np.array([reward] * self.num_envs), never, never, {}


class Ending(gymnasium.Env):
    """Every step ends as (terminated, truncated) say, or raises them."""

    def __init__(self, ends: Any) -> None:
        self.observation_space, self.action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(2)
        self.ends = ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        if isinstance(self.ends, type):
            raise self.ends()
        return np.zeros(1, np.float32), 1.0, *self.ends, {}


class EndingVector(VectorEnv):
    """Ending's own vectorization."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int, ends: Any) -> None:
        self.single_observation_space, self.single_action_space = Box(0.0, 1.0, (1,), np.float32), Discrete(2)
        self.num_envs, self.ends = num_envs, ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        terminated, truncated = ([bool(end) if end is None else end] * self.num_envs for end in self.ends)
        return np.zeros((self.num_envs, 1), np.float32), np.ones(self.num_envs), terminated, truncated, {}


class ReceiverVector(VectorEnv):
    """Receiver's own vectorization, which wants actions in its batched space."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Box(0.0, 0.0, (1,), np.float32)
        self.single_action_space = Receiver.space
        self.action_space = batch_space(Receiver.space, num_envs)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((self.num_envs, 1)), {}

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions), actions
        parts = actions if isinstance(actions, dict) else {"action": actions}
        for i in range(self.num_envs):
            Receiver.given.append({name: part[i].tolist() for name, part in parts.items()})
        for part in parts.values():
            part[...] = 0
        never = np.zeros(self.num_envs, np.bool_)
        return np.zeros((self.num_envs, 1)), np.zeros(self.num_envs), never, never, {}


class RandomLength(gymnasium.Env):
    """Ends by chance, with either flag or both; remembers every episode that it ended."""

    ended: ClassVar[list[tuple[int, float]]] = []
    ignored_actions: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.length, self.total = 0, 0.0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        terminated, truncated = self.np_random.random(2) < (0.15, 0.1)
        reward = float(np.float32(self.np_random.normal()))
        self.length += 1
        self.total += reward
        if terminated or truncated:
            RandomLength.ended.append((self.length, self.total))
        return self.observation_space.sample(), reward, terminated, truncated, {}


class Failing(gymnasium.Env):
    """Fails where it is told to, with a message of two lines."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.observation_space = Box(0.0, 1.0, (1,), np.float32)
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.where == "reset":
            raise KeyError("no\nmap")
        return np.zeros(3 if self.where == "shape" else 1, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.where == "exit":
            sys.exit(0)
        raise RuntimeError("simulator\n  lost")


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gymnasium.register("Counter-v0", entry_point=StepCounter, vector_entry_point=StepCounterVector)
    gymnasium.register("WrongShape-v0", entry_point=StepCounter, vector_entry_point=WrongShapeVector)
    gymnasium.register("Receiver-v0", entry_point=Receiver, vector_entry_point=ReceiverVector)
    gymnasium.register("Strange-v0", entry_point=Strange, vector_entry_point=StrangeVector)
    gymnasium.register("Ending-v0", entry_point=Ending, vector_entry_point=EndingVector)
    for environment_class in (Mixed, RandomLength, Failing):
        gymnasium.register(f"{environment_class.__name__}-v0", entry_point=environment_class)
    yield
    for name in (
        "Counter-v0",
        "WrongShape-v0",
        "Receiver-v0",
        "Strange-v0",
        "Ending-v0",
        "Mixed-v0",
        "RandomLength-v0",
        "Failing-v0",
    ):
        del gymnasium.registry[name]


def vector(env_id: str, vectorization: Any, count: int, **kwargs: Any) -> VectorEnvironment:
    return VectorEnvironment(EnvironmentConfig(id=env_id, vectorization=vectorization, kwargs=kwargs), count)


def zeros(count: int) -> dict[str, np.ndarray]:
    return {"action": np.zeros(count, np.int32)}


@pytest.mark.row("M02", "M10", "T17")
@pytest.mark.parametrize("vectorization", ["own", "sync"])
@pytest.mark.parametrize(
    ("terminate_at", "truncate_at", "terminated", "truncated"),
    [
        (3, None, [0, 0, 1, 0, 0, 0, 1, 0, 0], [0] * 9),
        (None, 3, [0] * 9, [0, 0, 1, 0, 0, 0, 1, 0, 0]),
        (3, 3, [0, 0, 1, 0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0, 1, 0, 0]),
    ],
    ids=["terminated", "truncated", "both"],
)
def test_next_step_table(
    vectorization: str, terminate_at: int | None, truncate_at: int | None, terminated: list[int], truncated: list[int]
) -> None:
    environment = vector("Counter-v0", vectorization, 2, terminate_at_steps=terminate_at, truncate_at_steps=truncate_at)
    assert environment.vectorization == vectorization
    first = environment.reset(1)["observation"]
    # All steps are kept until the end: results must not share the environment's buffers.
    steps = [environment.step(zeros(2)) for _ in range(9)]
    environment.close()

    def column(rows: list[Any]) -> list[float]:
        table = np.array(rows, np.float64).reshape(len(rows), 2)
        np.testing.assert_array_equal(table[:, 0], table[:, 1])
        return table[:, 0].tolist()

    assert column([first]) == [0]
    assert column([step.observations["observation"] for step in steps]) == [1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert column([step.rewards for step in steps]) == [1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert column([step.terminated for step in steps]) == terminated
    assert column([step.truncated for step in steps]) == truncated
    assert column([step.valid for step in steps]) == [1, 1, 1, 0, 1, 1, 1, 0, 1]
    assert [steps[0].rewards.dtype, steps[0].valid.dtype, steps[0].terminated.dtype, steps[0].truncated.dtype] == [
        np.float32,
        np.bool_,
        np.bool_,
        np.bool_,
    ]
    assert steps[0].observations["observation"].dtype == np.float32


@pytest.mark.parametrize("vectorization", ["own", "sync"])
@pytest.mark.parametrize("steps_before", [2, 3])
def test_reset_abandons_open_episodes(vectorization: str, steps_before: int) -> None:
    environment = vector("Counter-v0", vectorization, 2, terminate_at_steps=3)
    environment.reset(1)
    for _ in range(steps_before):  # 3: the next step would have been the ignored one
        environment.step(zeros(2))
    np.testing.assert_array_equal(environment.reset(2)["observation"], [[0], [0]])
    step = environment.step(zeros(2))
    np.testing.assert_array_equal(step.observations["observation"], [[1], [1]])
    assert step.valid.all()
    np.testing.assert_array_equal(step.rewards, [1, 1])


def test_episode_ends_are_the_environments_own() -> None:
    RandomLength.ended.clear()
    environment = vector("RandomLength-v0", "sync", 5)
    environment.reset(11)
    lengths, returns = np.zeros(5, int), np.zeros(5)
    seen = []
    for _ in range(400):
        step = environment.step(zeros(5))
        assert not (step.terminated | step.truncated)[~step.valid].any()
        assert (step.rewards[~step.valid] == 0).all()
        lengths += step.valid
        returns += step.rewards
        for i in np.flatnonzero(step.terminated | step.truncated):
            seen.append((lengths[i], returns[i]))
            lengths[i], returns[i] = 0, 0.0
    assert len(seen) > 200
    assert [length for length, _ in seen] == [length for length, _ in RandomLength.ended]
    np.testing.assert_allclose([total for _, total in seen], [total for _, total in RandomLength.ended], atol=1e-9)


def test_dict_and_discrete_observations_and_an_action_offset() -> None:
    Mixed.given.clear()
    environment = vector("Mixed-v0", "auto", 2)
    assert list(environment.spec.observations) == ["image", "room"]
    assert environment.spec.actions == {"action": DiscreteSpec(3, 10)}
    first = environment.reset(0)
    np.testing.assert_array_equal(first["room"], [[0], [0]])
    step = environment.step({"action": np.array([0, 2], np.int32)})
    assert Mixed.given == [10, 12]
    assert list(step.observations) == ["image", "room"]
    np.testing.assert_array_equal(step.observations["room"], [[2], [2]])
    np.testing.assert_array_equal(step.observations["image"], np.array([[[10] * 2] * 2, [[12] * 2] * 2]))
    assert step.observations["image"].dtype == np.uint8
    np.testing.assert_array_equal(step.rewards, np.float32([1.5, 1.5]))


ACTIONS = [
    (Discrete(3, start=-1), {"action": np.int32([0, 2])}, [{"action": -1}, {"action": 1}]),
    (
        MultiDiscrete([[2], [5]], start=[[0], [3]]),
        {"action": np.int32([[1, 0], [0, 4]])},
        [{"action": [[1], [3]]}, {"action": [[0], [7]]}],
    ),
    (
        MultiBinary((2, 1)),
        {"action": np.int32([[1, 0], [0, 1]])},
        [{"action": [[1], [0]]}, {"action": [[0], [1]]}],
    ),
    (
        Box(np.float32([[-1, -np.inf]]), np.float32([[1, 0]])),
        {"action": np.float32([[-9, -9], [9, 9]])},
        [{"action": [[-1, -9]]}, {"action": [[1, 0]]}],
    ),
    (
        Dict({"turn": Box(-1, 1, (1,), np.float64), "fire": Discrete(2), "gear": MultiDiscrete([3, 3], start=[1, 0])}),
        {"turn": np.float32([[0.5], [-2]]), "fire": np.int32([1, 0]), "gear": np.int32([[0, 2], [1, 1]])},
        [{"fire": 1, "gear": [1, 2], "turn": [0.5]}, {"fire": 0, "gear": [2, 1], "turn": [-1.0]}],
    ),
]


@pytest.mark.parametrize("vectorization", ["own", "sync"])
@pytest.mark.parametrize(
    ("space", "actions", "received"), ACTIONS, ids=["discrete", "multi_discrete", "multi_binary", "box", "dict"]
)
def test_actions_arrive_in_the_environment_s_own_space(
    vectorization: str, space: Space, actions: dict[str, np.ndarray], received: list[Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(Receiver, "space", space)
    monkeypatch.setattr(Receiver, "given", [])
    environment = vector("Receiver-v0", vectorization, 2)
    environment.reset(0)
    kept = {name: array.copy() for name, array in actions.items()}
    environment.step(actions)
    assert Receiver.given == received
    for name, array in kept.items():
        np.testing.assert_array_equal(actions[name], array)
    # Whatever is drawn for the spec is in the space: the environment asserts it.
    for _ in range(20):
        environment.step(random_actions(environment.spec.actions, 2, np.random.default_rng(1)))


def test_pendulum_swings_as_a_single_one_does() -> None:
    environment = vector("Pendulum-v1", "auto", 2)
    assert environment.spec.actions == {"action": BoxSpec((1,), (-2.0,), (2.0,))}
    observations = environment.reset(4)["observation"]
    single = gymnasium.make("Pendulum-v1")
    seed = int(np.random.SeedSequence(4).generate_state(2)[1]) >> 1
    np.testing.assert_array_equal(observations[1], single.reset(seed=seed)[0])
    for action in np.random.default_rng(0).normal(0.0, 3.0, (50, 2, 1)).astype(np.float32):
        step = environment.step({"action": action})
        expected = single.step(np.clip(action[1], -2.0, 2.0))
        np.testing.assert_array_equal(step.observations["observation"][1], expected[0])
        assert step.rewards[1] == np.float32(expected[1])


@pytest.mark.parametrize("vectorization", ["own", "sync"])
def test_seeds_repeat_and_differ(vectorization: str) -> None:
    environment = vector("CartPole-v1", vectorization, 64)
    first, again, neighbour = (environment.reset(seed)["observation"] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    # No environment of one seed is an environment of the next: 128 different rows.
    assert len(np.unique(np.concatenate([first, neighbour]), axis=0)) == 128


@pytest.mark.row("M18")
def test_a_vector_of_4_walks_as_4_singles() -> None:
    environment = vector("CartPole-v1", "sync", 4)
    observations = environment.reset(9)["observation"]
    singles = [gymnasium.make("CartPole-v1") for _ in range(4)]
    seeds = [int(word) >> 1 for word in np.random.SeedSequence(9).generate_state(4)]
    np.testing.assert_array_equal(observations, [s.reset(seed=seed)[0] for s, seed in zip(singles, seeds, strict=True)])
    over = [False] * 4
    for actions in np.random.default_rng(0).integers(2, size=(300, 4), dtype=np.int32):
        step = environment.step({"action": actions})
        for i, single in enumerate(singles):
            row: tuple[Any, ...] = (single.reset()[0], 0.0, False, False) if over[i] else single.step(actions[i])[:4]
            np.testing.assert_array_equal(step.observations["observation"][i], row[0])
            assert (step.rewards[i], step.terminated[i], step.truncated[i], step.valid[i]) == (*row[1:], not over[i])
            over[i] = row[2] or row[3]


def balance(observations: np.ndarray) -> np.ndarray:
    """A linear controller that keeps CartPole's pole up for 500 steps."""
    return (observations @ np.array([0.1, 0.2, 1.0, 0.5]) > 0).astype(np.int32)


@pytest.mark.parametrize("kwargs", [{}, {"sutton_barto_reward": True, "max_episode_steps": 40}])
def test_cart_pole_s_own_vectorization_steps_as_sync(kwargs: dict[str, Any]) -> None:
    """1,200 steps of 8 environments; 4 balance until truncation, 4 act at random.

    Before every step the singles behind sync get own's states: the dynamics amplify rounding about e^0.08 a step, so
    that free-running copies would part; and own draws its first states from one generator. All else is their own: time
    limit counters, flags, rewards, resets.
    """
    own, sync = vector("CartPole-v1", "own", 8, **kwargs), vector("CartPole-v1", "sync", 8, **kwargs)
    assert own.spec == sync.spec
    observations = own.reset(3)["observation"]
    sync.reset(3)
    generator = np.random.default_rng(0)
    ends = np.zeros((3, 8), int)  # terminated, truncated, ignored rows of each environment
    for _ in range(1200):
        for i, single in enumerate(sync.vector.envs):
            single.unwrapped.state = tuple(own.vector.state[:, i])
        actions = np.concatenate([balance(observations[:4]), generator.integers(2, size=4)]).astype(np.int32)
        ours, theirs = own.step({"action": actions}), sync.step({"action": actions})
        compare(ours, theirs)
        observations = ours.observations["observation"]
        ends += [ours.terminated, ours.truncated, ~ours.valid]
    # An episode and the row of its reset take 501 rows (41 where the limit is 40).
    np.testing.assert_array_equal(ends[1, :4], 1200 // (kwargs.get("max_episode_steps", 500) + 1))
    assert (ends[0, :4] == 0).all()
    assert (ends[0, 4:] > 20).all()
    np.testing.assert_array_equal(ends[2, :4], ends[1, :4])


def compare(ours: EnvironmentStep, theirs: EnvironmentStep) -> None:
    valid = ours.valid
    np.testing.assert_array_equal(valid, theirs.valid)
    np.testing.assert_array_equal(ours.rewards, theirs.rewards)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    np.testing.assert_array_equal(ours.truncated, theirs.truncated)
    left, right = ours.observations["observation"], theirs.observations["observation"]
    np.testing.assert_allclose(left[valid], right[valid], rtol=1e-6, atol=1e-7)
    assert (np.abs(left[~valid]) <= 0.05).all()
    assert (np.abs(right[~valid]) <= 0.05).all()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("reset", "environment Failing-v0 failed in reset: KeyError: 'no\\nmap'"),
        ("shape", "environment Failing-v0 failed in reset: ValueError: "),
        ("step", "environment Failing-v0 failed in step: RuntimeError: simulator lost"),
        ("exit", "environment Failing-v0 failed in step: SystemExit: 0"),
    ],
)
def test_exceptions_of_the_environment_are_one_line_with_their_cause(where: str, message: str) -> None:
    environment = vector("Failing-v0", "auto", 2, where=where)
    with pytest.raises(EnvironmentFailedError) as caught:  # noqa: PT012  # whichever of the two fails
        environment.reset(0)
        environment.step(zeros(2))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError | ValueError | RuntimeError | SystemExit)


def test_an_own_vectorization_that_breaks_its_space_is_found_at_reset() -> None:
    environment = vector("WrongShape-v0", "own", 2)
    with pytest.raises(EnvironmentFailedError) as caught:
        environment.reset(0)
    assert str(caught.value) == (
        "environment WrongShape-v0 failed in reset: ValueError: "
        "observation 'observation': its shape is (2, 1), the space of 2 environments says (2, 3)"
    )


@pytest.mark.parametrize(
    ("leaf", "good", "bad", "message"),
    [
        (Discrete(3), 2, 3, "[2 3] lies outside Discrete(3)"),
        (MultiDiscrete([2, 3]), [1, 2], [0, 3], "[[1 2] [0 3]] lies outside MultiDiscrete([2 3])"),
        (MultiBinary(1), [1], [2], "[[1] [2]] lies outside MultiBinary(1)"),
        (Text(8), "go", 3, "3 of type int is not a text"),
    ],
)
def test_what_lies_outside_a_nested_space_ends_the_step(
    leaf: Space, good: Any, bad: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = [good] * 3 + [bad]  # two resets, and a step of two

    class Astray(StepCounter):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = Dict({"a": Tuple((leaf,))})

        def reset(self, **given: Any) -> Any:
            return {"a": (shown.pop(0),)}, {}

        def step(self, action: Any) -> Any:
            return {"a": (shown.pop(0),)}, 0.0, False, False, {}

    monkeypatch.setitem(gymnasium.registry, "Astray-v0", gymnasium.envs.registration.EnvSpec("Astray-v0", Astray))
    environment = vector("Astray-v0", "sync", 2)
    environment.reset(0)
    with pytest.raises(EnvironmentFailedError) as caught:
        environment.step(zeros(2))
    assert str(caught.value) == f"environment Astray-v0 failed in step: ValueError: observation 'a/0': {message}"


def test_unsupported_spaces_are_refused_when_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Receiver, "space", Box(0, 9, (1,), np.int64))
    with pytest.raises(
        ConfigError, match="environment Receiver-v0: the space at 'action' cannot be used: it is a Box of int64"
    ):
        vector("Receiver-v0", "auto", 1)


PAIR = Box(-1.0, 1.0, (2,), np.float32)
STRANGE = [
    (PAIR, (np.float32([0, np.nan]), 1.0), "observation 'observation' is not finite"),
    (PAIR, (np.float32([np.inf, 0]), 1.0), "observation 'observation' is not finite"),
    (PAIR, (np.float32([0, 0]), np.nan), "a reward is nan"),
    (PAIR, (np.float32([0, 0]), -np.inf), "a reward is -inf"),
    (PAIR, (np.float32([0, 0, 0]), 1.0), "shape"),
    (PAIR, (np.float32([0]), 1.0), "shape"),
    (Discrete(3), (np.int64(3), 1.0), r"outside"),
    (Discrete(3), (np.int64(-1), 1.0), r"outside"),
]


WIDE = Box(-np.inf, np.inf, (2,), np.float64)
HUGE = np.float64([0, -1e300])


def strange_step(space: Space, what: Any, *steps: dict[str, Any]) -> EnvironmentStep:
    """The second step, which shows `what`."""
    config = {"id": "Strange-v0", "vectorization": "sync", "kwargs": {"what": what, "space": space}}
    environment = VectorEnvironment(EnvironmentConfig.model_validate({**config, "preprocessing": steps}), 2)
    environment.reset(0)
    environment.step(zeros(2))
    return environment.step(zeros(2))


@pytest.mark.parametrize(
    ("space", "what", "steps", "message"),
    [
        (WIDE, (HUGE, 1.0), (), "observation 'observation' exceeds 3.4e+38, the largest number of a network's float32"),
        (
            WIDE,
            (HUGE, 1.0),
            ({"step": "to_dtype", "dtype": "float64"},),
            "after .*observation 'observation' exceeds 3.4",
        ),
        (PAIR, (np.float32([1e30, 0]), 1.0), ({"step": "scale", "multiply": 1e30},), "after .*is not finite"),
        (
            PAIR,
            (np.float32([0, 0]), 1e30),
            ({"step": "scale", "of": "reward", "multiply": 1e30},),
            "after .*a reward is inf",
        ),
        (
            PAIR,
            (np.float32([np.nan, 0]), 1.0),
            ({"step": "clip", "low": 0, "high": 1},),
            "observation 'observation' is not",
        ),
    ],
)
def test_what_a_network_cannot_take_is_the_environment_s_failure(
    space: Space, what: Any, steps: Any, message: str
) -> None:
    message = message.replace("+", r"\+").replace("after .*", "after environment.preprocessing .*")
    with pytest.raises(EnvironmentFailedError, match=f"^environment Strange-v0 failed in step: ValueError: {message}"):
        strange_step(space, what, *steps)


def test_preprocessing_may_cut_what_is_too_large() -> None:
    step = strange_step(WIDE, (HUGE, 1.0), {"step": "clip", "low": -5, "high": 5})
    np.testing.assert_array_equal(step.observations["observation"], [[0.0, -5.0]] * 2)
    largest = float(np.finfo(np.float32).max)
    assert strange_step(WIDE, (np.float64([0, largest]), 1.0)).observations["observation"][0, 1] == largest


def test_real_numbers_of_64_bits_travel_in_32() -> None:
    config = {
        "id": "Strange-v0",
        "vectorization": "sync",
        "kwargs": {"what": (np.float64([0.1, 1e-50]), 1.0), "space": WIDE},
    }
    environment = VectorEnvironment(EnvironmentConfig.model_validate(config), 2)
    assert environment.spec.observations == {"observation": ArraySpec((2,), "float32")}
    assert environment.spec.unprocessed is None
    first = environment.reset(0)["observation"]
    np.testing.assert_array_equal(first, np.zeros((2, 2), np.float32), strict=True)
    environment.step(zeros(2))
    shown = environment.step(zeros(2)).observations["observation"]
    np.testing.assert_array_equal(shown, np.float32([[0.1, 0.0]] * 2), strict=True)


SMALL = Box(-100, 100, (2,), np.int8)


@pytest.mark.parametrize(
    ("vectorization", "name"), [("sync", "'observation'"), ("own", "observation 'observation': it")]
)
@pytest.mark.parametrize("what", [np.array([300, 1]), np.array([200, 1], np.uint8)])
def test_whole_numbers_do_not_wrap_around(vectorization: str, name: str, what: Any) -> None:
    environment = vector("Strange-v0", vectorization, 3, what=(what, 1.0), space=SMALL)
    environment.reset(0)
    environment.step(zeros(3))
    message = f"{name} holds 1 … {what[0]}, which int8 of its space cannot"
    with pytest.raises(EnvironmentFailedError, match=f"environment Strange-v0 failed in step: ValueError: {message}"):
        environment.step(zeros(3))


@pytest.mark.parametrize("vectorization", ["own", "sync"])
@pytest.mark.parametrize(("space", "what", "message"), STRANGE)
def test_what_must_never_be_learned_from_ends_the_actor(
    vectorization: str, space: Space, what: Any, message: str
) -> None:
    environment = vector("Strange-v0", vectorization, 3, what=what, space=space)
    environment.reset(0)
    environment.step(zeros(3))
    with pytest.raises(EnvironmentFailedError, match=f"environment Strange-v0 failed in step: ValueError: .*{message}"):
        environment.step(zeros(3))


def test_one_number_per_environment_is_paid() -> None:
    environment = vector("Strange-v0", "own", 3, what=(np.float32([0, 0]), np.zeros(2)), space=PAIR)
    environment.reset(0)
    environment.step(zeros(3))
    with pytest.raises(EnvironmentFailedError, match=r"rewards have shape \(3, 2\), there are 3 environments"):
        environment.step(zeros(3))


def test_numbers_beyond_the_bounds_of_a_box_are_taken_as_they_are() -> None:
    environment = vector("Strange-v0", "sync", 1, what=(np.float32([3e38, -3e38]), 3e38), space=PAIR)
    environment.reset(0)
    environment.step(zeros(1))
    step = environment.step(zeros(1))
    np.testing.assert_array_equal(step.observations["observation"], np.float32([[3e38, -3e38]]))


@pytest.mark.row("M01")
@pytest.mark.parametrize("vectorization", ["own", "sync"])
def test_a_choice_that_there_is_not_is_an_error(vectorization: str) -> None:
    environment = vector("CartPole-v1", vectorization, 2)
    environment.reset(0)
    with pytest.raises(EnvironmentFailedError, match="environment CartPole-v1 failed in step: AssertionError"):
        environment.step({"action": np.int32([0, 2])})


@given(seed=st.integers(0, 2**64), count=st.integers(1, 300))
def test_environments_of_one_vector_never_share_a_seed(seed: int, count: int) -> None:
    seeds = environment_seeds(seed, count)
    assert len(set(seeds)) == count
    assert all(0 <= number < 2**31 for number in seeds)
    assert seeds == environment_seeds(seed, count)


def test_a_seed_that_comes_twice_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeating:
        def __init__(self, seed: int) -> None: ...

        def generate_state(self, count: int) -> np.ndarray:
            return np.uint32([2, 4, 3, 8, 10, 12, 14, 16])[:count]  # halved: 1, 2, 1, 4, …

    monkeypatch.setattr(np.random, "SeedSequence", Repeating)
    assert environment_seeds(0, 3) == [1, 2, 4]


@pytest.mark.row("D45")
def test_actors_share_no_seed() -> None:
    """As `Actor.reset` seeds its environments: 40 actors and two incarnations of each, 64 environments."""
    seeds: list[int] = []
    for actor in range(40):
        for incarnation in (1, 2):
            key = np.random.SeedSequence(1, spawn_key=(1, actor, incarnation, 0))
            seeds += environment_seeds(int(key.spawn(3)[0].generate_state(1)[0]), 64)
    assert len(set(seeds)) == len(seeds) == 40 * 2 * 64


NESTED = Dict({"camera": Dict({"left": Box(0, 255, (2, 2), np.uint8)}), "speed": Box(-9.0, 9.0, (2,), np.float32)})
SEEN = {"camera": {"left": np.zeros((2, 2), np.uint8)}, "speed": np.zeros(2, np.float32)}


class FailsOnce(gymnasium.Env):
    """The second of its instances shows or pays `what` at step 3 of its second episode; episodes have 5 steps."""

    made = 0

    def __init__(self, what):
        self.observation_space, self.action_space = NESTED, Discrete(2)
        self._what, self._number, self._episode = what, FailsOnce.made, 0
        FailsOnce.made += 1

    def reset(self, *, seed=None, options=None):
        self._steps, self._episode = 0, self._episode + 1
        return SEEN, {}

    def step(self, action):
        self._steps += 1
        fails = (self._number, self._episode, self._steps) == (1, 2, 3)
        shown, reward = self._what if fails else (SEEN, 1.0)
        return shown, reward, self._steps == 5, False, {}


@pytest.mark.parametrize(
    ("shown", "reward", "message"),
    [
        (SEEN, np.nan, "a reward is nan"),
        (SEEN | {"speed": np.float32([0, np.inf])}, 1.0, "observation 'speed' is not finite: inf at [1]"),
        (SEEN | {"speed": np.zeros(3)}, 1.0, "'observation/speed' has shape (3,), its space says (2,)"),
        (
            SEEN | {"camera": {"left": np.zeros((1, 2), np.uint8)}},
            1.0,
            "'observation/camera/left' has shape (1, 2), its space says (2, 2)",
        ),
        (SEEN | {"camera": {}}, 1.0, "'observation/camera/left' is missing"),
        (SEEN, [1.0], "the reward has shape (1,), it must be one number"),
    ],
)
def test_errors_name_observation_step_and_environment(monkeypatch, shown, reward, message) -> None:
    maker = gymnasium.envs.registration.EnvSpec("FailsOnce-v0", lambda: FailsOnce((shown, reward)))
    monkeypatch.setitem(gymnasium.registry, "FailsOnce-v0", maker)
    monkeypatch.setattr(FailsOnce, "made", 0)
    environment = vector("FailsOnce-v0", "sync", 3)
    environment.reset(0)
    for _ in range(5 + 1 + 2):  # the first episode, the reset, and two steps
        environment.step(zeros(3))
    with pytest.raises(EnvironmentFailedError) as caught:
        environment.step(zeros(3))
    at = ", at step 3 of environment 1"
    assert str(caught.value) == f"environment FailsOnce-v0 failed in step: ValueError: {message}{at}"


@pytest.mark.parametrize(
    ("flag", "shown"),
    [("False", "'False'"), ("", "''"), (np.nan, "nan"), ({"limit": False}, "{'limit': False}"), ([], "[]")],
)
@pytest.mark.parametrize(("name", "place"), [("terminated", 0), ("truncated", 1)])
def test_an_end_that_is_no_truth_value_ends_no_episode(flag, shown, name, place) -> None:
    environment = vector("Ending-v0", "sync", 2, ends=(False, flag) if place else (flag, False))
    environment.reset(0)
    message = f"{name} is {re.escape(shown)}, it must be true or false, at step 1 of environment 0$"
    with pytest.raises(EnvironmentFailedError, match=message):
        environment.step(zeros(2))


@pytest.mark.parametrize("flag", [True, np.True_, 1, 2.0, np.array([True]), [True]])
@pytest.mark.parametrize("vectorization", ["own", "sync"])
def test_every_truth_value_ends_an_episode(vectorization, flag) -> None:
    one = np.asarray(flag).reshape(())[()]
    environment = vector("Ending-v0", vectorization, 2, ends=(one if vectorization == "own" else flag, None))
    environment.reset(0)
    assert environment.step(zeros(2)).ended.tolist() == [True, True]


@pytest.mark.parametrize("flag", [np.nan, "False", [True]])
def test_a_vector_s_ends_are_one_truth_value_for_each_environment(flag) -> None:
    environment = vector("Ending-v0", "own", 2, ends=(flag, False))
    environment.reset(0)
    with pytest.raises(EnvironmentFailedError, match=r"terminated is .*, it must be true or false of 2 environments"):
        environment.step(zeros(2))


@dataclass(frozen=True)
class OwnError(Exception):
    """An error of the user's that has an environment of its own, and takes no further attributes."""

    environment: str = "production"


@pytest.mark.parametrize("error", [OwnError, SystemExit])
def test_an_error_of_the_environment_s_own_has_its_place(error) -> None:
    environment = vector("Ending-v0", "sync", 2, ends=error)
    environment.reset(0)
    message = rf"failed in step: {error.__name__}: .*, at step 1 of environment 0$"
    with pytest.raises(EnvironmentFailedError, match=message):
        environment.step(zeros(2))
