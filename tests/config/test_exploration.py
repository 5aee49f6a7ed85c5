"""Explorations that each algorithm allows; every refusal is one line."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from distrl.config import RunConfig
from distrl.config.exploration import ExplorationParameters, tells_probabilities
from distrl.config.load import load
from distrl.errors import ConfigError

read = TypeAdapter(ExplorationParameters).validate_python

KINDS = {
    "policy": True,
    "greedy": False,
    "epsilon_greedy": True,
    "member": True,
    "ucb": True,
    "boltzmann": True,
    "gaussian_noise": False,
    "truncated_gaussian_noise": False,
    "ornstein_uhlenbeck": False,
    "constant_noise": False,
    "noisy_network": True,
    "parameter_noise": True,
}
CONSTANT = {"kind": "constant", "value": 0.1}


PAGE = Path(__file__).parents[2] / "docs" / "exploration.md"
EXAMPLES = [
    yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_examples_of_the_documentation_hold(example):
    assert [*example] == ["exploration"]
    made = flat(read(example["exploration"]).model_dump(mode="json"))
    given = flat(example["exploration"])
    assert {path: made.get(path, made.get(f"{path}.value")) for path in given} == given  # a number is a constant


def flat(tree, path=""):
    if not isinstance(tree, dict | list):
        return {path: tree}
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {inner: leaf for key, value in pairs for inner, leaf in flat(value, f"{path}.{key}").items()}


def test_every_kind_has_an_example_or_a_line():
    text = PAGE.read_text()
    assert [kind for kind in [*KINDS, "per_action"] if f"| `{kind}` |" not in text] == []
    shown = {example["exploration"].get("kind", "per_action") for example in EXAMPLES}
    assert {*KINDS, "per_action"} - shown == {"greedy"}
    for kind in ("ladder", "by_episode", "constant", "linear", "polynomial", "exponential", "piecewise"):
        assert f"kind: {kind}" in text


def refused(tmp_path, exploration, **algorithm):
    path = tmp_path / "config.yaml"
    path.write_text(repr({"exploration": exploration, "algorithm": algorithm or {"name": "impala"}}))
    with pytest.raises(ConfigError) as raised:
        load(file=path)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2
    return str(raised.value).replace(f"(from file {path})", "(from here)")


@pytest.mark.parametrize(("kind", "told"), KINDS.items())
def test_what_tells_the_probabilities_of_actions(kind, told):
    assert tells_probabilities(read({"kind": kind})) == told


def test_actions_tell_their_probabilities_only_if_all_do():
    assert tells_probabilities(read({"per_action": {"a": {"kind": "epsilon_greedy"}, "b": {"kind": "policy"}}}))
    assert not tells_probabilities(read({"per_action": {"a": {"kind": "epsilon_greedy"}, "b": {"kind": "greedy"}}}))


def test_json_brings_back_what_was_configured():
    adapter = TypeAdapter(ExplorationParameters)
    for given in (
        *({"kind": kind, "random_steps": 7} for kind in KINDS),
        {"kind": "epsilon_greedy", "epsilon": {"kind": "ladder", "over": "actors"}},
        {"kind": "epsilon_greedy", "epsilon": {"kind": "by_episode"}},
        {"random_steps": 3, "per_action": {"a": {"kind": "ornstein_uhlenbeck", "dt": 1.0}}},
    ):
        made = read(given)
        assert adapter.validate_json(adapter.dump_json(made)) == made
        assert made.random_steps == given.get("random_steps", 0)


@pytest.mark.row("K01")
@pytest.mark.parametrize(
    ("exploration", "line"),
    [
        (
            {"kind": "epsilon_greedy", "epsilon": CONSTANT, "stddev": CONSTANT},
            "unknown key exploration.stddev (from here); only kind gaussian_noise or truncated_gaussian_noise or "
            "parameter_noise has it",
        ),
        (
            {"kind": "gaussian_noise", "stddev": CONSTANT, "epsilon": CONSTANT},
            "unknown key exploration.epsilon (from here); only kind epsilon_greedy or member or ucb has it",
        ),
    ],
)
def test_epsilon_and_noise_exclude_each_other(tmp_path, exploration, line):
    assert refused(tmp_path, exploration) == line


@pytest.mark.parametrize(
    ("exploration", "line"),
    [
        (
            {"kind": "epsilon_greedy", "epsilon": {"kind": "constant", "value": 1.5}},
            "exploration: epsilon: 1.5 comes up in its schedule; it must stay in [0, 1]",
        ),
        (
            {"kind": "boltzmann", "temperature": {"kind": "linear", "start": 1, "end": 0}},
            "exploration: temperature: 0 comes up in its schedule; it must stay in [1e-06, 1e+06]",
        ),
        (
            {"kind": "gaussian_noise", "stddev": {"kind": "constant", "value": -0.1}},
            "exploration: stddev: -0.1 comes up in its schedule; it must stay in [0, 1e+06]",
        ),
        (
            {"kind": "ornstein_uhlenbeck", "theta": 3, "dt": 1},
            "exploration: theta * dt: 3 must be below 2, or the process explodes",
        ),
        (
            {"per_action": {"a": {"kind": "policy", "random_steps": 5}}},
            "exploration: per_action.a.random_steps: 5 must stand beside per_action, as all actions begin together",
        ),
        (
            {"kind": "epsilon_gredy"},
            "exploration: {kind: epsilon_gredy} (from here) must have a kind of policy, greedy, epsilon_greedy, "
            "member, ucb, boltzmann, gaussian_noise, truncated_gaussian_noise, ornstein_uhlenbeck, constant_noise, "
            "noisy_network, parameter_noise, "
            "per_action; did you mean epsilon_greedy?",
        ),
        (
            {"random_steps": 5},
            "exploration: {random_steps: 5} (from here) must have a kind of policy, greedy, epsilon_greedy, "
            "member, ucb, boltzmann, gaussian_noise, truncated_gaussian_noise, ornstein_uhlenbeck, constant_noise, "
            "noisy_network, parameter_noise, per_action",
        ),
        (
            {"kind": "epsilon_greedy", "epsilon": {"kind": "ladder", "base": 0}},
            "exploration.epsilon.base: 0 (from here) must be greater than 0",
        ),
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path, exploration, line):
    assert refused(tmp_path, exploration) == line


@pytest.mark.parametrize("kind", [kind for kind, told in KINDS.items() if not told])
def test_an_algorithm_that_weighs_actions_wants_their_probabilities(tmp_path, kind):
    assert refused(tmp_path, {"kind": kind}) == (
        f"exploration.kind: {kind} knows no probabilities of its actions, by which impala weighs them; "
        "use policy, epsilon_greedy, boltzmann, noisy_network or parameter_noise"
    )


@pytest.mark.parametrize(
    ("exploration", "what"),
    [
        ({"kind": "epsilon_greedy"}, "kind: epsilon_greedy"),
        ({"kind": "parameter_noise"}, "kind: parameter_noise"),
        ({"kind": "policy", "random_steps": 9}, "random_steps"),
    ],
)
@pytest.mark.parametrize("name", ["a2c", "a3c"])
def test_an_algorithm_that_corrects_for_nothing_takes_its_own_policy(tmp_path, name, exploration, what):
    assert refused(tmp_path, exploration, name=name) == (
        f"exploration.{what} is of algorithms that correct for it; {name} learns from the actions of its own policy "
        "alone: leave it out"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_algorithm_of_values_learns_from_anybody(kind):
    config = RunConfig.model_validate({"algorithm": {"name": "dqn"}, "exploration": {"kind": kind}})
    assert config.exploring.kind == kind


def test_what_is_configured_comes_before_what_the_algorithm_does(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("exploration: {kind: boltzmann, temperature: {kind: constant, value: 2.0}}\n")
    config = load(file=path).config
    assert (
        config.exploring
        == config.exploration
        == read({"kind": "boltzmann", "temperature": {"kind": "constant", "value": 2.0}})
    )
    assert load().config.exploring is None
