"""Probabilities of actions under the target, by hand and against its own draws."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from distrl.data.episodes import DataError
from distrl.data.off_policy.target import Choices, Target
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.values import ValuesSpec
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec, MultiBinarySpec, MultiDiscreteSpec

NUMBERS = ArraySpec((2,), "float32")
LOGITS = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], np.float32))


def target(actions, families, epsilon=0.0, mask=False, **options):
    observations = {"numbers": NUMBERS, **({"action_mask": ArraySpec((3,), "int8")} if mask else {})}
    spec = EnvSpec("World", observations, actions)
    return Target(SimpleNamespace(spec=spec, distributions=families), epsilon, None, **options)


def one(epsilon=0.0, mask=False):
    return target({"action": DiscreteSpec(3)}, {"action": CategoricalSpec(3)}, epsilon, mask)


def greedy(epsilon=0.0):
    return target({"action": DiscreteSpec(3)}, {"action": ValuesSpec(3, "q")}, epsilon)


def test_probabilities_are_those_of_the_distribution():
    outputs = {"policy/action": LOGITS}
    found = one().probabilities(outputs, Choices({"action": DiscreteSpec(3)}), None)
    np.testing.assert_allclose(found, np.exp(LOGITS), rtol=1e-6)
    logs = one().log_probabilities(outputs, {"action": np.array([0, 2])}, None)
    np.testing.assert_allclose(logs, np.log([0.7, 0.8]), rtol=1e-6)
    assert one().text == "draws from its distribution"


def test_random_actions_have_their_share():
    outputs = {"policy/action": LOGITS}
    found = one(0.3).probabilities(outputs, Choices({"action": DiscreteSpec(3)}), None)
    np.testing.assert_allclose(found, 0.7 * np.exp(LOGITS) + 0.1, rtol=1e-6)
    allowed = np.array([[True, False, True], [False, False, True]])
    found = one(0.3, mask=True).probabilities(outputs, Choices({"action": DiscreteSpec(3)}), allowed)
    np.testing.assert_allclose(found, 0.7 * np.exp(LOGITS) + 0.3 * np.array([[0.5, 0, 0.5], [0, 0, 1]]), rtol=1e-6)
    always = one(1.0).log_probabilities(outputs, {"action": np.array([0, 1])}, None)
    np.testing.assert_allclose(always, -math.log(3))


def test_a_policy_of_values_takes_the_best():
    outputs, choices = {"q": np.array([[1.0, 3.0, 2.0]], np.float32)}, Choices({"action": DiscreteSpec(3)})
    assert greedy().probabilities(outputs, choices, None).tolist() == [[0.0, 1.0, 0.0]]
    np.testing.assert_allclose(greedy(0.3).probabilities(outputs, choices, None), [[0.1, 0.8, 0.1]])
    assert (greedy().text, greedy(0.3).text) == (
        "takes its best action",
        "takes its best action, or a random one with probability 0.3",
    )
    assert [drawn["action"].tolist() for drawn in greedy().draws(outputs, None, np.random.default_rng(0))] == [[1]]


def test_a_greedy_policy_takes_the_mode_of_its_distribution():
    choices, outputs = Choices({"action": DiscreteSpec(3)}), {"policy/action": LOGITS}
    specs, families = {"action": DiscreteSpec(3)}, {"action": CategoricalSpec(3)}
    found = target(specs, families, 0.3, greedy=True).probabilities(outputs, choices, None)
    np.testing.assert_allclose(found, [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    best = target(specs, families, greedy=True)
    assert (best.text, best.has_probabilities) == ("takes its best action", True)
    assert [drawn["action"].tolist() for drawn in best.draws(outputs, None, np.random.default_rng(0))] == [[0, 2]]
    real = target({"action": BoxSpec((1,), (-1.0,), (1.0,))}, {"action": GaussianSpec(1)}, greedy=True)
    assert not real.has_probabilities
    pairs = {"pair": MultiDiscreteSpec((2, 3), (0, 0))}
    logits = {"policy/pair": np.log(np.array([[0.25, 0.75, 0.7, 0.2, 0.1]], np.float32))}
    joint = target(pairs, {"pair": MultiCategoricalSpec((2, 3))}, greedy=True)
    assert joint.probabilities(logits, Choices(pairs), None).tolist() == [[0, 0, 0, 1, 0, 0]]


def test_joint_choices_are_enumerated_in_order():
    specs = {"pair": MultiDiscreteSpec((2, 3), (0, 0)), "switch": MultiBinarySpec((1,))}
    choices = Choices(specs)
    rows = choices.actions()
    assert choices.count == 12
    assert choices.numbers(rows).tolist() == [*range(12)]
    assert {tuple(pair) + tuple(switch) for pair, switch in zip(rows["pair"], rows["switch"], strict=True)} == {
        (a, b, c) for a in range(2) for b in range(3) for c in range(2)
    }
    assert Choices.of({"many": MultiDiscreteSpec((10, 10), (0, 0))}) is None
    assert Choices.of({"real": BoxSpec((1,), (0.0,), (1.0,))}) is None


def test_joint_probabilities_are_products():
    specs, families = {"pair": MultiDiscreteSpec((2, 3), (0, 0))}, {"pair": MultiCategoricalSpec((2, 3))}
    logits = np.log(np.array([[0.25, 0.75, 0.7, 0.2, 0.1]], np.float32))
    found = target(specs, families).probabilities({"policy/pair": logits}, Choices(specs), None)
    np.testing.assert_allclose(found, [np.outer([0.25, 0.75], [0.7, 0.2, 0.1]).ravel()], rtol=1e-6)


def test_draws_are_as_frequent_as_they_are_probable():
    outputs = {"policy/action": np.repeat(LOGITS[:1], 4_000, axis=0)}
    drawn = np.concatenate([each["action"] for each in one(0.3).draws(outputs, None, np.random.default_rng(0))])
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, 0.7 * np.exp(LOGITS[0]) + 0.1, atol=0.01)


def test_real_numbers_have_densities_unless_the_policy_is_deterministic():
    box = {"action": BoxSpec((1,), (-1.0,), (1.0,))}
    drawn = target(box, {"action": GaussianSpec(1)})
    logs = drawn.log_probabilities({"policy/action": np.zeros((1, 2), np.float32)}, {"action": np.zeros((1, 1))}, None)
    np.testing.assert_allclose(logs, -0.5 * math.log(2 * math.pi), rtol=1e-6)
    assert drawn.has_probabilities
    fixed = target(box, {"action": DeterministicSpec((-1.0,), (1.0,), "action")})
    assert not fixed.has_probabilities


@pytest.mark.parametrize(
    ("actions", "families", "mask", "message"),
    [
        ({"action": BoxSpec((1,), (None,), (None,))}, {"action": GaussianSpec(1)}, False, "without bounds have no"),
        (
            {"action": MultiBinarySpec((3,))},
            {"action": CategoricalSpec(3)},
            True,
            "with an action mask it goes with one",
        ),
    ],
)
def test_random_actions_without_a_probability_are_refused(actions, families, mask, message):
    with pytest.raises(DataError, match=rf"epsilon 0.1: .*{message}"):
        target(actions, families, 0.1, mask)
