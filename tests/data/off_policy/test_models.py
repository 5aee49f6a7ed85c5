"""Models of observations that are no categories: values of a world whose truth is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from distrl.data.episodes import DataError
from distrl.data.off_policy.fitted_q import Steps, values
from distrl.data.off_policy.models import Inputs
from distrl.data.off_policy.reading import Shown
from distrl.data.off_policy.target import Target
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

EPISODES, LENGTH, DISCOUNT = 400, 5, 0.9


def played(actions, paid, rng):
    """Return steps and numbers of episodes in which an observation is drawn anew at every step."""
    numbers = rng.uniform(-1.0, 1.0, (EPISODES, LENGTH + 1, 1)).astype(np.float32)
    rewards = paid(numbers[:, :-1, 0], actions)
    discounts = np.tile(np.r_[np.full(LENGTH - 1, DISCOUNT), 0.0], EPISODES)
    lengths = np.full(EPISODES, LENGTH)
    steps = Steps(rewards.ravel(), discounts, np.repeat(np.arange(EPISODES), LENGTH), lengths)
    return steps, numbers.reshape(-1, 1)


def target(spec, family):
    world = EnvSpec("World", {"observation": ArraySpec((1,), "float32")}, {"action": spec})
    return Target(SimpleNamespace(spec=world, distributions={"action": family}), 0.0, None)


def test_choices_have_features_of_their_own():
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=(EPISODES, LENGTH))
    steps, numbers = played(actions, lambda x, a: np.where(a == 1, x, -x), rng)
    # It takes action 1 with probability .9: each step is worth .8 x.
    outputs = {"policy/action": np.tile(np.log([[0.1, 0.9]]).astype(np.float32), (len(numbers), 1))}
    shown = Shown(numbers, {"action": actions.ravel()}, outputs, None)
    inputs = Inputs(
        target(DiscreteSpec(2), CategoricalSpec(2)), shown, steps.before, np.random.default_rng(1), is_table=False
    )
    np.testing.assert_allclose(np.exp(inputs.log_target()), np.where(actions.ravel() == 1, 0.9, 0.1), rtol=1e-5)
    assert np.exp(inputs.log_behaviour()).mean() == pytest.approx(0.5, abs=0.05)
    found = values(inputs.model(), steps, np.zeros(EPISODES, np.int64))
    first = numbers.reshape(EPISODES, LENGTH + 1)[:, 0]
    np.testing.assert_allclose(found.states[:, LENGTH - 1].mean(), 0.0, atol=0.1)
    assert np.corrcoef(found.states[:, 0], first)[0, 1] > 0.9


def test_real_numbers_are_asked_for_at_the_policys_actions():
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (EPISODES, LENGTH)).astype(np.float32)
    steps, numbers = played(actions, lambda x, a: 1.0 - (a - x) ** 2, rng)
    # It acts as it observes, which pays 1: an episode is worth 1 + .9 + ... = 4.0951 from its first step on.
    outputs = {"action": numbers.copy()}
    shown = Shown(numbers, {"action": actions.reshape(-1, 1)}, outputs, None)
    family = DeterministicSpec((-1.0,), (1.0,), "action")
    inputs = Inputs(
        target(BoxSpec((1,), (-1.0,), (1.0,)), family), shown, steps.before, np.random.default_rng(1), is_table=False
    )
    # As if the uniform actions were normal with their variance, 1 / 3.
    assert inputs.log_behaviour().mean() == pytest.approx(-0.5 * np.log(2.0 * np.pi * np.e / 3.0), abs=0.05)
    found = values(inputs.model(), steps, np.zeros(EPISODES, np.int64))
    # Observations do not tell the step: every step is worth the mean over steps of what is left.
    error = steps.rewards + steps.discounts * found_next(found, steps) - found.actions.ravel()
    assert abs(error.mean()) < 1e-3
    best = 1.0 / (1.0 - DISCOUNT * (LENGTH - 1) / LENGTH)
    assert found.states[:, 0].mean() == pytest.approx(best, abs=0.1)


def found_next(found, steps):
    return found.states[:, 1:].ravel()


def test_choices_beside_real_numbers_cannot_be_fitted():
    specs = {"action": BoxSpec((1,), (-1.0,), (1.0,)), "choice": DiscreteSpec(2)}
    policy = SimpleNamespace(
        spec=EnvSpec("World", {"observation": ArraySpec((1,), "float32")}, specs),
        distributions={"action": DeterministicSpec((-1.0,), (1.0,), "a"), "choice": CategoricalSpec(2)},
    )
    shown = Shown(np.zeros((2, 1), np.float32), {"action": np.zeros((1, 1)), "choice": np.zeros(1, np.int32)}, {}, None)
    inputs = Inputs(Target(policy, 0.0, None), shown, np.array([0]), np.random.default_rng(0), is_table=False)
    with pytest.raises(DataError, match="behaviour bc fits choices or real numbers, and these actions have both"):
        inputs.log_behaviour()
