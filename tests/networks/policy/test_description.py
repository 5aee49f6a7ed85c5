import dataclasses
import json

import pytest

from distrl.config.exploration import NoisyNetworkParameters
from distrl.errors import DistrlError
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.bounded_gaussian import BoundedGaussianSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.policy.description import FORMAT, BundleDescription, NoisyWeights, WeightSpec
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec(
    "Vector-v0",
    {"observation": ArraySpec((4,), "float32", -1.0, 1.0)},
    {"action": DiscreteSpec(2, start=1)},
    475.0,
    500,
)
DESCRIPTION = BundleDescription(
    inputs=SPEC.observations,
    recurrent_state={"cell": ArraySpec((3,), "float32")},
    outputs={"policy/action": (2,), "value": ()},
    action_distributions={"action": CategoricalSpec(2)},
    environment=SPEC,
    weights=(WeightSpec("main/policy_head/kernel", (4, 2), "float32", True),),
    libraries={"keras": "3"},
    sha256="00",
)


def changed(**fields):
    return json.dumps(json.loads(DESCRIPTION.to_json()) | fields)


def test_json_is_one_line_and_comes_back_equal():
    text = DESCRIPTION.to_json()
    assert "\n" not in text
    assert BundleDescription.from_json(text) == DESCRIPTION
    assert json.loads(text)["action_distributions"] == {"action": {"n": 2, "kind": "categorical"}}


def test_how_strong_noise_is_looks_like_what_it_is_added_to():
    noisy = NoisyWeights("main/policy_head/kernel", "main/policy_head/kernel_sigma")
    description = dataclasses.replace(DESCRIPTION, noisy=(noisy,), exploration=NoisyNetworkParameters(random_steps=3))
    assert BundleDescription.from_json(description.to_json()) == description
    sigma = WeightSpec("main/policy_head/kernel_sigma", (4, 2), "float32", True)
    assert (description.sigmas, DESCRIPTION.sigmas) == ({sigma.name: sigma}, {})


@pytest.mark.parametrize(
    "spec",
    [
        CategoricalSpec(3),
        MultiCategoricalSpec((2, 3)),
        BernoulliSpec(4),
        GaussianSpec(2),
        BoundedGaussianSpec((-1.0, 0.0), (1.0, 0.5)),
        SquashedGaussianSpec((-1.0, 0.0), (1.0, 0.5)),
        BetaSpec((-1.0, 0.0), (1.0, 0.5)),
    ],
    ids=lambda spec: spec.kind,
)
def test_every_kind_of_distribution_comes_back_as_itself(spec):
    """Their fields alone would not tell a categorical from a Bernoulli."""
    given = dataclasses.replace(DESCRIPTION, action_distributions={"a": spec, "b": CategoricalSpec(2)})
    (back, _) = BundleDescription.from_json(given.to_json()).action_distributions.values()
    assert back == spec
    assert type(back) is type(spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the description is not valid: JSON: Invalid JSON"),
        ("{}", "the description is not valid: inputs: Field required"),
        (changed(action_distributions={"a": {"n": 2, "kind": "foo"}}), "action_distributions.a."),
        (changed(weights=[{"name": "x"}]), "weights.0.shape: Field required"),
        (changed(format=FORMAT + 1), f"format {FORMAT + 1}, this distrl reads {FORMAT}"),
    ],
)
def test_anything_else_is_one_line_of_error(text, message):
    with pytest.raises(DistrlError) as raised:
        BundleDescription.from_json(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
