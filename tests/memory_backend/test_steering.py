"""Requests of operators are checked, recorded with their author, and change the control hash."""

import json

import pytest

from distrl.config import RunConfig
from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.records import Control, Request, SupervisorStatus
from distrl.memory_backend.steering import Steering, operator


@pytest.fixture
def describe(run):
    """Gives the run a configuration; makes who steers it."""

    def make(by="ada@box, test", most_actors=8, spec=None, **sections):
        run.backend.delete()
        config = RunConfig.model_validate(sections)
        described = {"run_id": "r", "config": config.model_dump(mode="json"), "most_actors": most_actors}
        described |= {} if spec is None else {"spec": spec}
        run.backend.create(json.dumps(described))
        return Steering(run.connect(), by)

    return make


def asked(run):
    return [request for _, request in run.backend.registry.requests("0")]


def test_every_request_is_written_down_with_who_asked(run, describe):
    steering = describe(evaluation={"every_env_steps": 100})
    steering.pause()
    assert run.backend.registry.control().paused
    steering.resume()
    assert not run.backend.registry.control().paused
    steering.scale(4)
    steering.change({"network.learning_rate": 5e-4})
    assert (steering.checkpoint(), steering.checkpoint(), steering.evaluate()) == (1, 2, 1)
    steering.stop()
    control = run.backend.registry.control()
    assert (control.target_actors, control.stop, control.settings) == (4, "asked", {"network.learning_rate": 5e-4})
    assert (control.checkpoint.asked, control.evaluation.asked) == (2, 1)
    assert [request.what for request in asked(run)] == [
        "pause",
        "resume",
        "scale to 4",
        "network.learning_rate 0.0005",
        "checkpoint now",
        "checkpoint now",
        "evaluation now",
        "stop",
    ]
    assert {request.by for request in asked(run)} == {"ada@box, test"}


def test_more_actors_than_the_run_may_have_come_by_force_alone(run, describe):
    describe().scale(9, force=True)
    control = run.backend.registry.control()
    assert (control.target_actors, control.target_forced, control.autoscale) == (9, True, False)
    describe().scale(8)
    assert not run.backend.registry.control().target_forced


def bounds_of(run):
    control = run.backend.registry.control()
    return control.autoscale, control.min_actors, control.max_actors


def test_autoscaling_has_the_bounds_that_were_asked_for_or_those_of_the_configuration(run, describe):
    steering = describe(actors={"autoscale": {"min_count": 2}})
    steering.autoscale(3, 6)
    assert bounds_of(run) == (True, 3, 6)
    steering.autoscale()
    assert bounds_of(run) == (True, 2, 0)
    steering.autoscale(most=8)
    assert bounds_of(run) == (True, 2, 8)
    describe(most_actors=0).autoscale(5, 500)  # its actors join by themselves
    assert bounds_of(run) == (True, 5, 500)
    assert [request.what for request in asked(run)] == ["autoscale, 5 to 500 actors"]
    describe().autoscale()
    assert [request.what for request in asked(run)] == ["autoscale, at least 1 actors"]


@pytest.mark.parametrize(("actors", "target"), [(5, 5), (None, None)])
def test_the_end_of_autoscaling_keeps_the_number_of_actors(run, describe, actors, target):
    steering = describe()
    steering.autoscale()
    run.backend.registry.beat_supervisor(SupervisorStatus("h", 1, 1, actors=actors, autoscales=True, actors_wanted=7))
    steering.fix_actors()
    control = run.backend.registry.control()
    assert (control.autoscale, control.target_actors) == (False, target)
    assert asked(run)[-1].what == "end autoscaling"
    before = len(asked(run))
    run.backend.registry.beat_supervisor(SupervisorStatus("h", 1, 2, actors=actors, actors_wanted=7))
    steering.fix_actors()
    assert len(asked(run)) == before  # there was nothing to end


@pytest.mark.parametrize(
    ("least", "most", "sections", "message"),
    [
        (9, None, {}, "actors: 9 is more than this run may have, 8"),
        (1, 9, {}, "actors: 9 is more than this run may have, 8"),
        (4, 3, {}, "actors: from 4 to 3: the first number must be 1 or more, and not the larger"),
        (0, 3, {}, "actors: from 0 to 3: the first number must be 1"),
        (None, 1, {"actors": {"autoscale": {"min_count": 2}}}, "actors: from 2 to 1"),
        (1, 5, {"most_actors": 0, "actors": {"max_count": 4}}, "actors: 5 is more than this run may have, 4"),
        (1, 4, {"algorithm": {"name": "a2c"}}, "a2c makes each update of one gradient of every actor"),
    ],
)
def test_autoscaling_that_is_refused_changes_nothing(run, describe, least, most, sections, message):
    steering = describe(**sections)
    with pytest.raises(ConfigError, match=message):
        steering.autoscale(least, most)
    assert (run.backend.registry.control(), asked(run)) == (Control(), [])


def test_an_errand_is_done_when_its_own_number_is(run, describe):
    steering = describe()
    first, second = steering.checkpoint(), steering.checkpoint()
    run.backend.registry.fulfil("checkpoint", first)
    assert (steering.is_done("checkpoint", first), steering.is_done("checkpoint", second)) == (True, False)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda steering: steering.scale(0), "actors: 0 must be a whole number, at least 1"),
        (lambda steering: steering.scale(2.5), "actors: 2.5 must be"),
        (lambda steering: steering.scale(True), "actors: True must be"),
        (
            lambda steering: steering.scale(9),
            "actors: 9 is more than this run may have, 8 .actors.max_count.; if you mean",
        ),
        (lambda steering: steering.change({"network.learning_rate": -1}), r"network\.learning_rate: -1"),
        (lambda steering: steering.change({"seed": 3}), "seed cannot change while the run goes on"),
        (lambda steering: steering.evaluate(), "launched without evaluation"),
    ],
)
def test_what_is_refused_changes_nothing_and_is_not_written_down(run, describe, ask, message):
    steering = describe()
    before = run.backend.registry.control()
    with pytest.raises(ConfigError, match=message):
        ask(steering)
    assert (run.backend.registry.control(), asked(run)) == (before, [])


def test_a_run_that_starts_no_actors_is_not_scaled(describe):
    steering = describe(most_actors=0)
    with pytest.raises(ConfigError, match="the run starts no actors"):
        steering.scale(2)


def test_values_are_shown_as_they_are_by_now(run, describe):
    steering = describe()
    steering.change({"algorithm.entropy_weight": 0.25})
    now = {parameter.path: parameter.value for parameter in Steering(run.connect(), "another").steerable()}
    assert now == {"network.learning_rate": 0.00025, "algorithm.entropy_weight": 0.25, "launch.log_level": "info"}


def test_settings_are_checked_together(run, describe):
    steering = describe(
        algorithm={"name": "ppo", "max_staleness_updates": 2}, actors={"weight_mixing_rate": 0.5}, learner={}
    )
    with pytest.raises(ConfigError, match="weight_mixing_rate < 1"):
        steering.change({"algorithm.max_staleness_updates": 0})


def test_of_a_run_that_is_gone_nothing_is_made_anew(run, describe):
    steering = describe()
    number = steering.checkpoint()
    run.backend.delete()
    for ask in (steering.pause, lambda: steering.scale(3), lambda: steering.is_done("checkpoint", number)):
        with pytest.raises(MemoryBackendError, match="no run"):
            ask()
    run.backend.create("{}")
    assert (run.backend.registry.control(), asked(run)) == (Control(), [])


def test_a_run_of_another_version_can_be_paused_and_stopped_all_the_same(run):
    run.backend.delete()
    run.backend.create(json.dumps({"config": {"no_such_section": {}}}))
    steering = Steering(run.connect(), "ada@box, test")
    steering.pause()
    assert asked(run) == [Request("ada@box, test", "pause")]
    with pytest.raises(MemoryBackendError, match=r"config\.no_such_section: .*; use its version of distrl"):
        steering.change({"network.learning_rate": 1e-3})


def test_a_description_that_is_no_json_is_refused_by_what_is_wrong_with_it(run):
    run.backend.delete()
    run.backend.create("no description")
    with pytest.raises(MemoryBackendError, match=r"not configured as this distrl knows it \(Invalid JSON: "):
        Steering(run.connect(), "ada@box, test").change({"network.learning_rate": 1e-3})


def test_an_operator_has_a_name_even_where_the_system_knows_none(monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    assert operator("dashboard") == "ada@box, dashboard"

    def unknown():
        raise KeyError("uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert operator("dashboard") == "unknown@box, dashboard"


def test_keyword_arguments_change_only_if_the_environment_can_change_them(run, describe):
    rule = {"kind": "by_metric", "values": [0, 1], "metric": "success", "above": 0.5}
    environment = {"id": "X", "kwargs": {"level": 0, "size": 3}, "curriculum": {"level": rule}}
    steering = describe(environment=environment, spec={"adjustable": ["level"]})
    with pytest.raises(ConfigError, match=r"^environment\.kwargs\.size: environment X cannot change size between"):
        steering.change({"environment.kwargs.size": 4})
    stage = "environment.curriculum.level.stage"
    steering.change({stage: 1})
    steering.change({"environment.kwargs.level": 7})
    assert run.backend.registry.control().settings == {stage: 1, "environment.kwargs.level": 7}
    assert [one.value for one in steering.steerable() if one.path == "environment.kwargs.level"] == [7]
    with pytest.raises(ConfigError, match=r"environment\.curriculum\.level\.stage cannot change"):
        steering.change({stage: 0})  # its rule was replaced
