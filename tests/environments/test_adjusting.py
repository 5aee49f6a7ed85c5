"""Parameters change between episodes and never within one, whatever steps the environments."""

import numpy as np
import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.environments.adjusting import Adjusting, adjustable
from distrl.environments.gym_adapter import make_one
from distrl.environments.probe import probe
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, EnvironmentFailedError
from tests.faults.leveled import Leveled

LEVELED = {"id": "tests.faults.leveled:Leveled", "kwargs": {"level": 0, "length_steps": 3}}
RISING = {"level": {"kind": "stages", "values": [0, 1], "at_env_steps": [100]}}


def make(count=2, **more):
    return VectorEnvironment(EnvironmentConfig.model_validate({**LEVELED, **more}), count)


def step(environment):
    made = environment.step({"action": np.zeros(environment.rows, np.int64)})
    return made.observations["observation"][:, 0].tolist(), made.valid.tolist()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_value_is_in_force_from_the_next_episode_on(vectorization):
    environment = make(vectorization=vectorization)
    try:
        assert environment.spec.adjustable == ("level",)  # length_steps has no setter
        assert environment.reset(1)["observation"].tolist() == [[0.0], [0.0]]
        environment.change({"level": 5, "unknown": 3})
        assert [step(environment) for _ in range(3)] == [([0.0, 0.0], [True, True])] * 3
        assert step(environment) == ([5.0, 5.0], [False, False])
        environment.change({"level": 2})
        environment.change({"level": 3})  # the newest counts
        assert [step(environment) for _ in range(3)] == [([5.0, 5.0], [True, True])] * 3
        assert step(environment) == ([3.0, 3.0], [False, False])
        environment.change({"level": 4})
        assert environment.reset(2)["observation"].tolist() == [[4.0], [4.0]]
    finally:
        environment.close()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_refused_value_is_the_environments_failure(vectorization):
    environment = make(vectorization=vectorization)
    try:
        environment.reset(1)
        environment.change({"level": 99})
        for _ in range(3):
            step(environment)
        with pytest.raises(EnvironmentFailedError, match=r"ValueError: level 99 is above 9, in the reset of environ"):
            step(environment)
    finally:
        environment.close()


def test_rows_change_when_their_own_episodes_begin():
    taken = []
    given = Adjusting(lambda row, values: taken.append((row, dict(values))), 3, {"a": 1, "b": True})
    given.begin([0, 1, 2])
    assert (taken, given.pending) == ([], False)
    given.change({"a": 2})
    given.begin([1])
    given.change({"b": False})
    given.begin([0, 1])
    assert (taken, given.pending) == ([(1, {"a": 2}), (0, {"a": 2, "b": False}), (1, {"b": False})], True)
    given.change({"a": 1, "b": True})  # row 2 never saw the others
    given.begin([0, 1, 2])
    assert (taken[3:], given.pending) == ([(0, {"a": 1, "b": True}), (1, {"a": 1, "b": True})], False)


def test_only_settable_attributes_of_the_environment_itself_count():
    single = Leveled()
    single.api_key, single.list = "x", []
    kwargs = {"level": 0, "length_steps": 4, "highest": 9, "missing": 1, "api_key": "x", "list": [1], "a.b": 1}
    assert adjustable(single, kwargs) == ("level", "highest")
    config = EnvironmentConfig(id="CartPole-v1", kwargs={"max_episode_steps": 9})  # of a wrapper
    made = make_one(config)
    assert adjustable(made, config.kwargs) == ()


def test_the_spec_is_equal_however_the_environments_are_stepped():
    config = EnvironmentConfig.model_validate(LEVELED)
    environment = VectorEnvironment(config, 1)
    assert environment.spec == type(environment.spec).from_json(environment.spec.to_json())
    assert type(environment.spec).from_json(environment.spec.to_json()).adjustable == ("level",)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"kwargs": {"length_steps": 3}, "curriculum": {"length_steps": {"kind": "constant", "value": 1}}},
            "cannot change length_st",
        ),
        ({"curriculum": {"level": {"kind": "constant", "value": 12}}}, "level 12 is above 9"),
    ],
)
def test_a_curriculum_is_tried_before_the_launch(given, line):
    with pytest.raises(ConfigError, match=line):
        probe(EnvironmentConfig.model_validate({**LEVELED, **given}))


def test_auto_takes_a_vectorization_that_can_follow_a_curriculum():
    cartpole = {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": False}}
    with pytest.raises(ConfigError, match="cannot change sutton_barto_reward between episodes"):
        VectorEnvironment(
            EnvironmentConfig.model_validate(
                {
                    **cartpole,
                    "curriculum": {"sutton_barto_reward": {"kind": "stages", "values": [True], "at_env_steps": []}},
                }
            ),
            1,
        )
    assert make(curriculum=RISING).vectorization == "sync"


def test_a_spec_file_says_what_can_change(tmp_path):
    path = tmp_path / "spec.json"
    config = EnvironmentConfig.model_validate({**LEVELED, "spec_file": str(path)})
    path.write_text(make().spec.to_json())
    assert probe(config.model_copy(update={"curriculum": {"level": None}})).adjustable == ("level",)
    with pytest.raises(ConfigError, match="cannot change length_steps"):
        probe(config.model_copy(update={"curriculum": {"length_steps": None}}))


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_a_parameter_that_changes_the_spaces_is_the_environments_failure(vectorization):
    environment = make(id="tests.faults.leveled:Growing", kwargs={"level": 1}, vectorization=vectorization)
    try:
        environment.reset(1)
        environment.change({"level": 3})
        for _ in range(4):
            step(environment)
        with pytest.raises(EnvironmentFailedError, match=r"shape \(3,\).*in the reset of environment [01] after an ep"):
            step(environment)
    finally:
        environment.close()


def test_an_own_vector_cannot_follow():
    own = EnvironmentConfig(id="CartPole-v1", vectorization="own")
    with pytest.raises(ConfigError, match="cannot change gravity between episodes"):
        VectorEnvironment(own.model_copy(update={"curriculum": {"gravity": None}}), 2)
