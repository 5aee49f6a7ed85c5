"""The section of an algorithm whose class is not imported here."""

import pytest

from distrl.config import RunConfig
from distrl.config.algorithms import ExternalAlgorithmParameters
from distrl.config.load import LoadedConfig, load
from distrl.errors import ConfigError

NAME = "my_package.my_module:Mine"
DECLARED = {"ships": "gradients", "rounds": True, "batch_size": 7, "learns_from": "own policy"}


def config(declared=None, **sections):
    return RunConfig.model_validate({"algorithm": {"name": NAME, "declared": declared, "depth": 3}, **sections})


def test_a_name_with_a_colon_is_a_class_with_keys_of_its_own():
    loaded = load(sets=["algorithm.depth=3", "algorithm.discount=0.9"], flags={"--algorithm": NAME})
    section = loaded.config.algorithm
    assert isinstance(section, ExternalAlgorithmParameters)
    assert (section.name, section.discount, section.depth) == (NAME, 0.9, 3)
    assert loaded.origins["algorithm.depth"] == "flag --set"
    assert RunConfig.model_validate_json(loaded.config.model_dump_json()) == loaded.config


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        (["algorithm.name=a:b:c"], "algorithm.name: 'a:b:c' (from flag --set) must match pattern"),
        (["algorithm.name=a:b", "algorithm.discount=2"], "algorithm.discount: 2 (from flag --set) must be less than"),
        (
            ["algorithm.name=a:b", "algorithm.deep={x: .nan}"],
            "algorithm.deep.x: nan (from flag --set) must be a finite",
        ),
    ],
)
def test_what_every_algorithm_has_is_checked_at_once(sets, line):
    with pytest.raises(ConfigError) as caught:
        load(sets=sets)
    assert line.replace(": 'a", ": a") in str(caught.value).replace(": 'a", ": a")


def test_what_the_class_declares_is_what_the_run_goes_by():
    undeclared, declared = config(), config(DECLARED)
    assert (undeclared.undeclared, declared.undeclared) == (True, False)
    assert (undeclared.algorithm.ships, undeclared.algorithm.rounds, undeclared.batch_size) == ("unrolls", False, 4)
    assert (declared.algorithm.ships, declared.algorithm.rounds, declared.batch_size) == ("gradients", True, 7)
    assert declared.algorithm.learns_from == "own policy"
    replay = {"replay": {"capacity_steps": 5_000}, "exploration": {"kind": "epsilon_greedy"}}
    replaying = config(replay, actors={"environments": 2})
    assert replaying.algorithm.replay_parameters.capacity_steps == 5_000
    assert replaying.unrolls_at_once == 1
    assert replaying.exploring.kind == "epsilon_greedy"


@pytest.mark.parametrize(
    ("earlier", "names"),
    [
        ({"tells_priorities": False, "tells_choice_probabilities": False}, ()),
        ({"tells_priorities": True}, ("priorities",)),
        ({"tells_choice_probabilities": True}, ("choice_probabilities",)),
    ],
)
def test_the_declarations_of_a_run_of_an_earlier_version_are_read(earlier, names):
    algorithm = config(DECLARED | earlier).algorithm
    assert (algorithm.unroll_extras, algorithm.ships) == (names, "gradients")
    assert algorithm.model_dump(mode="json")["declared"].get("tells_priorities") is None


def test_what_goes_with_the_class_is_known_once_it_has_been_asked():
    assert config(network={"async_training": False}).undeclared
    assert config(DECLARED, network={"async_training": False}).algorithm.rounds
    with pytest.raises(ValueError, match=rf"network\.async_training is of gradient actors; those of algorithm {NAME}"):
        config({}, network={"async_training": False})


def test_values_found_out_have_the_origin_that_they_are_given():
    loaded = load(sets=["algorithm.depth=3"], flags={"--algorithm": NAME})
    section = {"name": NAME, "depth": 3, "width": 5, "declared": {"batch_size": 7}}
    found = loaded.with_algorithm(section, {"algorithm.declared.batch_size": "the class"})
    assert isinstance(found, LoadedConfig)
    assert found.config.batch_size == 7
    told = {key: found.origins[f"algorithm.{key}"] for key in ("name", "depth", "width", "declared.batch_size")}
    assert told == {
        "name": "flag --algorithm",
        "depth": "flag --set",
        "width": "default",
        "declared.batch_size": "the class",
    }
