from typing import get_args

import keras
import numpy as np
import pytest
from pydantic import TypeAdapter

from distrl.config import heads as config
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.heads import HEADS, make_heads
from distrl.networks.policy import bundle
from distrl.types import EnvSpec

SECTIONS = {section.model_fields["kind"].default: section for section in get_args(get_args(config.HeadParameters)[0])}
CONTINUOUS = ("naf", "q_value", "quantile_q_value", "twin_q", "deterministic_policy")
SMALL = {"units": (5,)}
ROWS = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def spec_for(kind, choices, box):
    return box([-2.0, -1.0], [2.0, 3.0]) if kind in CONTINUOUS else choices(3)


def test_every_kind_has_its_head():
    assert list(HEADS) == list(SECTIONS)
    assert len(set(HEADS.values())) == len(HEADS)
    read = TypeAdapter(config.HeadParameters).validate_python
    assert {kind: type(read({"kind": kind})) for kind in HEADS} == SECTIONS


@pytest.mark.parametrize("kind", HEADS)
def test_export_computes_the_same(build, choices, box, kind):
    built = build(SECTIONS[kind](**SMALL), spec_for(kind, choices, box))
    bundle.verify_graph(bundle.export_graph(built.model), built.model)


@pytest.mark.parametrize("distribution", ["gaussian", "bounded_gaussian", "squashed_gaussian", "beta"])
def test_export_of_continuous_policies(build, box, distribution):
    built = build(config.PolicyHeadParameters(distribution=distribution), box([-2.0, -1.0], [2.0, 3.0]))
    bundle.verify_graph(bundle.export_graph(built.model), built.model)


@pytest.mark.parametrize("kind", HEADS)
def test_equal_seeds_give_equal_weights_and_layers_carry_the_head_name(build, choices, box, kind):
    spec = spec_for(kind, choices, box)
    first, second, other = (build(SECTIONS[kind](**SMALL), spec, seed=seed).model for seed in (1, 1, 2))
    prefix = f"main/{HEADS[kind].output_name or kind}_head"
    assert [weight.path for weight in first.weights] == [weight.path for weight in second.weights]
    assert all(weight.path.startswith(prefix) for weight in first.weights)
    for one, twin, another in zip(first.weights, second.weights, other.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(twin))
        if one.path.endswith("kernel"):
            assert np.abs(np.asarray(one) - np.asarray(another)).max() > 1e-4, one.path


@pytest.mark.parametrize("kind", HEADS)
def test_noise_is_in_every_layer_that_learns(build, choices, box, kind):
    built = build(SECTIONS[kind](**SMALL, dense_layer="noisy_dense"), spec_for(kind, choices, box))
    trained = {weight.path.rsplit("/", 1)[0] for weight in built.model.trainable_weights}
    noisy = {weight.path.rsplit("/", 1)[0] for weight in built.model.weights if weight.path.endswith("kernel_sigma")}
    assert trained == noisy


@pytest.mark.row("D06")
def test_copies_are_numbered_and_differ(choices):
    spec, network = choices(3), NetworkParameters()
    sections = [config.QHeadParameters(num_output_head_copies=3), config.ValueHeadParameters()]
    made = make_heads(sections, spec, network, seed=1)
    assert [head.name for head in made] == ["q_0", "q_1", "q_2", "value"]
    features = keras.Input((4,))
    outputs = [tensor for head in made for name, tensor in head.build(features, {}).items() if name.endswith("/q")]
    values = [np.asarray(output) for output in keras.Model(features, outputs)(ROWS)]
    assert len(values) == 3
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(values[one] - values[other]).max() > 1e-2


@pytest.mark.row("L18")
def test_policy_with_a_baseline(choices):
    made = make_heads(
        [config.PolicyHeadParameters(), config.ValueHeadParameters()], choices(3), NetworkParameters(), seed=1
    )
    features = keras.Input((4,))
    outputs = {}
    for head in made:
        outputs |= head.build(features, {})
    computed = keras.Model(features, outputs)(ROWS)
    assert {name: tuple(value.shape) for name, value in computed.items()} == {"policy/action": (3, 3), "value": (3,)}


@pytest.mark.parametrize(
    "sections",
    [
        [config.PolicyHeadParameters(), config.PPOHeadParameters()],
        [config.ValueHeadParameters(num_output_head_copies=2), config.ValueHeadParameters(num_output_head_copies=2)],
    ],
)
def test_two_heads_of_one_name_are_refused(choices, sections):
    with pytest.raises(ConfigError, match=r"two heads are called '(policy|value_0)'"):
        make_heads(sections, choices(3), NetworkParameters(), seed=1)


def test_heads_of_one_choice_refuse_several(choices):
    spec = choices(3)
    spec = EnvSpec(spec.id, spec.observations, {"left": spec.actions["action"], "right": spec.actions["action"]})
    with pytest.raises(ConfigError, match="head quantile_q: needs one discrete action; Choices-v0 has 2: left"):
        make_heads([config.QuantileQHeadParameters()], spec, NetworkParameters(), seed=1)
