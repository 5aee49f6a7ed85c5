import numpy as np
import pytest
from pydantic import TypeAdapter

from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec, drawn_by
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.bounded import low_and_width
from distrl.networks.actions.bounded_gaussian import BoundedGaussianSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.family import policy_output
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec, choices_made, values_of_choices
from distrl.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

BOX = BoxSpec((2,), (-2.0, 0.0), (2.0, 0.5))
LOW, HIGH = (-2.0, 0.0), (2.0, 0.5)
SPECS = {"gear": ValuesSpec(3, "q/q/gear"), "lights": MultiValuesSpec((2, 2), "q/q/lights")}


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (CategoricalSpec(4), 4),
        (MultiCategoricalSpec((2, 3, 4)), 9),
        (BernoulliSpec(3), 3),
        (GaussianSpec(3), 6),
        (BoundedGaussianSpec(LOW, HIGH), 4),
        (SquashedGaussianSpec(LOW, HIGH), 4),
        (BetaSpec(LOW, HIGH), 4),
    ],
)
def test_parameters_size_and_json(spec, size):
    adapter = TypeAdapter(dict[str, FamilySpec])
    assert spec.parameters_size == size
    assert adapter.validate_json(adapter.dump_json({"a": spec})) == {"a": spec}


def test_json_names_the_kind():
    assert TypeAdapter(FamilySpec).dump_json(BernoulliSpec(3)) == b'{"n":3,"kind":"bernoulli"}'


@pytest.mark.parametrize(
    ("action", "continuous", "expected"),
    [
        (DiscreteSpec(4, start=2), "auto", CategoricalSpec(4)),
        (DiscreteSpec(4), "beta", CategoricalSpec(4)),
        (MultiDiscreteSpec((2, 3), (0, 1)), "auto", MultiCategoricalSpec((2, 3))),
        (MultiBinarySpec((2, 3)), "auto", BernoulliSpec(6)),
        (BOX, "auto", GaussianSpec(2)),
        (BOX, "gaussian", GaussianSpec(2)),
        (BoxSpec((2, 1), (None, None), (None, None)), "auto", GaussianSpec(2)),
        (BOX, "bounded_gaussian", BoundedGaussianSpec(LOW, HIGH)),
        (BOX, "squashed_gaussian", SquashedGaussianSpec(LOW, HIGH)),
        (BOX, "beta", BetaSpec(LOW, HIGH)),
    ],
)
def test_distribution_of_an_action(action, continuous, expected):
    assert drawn_by(action, continuous) == expected


@pytest.mark.parametrize("continuous", ["bounded_gaussian", "squashed_gaussian", "beta"])
@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ((None, 1.0), "[-inf, 1]"),
        ((-1.0, None), "[-1, inf]"),
        ((1.0, 1.0), "[1, 1]"),
        ((-3e38, 3e38), "[-3e+38, 3e+38]"),  # finite, but their distance is not in float32
        ((-1.7e38, 1.7e38), "[-1.7e+38, 1.7e+38]"),  # or not twice it
        ((0.0, 1e-40), "[0, 1e-40]"),  # or not its reciprocal
    ],
)
def test_bounded_distributions_need_bounds(continuous, bounds, shown):
    with pytest.raises(ConfigError) as error:
        drawn_by(BoxSpec((2,), (-1.0, bounds[0]), (1.0, bounds[1])), continuous)
    assert str(error.value) == (
        f"distribution: {continuous} needs finite bounds, the lower below the upper and 1e-30 to 1e+30 apart, but "
        f"number 1 of the action has {shown}; set distribution: gaussian, or bound the environment's action space"
    )


def test_slices_of_choices():
    assert MultiCategoricalSpec((2, 1, 4)).slices == (slice(0, 2), slice(2, 3), slice(3, 7))


def test_scale_is_rounded_once():
    low, width = low_and_width(BetaSpec((-2.0, 0.1), (2.0, 0.3)))
    assert (low.dtype, width.dtype) == (np.float32, np.float32)
    np.testing.assert_array_equal(low, np.float32([-2.0, 0.1]))
    np.testing.assert_array_equal(width, np.float32([4.0, 0.2]))  # in float32 throughout, .3 - .1 is .20000002


def test_names_of_outputs():
    assert policy_output("arm") == "policy/arm"
    assert policy_output("arm", "behaviour") == "behaviour/arm"


def test_every_choice_finds_its_values_and_what_was_chosen():
    outputs = {"target/q/q/gear": np.float32([[1, 2, 3]]), "target/q/q/lights": np.float32([[4, 5, 6, 7]])}
    actions = {"lights": np.int32([[1, 0]]), "gear": np.int32([2])}
    values = [one.tolist() for one in values_of_choices(outputs, SPECS, "target/")]
    assert values == [[[1, 2, 3]], [[4, 5]], [[6, 7]]]
    assert [one.tolist() for one in choices_made(actions, SPECS)] == [[2], [1], [0]]
