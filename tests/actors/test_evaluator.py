"""Evaluator: exactly as many episodes as asked for, none favoured for being short, by what the environment paid."""

from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from distrl.actors.baselines import ConstantPolicy
from distrl.actors.evaluator import (
    Episode,
    Evaluator,
    GreedyPolicy,
    evaluation,
    metric_means,
    share_of,
    success_rate,
    with_epsilon,
)
from distrl.config.environment import EnvironmentConfig
from distrl.environments.vector import EnvironmentStep, VectorEnvironment
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec


class Uneven(gymnasium.Env):
    """Every second one that is made has episodes of 9 steps, the others of 1; a step pays 1."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        self.observation_space = Box(0.0, 1.0, (1,), np.float32)
        self.action_space = Discrete(2)
        self._length = 9 if Uneven.made % 2 else 1
        Uneven.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        return np.zeros(1, np.float32), 1.0, self._steps == self._length, False, {}


class Scripted:
    """A vector whose environments have the episodes of a script: lists of rewards, one list for each episode.

    If it `says` so, an episode has succeeded if its last reward was more than 5; it may say so of some rows only.
    """

    says: bool | list[bool] = False

    def __init__(self, episodes):
        self.rows, self.succeeded = len(episodes), None
        self.metrics, self.episode_metrics = (), None
        self._episodes = episodes
        self.seeds = []

    def reset(self, seed):
        self.seeds.append(seed)
        self._at = [(0, 0)] * self.rows  # episode, steps done in it
        self._over = np.zeros(self.rows, np.bool_)
        return self._observations()

    def step(self, actions):
        rewards, valid, ended = np.zeros(self.rows, np.float32), ~self._over, np.zeros(self.rows, np.bool_)
        for number, (episode, done) in enumerate(self._at):
            if self._over[number]:
                self._at[number] = (episode + 1, 0)
                continue
            script = self._episodes[number][episode % len(self._episodes[number])]
            rewards[number], ended[number] = script[done], done + 1 == len(script)
            self._at[number] = (episode, done + 1)
        self._over = ended
        self.succeeded = np.where(self.says, rewards > 5, None) if self.says else None
        if self.metrics:  # the last reward, unless it is 0
            self.episode_metrics = np.where(rewards == 0, np.nan, rewards)[:, None].astype(np.float32)
        none = np.zeros(self.rows, np.bool_)
        return EnvironmentStep(self._observations(), 100 * rewards, ended, none, valid, rewards, ended)

    def _observations(self):
        return {"observation": np.array([[done] for _, done in self._at], np.float32)}


class Counting:
    """Its memory counts the steps of an episode; it notes what it saw beside it."""

    def __init__(self):
        self.seen = []

    def initial_state(self, batch):
        return {"count": np.zeros((batch, 1), np.float32)}

    def choose(self, observations, recurrent_state):
        self.seen.append(np.hstack([observations["observation"], recurrent_state["count"]]))
        return {"action": np.zeros(len(observations["observation"]), np.int32)}, {"count": recurrent_state["count"] + 1}


def played(environment, total, *others, **named):
    """The episode of an evaluator without a discount."""
    return Episode(environment, total, *others, discounted_total=total, **named)


def test_short_episodes_are_not_over_represented():
    Uneven.made = 0
    environment = VectorEnvironment(EnvironmentConfig(id=f"{__name__}:Uneven", vectorization="sync"), 4)
    evaluator = Evaluator(ConstantPolicy({"action": DiscreteSpec(2)}, {"action": 0}), environment)
    lengths = sorted(episode.length_steps for episode in evaluator.episodes(20, 1))
    assert lengths == [1] * 10 + [9] * 10
    # Whichever end first: in the 10 steps of one long episode, a short one ends 5 times, so that 20 would hold 3 or 4.
    environment.close()


@given(
    st.lists(
        st.lists(st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=5), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 13),
)
def test_every_environment_plays_its_share_in_its_own_order(script, count):
    found = [*Evaluator(Counting(), Scripted(script)).episodes(count, 0)]
    assert len(found) == count
    for number, own in enumerate(script):
        share = count // len(script) + (number < count % len(script))
        assert share == share_of(number, count, len(script))
        expected = [played(number, sum(own[k % len(own)]), len(own[k % len(own)])) for k in range(share)]
        assert [episode for episode in found if episode.environment == number] == expected


def test_memory_starts_anew_with_every_episode():
    policy = Counting()
    assert len([*Evaluator(policy, Scripted([[[1.0] * 2], [[1.0] * 3]])).episodes(6, 0)]) == 6
    # After an episode's end there is one row whose action is ignored; the state after it is zero.
    own = np.array([[0, 0], [1, 1], [2, 2]] * 10, np.float32)
    other = np.array([[0, 0], [1, 1], [2, 2], [3, 3]] * 10, np.float32)
    seen = np.array(policy.seen)  # [rows, environments, 2]
    np.testing.assert_array_equal(seen[:, 0], own[: len(seen)])
    np.testing.assert_array_equal(seen[:, 1], other[: len(seen)])


@pytest.mark.row("D22")
def test_returns_are_of_what_the_environment_paid_and_padding_counts_for_nothing():
    task = {
        "id": "distrl.environments.worlds.toy:StepCounter",
        "preprocessing": [{"step": "clip", "of": "reward", "high": 1.0}],
    }
    environment = VectorEnvironment(EnvironmentConfig.model_validate(task), 2)
    evaluator = Evaluator(ConstantPolicy(environment.spec.actions, {"action": 1}), environment)
    assert [*evaluator.episodes(4, 0)] == [played(e, 15.0, 5) for e in (0, 1, 0, 1)]  # 1 + 2 + 3 + 4 + 5
    assert evaluator.env_steps == 20  # no step of the reset between two episodes
    environment.close()


@pytest.mark.parametrize("count", [4, None])
def test_an_episode_that_never_ends_is_cut_short_and_all_rows_begin_anew(count):
    """Row 1 is cut after 5 steps; row 0 then ends its second episode, and both begin anew by another seed."""
    environment = Scripted([[[1.0, 0.0, 2.0]], [[1.0] * 1000]])
    environment.says = True
    watched, found = [], []
    evaluator = Evaluator(Counting(), environment, 5, lambda ended, plays: watched.append(plays.copy()))
    for episode in evaluator.episodes(count, 7):
        found.append(episode)
        if len(found) == 4:
            break
    short, cut = played(0, 3.0, 3, False), played(1, 5.0, 5, None, cut=True)
    assert found == ([short, cut, short, cut] if count else [short, cut, short, short])
    first, second = environment.seeds
    assert first == 7 != second
    if count:  # row 0 plays 3 steps and, after a reset, 3 more; row 1 is watched in its 5 steps alone, twice
        assert np.sum(watched, axis=0).tolist() == [1 + 7, 2 * (1 + 5)]
    again = Scripted([[[1.0, 0.0, 2.0]], [[1.0] * 1000]])
    assert len([*Evaluator(Counting(), again, max_episode_steps=5).episodes(4, 7)]) == 4
    assert again.seeds == environment.seeds
    told = evaluation(found, weights_version=7, env_steps=100, wall_s=0.5)
    assert (told.cut_episodes, told.success_rate) == (2 if count else 1, 0.0)


def test_discounted_returns_begin_anew_with_every_episode():
    script = [[[1.0, 0.0, 2.0], [4.0]], [[1.0] * 1000]]
    found = [*Evaluator(Counting(), Scripted(script), max_episode_steps=3, discount=0.5).episodes(4, 0)]
    values = {(each.total, each.discounted_total) for each in found}
    assert values >= {(3.0, 1.5), (3.0, 1.75)}  # 1 + 2 / 4, and of the one that is cut 1 + 1 / 2 + 1 / 4
    told = evaluation(found, weights_version=7, env_steps=100, wall_s=0.5)
    assert told.mean_discounted_return == sum(each.discounted_total for each in found) / 4


def test_an_episode_that_ends_at_the_limit_is_not_cut_short():
    environment = Scripted([[[1.0, 2.0]], [[3.0] * 5]])
    found = [*Evaluator(Counting(), environment, max_episode_steps=5).episodes(4, 0)]
    assert sorted(found) == [played(0, 3.0, 2)] * 2 + [played(1, 15.0, 5)] * 2
    assert environment.seeds == [0]


def test_endless_until_stopped():
    asked = iter([False] * 7 + [True])
    found = [*Evaluator(Counting(), Scripted([[[1.0]], [[1.0, 1.0]]])).episodes(None, 3, lambda: next(asked))]
    # Rows end in: both short ones 0 2 4 6, the longer one 1 4.
    assert [episode.environment for episode in found] == [0, 1, 0, 0, 1, 0]


def test_a_watcher_sees_the_reset_and_every_step():
    told = []
    evaluator = Evaluator(Counting(), Scripted([[[1.0], [1.0, 1.0]]]), watch=lambda ended, plays: told.append(ended))
    assert len([*evaluator.episodes(2, 0)]) == 2
    assert np.concatenate(told).tolist() == [False, True, False, False, True]


def test_greedy_takes_modes_and_hands_memory_on():
    outputs = {"policy/a": np.array([[1, 3, 2], [5, 0, 0]], np.float32), "policy/b": np.array([[0.5, 9], [-2, 9]])}
    given_state = {"h": np.ones((2, 1), np.float32)}

    class Network:
        distributions: ClassVar = {"a": CategoricalSpec(3), "b": GaussianSpec(1)}

        def initial_state(self, batch):
            return {"h": np.zeros((batch, 1), np.float32)}

        def step(self, observations, recurrent_state):
            assert (observations, recurrent_state) == ({"o": 1}, given_state)
            return SimpleNamespace(outputs=outputs, recurrent_state={"h": "next"})

    policy = GreedyPolicy(Network())
    actions, state = policy.choose({"o": 1}, given_state)
    assert (actions["a"].tolist(), actions["b"].tolist(), state) == ([1, 0], [[0.5], [-2.0]], {"h": "next"})
    assert policy.initial_state(3)["h"].shape == (3, 1)


@pytest.mark.row("D85")
def test_an_epsilon_replaces_all_actions_of_an_environment_by_allowed_ones():
    spec = EnvSpec(
        "Toy", {"action_mask": ArraySpec((3,), "int8")}, {"turn": DiscreteSpec(3)}
    )  # the mask forbids what the policy wants
    rows, masks = 20_000, np.tile(np.int8([1, 1, 0]), (20_000, 1))
    greedy = ConstantPolicy(spec.actions, {"turn": 2})
    policy = with_epsilon(greedy, spec, "action_mask", 0.05, np.random.default_rng(0))
    turns = policy.choose({"action_mask": masks}, {})[0]["turn"]
    np.testing.assert_allclose(np.bincount(turns) / rows, [0.025, 0.025, 0.95], atol=0.005)
    assert with_epsilon(greedy, spec, "action_mask", 0.0, np.random.default_rng(0)) is greedy
    two = EnvSpec(
        "Two", {"o": ArraySpec((1,), "float32")}, {"a": DiscreteSpec(1000), "b": BoxSpec((2,), (0.0, 0.0), (1.0, 1.0))}
    )
    policy = with_epsilon(
        ConstantPolicy(two.actions, {"a": 0, "b": [0.0, 0.0]}), two, None, 0.5, np.random.default_rng(0)
    )
    actions, state = policy.choose({"o": np.zeros((rows, 1), np.float32)}, {"h": 1})
    explored = actions["b"].any(axis=1)
    assert explored.mean() == pytest.approx(0.5, abs=0.02)
    assert actions["b"].all(axis=1).tolist() == explored.tolist()  # an action of several numbers as a whole
    assert not actions["a"][~explored].any()
    assert (actions["a"][explored] > 0).mean() > 0.99
    assert state == {}
    assert policy.initial_state(3) == {}


def test_metrics_are_means_over_the_episodes_that_have_them():
    environment = Scripted([[[1, 9], [9, 0]], [[6]]])
    environment.metrics = ("x",)
    found = [*Evaluator(ConstantPolicy({"action": DiscreteSpec(2)}, {"action": 0}), environment).episodes(4, 0)]
    assert sorted((episode.environment, episode.total, episode.metrics["x"] or -1) for episode in found) == [
        *((0, 9.0, -1), (0, 10.0, 9.0), (1, 6.0, 6.0), (1, 6.0, 6.0))
    ]
    assert metric_means(found) == evaluation(found, weights_version=7, env_steps=1, wall_s=0.5).metrics == {"x": 7.0}
    assert metric_means([Episode(0, 1.0, 1, None, {"x": None})]) == {"x": None}
    assert metric_means([]) == {}


@pytest.mark.row("P07.4")
def test_the_share_of_episodes_that_succeed_is_of_those_that_count():
    environment = Scripted([[[1, 9], [9, 1]], [[9]]])
    environment.says = True
    policy = ConstantPolicy({"action": DiscreteSpec(2)}, {"action": 0})
    found = [*Evaluator(policy, environment).episodes(5, 0)]
    assert sorted(found) == [
        played(0, 10.0, 2, False),
        played(0, 10.0, 2, True),
        played(0, 10.0, 2, True),
        played(1, 9.0, 1, True),
        played(1, 9.0, 1, True),
    ]
    assert success_rate(found) == 0.8
    assert evaluation(found, weights_version=7, env_steps=100, wall_s=0.5).success_rate == 0.8
    environment.says = [True, False]
    some = [*Evaluator(policy, environment).episodes(5, 0)]
    assert [episode.success for episode in some if episode.environment == 1] == [None, None]
    assert success_rate(some) == pytest.approx(2 / 3)
    assert evaluation(some, weights_version=7, env_steps=100, wall_s=0.5).success_rate == success_rate(some)
    environment.says = False
    silent = [*Evaluator(policy, environment).episodes(5, 0)]
    assert success_rate(silent) is success_rate([]) is None
    assert success_rate([*silent, Episode(0, 1.0, 1, False)]) == 0.0


def test_what_episodes_come_to():
    found = evaluation(
        [Episode(0, 2.0, 5), Episode(1, 4.0, 8), Episode(0, 9.0, 2)], weights_version=7, env_steps=100, wall_s=0.5
    )
    assert (found.episodes, found.mean_return, found.min_return, found.max_return) == (3, 5.0, 2.0, 9.0)
    assert found.std_return == pytest.approx(np.sqrt((9 + 1 + 16) / 3))
    assert (found.mean_length_steps, found.weights_version, found.env_steps, found.wall_s) == (5.0, 7, 100, 0.5)
