"""Settings that may change while a run goes on: their paths, refused changes, and the effect of the others."""

from typing import get_args

import pytest

from distrl.config import RunConfig
from distrl.config.exploration import (
    BOUNDS,
    ActionExploration,
    NoisyNetworkParameters,
    ParameterNoiseParameters,
)
from distrl.config.live_settings import Parameter, exploration_strength, steerable, steered, steered_so_far
from distrl.config.load import load
from distrl.config.presets import presets
from distrl.config.schedules import Progress
from distrl.errors import ConfigError


def config(**sections):
    return RunConfig.model_validate(sections)


def paths(given):
    return [parameter.path for parameter in steerable(given)]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, ["network.learning_rate", "algorithm.entropy_weight", "launch.log_level"]),
        (
            {"algorithm": {"name": "impala", "max_staleness_updates": 2}},
            [
                "network.learning_rate",
                "algorithm.entropy_weight",
                "algorithm.max_staleness_updates",
                "launch.log_level",
            ],
        ),
        ({"algorithm": {"name": "dqn"}}, ["network.learning_rate", "exploration.epsilon", "launch.log_level"]),
        ({"algorithm": {"name": "sac"}}, ["network.learning_rate", "launch.log_level"]),
        (
            {"algorithm": {"name": "sac"}, "exploration": {"kind": "ornstein_uhlenbeck"}},
            ["network.learning_rate", "exploration.sigma", "launch.log_level"],
        ),
        ({"network": {"optimizer_type": "LBFGS"}}, ["algorithm.entropy_weight", "launch.log_level"]),
        (
            {"algorithm": {"name": "sac", "curiosity": {"kind": "rnd"}}},
            ["network.learning_rate", "algorithm.curiosity.weight", "launch.log_level"],
        ),
    ],
)
def test_what_there_is_depends_on_the_run(sections, expected):
    assert paths(config(**sections)) == expected


def test_every_preset_can_be_steered_by_its_own_values():
    for name in presets():
        given = load(name).config
        now = {one.path: one.value for one in steerable(given) if one.value is not None}
        assert "launch.log_level" in now
        assert steered(given, now) == given or given.exploration is None  # which then is said outright


def test_values_are_told_and_a_schedule_has_none():
    assert steerable(config(network={"learning_rate": 0.25}))[0] == Parameter(
        "network.learning_rate", "number", 0.25, "learning rate; a schedule is scaled by it"
    )
    linear = config(algorithm={"name": "dqn"}, exploration={"kind": "epsilon_greedy", "epsilon": {"kind": "linear"}})
    assert [one.value for one in steerable(linear) if one.path == "exploration.epsilon"] == [None]
    constant = steered(linear, {"exploration.epsilon": 0.125})
    assert [one.value for one in steerable(constant) if one.path == "exploration.epsilon"] == [0.125]


def test_the_rest_stays_as_it_is():
    given = config(algorithm={"name": "impala", "max_staleness_updates": 2}, seed=7)
    now = steered(
        given, {"network.learning_rate": 0.5, "algorithm.max_staleness_updates": 4, "launch.log_level": "debug"}
    )
    assert (now.network.learning_rate, now.algorithm.max_staleness_updates, now.launch.log_level) == (0.5, 4, "debug")
    network = now.network.model_copy(update={"learning_rate": given.network.learning_rate})
    algorithm = now.algorithm.model_copy(update={"max_staleness_updates": 2})
    launch = now.launch.model_copy(update={"log_level": "info"})
    assert now.model_copy(update={"network": network, "algorithm": algorithm, "launch": launch}) == given
    assert steered(given, {}) is given


@pytest.mark.row("D175")
def test_the_weight_of_curiosity_changes_within_its_bounds():
    given = config(algorithm={"name": "ppo", "curiosity": {"kind": "icm", "weight": 0.5, "beta": 0.3}})
    now = steered(given, {"algorithm.curiosity.weight": 0.0}).algorithm.curiosity
    assert (now.kind, now.weight, now.beta) == ("icm", 0.0, 0.3)
    assert given.algorithm.curiosity.weight == 0.5
    with pytest.raises(ConfigError, match=r"algorithm\.curiosity\.weight"):
        steered(given, {"algorithm.curiosity.weight": -1.0})
    with pytest.raises(ConfigError, match=r"algorithm\.curiosity\.beta cannot change"):
        steered(given, {"algorithm.curiosity.beta": 0.5})
    with pytest.raises(ConfigError, match=r"algorithm\.curiosity\.weight cannot change"):
        steered(config(), {"algorithm.curiosity.weight": 0.5})


def test_an_algorithms_own_exploration_keeps_what_else_it_says():
    given = config(algorithm={"name": "dqn"})
    assert given.exploration is None
    now = steered(given, {"exploration.epsilon": 0.2})
    assert now.exploring.epsilon.at(Progress()) == now.exploring.epsilon.at(Progress(10**9)) == 0.2
    assert now.exploring.random_steps == given.exploring.random_steps
    noisy = config(algorithm={"name": "sac"}, exploration={"kind": "ornstein_uhlenbeck", "theta": 0.5})
    assert steered(noisy, {"exploration.sigma": 0.75}).exploring == noisy.exploration.model_copy(update={"sigma": 0.75})


def scheduled():
    """(kind of exploration, name of its schedule) of all that have one."""
    sections = (*get_args(get_args(ActionExploration)[0]), NoisyNetworkParameters, ParameterNoiseParameters)
    return [
        (section.model_fields["kind"].default, name)
        for section in sections
        for name in section.model_fields.keys() & BOUNDS
    ]


def test_every_schedule_of_exploration_is_told_and_changes():
    assert {("epsilon_greedy", "epsilon"), ("parameter_noise", "stddev")} < {*scheduled()}
    for kind, name in scheduled():
        algorithm = {"name": "bootstrapped_dqn" if kind in ("member", "ucb") else "dqn"}
        linear = {"kind": "linear", "start": 0.75, "end": 0.25, "steps": 100}
        given = config(algorithm=algorithm, exploration={"kind": kind, name: linear})
        assert f"exploration.{name}" in paths(given), kind
        assert exploration_strength(given, {}, Progress(50)) == 0.5
        now = steered(given, {f"exploration.{name}": 0.125})
        assert (now.exploring.kind, exploration_strength(now, {}, Progress(50))) == (kind, 0.125)


def test_what_goes_together_holds_and_the_rest_is_told():
    given = config(
        algorithm={"name": "ppo", "max_staleness_updates": 2}, actors={"weight_mixing_rate": 0.5}, network={}
    )
    settings = {"network.learning_rate": 0.25, "algorithm.max_staleness_updates": 0, "seed": 3}
    now, held, problems = steered_so_far(given, settings)
    assert (now.network.learning_rate, now.algorithm.max_staleness_updates) == (0.25, 2)
    assert held == {"network.learning_rate": 0.25}
    assert len(problems) == 2


DQN = {"algorithm": {"name": "dqn"}}


@pytest.mark.parametrize(
    ("sections", "settings", "message"),
    [
        ({}, {"network.learning_rate": 0.0}, r"network\.learning_rate: 0\.0 \(from the request\) must be"),
        ({}, {"network.learning_rate": -1}, r"network\.learning_rate: -1 \(from the request\)"),
        ({}, {"network.learning_rate": 1e300}, r"network\.learning_rate: 1e\+300 is beyond 1e\+30"),
        ({}, {"network.learning_rate": "fast"}, r"network\.learning_rate: 'fast' \(from the request\)"),
        ({}, {"network.learning_rate": float("nan")}, r"network\.learning_rate: \.nan \(from the request\) must be"),
        ({}, {"network.learning_rate": float("inf")}, r"network\.learning_rate: inf is beyond"),
        ({}, {"network.learning_rate": True}, r"network\.learning_rate: true .*not a boolean"),
        ({}, {"network.learning_rate": None}, r"network\.learning_rate: null cannot be set"),
        ({}, {"network.learning_rat": 1e-3}, r"network\.learning_rat cannot change .*network\.learning_rate"),
        ({}, {"actors.count": 4}, r"actors\.count cannot change while the run goes on"),
        (DQN, {"exploration.epsilon": {"kind": "linear"}}, r"exploration\.epsilon\.value: .*must be a valid number"),
        (DQN, {"exploration.epsilon": True}, r"exploration\.epsilon\.value: true .*not a boolean"),
        (DQN, {"exploration.epsilon": "abc"}, r"exploration\.epsilon\.value: 'abc' .*must be a valid number"),
        ({}, {"launch.log_level": "loud"}, r"launch\.log_level: 'loud' .*debug"),
        ({}, {"algorithm.max_staleness_updates": 3}, r"algorithm\.max_staleness_updates cannot change"),
        ({"algorithm": {"name": "dqn"}}, {"exploration.epsilon": 1.5}, r"epsilon: 1\.5 comes up in its schedule"),
        ({"algorithm": {"name": "vpg"}}, {"algorithm.max_staleness_updates": 1}, r"does not correct; leave it at 0"),
        (
            {
                "algorithm": {"name": "ppo", "max_staleness_updates": 2},
                "actors": {"weight_mixing_rate": 0.5},
            },
            {"algorithm.max_staleness_updates": 0},
            r"actors\.weight_mixing_rate < 1 mixes old weights",
        ),
    ],
)
def test_what_is_refused_is_told_in_one_line(sections, settings, message):
    given = config(**sections)
    with pytest.raises(ConfigError, match=message) as raised:
        steered(given, settings)
    assert "\n" not in str(raised.value)


def test_settings_from_redis_name_no_code():
    forged = {
        "environment.id": "subprocess:Popen",
        "environment.kwargs": {"args": ["true"]},
        "algorithm.name": "subprocess:Popen",
        "network.model": "subprocess:Popen",
        "network": {"model": "subprocess:Popen"},
    }
    given = config()
    now, held, problems = steered_so_far(given, forged)
    assert (now, held) == (given, {})
    assert len(problems) == len(forged)
    assert all("cannot change while the run goes on" in problem for problem in problems)


RULE = {"kind": "by_metric", "values": [0, 1, 2], "metric": "success", "above": 0.5}


def leveled(curriculum=None):
    kwargs = {"level": 0, "gravity": 9.8, "windy": False, "map": "a", "sizes": [1]}
    return config(environment={"kwargs": kwargs, "curriculum": curriculum or {}})


def test_keyword_arguments_change_where_the_environment_can_change_them():
    adjustable = ("level", "gravity", "windy", "map")
    found = {one.path: (one.kind, one.value) for one in steerable(leveled(), adjustable) if "environment" in one.path}
    assert found == {
        "environment.kwargs.level": ("whole", 0),
        "environment.kwargs.gravity": ("number", 9.8),
        "environment.kwargs.windy": ("switch", False),
        "environment.kwargs.map": ("text", "a"),
    }
    assert not any("environment" in path for path in paths(leveled()))
    changed = {"level": 3, "gravity": 3, "windy": True, "map": "b"}
    settings = {f"environment.kwargs.{name}": value for name, value in changed.items()}
    now = steered(leveled(), settings, adjustable)
    assert now.environment.kwargs == {**changed, "gravity": 3.0, "sizes": [1]}
    assert steered_so_far(leveled(), settings, adjustable=adjustable)[2] == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("level", 1.5, r"^environment\.kwargs\.level: 1\.5 must be a whole number"),
        ("level", None, r"^environment\.kwargs\.level: null cannot be set"),
        ("windy", 1, r"^environment\.kwargs\.windy: 1 must be true or false"),
        ("map", 3, r"^environment\.kwargs\.map: 3 must be a text"),
        ("gravity", float("inf"), r"^environment\.kwargs\.gravity: inf"),
        ("sizes", 3, r"^environment\.kwargs\.sizes cannot change"),
        (
            "lvl",
            3,
            r"^environment\.kwargs\.lvl cannot change while the run goes on; did you mean environment\.kwargs\.l",
        ),
    ],
)
def test_values_of_other_types_are_refused(path, value, line):
    with pytest.raises(ConfigError, match=line):
        steered(leveled(), {f"environment.kwargs.{path}": value}, ("level", "gravity", "windy", "map"))


def test_a_stage_changes_and_a_value_replaces_its_rule():
    given, stage = leveled({"level": RULE}), "environment.curriculum.level.stage"
    found = {one.path: (one.kind, one.value) for one in steerable(given, ["level"]) if "environment" in one.path}
    assert found == {stage: ("count", 0), "environment.kwargs.level": ("whole", None)}
    assert steered(given, {stage: 2}, ["level"]).environment.parameters_at(Progress())["level"] == 2
    for settings in ({"environment.kwargs.level": 7, stage: 2}, {stage: 2, "environment.kwargs.level": 7}):
        now = steered(given, settings, ["level"])
        assert (now.environment.curriculum, now.environment.parameters_at(Progress())["level"]) == ({}, 7)
        assert stage not in [one.path for one in steerable(now, ["level"])]
    with pytest.raises(ConfigError, match="stage: 3 is not among the 3 values"):
        steered(given, {stage: 3}, ["level"])
