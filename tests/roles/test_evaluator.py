"""The evaluator joins, waits for its policy, evaluates what is due, and ends when the run does."""

import threading

import numpy as np
import pytest

from distrl.actors.acting import PolicyOutput
from distrl.config.schedules import Progress
from distrl.errors import ConfigError, FencedError, MissingRunError
from distrl.memory_backend.codec import encode_weights
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.roles import evaluator
from distrl.roles.description import RunAddress, RunDescription
from distrl.roles.evaluator import EvaluatorRole
from distrl.roles.plan import Role
from distrl.roles.trust import Trust
from distrl.types import PolicyBundle, Weights
from tests.waiting import wait_until

pytestmark = pytest.mark.redis

TASK = {"environment": {"id": "distrl.environments.worlds.toy:StepCounter"}}
EVALUATING = {**TASK, "evaluation": {"every_env_steps": 100, "episodes": 3}}


class First:
    """Takes the first action, whatever it sees; stands for a bundle's policy."""

    distributions = {"action": CategoricalSpec(2)}  # noqa: RUF012
    weight_names = frozenset({"w"})
    specs = []  # noqa: RUF012

    def __init__(self, bundle):
        self.spec = First.specs[-1]

    def set_weights(self, weights):
        assert weights.arrays.keys() == {"w"}

    def initial_state(self, batch):
        return {}

    def step(self, observations, recurrent_state):
        return PolicyOutput({"policy/action": np.tile([1.0, 0.0], (len(observations["observation"]), 1))}, {})


class Joined:
    """An evaluator on a thread of its own."""

    def __init__(self, redis_url, run_id, run_key):
        self.stop = threading.Event()
        self.role = EvaluatorRole(Role("evaluator"), RunAddress(redis_url, run_id, Trust(run_key)), self.stop)
        self.errors = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.role.run()
        except (FencedError, MissingRunError) as error:
            self.errors.append(error)

    def end(self):
        self.stop.set()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


def test_an_evaluator_from_its_start_to_the_end_of_the_run(described_run, redis_url, run_key, tmp_path, monkeypatch):
    backend = described_run(**EVALUATING)
    First.specs.append(RunDescription.model_validate_json(backend.config_json()).spec)
    monkeypatch.setattr(evaluator, "Policy", First)
    learner = backend.become_learner()

    def publish(version, env_steps):
        blob = encode_weights(Weights(version, {"w": np.zeros(1, np.float32)}))
        learner.weights.publish(version, blob, Progress(env_steps))

    joined = Joined(redis_url, tmp_path.name, run_key)
    wait_until(lambda: joined.role.status().state == "waiting: policy")
    assert [(status.role, status.id, status.incarnation) for status in backend.registry.roles()] == [
        ("evaluator", 0, 1)
    ]
    backend.weights.put_bundle(PolicyBundle(b"", ""))
    publish(1, 99)
    wait_until(lambda: joined.role.status().state == "waiting: weights")
    publish(2, 130)
    wait_until(lambda: backend.registry.evaluations("0"))
    ((_, told),) = backend.registry.evaluations("0")
    assert (told.weights_version, told.env_steps, told.episodes, told.mean_return) == (2, 130, 3, 15.0)
    wait_until(lambda: joined.role.status().state == "waiting: weights")  # the result is told a moment before
    status = joined.role.status()
    assert (status.weights_version, status.env_steps, status.last_step_age_s) == (2, 15, 0.0)
    joined.end()

    # Another one knows from the registry what has been evaluated.
    joined = Joined(redis_url, tmp_path.name, run_key)
    wait_until(lambda: joined.role.status().state == "waiting: weights")
    publish(3, 199)
    publish(4, 200)
    wait_until(lambda: len(backend.registry.evaluations("0")) == 2)
    assert [one.env_steps for _, one in backend.registry.evaluations("0")] == [130, 200]

    # Once more, on request; nothing is due.
    number = backend.registry.demand("evaluation")
    wait_until(lambda: backend.registry.control().evaluation.done == number)
    assert [one.weights_version for _, one in backend.registry.evaluations("0")] == [2, 4, 4]
    assert joined.role.status().incarnation == 2
    backend.registry.set_control(stop="env_steps")
    joined.thread.join(timeout=60)
    assert not joined.thread.is_alive()


def evaluated_once(backend, redis_url, run_id, run_key, monkeypatch):
    """Return a role that has evaluated the first weights."""
    First.specs.append(RunDescription.model_validate_json(backend.config_json()).spec)
    monkeypatch.setattr(evaluator, "Policy", First)
    learner = backend.become_learner()
    backend.weights.put_bundle(PolicyBundle(b"", ""))
    learner.weights.publish(1, encode_weights(Weights(1, {"w": np.zeros(1, np.float32)})), Progress(100))
    joined = Joined(redis_url, run_id, run_key)
    wait_until(lambda: backend.registry.evaluations("0"))
    return joined


def test_a_host_that_cannot_film_evaluates_and_says_so(described_run, redis_url, run_key, tmp_path, monkeypatch):
    backend = described_run(**TASK, evaluation={"every_env_steps": 100, "episodes": 3, "films": {"best": True}})
    joined = evaluated_once(backend, redis_url, tmp_path.name, run_key, monkeypatch)
    assert joined.role.status().notice.startswith("no films: environment distrl.environments.worlds.toy:StepCounter")
    joined.end()


def test_the_role_evaluates_in_other_environments_too(described_run, redis_url, run_key, tmp_path, monkeypatch):
    others = {"short": {"kwargs": {"terminate_at_steps": 2}}, "long": {"kwargs": {"terminate_at_steps": 6}}}
    backend = described_run(**TASK, evaluation={"every_env_steps": 100, "episodes": 3, "other_environments": others})
    joined = evaluated_once(backend, redis_url, tmp_path.name, run_key, monkeypatch)
    ((_, told),) = backend.registry.evaluations("0")
    assert (told.mean_return, {name: one.mean_return for name, one in told.others.items()}) == (
        15.0,
        {"short": 3.0, "long": 21.0},
    )
    joined.end()
    assert joined.role.status().env_steps == 3 * (5 + 2 + 6)


def test_other_environments_that_do_not_fit_end_the_role(described_run, redis_url, run_key, tmp_path):
    others = {"arms": {"id": "distrl.environments.worlds.toy:Bandit"}}
    described_run(**TASK, evaluation={"every_env_steps": 100, "other_environments": others})
    with pytest.raises(ConfigError, match=r"evaluation\.other_environments\.arms: \S+:Bandit does not fit the policy"):
        EvaluatorRole(Role("evaluator"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event()).run()


def test_a_resumed_run_goes_on_and_one_of_two_evaluators_ends(
    described_run, redis_url, run_key, tmp_path, monkeypatch, caplog
):
    backend = described_run(**EVALUATING)
    First.specs.append(RunDescription.model_validate_json(backend.config_json()).spec)
    monkeypatch.setattr(evaluator, "Policy", First)
    learner = backend.become_learner()
    backend.registry.restore_evaluated(230)  # by the learner, before it puts the policy
    backend.weights.put_bundle(PolicyBundle(b"", ""))
    blob = encode_weights(Weights(1, {"w": np.zeros(1, np.float32)}))
    learner.weights.publish(1, blob, Progress(299))  # the multiple 200 was evaluated
    joined = Joined(redis_url, tmp_path.name, run_key)
    wait_until(lambda: joined.role.status().state == "waiting: weights")
    other = Joined(redis_url, tmp_path.name, run_key)
    joined.thread.join(timeout=60)
    assert not joined.thread.is_alive()
    assert "another evaluator has taken over (incarnation 2, ours 1); this one ends" in caplog.messages
    learner.weights.publish(2, blob, Progress(301))
    wait_until(lambda: backend.registry.evaluations("0"))
    assert [one.env_steps for _, one in backend.registry.evaluations("0")] == [301]
    other.end()


@pytest.mark.parametrize("policy", [True, False])
def test_an_evaluator_ends_with_a_run_whose_keys_are_gone_before_it_knows_of_the_end(
    described_run, redis_url, run_key, tmp_path, monkeypatch, policy
):
    backend = described_run(**EVALUATING)
    First.specs.append(RunDescription.model_validate_json(backend.config_json()).spec)
    monkeypatch.setattr(evaluator, "Policy", First)
    if policy:
        backend.weights.put_bundle(PolicyBundle(b"", ""))
    joined = Joined(redis_url, tmp_path.name, run_key)
    wait_until(lambda: joined.role.status().state == f"waiting: {'weights' if policy else 'policy'}")
    backend.delete()
    joined.thread.join(timeout=60)
    assert not joined.thread.is_alive()
    assert [error.ended for error in joined.errors] == [True]


def test_an_evaluator_of_an_earlier_launch_ends_with_that_error(
    described_run, redis_url, run_key, tmp_path, monkeypatch
):
    backend = described_run(**EVALUATING)
    First.specs.append(RunDescription.model_validate_json(backend.config_json()).spec)
    monkeypatch.setattr(evaluator, "Policy", First)
    backend.weights.put_bundle(PolicyBundle(b"", ""))
    joined = Joined(redis_url, tmp_path.name, run_key)
    wait_until(lambda: joined.role.status().state == "waiting: weights")
    run, ours = backend._run.keys.run, backend.engine.call("HGET", backend._run.keys.run, "launch")
    backend.engine.call("HSET", run, "launch", "later")
    joined.thread.join(timeout=60)
    backend.engine.call("HSET", run, "launch", ours)
    assert [type(error) for error in joined.errors] == [FencedError]


def test_an_evaluator_does_not_take_lost_data_for_the_end_of_the_run(
    described_run, redis_url, run_key, tmp_path, monkeypatch
):
    backend = described_run(**EVALUATING)
    First.specs.append(RunDescription.model_validate_json(backend.config_json()).spec)
    monkeypatch.setattr(evaluator, "Policy", First)
    backend.weights.put_bundle(PolicyBundle(b"", ""))
    joined = Joined(redis_url, tmp_path.name, run_key)
    wait_until(lambda: joined.role.status().state == "waiting: weights")
    checked = joined.role._backend.check_launch

    def lost():
        joined.role._backend.engine.interruptions += 1
        backend.delete()
        checked()

    monkeypatch.setattr(joined.role._backend, "check_launch", lost)
    joined.thread.join(timeout=60)
    assert [error.ended for error in joined.errors] == [False]


def test_a_policy_of_another_environment_is_refused(described_run, redis_url, run_key, tmp_path, monkeypatch):
    backend = described_run(**EVALUATING)
    First.specs.append("another")
    monkeypatch.setattr(evaluator, "Policy", First)
    backend.weights.put_bundle(PolicyBundle(b"", ""))
    with pytest.raises(ConfigError, match="the policy was made for another, here the environment is EnvSpec"):
        EvaluatorRole(Role("evaluator"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event()).run()


def test_a_run_without_evaluations_has_no_use_for_one(described_run, redis_url, run_key, tmp_path):
    described_run(**TASK)
    with pytest.raises(ConfigError, match=r"has no evaluation\.every_env_steps: nothing to evaluate"):
        EvaluatorRole(Role("evaluator"), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event()).run()
