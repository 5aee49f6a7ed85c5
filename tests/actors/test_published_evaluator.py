"""PublishedEvaluator: which weights are evaluated and when, without any effect on the training."""

import dataclasses
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest

from distrl.actors.acting import PolicyOutput
from distrl.actors.other_environments import make_others
from distrl.actors.published_evaluator import PublishedEvaluator, no_estimates
from distrl.config import RunConfig
from distrl.config.live_settings import steered
from distrl.config.schedules import Progress
from distrl.environments.vector import VectorEnvironment
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import encode_weights
from distrl.memory_backend.records import Estimate
from distrl.memory_backend.stream import QueueCaps
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.types import Weights


class Arm:
    """Always pulls the arm that its one weight names."""

    distributions = {"action": CategoricalSpec(3)}  # noqa: RUF012
    weight_names = frozenset({"arm"})

    def __init__(self):
        self.taken = []

    def set_weights(self, weights):
        self.taken.append((weights.version, sorted(weights.arrays)))
        self._logits = np.eye(3, dtype=np.float32)[int(weights.arrays["arm"])]

    def initial_state(self, batch):
        return {}

    def step(self, observations, recurrent_state):
        rows = len(observations["observation"])
        return PolicyOutput({"policy/action": np.tile(self._logits, (rows, 1))}, {})


class World:
    def __init__(self, **evaluation):
        tree = {
            "environment": {"id": "distrl.environments.worlds.toy:Bandit", "kwargs": {"means": [0.0, 0.5, 1.0]}},
            "evaluation": {"every_env_steps": 100, "episodes": 5, "environments": 2, **evaluation},
        }
        self.config = RunConfig.model_validate(tree)
        self.backend = connect("local:", "r", QueueCaps(8, 2**20), name="test", give_up_s=1.0)
        self.backend.create("{}")
        self.learner = self.backend.become_learner()
        self.policy = Arm()
        self.version = 0

    def evaluator(self, after=0, estimate=no_estimates):
        environment = VectorEnvironment(self.config.environment, self.config.evaluation.environments_used)
        others = make_others(self.config, environment.spec, VectorEnvironment, ExitStack())
        incarnation = self.backend.registry.register("evaluator")
        return PublishedEvaluator(
            self.config, self.backend, self.policy, environment, after, incarnation, None, others, estimate
        )

    def publish(self, env_steps, arm=2):
        self.version += 1
        arrays = {"arm": np.array(arm, np.float32), "strength of noise": np.ones(2, np.float32)}
        blob = encode_weights(Weights(self.version, arrays))
        self.learner.weights.publish(self.version, blob, Progress(env_steps))

    @property
    def told(self):
        return [evaluation for _, evaluation in self.backend.registry.evaluations("0")]


def evaluated(world, evaluator, steps):
    """Environment steps of the weights that were evaluated, when these are published one after the other."""
    for env_steps in steps:
        world.publish(env_steps)
        evaluator.evaluate_if_due(lambda: False)
    return [evaluation.env_steps for evaluation in world.told]


@pytest.mark.parametrize(
    ("after", "published", "expected"),
    [
        (0, [0, 30, 60, 99, 100, 130, 199, 201, 230], [100, 201]),
        (0, [40, 350, 390, 401], [350, 401]),  # what was missed on the way is not made up for
        (201, [210, 299, 300], [300]),
        (350, [351, 400], [400]),
    ],
)
def test_the_first_weights_at_or_beyond_every_multiple(after, published, expected):
    world = World()
    assert evaluated(world, world.evaluator(after), published) == expected


@pytest.mark.row("D20")
def test_steps_of_the_heat_up_do_not_count(monkeypatch):
    monkeypatch.setattr(RunConfig, "heat_up_steps", 10)
    world = World(every_env_steps=20)
    # H10, T20, E5, T20, E5: one unit is 5 steps.
    assert evaluated(world, world.evaluator(), range(5, 55, 5)) == [30, 50]


def test_what_is_told():
    world = World()
    evaluator = world.evaluator()
    assert (evaluator.due, evaluator.weights_version) == (False, 0)
    world.publish(50, arm=0)
    world.publish(120, arm=2)
    assert evaluator.due
    assert evaluator.evaluate()
    (told,) = world.told
    assert dataclasses.replace(told, wall_s=0.0) == dataclasses.replace(
        told,
        weights_version=2,
        env_steps=120,
        episodes=5,
        mean_return=1.0,
        std_return=0.0,
        min_return=1.0,
        max_return=1.0,
        mean_length_steps=1.0,
        wall_s=0.0,
    )
    assert world.policy.taken == [(2, ["arm"])]  # what acting does not read stays out
    assert world.backend.registry.best_evaluation() == (told, world.backend.weights.fetch().blob)
    assert (evaluator.due, evaluator.weights_version) == (False, 2)
    assert evaluator.env_steps >= 5


def test_the_episodes_depend_on_the_seed_and_the_multiple_alone():
    def returns(first, second, seed=1):
        world = World(episodes=40)
        world.config = world.config.model_copy(update={"seed": seed})
        evaluator = world.evaluator()
        for env_steps in (first, second):
            world.publish(env_steps, arm=1)
            evaluator.evaluate_if_due(lambda: False)
        return [evaluation.mean_return for evaluation in world.told]

    one, other = returns(100, 200), returns(177, 250)
    assert one == other
    assert one[0] != one[1]
    assert returns(100, 200, seed=2) != one


@pytest.mark.row("D85")
def test_an_evaluation_with_an_epsilon_is_greedy_but_for_its_share():
    """The best arm pays 1, a random one .5; the same multiple plays the same episodes."""

    def mean_return(epsilon, env_steps=100):
        world = World(episodes=4000, environments=50, epsilon=epsilon)
        world.publish(env_steps)
        world.evaluator().evaluate()
        return world.told[0].mean_return

    assert mean_return(0.0) == 1.0
    assert mean_return(0.2) == pytest.approx(0.9, abs=0.02)
    assert mean_return(1.0) == pytest.approx(0.5, abs=0.03)
    assert mean_return(0.2) == mean_return(0.2, 150) != mean_return(0.2, 250)


def test_one_that_is_stopped_tells_nothing_and_stays_due():
    world = World()
    evaluator = world.evaluator()
    world.publish(100)
    asked = iter([False, True])
    assert not evaluator.evaluate(lambda: next(asked))
    assert (world.told, evaluator.due) == ([], True)


def test_what_was_asked_for_before_is_done_with_the_next_evaluation():
    world = World()
    evaluator, registry = world.evaluator(), world.backend.registry
    number = registry.demand("evaluation")
    assert not evaluator.due  # there are no weights
    world.publish(50)
    assert evaluator.due
    asked = iter([False, True])
    assert not evaluator.evaluate(lambda: next(asked))
    assert registry.control().evaluation.done < number
    evaluator.evaluate_if_due(lambda: False)
    assert registry.control().evaluation.done == number
    assert [told.env_steps for told in world.told] == [50]
    assert not evaluator.due


HEAD = "policy/action"
OTHERS = {"best": {"kwargs": {"means": [1.0, 0.0, 0.0]}}, "none": {"kwargs": {"means": [0.0, 0.0, 0.0]}}}


def test_the_same_weights_play_in_other_environments_and_the_own_one_decides():
    world = World(other_environments=OTHERS)
    evaluator = world.evaluator()
    world.publish(110, arm=0)
    assert evaluator.evaluate()
    world.publish(210, arm=2)
    assert evaluator.evaluate()
    first, second = world.told
    assert [(one.mean_return, one.others["best"].mean_return) for one in (first, second)] == [(0.0, 1.0), (1.0, 0.0)]
    for told in (first, second):
        assert list(told.others) == ["best", "none"]
        for other in told.others.values():
            assert (other.weights_version, other.env_steps) == (told.weights_version, told.env_steps)
            assert (other.episodes, other.mean_length_steps, other.others) == (5, 1.0, {})
        assert told.others["none"].max_return == 0.0
    assert world.backend.registry.best_evaluation().evaluation == second
    assert evaluator.env_steps >= 2 * 3 * 5


def test_other_environments_change_nothing_of_the_own_ones_evaluation():
    def told(epsilon, **others):
        world = World(episodes=200, environments=4, epsilon=epsilon, other_environments=others)
        world.publish(100, arm=1)
        world.evaluator().evaluate()
        return dataclasses.replace(world.told[0], wall_s=0.0, others={}), world.told[0].others

    for epsilon in (0.0, 0.5):
        alone, _ = told(epsilon)
        own, others = told(epsilon, **OTHERS, twin={"kwargs": {"means": [0.0, 0.5, 1.0]}})
        assert own == alone
    assert others["best"].mean_return == pytest.approx(1 / 6, abs=0.1)  # an epsilon there, too
    assert others["twin"].mean_return != own.mean_return  # with numbers of its own


def test_one_that_is_stopped_in_another_environment_tells_nothing_and_stays_due():
    world = World(episodes=1, environments=1, other_environments=OTHERS)
    evaluator = world.evaluator()
    world.publish(100)
    asked = iter([False, True])
    assert not evaluator.evaluate(lambda: next(asked))
    assert (world.told, evaluator.due) == ([], True)


def test_estimates_are_of_the_weights_that_played_and_a_stop_among_them_drops_all():
    world = World()

    def estimate(stop):
        arm = world.policy.step({"observation": [0]}, {}).outputs[HEAD].argmax()
        return None if stop() else [Estimate("fqe", float(arm))]

    evaluator, stopped = world.evaluator(estimate=estimate), []
    world.publish(100, arm=2)
    assert not evaluator.evaluate(lambda: len(stopped) > 4 or bool(stopped.append(1)))  # after five steps
    assert (world.told, evaluator.due) == ([], True)
    for arm in (2, 1):
        world.publish(100 + 100 * arm, arm=arm)
        assert evaluator.evaluate()
    assert [told.estimates for told in world.told] == [(Estimate("fqe", 2.0),), (Estimate("fqe", 1.0),)]
    assert [told.mean_discounted_return for told in world.told] == [told.mean_return for told in world.told]  # one step


@pytest.mark.row("D22")
def test_evaluating_stores_nothing():
    world = World()
    evaluator = world.evaluator()
    world.publish(100)
    before = world.backend.ledger.counts()
    assert evaluator.evaluate()
    assert world.backend.ledger.counts() == before
    assert world.backend.weights.progress().env_steps == 100


def test_an_evaluation_and_its_film_have_the_parameters_in_force():
    world, filmed = World(), []
    rule = {"kind": "stages", "values": [1, 2], "at_env_steps": [150]}
    environment = {
        "id": "tests.faults.leveled:Leveled",
        "kwargs": {"level": 0},
        "curriculum": {"level": rule},
        "metrics": {"reached": "last"},
    }
    world.config = RunConfig.model_validate({**world.config.model_dump(mode="json"), "environment": environment})
    evaluator = world.evaluator()
    evaluator._films = SimpleNamespace(
        change=lambda values: filmed.append(values["level"]), film=lambda *_, **__: filmed.append("film")
    )
    for env_steps in (100, 200):
        world.publish(env_steps)
        evaluator.evaluate_if_due(lambda: False)
    evaluator.environment_config = steered(world.config, {"environment.kwargs.level": 7}, ["level"]).environment
    world.publish(300)
    evaluator.evaluate_if_due(lambda: False)
    assert [evaluation.metrics for evaluation in world.told] == [{"reached": 1.0}, {"reached": 2.0}, {"reached": 7.0}]
    assert filmed == [1, "film", 2, "film", 7, "film"]
