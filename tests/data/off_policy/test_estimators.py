"""Estimators by hand, against loops that look like the papers, and against true values by dynamic programming."""

import numpy as np
import pytest

from distrl.data.off_policy import estimators
from distrl.data.off_policy.estimators import (
    Logged,
    Terms,
    Values,
    dr,
    effective_episodes,
    interval,
    ips,
    sdr,
    value,
    wis,
)
from distrl.data.off_policy.fitted_q import Table, values
from tests.data.off_policy.finite_worlds import WORLDS, steps_of

PI, B, R_HAT = np.array([0.8, 0.2]), np.array([0.5, 0.5]), np.array([0.6, 0.1])
ONE_STEP = Logged(np.array([[1.0]]), np.log([[0.8 / 0.5]]), np.array([1]), 0.9)
MODELLED = Values(np.array([[PI @ R_HAT, 0.0]]), np.array([[R_HAT[0]]]), np.zeros(1))


@pytest.mark.row("D176.1")
def test_importance_sampling_weighs_rewards_by_the_ratio_of_probabilities():
    assert value(ips(ONE_STEP)) == pytest.approx(1.6)


@pytest.mark.row("D176.2")
def test_the_direct_method_is_the_models_value_under_the_policy():
    assert value(estimators.direct(MODELLED)) == pytest.approx(0.5)


@pytest.mark.row("D176.3")
def test_doubly_robust_corrects_the_model_by_the_weighted_error():
    assert value(dr(ONE_STEP, MODELLED)) == pytest.approx(0.5 + 1.6 * (1.0 - 0.6)) == pytest.approx(1.14)


@pytest.mark.row("D176.4")
def test_sequential_doubly_robust_is_doubly_robust_at_one_step_and_recursive_at_two():
    assert value(sdr(ONE_STEP, MODELLED)) == pytest.approx(1.14)
    two = Logged(np.array([[1.0, 2.0]]), np.log([[1.6, 0.5]]), np.array([2]), 0.5)
    modelled = Values(np.array([[0.5, 0.7, 0.0]]), np.array([[0.6, 0.4]]), np.zeros(1))
    second = 0.7 + 0.5 * (2.0 - 0.4)
    assert value(sdr(two, modelled)) == pytest.approx(0.5 + 1.6 * (1.0 + 0.5 * second - 0.6))


@pytest.mark.row("D176.5")
def test_weighted_importance_sampling_divides_by_the_weights():
    logged = Logged(np.array([[1.0], [3.0]]), np.log([[2.0], [0.5]]), np.array([1, 1]), 0.9)
    assert value(wis(logged)) == pytest.approx(1.4)
    assert effective_episodes(logged) == pytest.approx(2.5**2 / (2.0**2 + 0.5**2))


@pytest.fixture(scope="module")
def ragged():
    """Episodes of 1 to 6 steps, some of them cut off."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 7, 20)
    shown = np.arange(6) < lengths[:, None]
    rewards, ratios = rng.normal(size=(20, 6)) * shown, rng.normal(size=(20, 6)) * shown
    states, actions = np.zeros((20, 7)), rng.normal(size=(20, 6)) * shown
    for row, length in enumerate(lengths):
        states[row, : length + row % 2] = rng.normal(size=length + row % 2)  # every other one was cut off
    return Logged(rewards, ratios, lengths, 0.8), Values(states, actions, np.zeros(20))


def test_estimators_equal_loops_over_episodes(ragged):
    logged, modelled = ragged
    gamma, sums = 0.8, {name: [] for name in ("ips", "weights", "weighted", "dr", "sdr")}
    for row, length in enumerate(logged.lengths):
        rho, paid, weight = np.exp(logged.log_ratios[row]), logged.rewards[row], 1.0
        per_decision = total = 0.0
        for t in range(length):
            weight *= rho[t]
            per_decision += gamma**t * weight * paid[t]
            total += gamma**t * paid[t]
        v, q = modelled.states[row], modelled.actions[row]
        robust = v[length]
        for t in reversed(range(length)):
            robust = v[t] + rho[t] * (paid[t] + gamma * robust - q[t])
        sums["ips"].append(per_decision)
        sums["weights"].append(weight)
        sums["weighted"].append(weight * total)
        sums["dr"].append(v[0] + weight * (total + gamma**length * v[length] - q[0]))
        sums["sdr"].append(robust)
    assert value(ips(logged)) == pytest.approx(np.mean(sums["ips"]))
    assert value(wis(logged)) == pytest.approx(sum(sums["weighted"]) / sum(sums["weights"]))
    assert value(dr(logged, modelled)) == pytest.approx(np.mean(sums["dr"]))
    assert value(sdr(logged, modelled)) == pytest.approx(np.mean(sums["sdr"]))


def test_an_action_that_the_policy_never_takes_has_no_weight():
    never = Logged(np.ones((2, 2)), np.array([[-np.inf, 0.0], [0.0, 0.0]]), np.array([2, 2]), 1.0)
    assert value(ips(never)) == 1.0
    assert value(wis(never)) == 2.0
    assert effective_episodes(never) == 1.0
    none = Logged(np.ones((1, 1)), np.array([[-np.inf]]), np.array([1]), 1.0)
    assert (effective_episodes(none), value(ips(none))) == (0.0, 0.0)


def test_the_interval_is_the_bootstraps(ragged):
    rng = np.random.default_rng(0)
    totals = rng.normal(2.0, 3.0, 400)
    low, high = interval(Terms(totals, np.ones(400)), np.random.default_rng(1))
    assert (low, high) == interval(Terms(totals, np.ones(400)), np.random.default_rng(1))
    error = totals.std() / 20.0  # the normal approximation holds for a mean of 400
    assert low == pytest.approx(totals.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(totals.mean() + 1.96 * error, abs=0.1 * error)
    narrow = interval(Terms(totals, np.ones(400)), np.random.default_rng(1), share=0.5)
    assert low < narrow[0] < narrow[1] < high


@pytest.mark.long
@pytest.mark.parametrize("name", WORLDS)
def test_the_true_value_is_in_the_interval(name):
    world, inside = WORLDS[name](), dict.fromkeys(("ips", "wis", "dm", "dr", "sdr", "fqe"), 0)
    for draw in range(100):
        rng = np.random.default_rng([7, draw])
        played = world.play(rng)
        steps = steps_of(played, world.discount)
        ratios = np.log(world.target[played.states, played.actions] / world.behaviour[played.states, played.actions])
        logged = Logged(steps.padded(steps.rewards), steps.padded(ratios), steps.lengths, world.discount)
        model = Table(played.observations, played.actions, world.target[played.observations])
        crossed = values(model, steps, rng.permutation(len(steps.lengths)) % 2)
        whole = values(model, steps, np.zeros_like(steps.lengths))
        estimates = {
            "ips": ips(logged),
            "wis": wis(logged),
            "dm": estimators.direct(crossed),
            "dr": dr(logged, crossed),
            "sdr": sdr(logged, crossed),
            "fqe": estimators.direct(whole),
        }
        for estimator, terms in estimates.items():
            low, high = interval(terms, rng)
            inside[estimator] += low <= world.value <= high
    print(name, inside)
    assert min(inside.values()) >= 90, inside
