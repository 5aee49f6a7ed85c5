"""What the configuration and the environment's spec alone show to be impossible is refused by them."""

import pytest

from distrl.config import RunConfig
from distrl.config.fit import check_fit
from distrl.errors import ConfigError
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

SEEN = {"observation": ArraySpec((3,), "float32")}
CHOICE = EnvSpec("C", SEEN, {"action": DiscreteSpec(2)})
REAL = EnvSpec("R", SEEN, {"action": BoxSpec((1,), (-1.0,), (1.0,))})
FREE = EnvSpec("F", SEEN, {"action": BoxSpec((1,), (None,), (1.0,))})
LSTM = {"middleware_parameters": {"kind": "lstm"}}
SEQUENCES = {"replay": {"sampler": {"kind": "sequences"}}}


def config(algorithm, network=None, **sections):
    return RunConfig.model_validate({"algorithm": algorithm, "network": network or {}, **sections})


@pytest.mark.parametrize(
    ("given", "spec", "message"),
    [
        (config({"name": "sac"}), CHOICE, "algorithm sac: action 'action' of C is discrete, .* use algorithm impala"),
        (config({"name": "sac"}), FREE, "algorithm sac: action 'action' of F has no bounds"),
        (config({"name": "sac"}, LSTM), REAL, r"algorithm sac learns from single transitions; use fc"),
        (config({"name": "dqn"}), REAL, "algorithm dqn: action 'action' of R is box, .* use algorithm sac or ppo"),
        (config({"name": "dqn"}, LSTM), CHOICE, "uniform samples single transitions, and .*: lstm has memory"),
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
