"""Observations that mask actions."""

import pytest

from distrl.config import RunConfig
from distrl.config.action_masks import check_mask, mask_of, unused_mask_note
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, OneHot

REAL = EnvSpec("R", {"observation": ArraySpec((3,), "float32")}, {"action": BoxSpec((1,), (-1.0,), (1.0,))})


def config(algorithm, network=None):
    return RunConfig.model_validate({"algorithm": algorithm, "network": network or {}})


def with_mask(name="action_mask", choices=6):
    return EnvSpec("M", {name: ArraySpec((6,), "int8")}, {"action": DiscreteSpec(choices)})


@pytest.mark.parametrize(
    ("algorithm", "advice"),
    [
        ("impala", "network.heads_parameters=[{kind: policy, action_mask: board/action_mask}]"),
        ("trpo", "network.heads_parameters=[{kind: policy, action_mask: board/action_mask}]"),
        ("ppo", "network.heads_parameters=[{kind: ppo, action_mask: board/action_mask}]"),
        ("acer", "network.heads_parameters=[{kind: acer_policy, action_mask: board/action_mask}]"),
        ("dqn", "network.heads_parameters=[{kind: q, action_mask: board/action_mask}]"),
        ("apex", "network.heads_parameters=[{kind: dueling_q, action_mask: board/action_mask}]"),
        ("c51", "network.heads_parameters=[{kind: categorical_q, action_mask: board/action_mask}]"),
        ("rainbow", "network.heads_parameters=[{kind: rainbow_q, action_mask: board/action_mask}]"),
        ("qrdqn", "network.heads_parameters=[{kind: quantile_q, action_mask: board/action_mask}]"),
        ("sac", "algorithm sac cannot use: its policy may take forbidden choices; use impala, ppo or dqn"),
    ],
)
def test_a_mask_that_no_head_takes_is_reported_with_the_setting(algorithm, advice):
    network = {"use_separate_networks_per_head": True} if algorithm == "trpo" else None  # which it wants
    note = unused_mask_note(config({"name": algorithm}, network), with_mask("board/action_mask"))
    assert note is not None
    assert note.endswith(advice)


@pytest.mark.parametrize(
    ("algorithm", "network", "spec"),
    [
        ("ppo", {"heads_parameters": [{"kind": "ppo", "action_mask": "action_mask"}]}, with_mask()),
        ("impala", {}, with_mask("allowed")),
        ("impala", {}, with_mask(choices=5)),
        ("impala", {}, REAL),
        ("my.module:Class", {}, with_mask()),
    ],
)
def test_a_mask_that_is_taken_and_what_is_no_mask_are_not(algorithm, network, spec):
    assert unused_mask_note(config({"name": algorithm}, network), spec) is None


def test_categories_are_no_mask():
    mask = ArraySpec((6,), "uint8", 0.0, 1.0, one_hot=OneHot((6,), (2,) * 6, (0,) * 6))
    spec = EnvSpec("M", {"action_mask": mask}, {"action": DiscreteSpec(6)})
    with pytest.raises(ConfigError, match="observation 'action_mask' is of categories; declare it as a MultiBinary"):
        check_mask("action_mask", spec)
    assert mask_of(spec, None) is None


def test_a_subclass_of_a_built_in_algorithm_is_told_of_a_mask_as_its_base_is():
    algorithm = {"name": "my.module:Class", "declared": {"masked_head": "ppo"}}
    note = unused_mask_note(config(algorithm), with_mask("board/action_mask"))
    assert note is not None
    assert note.endswith("set network.heads_parameters=[{kind: ppo, action_mask: board/action_mask}]")
