import dataclasses

import pytest

from distrl.errors import DistrlError
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.networks.policy.description import BundleDescription, check_description
from distrl.types import (
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    OneHot,
    Unprocessed,
)

X = {"x": ArraySpec((2,), "float32")}
BOX = BoxSpec((2,), (-1.0, None), (1.0, None))


def description(action, distribution, observations=X, size=None, **changes):
    spec = EnvSpec("Made-v0", observations, {"action": action})
    size = distribution.parameters_size if size is None else size
    outputs = {getattr(distribution, "output", "policy/action"): (size,)}
    made = BundleDescription(observations, {}, outputs, {"action": distribution}, spec, (), {}, "")
    return dataclasses.replace(made, **changes)


GOOD = description(DiscreteSpec(2), CategoricalSpec(2))


@pytest.mark.parametrize(
    ("action", "distribution"),
    [
        (DiscreteSpec(3, start=-(2**63)), CategoricalSpec(3)),
        (DiscreteSpec(3), ValuesSpec(3, "q/q")),
        (MultiDiscreteSpec((2, 3), (0, 5)), MultiCategoricalSpec((2, 3))),
        (MultiDiscreteSpec((2, 3), (0, 5)), MultiValuesSpec((2, 3), "q/q")),
        (MultiBinarySpec((2, 2)), BernoulliSpec(4)),
        (MultiBinarySpec((2,)), MultiValuesSpec((2, 2), "q/q")),
        (BOX, GaussianSpec(2)),
        (BOX, SquashedGaussianSpec((-1.0, -1.0), (1.0, 1.0))),
        (BOX, BetaSpec((-1.0, -1.0), (1.0, 1.0))),
    ],
)
def test_what_fits(action, distribution):
    check_description(description(action, distribution))


SHOWN = OneHot((2,), (3, 300), (0, -5))


@pytest.mark.parametrize(
    "array",
    [
        ArraySpec((2,), "uint16", 0.0, 299.0, one_hot=SHOWN),
        ArraySpec((2,), "int32", 0.0, 299.0, one_hot=SHOWN),
        ArraySpec((6,), "uint16", 0.0, 299.0, frames=3, one_hot=SHOWN),
        ArraySpec((303,), "float32", 0.0, 1.0, one_hot=SHOWN),  # of earlier versions
        ArraySpec((909,), "float32", 0.0, 1.0, frames=3, one_hot=SHOWN),
    ],
)
def test_categories_that_fit(array):
    check_description(description(DiscreteSpec(2), CategoricalSpec(2), {"x": array}))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (description(DiscreteSpec(2), CategoricalSpec(2), {}), "there are no observations"),
        (dataclasses.replace(GOOD, environment=EnvSpec("E", X, {})), "there are no actions"),
        (dataclasses.replace(GOOD, action_distributions={}), "actions are ['action'], distributions are of []"),
        (dataclasses.replace(GOOD, inputs={}), "inputs are not the environment's observations"),
        (dataclasses.replace(GOOD, outputs={}), "output 'policy/action' is 'not there', not (2,)"),
        (description(DiscreteSpec(2), CategoricalSpec(2), size=3), "output 'policy/action' is (3,), not (2,)"),
        (dataclasses.replace(GOOD, recurrent_state={"h": ArraySpec((-1,), "float32")}), "recurrent state 'h' is Array"),
        *(
            (description(DiscreteSpec(2), CategoricalSpec(2), {"x": array}), "observation 'x' is ArraySpec(")
            for array in (
                ArraySpec((2,), "x"),
                ArraySpec((2,), "object"),
                ArraySpec((-2,), "float32"),
                ArraySpec((10**9,), "float32"),
                ArraySpec((3,), "float32", frames=2),
                ArraySpec((), "float32", frames=2),
                ArraySpec((2,), "float32", frames=0),
                ArraySpec((2,), "uint8", one_hot=SHOWN),  # which cannot hold 299
                ArraySpec((2,), "bool", one_hot=SHOWN),
                ArraySpec((3,), "uint16", one_hot=SHOWN),
                ArraySpec((302,), "float32", one_hot=SHOWN),
                ArraySpec((2,), "uint16", one_hot=OneHot((3,), (3, 300), (0, 0))),
                ArraySpec((1,), "uint16", one_hot=OneHot((), (0,), (0,))),
                ArraySpec((0,), "uint16", one_hot=OneHot((0,), (), ())),
                ArraySpec((2,), "int64", one_hot=OneHot((2,), (2**28, 2), (0, 0))),
            )
        ),
        *(
            (description(action, CategoricalSpec(2)), "action 'action' is ")
            for action in (
                DiscreteSpec(2, start=10**30),
                DiscreteSpec(2, start=2**63 - 2),
                DiscreteSpec(0),
                MultiDiscreteSpec((2, 2), (0,)),
                MultiDiscreteSpec((), ()),
                MultiBinarySpec((-1,)),
                BoxSpec((2,), (0.0,), (1.0, 1.0)),
            )
        ),
        *(
            (description(action, distribution), "its distribution ")
            for action, distribution in (
                (DiscreteSpec(2), CategoricalSpec(3)),
                (DiscreteSpec(2), GaussianSpec(2)),
                (BOX, SquashedGaussianSpec((-1.0,), (1.0,))),
                (BOX, BetaSpec((1.0, 1.0), (-1.0, 1.0))),
                (MultiBinarySpec((2,)), MultiValuesSpec((2, 3), "q/q")),
            )
        ),
    ],
)
def test_what_does_not_fit_is_one_line(bad, message):
    with pytest.raises(DistrlError) as raised:
        check_description(bad)
    assert str(raised.value).startswith("its description is inconsistent: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_environments_own_spaces_are_checked_too():
    before = Unprocessed({"x": ArraySpec((2,), "?!")}, {"action": DiscreteSpec(2)}, "[]")
    spec = dataclasses.replace(GOOD.environment, unprocessed=before)
    with pytest.raises(DistrlError, match="observation 'x' is ArraySpec"):
        check_description(dataclasses.replace(GOOD, environment=spec))


def test_what_is_told_has_an_end():
    many = {f"action-{index}": DiscreteSpec(2) for index in range(1000)}
    spec = dataclasses.replace(GOOD.environment, actions=many)
    with pytest.raises(DistrlError) as raised:
        check_description(dataclasses.replace(GOOD, environment=spec))
    assert len(str(raised.value)) < 300
