import json

import pytest
import yaml

from distrl.apps.config import reference
from distrl.apps.config.configuration import load
from distrl.config.algorithms import ALGORITHMS
from distrl.config.load import dump
from distrl.config.presets import preset_names, preset_tree


@pytest.fixture(scope="module")
def validator():
    from jsonschema import Draft202012Validator  # four seconds, which every process would spend that collects tests

    Draft202012Validator.check_schema(reference.schema())
    return Draft202012Validator(reference.schema())


@pytest.mark.parametrize("name", preset_names())
def test_the_schema_takes_every_preset_and_its_whole_configuration(validator, name):
    validator.validate(preset_tree(name))
    validator.validate(yaml.safe_load(dump(load(name))))


@pytest.mark.parametrize(
    "tree",
    [
        {"actors": {"count": -1}},
        {"actors": {"cuont": 1}},
        {"algorithm": {"name": "ppo", "rho_bar": 1.0}},
        {"network": {"middleware_parameters": {"kind": "lstmm"}}},
        {"learner": {"device": "tpu"}},
    ],
)
def test_the_schema_refuses_what_the_configuration_refuses(validator, tree):
    assert not validator.is_valid(tree)


def test_every_setting_of_the_default_configuration_has_a_meaning():
    for dotted in load().origins:
        found = reference.find(dotted)
        assert found, dotted
        for setting in found:
            selects = setting.kind.startswith(f"{setting.name}: ")
            assert setting.meaning or selects, f"{setting.section}.{setting.name} has no docstring"


def test_type_bounds_default_and_meaning():
    (rate,) = reference.find("network.learning_rate")
    assert rate[:6] == (
        "learning_rate",
        "NetworkParameters",
        "",
        "number > 0",
        "0.00025",
        "Step size of the optimizer; schedules start from it.",
    )
    (decay,) = reference.find("network.weight_decay")
    assert decay.meaning.endswith("Used by AdamW, Muon.")
    (device,) = reference.find("learner.device")
    assert (device.values, device.default) == ("auto, cpu, gpu", "auto")


def test_a_setting_of_several_kinds_is_found_in_each():
    assert {setting.kind for setting in reference.find("algorithm.discount")} == {
        *(f"name: {name}" for name in ALGORITHMS),
        "name: package.module:Class",
    }
    assert [setting.kind for setting in reference.find("network.middleware_parameters.number_of_lstm_cells")] == [
        "kind: lstm"
    ]


@pytest.mark.parametrize(
    ("dotted", "section"),
    [
        ("network.input_embedders_parameters.camera.normalize", "EmbedderParameters"),
        ("network.heads_parameters.0.kind", "PolicyHeadParameters"),
        ("environment.preprocessing.1.width", "CropStep"),
    ],
)
def test_names_and_places_of_the_users_own(dotted, section):
    assert section in {setting.section for setting in reference.find(dotted)}


@pytest.mark.parametrize("dotted", ["nope", "actors.nope", "actors.count.nope", "", "network.heads_parameters.x.kind"])
def test_what_is_unknown_is_not_found(dotted):
    assert reference.find(dotted) == []


def test_the_page_has_every_section_of_the_schema():
    listed = {section.name for section in reference.sections()}
    known = {name for name, definition in reference.schema()["$defs"].items() if "properties" in definition}
    assert known - listed == {"Declared", "LiveNumber"}  # what distrl writes itself
    assert json.dumps(reference.schema())


@pytest.mark.row("G24")
def test_every_concern_of_a_learning_agent_is_a_setting():
    paths = """algorithm.discount network.middleware_parameters network.force_cpu checkpoint.every_s actors.count
        network.optimizer_type environment.preprocessing exploration.kind algorithm.reward_clipping
        network.heads_parameters algorithm.entropy_weight tensorboard.labels"""
    assert [path for path in paths.split() if not reference.find(path)] == []
