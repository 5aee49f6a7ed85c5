"""Tasks that the configuration and the environment's spec alone show to be impossible are refused."""

import pytest

from distrl.config import RunConfig
from distrl.config.environment_checks import check_fit, unused_mask_note
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

SEEN = {"observation": ArraySpec((3,), "float32")}
CHOICE = EnvSpec("C", SEEN, {"action": DiscreteSpec(2)})
REAL = EnvSpec("R", SEEN, {"action": BoxSpec((1,), (-1.0,), (1.0,))})
FREE = EnvSpec("F", SEEN, {"action": BoxSpec((1,), (None,), (1.0,))})
LSTM = {"middleware_parameters": {"kind": "lstm"}}
SEQUENCES = {"replay": {"item": {"kind": "sequence"}}}


def config(algorithm, network=None, **sections):
    return RunConfig.model_validate({"algorithm": algorithm, "network": network or {}, **sections})


@pytest.mark.parametrize(
    ("given", "spec", "message"),
    [
        (config({"name": "sac"}), CHOICE, "algorithm sac: action 'action' of C is discrete, .* use algorithm impala"),
        (config({"name": "sac"}), FREE, "algorithm sac: action 'action' of F has no bounds"),
        (config({"name": "sac"}, LSTM), REAL, r"algorithm sac learns from single transitions; use fc"),
        (config({"name": "dqn"}), REAL, "algorithm dqn: action 'action' of R is box, .* use algorithm sac or ppo"),
        (config({"name": "dqn"}, LSTM), CHOICE, "transition has no recurrent state, and .*: lstm has memory"),
        (
            config({"name": "ppo", "minibatches": 4}, LSTM, actors={"environments": 3}),
            CHOICE,
            r"algorithm.minibatches: .* 6 of them .* do not make 4 equal parts",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(given, spec, message):
    with pytest.raises(ConfigError, match=message):
        check_fit(given, spec)


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        (config({"name": "sac"}), REAL),
        (config({"name": "dqn"}), CHOICE),
        (config({"name": "dqn", **SEQUENCES}, LSTM), CHOICE),
        (config({"name": "ppo", "minibatches": 4}, LSTM, actors={"environments": 4}), CHOICE),
        (config({"name": "ppo"}), FREE),
        (config({"name": "impala"}, LSTM), REAL),
    ],
)
def test_what_can_be_trained_is_not(given, spec):
    check_fit(given, spec)


def with_mask(name="action_mask", choices=6):
    return EnvSpec("M", {name: ArraySpec((6,), "int8")}, {"action": DiscreteSpec(choices)})


@pytest.mark.parametrize(
    ("algorithm", "advice"),
    [
        ("impala", "network.heads_parameters=[{kind: policy, action_mask: board/action_mask}]"),
        ("ppo", "network.heads_parameters=[{kind: ppo, action_mask: board/action_mask}]"),
        ("dqn", "algorithm dqn does not take: its policy may choose what is forbidden; use impala or ppo"),
    ],
)
def test_a_mask_that_no_head_takes_is_reported_with_the_setting(algorithm, advice):
    note = unused_mask_note(config({"name": algorithm}), with_mask("board/action_mask"))
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
