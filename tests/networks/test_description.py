import json

import pytest

from distrl.errors import DistrlError
from distrl.networks.description import FORMAT, BundleDescription, CategoricalSpec, WeightSpec
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec(
    "Vector-v0", {"observation": ArraySpec((4,), "float32", -1.0, 1.0)}, DiscreteSpec(2, start=1), 475.0, 500
)
DESCRIPTION = BundleDescription(
    inputs=SPEC.observations,
    recurrent_state={"cell": ArraySpec((3,), "float32")},
    outputs={"logits": (2,), "value": ()},
    action_distribution=CategoricalSpec(2),
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
    assert json.loads(text)["action_distribution"] == {"n": 2, "kind": "categorical"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the description is not valid: JSON: Invalid JSON"),
        ("{}", "the description is not valid: inputs: Field required"),
        (changed(action_distribution={"n": 2, "kind": "gaussian"}), "action_distribution.kind: Input should be"),
        (changed(weights=[{"name": "x"}]), "weights.0.shape: Field required"),
        (changed(format=FORMAT + 1), f"format {FORMAT + 1}, this distrl reads {FORMAT}"),
    ],
)
def test_anything_else_is_one_line_of_error(text, message):
    with pytest.raises(DistrlError) as raised:
        BundleDescription.from_json(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
