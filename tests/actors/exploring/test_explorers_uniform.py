"""Uniformly random actions: frequencies, bounds, masks and log-probabilities."""

import numpy as np
import pytest

from distrl.actors.exploring.explorers import uniform_of
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.family import MASKED
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

ROWS = 60_000
LOW, HIGH = (-2.0, 0.5), (2.0, 3.5)
BOX = BoxSpec((2,), LOW, HIGH)


def draw(action, spec, parameters=None, rows=ROWS):
    parameters = np.zeros(spec.parameters_size) if parameters is None else parameters
    given = np.tile(np.array(parameters, np.float32), (rows, 1))
    uniform = uniform_of(action, spec)
    actions, log_probabilities = uniform.sample(given, np.random.default_rng(0))
    np.testing.assert_allclose(log_probabilities, uniform.log_probability(given, actions), rtol=1e-6)
    assert (actions.dtype, actions.shape[1:]) == (np.dtype(action.array.dtype), action.array.shape)
    assert log_probabilities.dtype == np.float32
    return actions, log_probabilities


def test_choices_are_equally_likely_whatever_the_policy_thinks():
    actions, log_probabilities = draw(DiscreteSpec(4), CategoricalSpec(4), [9, -9, 0, 3])
    np.testing.assert_allclose(np.bincount(actions) / ROWS, 0.25, atol=0.01)
    np.testing.assert_allclose(log_probabilities, -np.log(4), rtol=1e-6)
    actions, _ = draw(DiscreteSpec(4), ValuesSpec(4, "q/q"), [1e30, -1e30, 0, 3])
    np.testing.assert_allclose(np.bincount(actions) / ROWS, 0.25, atol=0.01)


@pytest.mark.parametrize(
    ("spec", "parameters"),
    [
        (MultiCategoricalSpec((2, 4)), [9, -9, 0, 3, -3, 7]),
        (MultiValuesSpec((2, 4), "q/q"), [1e30, -1e30, 0, 3, -2e30, 7]),
    ],
    ids=["logits", "values"],
)
def test_every_choice_of_several_has_its_own_number_of_choices(spec, parameters):
    actions, log_probabilities = draw(MultiDiscreteSpec((2, 4), (0, 0)), spec, parameters)
    np.testing.assert_allclose(np.bincount(actions[:, 0]) / ROWS, 1 / 2, atol=0.01)
    np.testing.assert_allclose(np.bincount(actions[:, 1]) / ROWS, 1 / 4, atol=0.01)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.02
    np.testing.assert_allclose(log_probabilities, -np.log(8), rtol=1e-6)


def test_switches_are_on_half_of_the_time():
    actions, log_probabilities = draw(MultiBinarySpec((3,)), BernoulliSpec(3), [9, -9, 0])
    np.testing.assert_allclose(actions.mean(axis=0), 0.5, atol=0.01)
    np.testing.assert_allclose(log_probabilities, -np.log(8), rtol=1e-6)
    actions, _ = draw(MultiBinarySpec((2,)), MultiValuesSpec((2, 2), "q/q"), [9, -9, 0, 0])
    np.testing.assert_allclose(actions.mean(axis=0), 0.5, atol=0.01)


def test_what_is_masked_is_never_drawn():
    actions, log_probabilities = draw(DiscreteSpec(4), CategoricalSpec(4), [0, 1 - MASKED, 5, -3 - MASKED])
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / ROWS, [0.5, 0, 0.5, 0], atol=0.01)
    np.testing.assert_allclose(log_probabilities, -np.log(2), rtol=1e-6)
    actions, log_probabilities = draw(MultiBinarySpec((2,)), BernoulliSpec(2), [0, -MASKED])
    np.testing.assert_allclose(actions.mean(axis=0), [0.5, 0.0], atol=0.01)
    np.testing.assert_allclose(log_probabilities, -np.log(2), rtol=1e-6)


@pytest.mark.parametrize("spec", [GaussianSpec(2), SquashedGaussianSpec(LOW, HIGH), BetaSpec(LOW, HIGH)])
def test_numbers_fill_their_bounds(spec):
    actions, log_probabilities = draw(BOX, spec)
    assert (actions >= LOW).all()
    assert (actions <= HIGH).all()
    np.testing.assert_allclose(actions.mean(axis=0), [0.0, 2.0], atol=0.02)
    np.testing.assert_allclose(actions.std(axis=0), np.array([4.0, 3.0]) / np.sqrt(12), rtol=0.01)
    np.testing.assert_allclose(log_probabilities, -np.log(12), rtol=1e-5)


def test_a_number_beyond_the_bounds_cannot_be_drawn():
    uniform = uniform_of(BOX, GaussianSpec(2))
    actions = np.array([[0, 1], [-2, 3.5], [2.001, 1], [0, 0.49]], np.float32)
    found = uniform.log_probability(np.zeros((4, 4), np.float32), actions)
    np.testing.assert_allclose(found, [-np.log(12), -np.log(12), -np.inf, -np.inf], rtol=1e-6)
