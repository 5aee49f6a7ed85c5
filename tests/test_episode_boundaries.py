"""The counter-environment audit: whatever steps the environments, no trained step crosses an episode's end.

From the environment through VectorEnvironment and UnrollBuilder to the learner's own returns. Each row that is trained
on must join two observations of one episode by the action that it carries, the learner's targets must see nothing
beyond an episode's end, and the steps that are counted must be those that the environments took.
"""

import gymnasium
import numpy as np
import pytest

from distrl.actors.unroll import UnrollBuilder
from distrl.algorithms.maths.returns import step_discounts, vtrace
from distrl.config.environment import EnvironmentConfig
from distrl.environments.random_actions import random_actions
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.joining import stack
from distrl.types import Unroll

LENGTH = 40

# In a file of its own, as a user's would be: worker processes import it by name.
MODULE = '''
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

HIGH = np.array([9, 999, 1e9], np.float32)


class Audited(gymnasium.Env):
    """Shows [steps of the episode, the action that led here or -1, steps of its whole life]; every step pays 1.

    Episodes last 1 to 9 steps and terminate, are truncated, or both.
    """

    def __init__(self):
        self.observation_space = Box(-1, HIGH, (3,), np.float32)
        self.action_space = Discrete(1000)
        self.life = 0
        self.over = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.over = 0, False
        self.length, self.ending = self.np_random.integers(1, 10), self.np_random.integers(3)
        return self.shown(-1), {}

    def step(self, action):
        assert not self.over, "stepped beyond the end of an episode"
        self.steps += 1
        self.life += 1
        self.over = self.steps == self.length
        return self.shown(action), 1.0, bool(self.over and self.ending != 1), bool(self.over and self.ending != 0), {}

    def shown(self, action):
        return np.array([self.steps, action, self.life], np.float32)


class AuditedVector(VectorEnv):
    """Its own vectorization: pays 99 for ignored actions, and hands out its one buffer."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs):
        self.envs = [Audited() for _ in range(num_envs)]
        self.num_envs = num_envs
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.shown = np.zeros((num_envs, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        for i, env in enumerate(self.envs):
            self.shown[i], _ = env.reset(seed=seed + i)
        return self.shown, {}

    def step(self, actions):
        rewards, flags = np.full(self.num_envs, 99.0), np.zeros((2, self.num_envs), bool)
        for i, env in enumerate(self.envs):
            if env.over:
                self.shown[i], _ = env.reset()
            else:
                self.shown[i], rewards[i], flags[0, i], flags[1, i], _ = env.step(actions[i])
        return self.shown, rewards, flags[0], flags[1], {}


Audited.vector_entry_point = AuditedVector


def old():
    import gym

    class Old(gym.Env):
        def __init__(self):
            self.inner = Audited()
            self.observation_space = gym.spaces.Box(-1, HIGH, (3,), np.float32)
            self.action_space = gym.spaces.Discrete(1000)

        def reset(self, *, seed=None, options=None):
            return self.inner.reset(seed=seed)

        def step(self, action):
            return self.inner.step(action)

    return Old()
'''


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "audited.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def drive(environment: VectorEnvironment, steps: int, seed: int) -> list[Unroll]:
    """Unrolls under random actions, as an actor makes them, until they hold `steps` valid steps."""
    rng = np.random.default_rng(seed)
    builder = UnrollBuilder(environment.spec, LENGTH, environment.rows)
    builder.begin(environment.reset(seed), {})
    unrolls: list[Unroll] = []
    counted = 0
    while counted < steps:
        while not builder.full:
            actions = random_actions(environment.spec.actions, environment.rows, rng)
            builder.add(actions, np.zeros(environment.rows, np.float32), environment.step(actions), {})
        unrolls.append(builder.close((0, 1), len(unrolls), 1))
        counted += unrolls[-1].header.env_steps
    return unrolls


def check_returns(unroll: Unroll, steps_before: np.ndarray) -> None:
    """The learner's targets against what each episode says of itself.

    With V = -(steps of the episode so far), a reward of 1 and no discount, every temporal difference is 0 inside an
    episode, and the target of a step is V itself; but in an episode of L steps that terminates within the unroll it is
    what is left to be paid, L - steps. Any look across a seam would change it.

    Args:
        steps_before: float32 [T+1, B]. Steps of the episode at each observation, as the environment counts them.
    """
    batch = stack([unroll], {})
    returns = vtrace(
        values=-steps_before,
        rewards=batch.rewards,
        discounts=step_discounts(batch.terminated, 1.0),
        valid=batch.valid,
        log_rhos=np.zeros(batch.rewards.shape, np.float32),
    )
    expected = np.empty(batch.rewards.shape)
    ahead = np.zeros(batch.rewards.shape[1])  # L of the episode that is open in the row, if it terminates; else 0
    for t in reversed(range(LENGTH)):
        ended = batch.terminated[t] | batch.truncated[t]
        ahead = np.where(batch.valid[t], np.where(ended, batch.terminated[t] * steps_before[t + 1], ahead), 0.0)
        expected[t] = ahead - steps_before[t]
    np.testing.assert_array_equal(np.asarray(returns.value_targets), expected)
    np.testing.assert_array_equal(
        np.asarray(returns.advantages), np.where(batch.valid, expected + steps_before[:-1], 0)
    )


LONG = pytest.mark.long


@pytest.mark.row("M10")
@pytest.mark.parametrize(
    ("name", "vectorization", "count", "steps"),
    [
        ("audited:Audited", "own", 100, 100_000),
        ("audited:Audited", "sync", 100, 100_000),
        ("audited:old", "sync", 100, 100_000),
        ("audited:Audited", "async", 3, 1_500),
        pytest.param("audited:Audited", "async", 10, 100_000, marks=LONG),
        pytest.param("audited:old", "async", 10, 100_000, marks=LONG),
    ],
)
def test_every_trained_step_is_one_step_of_one_episode(name, vectorization, count, steps):
    environment = VectorEnvironment(EnvironmentConfig(id=name, vectorization=vectorization), count)
    assert environment.vectorization == vectorization
    unrolls = drive(environment, steps, seed=5)
    environment.close()
    ends = np.zeros(3, int)
    for unroll in unrolls:
        before, _, life_before = np.moveaxis(unroll.observations["observation"][:-1], -1, 0)
        after, action_after, life_after = np.moveaxis(unroll.observations["observation"][1:], -1, 0)
        valid, terminated, truncated = unroll.valid, unroll.terminated, unroll.truncated
        # A valid row is one step, made by the action that it carries.
        np.testing.assert_array_equal(after[valid], before[valid] + 1)
        np.testing.assert_array_equal(life_after[valid], life_before[valid] + 1)
        np.testing.assert_array_equal(action_after[valid], unroll.actions["action"][valid])
        assert (unroll.rewards[valid] == 1).all()
        # Every other row is a reset, whose action did nothing.
        np.testing.assert_array_equal(after[~valid], 0)
        np.testing.assert_array_equal(action_after[~valid], -1)
        np.testing.assert_array_equal(life_after[~valid], life_before[~valid])
        assert (unroll.rewards[~valid] == 0).all()
        # Resets come after ends, always and only.
        np.testing.assert_array_equal(~valid[1:], (terminated | truncated)[:-1])
        assert not (terminated | truncated)[~valid].any()
        check_returns(unroll, unroll.observations["observation"][..., 0])
        ends += [(terminated & ~truncated).sum(), (truncated & ~terminated).sum(), (terminated & truncated).sum()]
    assert (ends > steps / 30).all()  # of every kind
    # The environment's own count of its steps.
    lives = unrolls[-1].observations["observation"][-1, :, 2]
    assert sum(unroll.header.env_steps for unroll in unrolls) == lives.sum() >= steps
    episodes = np.concatenate([unroll.episode_lengths_steps for unroll in unrolls])
    assert len(episodes) == ends.sum()


def swung(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """CartPole's next state by its equations of motion (Barto, Sutton and Anderson 1983), in 64 bits.

    Args:
        state: [..., 4]. Position, velocity, angle, angular velocity.
        action: [...]. 0 pushes left, 1 right.
    """
    x, speed, angle, turn = np.moveaxis(state.astype(np.float64), -1, 0)
    force = np.where(action == 1, 10.0, -10.0)
    pushed = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
    turn_by = (9.8 * np.sin(angle) - np.cos(angle) * pushed) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
    speed_by = pushed - 0.05 * turn_by * np.cos(angle) / 1.1
    return np.stack([x + 0.02 * speed, speed + 0.02 * speed_by, angle + 0.02 * turn, turn + 0.02 * turn_by], -1)


@pytest.mark.row("M10")
def test_envpool_steps_cart_pole_by_its_equations(monkeypatch):
    """No environment of one's own runs there: the audit is by physics, 10^5 steps of episodes of at most 25."""
    pytest.importorskip("envpool")
    config = EnvironmentConfig(id="CartPole-v1", vectorization="envpool", kwargs={"max_episode_steps": 25})
    environment = VectorEnvironment(config, 64)
    elapsed = record_elapsed_steps(monkeypatch)
    unrolls = drive(environment, 100_000, seed=6)
    environment.close()
    counts = np.concatenate([np.zeros((1, 64)), elapsed])
    lengths, ends = [], np.zeros(2, int)
    for number, unroll in enumerate(unrolls):
        observations, valid = unroll.observations["observation"], unroll.valid
        before, after = observations[:-1], observations[1:]
        np.testing.assert_allclose(
            after[valid], swung(before[valid], unroll.actions["action"][valid]), rtol=1e-5, atol=2e-6
        )
        assert (np.abs(after[~valid]) <= 0.05).all()
        np.testing.assert_array_equal(~valid[1:], (unroll.terminated | unroll.truncated)[:-1])
        # The true final observation: fallen, or at the limit and only there.
        fallen = (np.abs(after[..., 0]) > 2.4) | (np.abs(after[..., 2]) > 12 * 2 * np.pi / 360)
        steps = counts[number * LENGTH : (number + 1) * LENGTH + 1]
        np.testing.assert_array_equal(unroll.truncated, steps[1:] == 25)
        np.testing.assert_array_equal(unroll.terminated, fallen & (steps[1:] < 25))
        np.testing.assert_array_equal(steps[1:], np.where(valid, steps[:-1] + 1, 0))
        check_returns(unroll, steps.astype(np.float32))
        lengths.extend(unroll.episode_lengths_steps)
        ends += [unroll.terminated.sum(), unroll.truncated.sum()]
    assert (ends > 500).all()
    open_steps = counts[-1][~(unrolls[-1].terminated[-1] | unrolls[-1].truncated[-1])].sum()
    assert sum(unroll.header.env_steps for unroll in unrolls) == sum(lengths) + open_steps


def record_elapsed_steps(monkeypatch) -> list[np.ndarray]:
    """EnvPool's own count of each environment's episode, int32 [B] after every step."""
    import envpool

    recorded: list[np.ndarray] = []
    make = envpool.make

    def made(*args, **kwargs):
        pool = make(*args, **kwargs)
        step = pool.step

        def stepped(actions):
            result = step(actions)
            np.testing.assert_array_equal(result[-1]["env_id"], np.arange(len(actions)))
            recorded.append(result[-1]["elapsed_step"].copy())
            return result

        pool.step = stepped
        return pool

    monkeypatch.setattr(envpool, "make", made)
    return recorded


def test_the_equations_are_gymnasium_s():
    single = gymnasium.make("CartPole-v1")
    state, _ = single.reset(seed=3)
    for action in [0, 1, 1, 0, 1, 0, 0, 1]:
        expected = swung(state, np.array(action))
        state = single.step(action)[0]
        np.testing.assert_allclose(state, expected, rtol=1e-5, atol=2e-6)
