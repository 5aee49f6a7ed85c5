"""Fitted values against loops, and against what an estimate does when episodes are left out."""

import numpy as np
import pytest

from distrl.data.episodes import DataError
from distrl.data.off_policy.fitted_q import Linear, Steps, Table, values
from tests.data.off_policy.finite_worlds import WORLDS, steps_of


@pytest.fixture(scope="module")
def chain():
    """A world, its steps, and a model of them."""
    world = WORLDS["chain"]()
    played = world.play(np.random.default_rng(0))
    return world, played, steps_of(played, world.discount)


def table(world, played):
    return Table(played.observations, played.actions, world.target[played.observations])


def everything(steps):
    return np.ones(len(steps.rewards), np.bool_)


def test_a_table_is_the_fixed_point_of_the_mean_over_transitions(chain):
    world, played, steps = chain
    q = np.zeros_like(world.target)
    follows = played.observations[steps.before + 1]
    for _ in range(400):
        targets = steps.rewards + steps.discounts * (world.target * q).sum(axis=1)[follows]
        for state, action in np.ndindex(*q.shape):
            here = (played.states == state) & (played.actions == action)
            if here.any():
                q[state, action] = targets[here].mean()
    fit = table(world, played).fit(steps, everything(steps))
    np.testing.assert_allclose(fit.actions, q[played.states, played.actions], atol=1e-8)
    np.testing.assert_allclose(fit.states, (world.target * q).sum(axis=1)[played.observations], atol=1e-8)


def test_an_action_that_no_step_took_is_worth_what_the_others_are():
    # One step from state 0 to the end, by action 0 alone.
    steps = Steps(np.array([3.0]), np.array([0.0]), np.array([0]), np.array([1]))
    model = Table(np.array([0, 1]), np.array([0]), np.array([[0.25, 0.75], [0.5, 0.5]]))
    assert model.fit(steps, np.ones(1, np.bool_)).states.tolist() == [3.0, 0.0]
    left_out = model.fit(steps, np.zeros(1, np.bool_))
    assert (left_out.actions.tolist(), left_out.states.tolist()) == ([0.0], [0.0, 0.0])


def test_a_linear_model_of_one_hot_features_is_the_table(chain, monkeypatch):
    monkeypatch.setattr("distrl.data.off_policy.fitted_q.RIDGES", (1e-9,))
    world, played, steps = chain
    count, choices = world.target.shape
    pairs = np.eye(count * choices, dtype=np.float32)
    taken = pairs[played.states * choices + played.actions]
    shares = np.zeros((count, count * choices), np.float32)
    for state, action in np.ndindex(count, choices):
        shares[state, state * choices + action] = world.target[state, action]
    linear = Linear(taken, shares[played.observations])
    whole = np.zeros_like(steps.lengths)
    one, other = values(linear, steps, whole), values(table(world, played), steps, whole)
    for name in ("states", "actions", "influences"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)  # float32


def test_influences_are_how_the_estimate_changes_without_an_episode(chain):
    world, played, steps = chain
    model, count = table(world, played), len(steps.lengths)
    found = values(model, steps, np.zeros_like(steps.lengths))
    first = steps.first
    for left_out in range(0, count, 60):
        without = model.fit(steps, steps.episodes != left_out).states[first].mean()
        change = without - found.states[:, 0].mean()
        assert change == pytest.approx(
            -found.influences[left_out] / count, abs=0.1 * np.abs(found.influences).max() / count
        )
    assert found.influences.sum() == pytest.approx(0.0, abs=1e-6)


def test_values_of_a_fold_come_from_the_others(chain):
    world, played, steps = chain
    folds = np.arange(len(steps.lengths)) % 2
    found = values(table(world, played), steps, folds)
    for fold in (0, 1):
        own = folds == fold
        alone = table(world, played).fit(steps, ~own[steps.episodes])
        np.testing.assert_array_equal(found.actions[own], steps.padded(alone.actions)[own])
    ends = found.states[np.arange(len(folds)), steps.lengths]
    assert not ends[played.terminated].any()


def test_steps_that_never_end_have_no_fixed_point_without_a_discount():
    steps = Steps(np.ones(2), np.ones(2), np.zeros(2, np.int64), np.array([2]))
    model = Table(np.array([0, 1, 0]), np.zeros(2, np.int64), np.ones((3, 1)))
    with pytest.raises(DataError, match=r"no fixed point at discount 1: .*set a lower discount, or choose ips, wis"):
        model.fit(steps, everything(steps))
    linear = Linear(np.eye(2, dtype=np.float32), np.array([[1, 0], [0, 2], [1, 0]], np.float32))
    with pytest.raises(DataError, match="no fixed point at discount 1"):
        linear.fit(steps, everything(steps))
