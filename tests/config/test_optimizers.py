from typing import get_args

import pytest
from pydantic import ValidationError

from distrl.config import RunConfig
from distrl.config.explain import explain
from distrl.config.network import NetworkParameters
from distrl.config.optimizers import _NAMES, _USED_BY, OptimizerParameters, OptimizerType

TYPES = get_args(OptimizerType)

# A value other than the default, and what else it takes to be meaningful.
CHANGED = {
    "learning_rate": {"learning_rate": 0.5},
    "learning_rate_decay_rate": {"learning_rate_decay_rate": 0.5, "learning_rate_decay_steps": 10},
    "learning_rate_schedule": {"learning_rate_schedule": "cosine", "learning_rate_schedule_updates": 10},
    "learning_rate_warm_up_updates": {"learning_rate_warm_up_updates": 3},
    "clip_gradients": {"clip_gradients": 1.0},
    "optimizer_epsilon": {"optimizer_epsilon": 1e-3},
    "adam_optimizer_beta1": {"adam_optimizer_beta1": 0.5},
    "adam_optimizer_beta2": {"adam_optimizer_beta2": 0.5},
    "rms_prop_optimizer_decay": {"rms_prop_optimizer_decay": 0.5},
    "rms_prop_initial_accumulator": {"rms_prop_initial_accumulator": 1.0},
    "adadelta_rho": {"adadelta_rho": 0.5},
    "momentum": {"momentum": 0.5},
    "nesterov": {"nesterov": True, "momentum": 0.5},
    "weight_decay": {"weight_decay": 0.5},
    "lbfgs_max_iterations": {"lbfgs_max_iterations": 3},
}


def explained(**network):
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({"network": network})
    return explain(caught.value, {})


@pytest.mark.row("A08", "A16", "A17", "A18")
def test_defaults_are_coachs():
    parameters = NetworkParameters()
    assert parameters.optimizer_type == "Adam"
    assert parameters.learning_rate == 2.5e-4
    assert (parameters.adam_optimizer_beta1, parameters.adam_optimizer_beta2) == (0.9, 0.99)
    assert parameters.epsilon == 1e-4
    assert OptimizerParameters(optimizer_type="RMSProp").epsilon == 1e-4
    assert (parameters.rms_prop_optimizer_decay, parameters.rms_prop_initial_accumulator) == (0.9, 0.0)
    assert parameters.clip_gradients is None
    assert parameters.gradients_clipping_method == "ClipByGlobalNorm"


def test_epsilon_is_of_the_optimizer_unless_given():
    of = {name: OptimizerParameters(optimizer_type=name).epsilon for name in TYPES}
    assert {name for name, epsilon in of.items() if epsilon == 1e-4} == {"Adam", "AdamW", "RMSProp"}
    assert {epsilon for name, epsilon in of.items() if name not in ("Adam", "AdamW", "RMSProp")} == {1e-7}
    assert OptimizerParameters(optimizer_epsilon=1e-3).epsilon == 1e-3


@pytest.mark.row("A15")
def test_every_type_has_its_own_name():
    assert set(_NAMES.values()) == set(TYPES)
    for name in TYPES:
        assert OptimizerParameters(optimizer_type=name).optimizer_type == name
        assert OptimizerParameters(optimizer_type=name.lower()).optimizer_type == name


@pytest.mark.row("I05")
@pytest.mark.parametrize(
    ("alias", "name", "momentum"),
    [
        ("adadelta", "Adadelta", 0.0),
        ("adagrad", "Adagrad", 0.0),
        ("adam", "Adam", 0.0),
        ("nadam", "Nadam", 0.0),
        ("gradient_descent", "SGD", 0.0),
        ("momentum", "SGD", 0.9),
        ("rmsprop", "RMSProp", 0.0),
        ("GradientDescent", "SGD", 0.0),
        ("L-BFGS", "LBFGS", 0.0),
    ],
)
def test_aliases(alias, name, momentum):
    parameters = NetworkParameters(optimizer_type=alias)
    assert (parameters.optimizer_type, parameters.momentum) == (name, momentum)


@pytest.mark.row("I05")
def test_the_alias_momentum_leaves_a_given_momentum():
    assert NetworkParameters(optimizer_type="momentum", momentum=0.5).momentum == 0.5
    assert NetworkParameters(optimizer_type="momentum", momentum=0.0).momentum == 0.0


@pytest.mark.row("A15")
def test_an_unknown_optimizer_is_refused_with_the_choices():
    line = explained(optimizer_type="Adan")
    assert line.startswith("network.optimizer_type: 'Adan' must be 'Adam', 'AdamW', 'RMSProp', 'SGD', 'Nadam', ")
    assert line.endswith("'Adagrad', 'Adadelta', 'Muon' or 'LBFGS'; did you mean Adam?")
    assert "must be 'Adam', " in explained(optimizer_type=3)


def test_every_option_is_used_by_somebody_or_goes_with_one_that_is():
    beside = {
        "optimizer_type",
        "learning_rate_decay_steps",
        "learning_rate_schedule_updates",
        "learning_rate_final",
        "gradients_clipping_method",
    }
    assert {*_USED_BY} | beside == {*OptimizerParameters.model_fields}
    assert CHANGED.keys() == _USED_BY.keys()


@pytest.mark.parametrize("option", CHANGED)
@pytest.mark.parametrize("name", TYPES)
def test_an_option_is_used_or_refused(name, option):
    tree = {"optimizer_type": name, **CHANGED[option]}
    if name in _USED_BY[option]:
        assert getattr(NetworkParameters(**tree), option) == CHANGED[option][option]
    else:
        with pytest.raises(ValueError, match=f"is used by .*, optimizer_type is {name}"):
            NetworkParameters(**tree)


@pytest.mark.parametrize(
    ("network", "line"),
    [
        (
            {"rms_prop_optimizer_decay": 0.99},
            "network: rms_prop_optimizer_decay is used by RMSProp alone, optimizer_type is Adam",
        ),
        (
            {"optimizer_type": "Muon", "momentum": 0.9},
            "network: momentum is used by SGD and RMSProp alone, optimizer_type is Muon",
        ),
        (
            {"optimizer_type": "LBFGS", "clip_gradients": 1.0},
            "network: clip_gradients is used by Adam, AdamW, RMSProp, SGD, Nadam, Adagrad, Adadelta and Muon alone, "
            "optimizer_type is LBFGS",
        ),
        ({"optimizer_type": "SGD", "nesterov": True}, "network: nesterov needs momentum > 0"),
        (
            {"gradients_clipping_method": "ClipByValue"},
            "network: gradients_clipping_method ClipByValue needs clip_gradients",
        ),
        (
            {"learning_rate_decay_rate": 0.5},
            "network: learning_rate_decay_rate and learning_rate_decay_steps must be set together",
        ),
        (
            {"learning_rate_schedule": "linear"},
            "network: learning_rate_schedule linear needs learning_rate_schedule_updates > 0",
        ),
        (
            {"learning_rate_schedule_updates": 5},
            "network: learning_rate_schedule_updates needs learning_rate_schedule linear or cosine",
        ),
        ({"learning_rate_final": 1e-5}, "network: learning_rate_final needs learning_rate_schedule linear or cosine"),
        (
            {
                "learning_rate_schedule": "cosine",
                "learning_rate_schedule_updates": 5,
                "learning_rate_decay_rate": 0.5,
                "learning_rate_decay_steps": 10,
            },
            "network: learning_rate_schedule cosine and learning_rate_decay_rate exclude each other",
        ),
    ],
)
def test_what_does_not_fit_together_is_one_line(network, line):
    assert explained(**network) == line


@pytest.mark.row("A09")
@pytest.mark.parametrize("half", [{"learning_rate_decay_rate": 0.5}, {"learning_rate_decay_steps": 10}])
def test_half_a_staircase_is_refused(half):
    with pytest.raises(ValueError, match="must be set together"):
        NetworkParameters(**half)


@pytest.mark.row("A05")
def test_a_clipping_threshold_of_zero_is_refused():
    assert explained(clip_gradients=0.0) == "network.clip_gradients: 0.0 must be greater than 0"


@pytest.mark.parametrize("name", [*TYPES, "momentum"])
def test_a_written_out_configuration_reads_back(name):
    parameters = NetworkParameters(optimizer_type=name)
    written = parameters.model_dump(mode="json")
    assert written.keys() >= OptimizerParameters.model_fields.keys()
    assert NetworkParameters.model_validate(written) == parameters
