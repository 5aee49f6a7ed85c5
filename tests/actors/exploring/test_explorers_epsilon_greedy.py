"""Epsilon-greedy choices: frequencies, ties, exact log-probabilities, and where epsilon comes from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.actors.exploring.explorers import ActorRows, epsilon_of, explorer_of, ladder, uniform_of
from distrl.config.exploration import EpsilonByEpisode, EpsilonGreedyParameters, EpsilonLadder
from distrl.config.schedules import ConstantSchedule, LinearSchedule, Progress
from distrl.networks.actions.bernoulli import BernoulliSpec
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.categorical import CategoricalSpec, MultiCategoricalSpec
from distrl.networks.actions.family import MASKED
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.networks.actions.values import MultiValuesSpec, ValuesSpec
from distrl.types import BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec

ROWS = 100_000
CHI_SQUARE_3 = 16.27
"""Quantile of chi-square with 3 degrees of freedom, exceeded by chance once in a thousand."""
LOW, HIGH = (-2.0, 0.5), (2.0, 3.5)
BOX = BoxSpec((2,), LOW, HIGH)
KINDS = {
    "turn": (DiscreteSpec(3), CategoricalSpec(3), 1 / 3),
    "best": (DiscreteSpec(4), ValuesSpec(4, "q/q"), 1 / 4),
    "bests": (MultiDiscreteSpec((2, 4), (0, 0)), MultiValuesSpec((2, 4), "q/q"), 1 / 8),
    "gears": (MultiDiscreteSpec((2, 4), (0, 0)), MultiCategoricalSpec((2, 4)), 1 / 8),
    "switches": (MultiBinarySpec((3,)), BernoulliSpec(3), 1 / 8),
    "force": (BOX, GaussianSpec(2), 1 / 12),
    "arm": (BOX, SquashedGaussianSpec(LOW, HIGH), 1 / 12),
    "valve": (BOX, BetaSpec(LOW, HIGH), 1 / 12),
}


MANY = ActorRows(0, 1, ROWS)


def explorer(epsilon, name="best", rows=MANY):
    action, spec, _ = KINDS[name]
    if isinstance(epsilon, float):
        epsilon = ConstantSchedule(value=epsilon)
    return explorer_of(EpsilonGreedyParameters(epsilon=epsilon), spec, action, rows)


def sample(explorer, parameters, rows=ROWS, seed=0):
    given = np.tile(np.array(parameters, np.float32), (rows, 1))
    return explorer.sample(given, np.random.default_rng(seed))


def chi_square(actions, probabilities):
    expected = np.array(probabilities) * len(actions)
    return (np.square(np.bincount(actions, minlength=len(expected)) - expected) / expected).sum()


@pytest.mark.row("D85", "H11")
def test_epsilon_of_one_is_uniform():
    actions, log_probabilities = sample(explorer(1.0), [1, 2, 3, 4])
    assert chi_square(actions, [0.25] * 4) < CHI_SQUARE_3
    np.testing.assert_allclose(log_probabilities, np.log(0.25), rtol=1e-6)


def test_values_are_as_low_as_they_like():
    actions, log_probabilities = sample(explorer(0.5), [-3e30, -2e30, -1e30, -2e30])
    expected = np.array([0.125, 0.125, 0.625, 0.125])
    assert chi_square(actions, expected) < CHI_SQUARE_3
    np.testing.assert_allclose(log_probabilities, np.log(expected)[actions], rtol=1e-6)


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, [0.5, 0.0, 0.5, 0.0]), (0.4, [0.8, 0.0, 0.2, 0.0])])
def test_a_forbidden_choice_is_never_explored(epsilon, expected):
    given = explorer_of(
        EpsilonGreedyParameters(epsilon=ConstantSchedule(value=epsilon)),
        ValuesSpec(4, "q/q", masked=True),
        DiscreteSpec(4),
        MANY,
    )
    actions, log_probabilities = sample(given, [3.0, 9.0 - MASKED, 1.0, 7.0 - MASKED])
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / ROWS, expected, atol=0.006)
    np.testing.assert_allclose(log_probabilities, np.log(np.array(expected)[actions]), rtol=1e-5)
    uniform, _ = sample(uniform_of(DiscreteSpec(4), ValuesSpec(4, "q/q", masked=True)), [3.0, -MASKED, 1.0, -MASKED])
    np.testing.assert_allclose(np.bincount(uniform, minlength=4) / ROWS, [0.5, 0.0, 0.5, 0.0], atol=0.006)


@pytest.mark.row("D85", "D86")
def test_epsilon_of_zero_takes_the_best_and_splits_ties_evenly():
    actions, log_probabilities = sample(explorer(0.0), [1, 3, 2, 0])
    assert set(actions) == {1}
    assert set(log_probabilities) == {0.0}
    actions, log_probabilities = sample(explorer(0.0), [5, 1, 5, 5])
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / ROWS, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.005)
    np.testing.assert_allclose(log_probabilities, np.log(1 / 3), rtol=1e-6)


@pytest.mark.row("D85")
def test_a_mixture_of_tied_values_and_chance():
    actions, log_probabilities = sample(explorer(0.5), [5, 1, 2, 5])
    expected = np.array([0.375, 0.125, 0.125, 0.375])
    assert chi_square(actions, expected) < CHI_SQUARE_3
    np.testing.assert_allclose(log_probabilities, np.log(expected)[actions], rtol=1e-6)


@pytest.mark.row("K02", "H11")
def test_every_environment_tosses_for_itself():
    """Half of 100,000 explore, and of these three quarters take another choice than the best."""
    actions, _ = sample(explorer(0.5), [0, 0, 0, 1])
    other = actions != 3
    assert other.sum() / 0.75 == pytest.approx(50_000, rel=0.01)
    assert abs(np.corrcoef(other[:-1], other[1:])[0, 1]) < 0.02
    assert explorer(0.5).sample(np.zeros((3, 4), np.float32), np.random.default_rng(0))[0].shape == (3,)


@pytest.mark.row("K02")
def test_all_numbers_of_one_action_explore_together():
    """With probability 1/2 both are the policy's; independent tosses would leave that to a quarter."""
    actions, _ = sample(explorer(0.5, "gears"), [99, 0, 99, 0, 0, 0])
    assert (actions == 0).all(axis=1).mean() == pytest.approx(0.5 + 0.5 / 8, abs=0.005)


def test_a_mixture_of_a_policy_and_chance():
    actions, log_probabilities = sample(explorer(0.3, "turn"), np.log([0.2, 0.7, 0.1]))
    expected = 0.7 * np.array([0.2, 0.7, 0.1]) + 0.3 / 3
    np.testing.assert_allclose(np.bincount(actions) / ROWS, expected, atol=0.005)
    np.testing.assert_allclose(log_probabilities, np.log(expected)[actions], rtol=1e-5)


def test_chance_is_among_what_is_allowed():
    actions, log_probabilities = sample(explorer(0.5, "turn"), [0.0, -MASKED, 0.0])
    assert set(actions) == {0, 2}
    np.testing.assert_allclose(log_probabilities, np.log(0.5), rtol=1e-5)


def twin(name, parameters, actions, epsilon):
    """log((1 - eps) p + eps u), in float64, one row at a time."""
    action, spec, uniform = KINDS[name]
    found = []
    for row, chosen in zip(parameters, actions, strict=True):
        if name == "best":
            own = float(chosen in np.flatnonzero(row == row.max())) / (row == row.max()).sum()
        else:
            own = np.exp(float(spec.sampler().log_probability(row[None], chosen[None])[0]))
        inside = not isinstance(action, BoxSpec) or ((chosen >= LOW) & (chosen <= HIGH)).all()
        found.append(np.log((1 - epsilon) * own + epsilon * uniform * inside))
    return np.array(found)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("epsilon", [0.05, 0.6])
def test_log_probabilities_of_the_mixture_are_exact(name, epsilon):
    rows, spec = 300, KINDS[name][1]
    parameters = np.random.default_rng(1).normal(size=(rows, spec.parameters_size)).astype(np.float32)
    chooser = explorer(epsilon, name)
    actions, log_probabilities = chooser.sample(parameters, np.random.default_rng(2))
    assert log_probabilities.dtype == np.float32
    np.testing.assert_allclose(log_probabilities, twin(name, parameters, actions, epsilon), rtol=3e-4, atol=3e-5)


@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=4, max_size=4), min_size=1, max_size=9),
    st.integers(0, 99),
)
def test_only_the_best_values_are_taken_and_their_probabilities_add_up(rows, seed):
    values = np.array(rows, np.float32)
    chooser = explorer(0.0)
    actions, log_probabilities = chooser.sample(values, np.random.default_rng(seed))
    assert (values[np.arange(len(values)), actions] == values.max(axis=1)).all()
    probabilities = chooser.probabilities(values, np.float32(0.0))
    np.testing.assert_allclose(probabilities.sum(axis=0), 1.0, rtol=1e-6)
    expected = np.log(probabilities[actions, np.arange(len(values))])
    np.testing.assert_allclose(log_probabilities, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.row("D85")
def test_epsilon_moves_with_environment_steps_and_begins_anew():
    rows, rng = ActorRows(0, 1, 2), np.random.default_rng(0)
    epsilon = epsilon_of(LinearSchedule(start=0.5, end=0.01, steps=50_000), rows)
    for env_steps, expected in ((0, 0.5), (25_000, 0.255), (50_000, 0.01), (60_000, 0.01)):
        rows.progress = Progress(env_steps)
        assert epsilon(rng) == pytest.approx(expected)
    rows.reset()
    assert epsilon(rng) == pytest.approx(0.5)


LADDER = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]


@pytest.mark.row("K11")
@pytest.mark.parametrize("actors", [1, 2, 4, 8])
def test_every_environment_stands_on_a_step_of_one_ladder(actors):
    each = 8 // actors
    steps = [ladder(EpsilonLadder(), ActorRows(actor, actors, each)) for actor in range(actors)]
    np.testing.assert_allclose(np.concatenate(steps), LADDER, rtol=1e-12)


@pytest.mark.row("K11")
def test_every_actor_stands_on_a_step():
    parameters = EpsilonLadder(over="actors")
    assert [float(ladder(parameters, ActorRows(actor, 8, 64))) for actor in range(8)] == pytest.approx(LADDER)
    # Actors that came in addition are the least random ones.
    joined = [float(ladder(parameters, ActorRows(actor, 8, 64))) for actor in range(10_000, 10_008)]
    assert sorted(joined, reverse=True) == pytest.approx(LADDER)


@pytest.mark.row("K11", "T15")
def test_one_alone_is_no_division_by_zero():
    with np.errstate(all="raise"):
        assert ladder(EpsilonLadder(), ActorRows(0, 1, 1)).tolist() == [0.4]
        assert float(ladder(EpsilonLadder(over="actors"), ActorRows(0, 1, 64))) == 0.4


def test_environments_explore_as_often_as_their_step_says():
    rows, rng = ActorRows(0, 1, 4), np.random.default_rng(0)
    epsilon = epsilon_of(EpsilonLadder(exponent=1.0), rows)(rng)
    assert epsilon == pytest.approx([0.4 ** (1 + i / 3) for i in range(4)])
    chooser = explorer(EpsilonLadder(exponent=1.0), rows=rows)
    values = np.tile(np.array([0, 0, 0, 1], np.float32), (4, 1))
    others = np.mean([chooser.sample(values, rng)[0] != 3 for _ in range(5000)], axis=0)
    np.testing.assert_allclose(others, 0.75 * epsilon, atol=0.02)
    actions, log_probabilities = chooser.sample(values, rng)
    expected = np.where(actions == 3, 1 - 0.75 * epsilon, 0.25 * epsilon)
    np.testing.assert_allclose(log_probabilities, np.log(expected), rtol=1e-5)


@pytest.mark.row("K08", "T22")
def test_epsilon_by_episode_is_random_below_one_in_so_many_episodes():
    rows, rng = ActorRows(0, 1, 2), np.random.default_rng(0)
    rows.episodes += (4, 0)
    epsilon = epsilon_of(EpsilonByEpisode(), rows)
    fourth, first = np.array([epsilon(rng) for _ in range(2000)]).T
    assert 0.0 <= fourth.min() < 0.01
    assert 0.19 < fourth.max() < 0.2
    assert fourth.mean() == pytest.approx(0.1, rel=0.05)
    assert first.max() > 0.95
    rows.reset()
    drawn = np.array([epsilon(rng) for _ in range(500)])
    assert 0.9 < drawn[:, 0].max() < 1.0
