"""Operators' changes reach the networks, the checkpoints and the next launch, and rules of a curriculum theirs."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from distrl.config.schedules import Progress
from distrl.data_store.checkpoints import save
from distrl.errors import ConfigError
from distrl.learner.attendants import operator_requests
from distrl.learner.attendants.operator_requests import CurriculumRules, OperatorRequests
from distrl.learner.publisher import StalenessBound
from distrl.learner.state import LearnerState
from distrl.memory_backend.records import Demand, Request
from distrl.memory_backend.steering import Steering
from distrl.types import EnvSpec

RATE, WEIGHT = "network.learning_rate", "algorithm.entropy_weight"


SPEC = EnvSpec("Toy", {}, {}, adjustable=("level",))


class Saving:
    """Stands for the saver."""

    def __init__(self):
        self.demands = []

    def want(self, demand):
        self.demands.append(demand)


class Steered:
    """Stands for the algorithm."""

    def __init__(self):
        self.taken = []

    def steer(self, networks, context):
        self.taken.append(context)


def requests(config, state, backend):
    state.begin_metrics(config.environment.metrics, config.environment.metric_rules)
    return over(
        SimpleNamespace(
            **{"config": config, "spec": SPEC, "state": state, "backend": backend},
            **{"algorithm": Steered(), "networks": {}, "staleness": StalenessBound(None)},
        )
    )


def over(parts):
    """Return the attendant of operators' requests to a learner that has these parts."""
    return OperatorRequests(
        *(parts.config, parts.spec.adjustable, parts.state, parts.backend.registry),
        *(parts.algorithm, parts.networks, parts.staleness, Saving(), lambda config: None),
    )


@pytest.fixture
def steered(run, toy_config, monkeypatch):
    """Makes one that looks whenever it is asked to."""
    monkeypatch.setattr(operator_requests, "LOOK_S", 0.0)

    def make(state=None, **paths):
        made = requests(toy_config(**paths), state or LearnerState(run_id="r"), run.backend)
        made.taken = made._algorithm.taken
        return made

    return make


def test_settings_are_taken_over_once_and_remembered(run, steered):
    made = steered()
    made.begin()
    made.attend(None)
    assert (made.taken, made._state.settings) == ([], {})
    run.backend.registry.set_control(settings={RATE: 0.5})
    made.attend(None)
    made.attend(None)
    assert [context.network.learning_rate for context in made.taken] == [0.5]
    run.backend.registry.set_control(settings={WEIGHT: 0.25})
    made.attend(None)
    assert (made.taken[-1].network.learning_rate, made.taken[-1].parameters.entropy_weight) == (0.5, 0.25)
    assert made._state.settings == {RATE: (0.01, 0.5), WEIGHT: (0.01, 0.25)}
    assert LearnerState.from_meta(made._state.to_meta()).settings == made._state.settings


def test_a_resumed_training_goes_on_with_them_and_tells_everybody(run, steered):
    state = LearnerState(run_id="r", settings={RATE: (0.01, 0.5), WEIGHT: (0.01, 0.25)})
    made = steered(state)
    made.begin()
    assert (made.taken[0].network.learning_rate, made.taken[0].parameters.entropy_weight) == (0.5, 0.25)
    assert run.backend.registry.control().settings == {RATE: 0.5, WEIGHT: 0.25}


def test_whoever_resumes_with_another_value_wants_that_one(run, steered):
    state = LearnerState(run_id="r", settings={RATE: (0.02, 0.5), WEIGHT: (0.01, 0.25)})  # it was 0.02 then
    made = steered(state)
    made.begin()
    assert (made.taken[0].network.learning_rate, made.taken[0].parameters.entropy_weight) == (0.01, 0.25)
    assert made._state.settings == {WEIGHT: (0.01, 0.25)}
    assert run.backend.registry.control().settings == {WEIGHT: 0.25}


def test_what_this_run_was_told_is_newer_than_its_checkpoint(run, steered):
    run.backend.registry.set_control(settings={RATE: 0.125})
    made = steered(LearnerState(run_id="r", settings={RATE: (0.01, 0.5)}))
    made.begin()
    assert [context.network.learning_rate for context in made.taken] == [0.125]


def test_what_was_overridden_once_does_not_come_back(run, steered):
    state = LearnerState(run_id="r", settings={RATE: (0.02, 0.5)})  # resumed with 0.01
    steered(state).begin()
    assert state.settings == {}


def test_what_redis_has_forgotten_is_put_back(run, steered):
    made = steered()
    made.begin()
    run.backend.registry.set_control(settings={RATE: 0.5})
    made.attend(None)
    run.backend.engine.call("DEL", run.backend._run.keys.control)  # as of an earlier copy of it
    made.attend(None)
    assert run.backend.registry.control().settings == {RATE: 0.5}
    run.backend.engine.call("DEL", run.backend._run.keys.control)
    run.backend.registry.set_control(settings={WEIGHT: 0.25})
    made.attend(None)
    assert run.backend.registry.control().settings == {RATE: 0.5, WEIGHT: 0.25}
    assert (made.taken[-1].network.learning_rate, made.taken[-1].parameters.entropy_weight) == (0.5, 0.25)


def test_what_cannot_be_is_told_of_and_not_taken_over(run, steered, caplog):
    made = steered()
    made.begin()
    run.backend.registry.set_control(settings={RATE: -1.0})
    with caplog.at_level(logging.ERROR):
        made.attend(None)
        made.attend(None)
    run.backend.registry.set_control(settings={WEIGHT: 0.25})  # which can be
    made.attend(None)
    assert [context.parameters.entropy_weight for context in made.taken] == [0.25]
    assert [record.message for record in caplog.records][:1] == [
        "not taken over: network.learning_rate: -1.0 (from the request) must be greater than 0"
    ]


def test_it_looks_now_and_then(run, toy_config, monkeypatch):
    looks = []
    registry = run.backend.registry
    look = registry.control
    monkeypatch.setattr(registry, "control", lambda: looks.append(1) or look())
    monkeypatch.setattr(operator_requests, "LOOK_S", 3600.0)
    made = requests(toy_config(), LearnerState(run_id="r"), SimpleNamespace(registry=registry))
    for _ in range(10):
        made.attend(None)
    assert len(looks) == 1


def checkpoint_of(networks, state, directory):
    arrays = {f"{name}.{group}": each for name, one in networks.items() for group, each in one.state_arrays().items()}
    return save(directory, state.updates, arrays, state.to_meta(), keep=1)


def test_networks_of_a_checkpoint_are_taken_with_their_optimizers_and_nothing_else(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(operator_requests, "LOOK_S", 0.0)
    teacher, made = prepared(run_id="teacher"), prepared(run_id="toy", run_dir=tmp_path / "toy")
    for variable in teacher.networks["main"].optimizer.variables[1:]:
        variable.assign(variable + 1)
    checkpoint = checkpoint_of(teacher.networks, teacher.state, tmp_path / "checkpoints")
    made.state.updates, made.state.env_steps = 7, 70
    registry = made.backend.registry
    requested = Steering(made.backend, "test").take_networks(checkpoint)
    over(made).attend(None)
    assert registry.control().networks == Demand(requested, requested)
    expected, found = (each.networks["main"].state_arrays() for each in (teacher, made))
    for group, arrays in expected.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[group][name], array, err_msg=f"{group} {name}")
    assert (made.state.updates, made.state.env_steps, made.state.run_id) == (7, 70, "toy")


@pytest.mark.parametrize("damage", ["other", "missing"])
def test_networks_that_do_not_fit_are_refused_and_change_nothing(prepared, toy_config, tmp_path, monkeypatch, damage):
    monkeypatch.setattr(operator_requests, "LOOK_S", 0.0)
    other = toy_config(network__middleware_parameters={"scheme": [5]})
    teacher, made = prepared(other, run_id="teacher"), prepared(run_id="toy", run_dir=tmp_path / "toy")
    checkpoint = checkpoint_of(teacher.networks, teacher.state, tmp_path / "checkpoints")
    before = made.networks["main"].state_arrays()
    steering = Steering(made.backend, "test")
    number = steering.take_networks(checkpoint if damage == "other" else tmp_path / "nowhere")
    over(made).attend(None)
    with pytest.raises(ConfigError, match="networks not taken: "):
        steering.is_done("networks", number)
    for group, arrays in made.networks["main"].state_arrays().items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, before[group][name], err_msg=f"{group} {name}")
    steering.take_networks(checkpoint_of(made.networks, made.state, tmp_path / "own"))
    over(made).attend(None)
    assert made.backend.registry.control().networks == Demand(2, 2)  # a refusal is of its own request


def test_the_saver_is_told_of_demands_for_checkpoints(run, steered):
    made = steered()
    run.backend.registry.demand("checkpoint")
    made.attend(None)
    assert made._saver.demands == [Demand(1, 0)]


STAGE, LEVEL = "environment.curriculum.level.stage", "environment.kwargs.level"


def leveled(**more):
    rule = {"kind": "by_metric", "values": [0, 3, 5], "metric": "success", "above": 0.5, "episodes": 2, **more}
    return {"environment__kwargs": {"level": 0}, "environment__curriculum": {"level": rule}}


def play(made, stage, *successes):
    count = len(successes)
    made._state.observe_episodes([0.0] * count, [1] * count, [], successes, [[float(stage)]] * count)
    CurriculumRules(made, made._state, made._registry).attend(SimpleNamespace())


def test_what_an_operator_has_just_set_comes_before_the_rule(run, steered):
    made, registry = steered(**leveled()), run.backend.registry
    made.begin()
    registry.set_control(settings={STAGE: 2})  # since the last look
    play(made, 0, 1, 1)
    assert registry.control().settings == {STAGE: 2}
    assert registry.requests("0") == []


def test_the_next_stage_is_a_setting_like_an_operators(run, steered):
    told = []
    made = steered(**leveled())
    made._steer = lambda config: told.append(config.environment.parameters_at(Progress())["level"])
    made.begin()
    play(made, 0, 1, 0, 0)
    assert (told, run.backend.registry.control().settings) == ([0], {})
    play(made, 0, 1)
    assert (told, run.backend.registry.control().settings) == ([0, 3], {STAGE: 1})
    assert [request for _, request in run.backend.registry.requests("0")] == [
        Request("curriculum", f"{STAGE} 1: level is 3 after mean success 0.5 over 2 episodes")
    ]
    assert made._state.settings == {STAGE: (0, 1)}
    made.attend(None)  # reads its own request
    play(made, 0, 1, 1)  # episodes that began before
    assert (told, made._state.stages["level"].values) == ([0, 3], [])
    play(made, 1, 1, 1)
    play(made, 2, 1, 1)  # there is no further one
    assert (told, made._state.settings) == ([0, 3, 5], {STAGE: (0, 2)})


def test_a_resumed_curriculum_goes_on_and_redis_gets_it_again(run, steered):
    made = steered(LearnerState(run_id="r", settings={STAGE: (0, 1)}), **leveled())
    made.begin()
    assert run.backend.registry.control().settings == {STAGE: 1}
    run.backend.registry.set_control(paused=True)
    run.backend.engine.call("DEL", run.backend._run.keys.control)  # as a restarted Redis would have lost it
    made.attend(None)
    assert run.backend.registry.control().settings == {STAGE: 1}
    play(made, 1, 1, 1)
    assert run.backend.registry.control().settings == {STAGE: 2}


def test_an_operators_value_replaces_the_rule(run, steered):
    told = []
    made = steered(**leveled())
    made.begin()
    made._steer = lambda config: told.append(config.environment.parameters_at(Progress())["level"])
    run.backend.registry.set_control(settings={LEVEL: 4})
    made.attend(None)
    play(made, 0, 1, 1)
    assert (told, run.backend.registry.control().settings) == ([4], {LEVEL: 4})
    assert (made._state.stages["level"].stage, made._state.settings) == (None, {LEVEL: (None, 4)})
    # The same run resumed, and with another rule's value chosen by the operator of the resumption.
    again = steered(LearnerState(run_id="r", settings=made._state.settings), **leveled(stage=1))
    again.begin()
    play(again, 1, 1, 1)
    assert run.backend.registry.control().settings == {LEVEL: 4}


def test_what_operators_change_right_before_a_new_stage_counts(run, steered):
    made = steered(**leveled())
    made.begin()
    run.backend.registry.set_control(settings={RATE: 0.5})
    play(made, 0, 1, 1)
    made.attend(None)
    assert made._state.settings == {RATE: (0.01, 0.5), STAGE: (0, 1)}
    assert made.taken[-1].network.learning_rate == 0.5


def test_an_operator_may_choose_the_stage_with_which_the_rule_goes_on(run, steered):
    made = steered(**leveled())
    made.begin()
    play(made, 0, 1, 1)
    play(made, 1, 1)
    run.backend.registry.set_control(settings={STAGE: 0})
    made.attend(None)
    play(made, 0, 1)
    assert run.backend.registry.control().settings == {STAGE: 0}
    play(made, 0, 1)
    assert run.backend.registry.control().settings == {STAGE: 1}
