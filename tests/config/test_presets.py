import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pydantic import ValidationError

from distrl.config.load import load
from distrl.config.presets import (
    EXTRA_MODULES,
    Acceptance,
    PresetFacts,
    missing_extras,
    nearest,
    preset_facts,
    presets,
    read_preset,
)
from distrl.errors import ConfigError


@pytest.mark.row("D40")
def test_presets_have_a_name_and_a_line():
    described = presets()
    assert "cartpole-impala" in described
    assert described["cartpole-impala"].startswith("CartPole-v1 with IMPALA")
    assert all(line and "\n" not in line for line in described.values())


@pytest.mark.row("R02")
@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_validates_and_has_an_acceptance_threshold(name):
    config, facts = load(preset=name).config, preset_facts(name)
    assert config.stop.env_steps >= facts.acceptance.env_steps
    if facts.acceptance.measure == "training":
        assert config.stop.mean_return >= facts.acceptance.mean_return
    assert set(facts.needs) <= EXTRA_MODULES.keys()
    assert [*facts.expected] == sorted(facts.expected)


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_preset_needs_what_its_environment_comes_from(name):
    environment = load(preset=name).config.environment.id
    needed = {"ALE/": "atari", "HalfCheetah": "mujoco", "LunarLander": "box2d", "MinAtar/": "minatar"}
    extras = [extra for prefix, extra in needed.items() if environment.startswith(prefix)]
    assert [*preset_facts(name).needs] == extras


def test_what_to_expect_is_of_seeds_that_are_named():
    acceptance = Acceptance(mean_return=1.0, env_steps=1)
    for one_alone in ({"expected": ((1, 2.0),)}, {"expected_from": "seed 101"}):
        with pytest.raises(ValidationError, match="expected and expected_from go together"):
            PresetFacts(acceptance=acceptance, **one_alone)
    assert preset_facts("cartpole-vpg").expected_from == "the median of five seeds"
    assert preset_facts("cartpole-dqn").expected_from == "seed 100"


@pytest.mark.parametrize("name", sorted(presets()))
def test_what_a_preset_shall_reach_is_stated_once(name):
    comments = [line for line in read_preset(name).splitlines() if line.startswith("#")]
    assert not [line for line in comments if "acceptance" in line.lower() or "three seeds" in line]


def test_what_is_missing_is_what_cannot_be_imported(monkeypatch):
    facts = PresetFacts(acceptance=Acceptance(mean_return=1.0, env_steps=1), needs=("atari", "mujoco"))
    monkeypatch.setattr("distrl.config.presets.find_spec", lambda module: None if module == "ale_py" else object())
    assert missing_extras(facts) == ["atari"]


@pytest.mark.parametrize(("extra", "module"), EXTRA_MODULES.items())
def test_extras_are_pyprojects_and_their_modules_are_what_they_bring(extra, module):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    markers = [Requirement(text).marker for text in project["optional-dependencies"][extra]]
    if not any(marker is None or marker.evaluate() for marker in markers):
        pytest.skip(f"the extra {extra} has nothing for this Python")
    assert find_spec(module) is not None


def test_cartpole_is_what_the_issue_asks_for():
    config = load(preset="cartpole-impala").config
    assert config.environment.id == "CartPole-v1"
    assert config.algorithm.name == "impala"
    assert config.actors.count == 2
    assert (config.stop.mean_return, config.stop.env_steps) == (475.0, 1_000_000)


@pytest.mark.row("D40")
def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match=r"^unknown preset 'CartPole_impala'; did you mean cartpole-impala or "):
        read_preset("CartPole_impala")
    with pytest.raises(ConfigError, match=r"^unknown preset '\.\./x'; known: acrobot-"):
        read_preset("../x")


def test_nearest_names():
    assert nearest("abd", ["abc", "xyz"]) == "did you mean abc?"
    assert nearest("qqq", ["abc", "xyz"]) == "known: abc, xyz"
