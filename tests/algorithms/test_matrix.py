"""Every algorithm with every kind of action: it trains and keeps its accounts, or is refused in one line.

A line of the table names what an algorithm can act with. An algorithm without a line fails.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest

import distrl
from distrl.config.algorithms import ALGORITHMS
from distrl.config.presets import missing_extras, preset_facts, preset_names
from distrl.environments.spaces import env_spec
from distrl.environments.worlds.random_env import RandomEnv
from distrl.errors import ConfigError
from distrl.runs.summary import Summary
from distrl.terminal.console import QuietView
from tests.algorithms.one_of_each_kind import others_in_long

SPACES = {
    "choice": {"kind": "discrete", "n": 3},
    "choices": {"kind": "multi_discrete", "nvec": [2, 3]},
    "switches": {"kind": "multi_binary", "n": 3},
    "bounded": {"kind": "box", "low": -2.0, "high": 1.0, "shape": [2]},
    "unbounded": {"kind": "box", "low": None, "high": None, "shape": [2]},
    "several": {
        "kind": "dict",
        "spaces": {"left": {"kind": "discrete", "n": 2}, "right": {"kind": "multi_discrete", "nvec": [2, 3]}},
    },
    "mixed": {
        "kind": "dict",
        "spaces": {"left": {"kind": "discrete", "n": 2}, "right": {"kind": "box", "low": -1, "high": 1, "shape": [2]}},
    },
}
EVERY = {*SPACES}
CHOICES = {"choice", "choices", "switches", "several"}
ACTS = {
    "impala": EVERY,
    "a3c": EVERY,
    "a2c": EVERY,
    "ppo": EVERY,
    "appo": EVERY,
    "trpo": EVERY,
    "vpg": EVERY,
    "dqn": CHOICES,
    "apex": CHOICES,
    "r2d2": CHOICES,
    "bootstrapped_dqn": {"choice"},
    "acer": {"choice"},
    "c51": {"choice"},
    "qrdqn": {"choice"},
    "rainbow": {"choice"},
    "sac": {"bounded"},
    "discrete_sac": {"choice"},
    "tqc": {"bounded"},
    "crossq": {"bounded"},
    "ddpg": {"bounded"},
    "td3": {"bounded"},
    "naf": {"bounded"},
    "bc": EVERY,
    "marwil": EVERY,
    "awac": {"bounded"},
    "iql": {"bounded"},
    "td3_bc": {"bounded"},
    "cql": {"bounded"},
    "discrete_cql": CHOICES,
    "discrete_bcq": {"choice"},
    "dqfd": CHOICES,
}
"""Algorithm -> the kinds of action that it takes."""
REPLAY = {"min_size_steps": 32, "capacity_steps": 128, "samples_per_insert": 8.0}
FURTHER = {"ppo": {"epochs": 2, "minibatches": 2}, "appo": {"minibatches": 2}, "trpo": {"value_minibatches": 2}}
"""Algorithm -> settings without which so small a batch does not fit."""
NO_MEMORY = {
    "bootstrapped_dqn",
    "c51",
    "qrdqn",
    "rainbow",
    "crossq",
    "naf",
    "cql",
    "discrete_bcq",
}
"""Algorithms that learn from single transitions."""
RECORDED = ("bc", "marwil", "awac", "iql", "td3_bc", "cql", "discrete_cql", "discrete_bcq", "dqfd")
"""Algorithms that learn from recorded steps, for which there is no preset."""
LONG = pytest.mark.long
IN_CI = (
    "cartpole-a3c",
    "cartpole-acer",
    "cartpole-apex",
    "cartpole-appo",
    "cartpole-c51",
    "cartpole-discrete-sac",
    "cartpole-qrdqn",
    "cartpole-rainbow",  # priorities, noise and distributions
    "cartpole-trpo",
    "cartpole-vpg",
    "chain-bootstrapped-dqn",  # an ensemble
    "halfcheetah-impala",  # MuJoCo
    "lunarlander-dqn",  # Box2D
    "masked-cartpole-r2d2",  # sequences
    "mountaincar-ppo-rnd",  # curiosity
    "pendulum-crossq",  # several networks
    "pendulum-ddpg",
    "pendulum-naf",
    "pendulum-sac",
    "pendulum-td3",
    "pendulum-tqc",
    "reach-a2c",  # rounds of gradients
)
"""One preset for each algorithm; `make long` trains with all. Stacks, hindsight and mixed actions: tests/learning."""
ACTING = {name: kinds for name, kinds in ACTS.items() if name != "bc"}
"""Those of algorithms with actors: `bc` would imitate itself."""
FIRST = [(name, "choice" if "choice" in kinds else "bounded") for name, kinds in ACTING.items()]
"""An action for every algorithm."""


def configured(name: str, kind: str, memory: str, **sections: object) -> distrl.LoadedConfig:
    algorithm: dict[str, object] = {"name": name, **FURTHER.get(name, {})}
    learns_from_replay = "replay" in ALGORITHMS[name].model_fields
    if learns_from_replay:
        item = {"item": {"kind": "sequence"}} if memory != "fc" else {}
        algorithm["replay"] = REPLAY | item
    tree = {
        "environment": {
            "id": "distrl.environments.worlds.random_env:RandomEnv",
            "kwargs": {"action_space": SPACES[kind]},
        },
        "algorithm": algorithm,
        "network": {
            "use_separate_networks_per_head": name == "trpo",
            "middleware_parameters": {
                "kind": memory,
                **({"scheme": [8]} if memory == "fc" else {"number_of_lstm_cells": 8}),
            },
        },
        "actors": {"count": 0, "environments": 2, "unroll_length_steps": 8},
        "learner": {} if name == "a2c" else {"batch_size": 4 if learns_from_replay else 2},
        "stop": {"updates": 3},
    } | sections
    return distrl.load(tree)


def trained(loaded: distrl.LoadedConfig, run_dir: Path) -> Summary:
    summary = distrl.train(loaded, run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
    assert (summary.exit_code, summary.imbalance) == (0, 0)
    assert summary.updates >= 2
    return summary


def memories(name: str) -> tuple[str, ...]:
    """Return the middlewares that an algorithm trains with."""
    return ("fc",) if name in NO_MEMORY else ("lstm",) if name == "r2d2" else ("fc", "lstm")


def test_every_algorithm_has_a_line():
    assert ACTS.keys() == ALGORITHMS.keys()


def test_ci_makes_the_first_updates_of_every_algorithm():
    assert {distrl.load(preset=name).config.algorithm.name for name in IN_CI} == ALGORITHMS.keys() - {*RECORDED}


@pytest.mark.slow
@pytest.mark.parametrize("name", others_in_long(RECORDED[1:], kept=("iql", "discrete_bcq")))
def test_an_algorithm_of_recorded_steps_also_trains_from_those_of_its_actors(name, tmp_path):
    trained(configured(name, dict(FIRST)[name], "fc"), tmp_path / "run")


@pytest.mark.long
@pytest.mark.row("R03")
@pytest.mark.parametrize(
    ("name", "kind", "memory"),
    [(name, kind, memory) for name, kinds in ACTING.items() for kind in sorted(kinds) for memory in memories(name)],
)
def test_an_algorithm_trains_with_what_it_can_act_with(name, kind, memory, tmp_path):
    trained(configured(name, kind, memory), tmp_path / "run")


@pytest.mark.row("R03")
@pytest.mark.parametrize("name", ACTS)
def test_a_section_takes_the_kinds_of_action_of_its_line_and_refuses_all_others(name):
    section = ALGORITHMS[name]()
    for kind, space in SPACES.items():
        made = RandomEnv(action_space=space)
        spec = env_spec("Random", made.observation_space, made.action_space, None, None)
        with nullcontext() if kind in ACTS[name] else pytest.raises(ConfigError, match=rf"^algorithm {name}: [^\n]+$"):
            section.check_actions(spec)


@pytest.mark.slow
@pytest.mark.row("R03")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=[] if (name, kind) in (("dqn", "bounded"), ("sac", "choice")) else LONG)
        for name, kinds in ACTS.items()
        for kind in SPACES
        if kind not in kinds
    ],
)
def test_an_algorithm_refuses_what_it_cannot_act_with(name, kind, tmp_path):
    with pytest.raises(ConfigError) as caught:
        trained(configured(name, kind, memories(name)[0]), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"algorithm {name}")
    assert caught.value.exit_code == 2


@pytest.mark.row("R03")
@pytest.mark.parametrize("name", sorted(NO_MEMORY))
def test_an_algorithm_of_single_transitions_refuses_a_network_with_memory(name):
    with pytest.raises(ConfigError, match=r"lstm has memory|transition"):
        configured(name, "bounded", "lstm", learner={"batch_size": 4})


@pytest.mark.long
@pytest.mark.redis
@pytest.mark.row("R03")
@pytest.mark.parametrize(
    ("name", "kind", "memory"), [(name, kind, memory) for name, kind in FIRST for memory in memories(name)]
)
def test_an_algorithm_trains_with_two_actors(name, kind, memory, tmp_path):
    loaded = configured(name, kind, memory, actors={"count": 2, "environments": 2, "unroll_length_steps": 8})
    trained(loaded, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.row("R02", "D197")
@pytest.mark.parametrize("name", [name if name in IN_CI else pytest.param(name, marks=LONG) for name in preset_names()])
def test_a_preset_makes_its_first_updates(name, tmp_path):
    if missing := missing_extras(preset_facts(name)):
        pytest.skip(f"the extra {missing[0]} is not installed")
    sets = ["actors.count=0", "stop={updates: 2}"]
    if distrl.load(preset=name).config.algorithm.replay_parameters is not None:
        sets.append("algorithm.replay.min_size_steps=64")
    trained(distrl.load(preset=name, sets=sets), tmp_path / "run")
