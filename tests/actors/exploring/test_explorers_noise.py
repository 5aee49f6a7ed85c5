"""Noise on actions of real numbers: its strength, its memory, and the bounds."""

import numpy as np
import pytest
from pydantic import TypeAdapter

from distrl.actors.exploring.explorers import ActorRows, OrnsteinUhlenbeck, explorer_of
from distrl.config.exploration import ActionExploration, OrnsteinUhlenbeckParameters
from distrl.config.schedules import Progress
from distrl.networks.actions.beta import BetaSpec
from distrl.networks.actions.deterministic import DeterministicSpec
from distrl.networks.actions.gaussian import GaussianSpec
from distrl.networks.actions.squashed_gaussian import SquashedGaussianSpec
from distrl.types import BoxSpec

read = TypeAdapter(ActionExploration).validate_python

ROWS = 100_000
UNIT = BoxSpec((1,), (-1.0,), (1.0,))
UNBOUNDED = BoxSpec((1,), (None,), (None,))


def noisy(given, action=UNIT, spec=None, rows=ROWS):
    rows = rows if isinstance(rows, ActorRows) else ActorRows(0, 1, rows)
    return explorer_of(read(given), spec or GaussianSpec(action.n), action, rows)


def means(value, rows=ROWS, n=1):
    """Outputs of a Gaussian policy with this mean: [rows, 2 n]."""
    return np.concatenate([np.full((rows, n), value), np.zeros((rows, n))], axis=1).astype(np.float32)


def constant(value):
    return {"kind": "constant", "value": value}


@pytest.mark.row("D80")
def test_gaussian_noise_is_scaled_by_the_range():
    explorer = noisy({"kind": "gaussian_noise", "stddev": constant(0.1)})
    actions, log_probabilities = explorer.sample(means(0.0), np.random.default_rng(0))
    assert actions.std() == pytest.approx(0.2, rel=0.02)
    assert actions.mean() == pytest.approx(0.0, abs=0.002)
    assert (actions.dtype, actions.shape) == (np.float32, (ROWS, 1))
    assert not log_probabilities.any()


@pytest.mark.row("D80")
def test_gaussian_noise_by_default_is_a_tenth_of_the_range_for_good():
    rows = ActorRows(0, 1, 50_000)
    explorer = noisy({"kind": "gaussian_noise"}, BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0)), rows=rows)
    rows.progress = Progress(10**6)
    actions, _ = explorer.sample(means(0.5, 50_000, 2), np.random.default_rng(0))
    np.testing.assert_allclose(actions.std(axis=0), [0.4, 0.1], rtol=0.02)


@pytest.mark.row("D89")
@pytest.mark.parametrize("mean", [0.0, 0.04, 0.5, 1.0])
@pytest.mark.parametrize("stddev", [0.1, 0.4, 0.5, 3.0])
def test_truncated_noise_has_the_density_of_its_definition(mean, stddev):
    """1e5 samples against the normal density on [0, 1], scaled to one, in twenty bins."""
    action = BoxSpec((1,), (0.0,), (1.0,))
    explorer = noisy({"kind": "truncated_gaussian_noise", "stddev": constant(stddev)}, action)
    actions, log_probabilities = explorer.sample(means(mean), np.random.default_rng(0))
    assert (actions.dtype, actions.shape) == (np.float32, (ROWS, 1))
    assert not log_probabilities.any()
    assert actions.min() >= 0.0
    assert actions.max() <= 1.0
    assert np.count_nonzero((actions == 0.0) | (actions == 1.0)) <= 2  # no mass at the edges
    middles = (np.arange(2000) + 0.5) / 2000
    density = np.exp(-0.5 * ((middles - mean) / stddev) ** 2)
    expected = ROWS * density.reshape(20, 100).sum(axis=1) / density.sum()
    counts, _ = np.histogram(actions, bins=20, range=(0.0, 1.0))
    seen = expected >= 5
    statistic = ((counts - expected)[seen] ** 2 / expected[seen]).sum()
    assert statistic < 43.8  # .1 % of chi-square with 19 degrees of freedom lies beyond


@pytest.mark.row("D89")
def test_truncated_noise_is_in_units_of_the_range_and_on_a_schedule():
    rows = ActorRows(0, 1, 50_000)
    schedule = {"kind": "linear", "start": 0.02, "end": 0.01, "steps": 100, "counts": "updates"}
    explorer = noisy(
        {"kind": "truncated_gaussian_noise", "stddev": schedule}, BoxSpec((2,), (-2.0, 0.0), (2.0, 1.0)), rows=rows
    )
    rng, stddevs = np.random.default_rng(0), []
    for rows.progress in (Progress(10**6), Progress(10**6, 10**6, 100)):
        stddevs.append(explorer.sample(means(0.5, 50_000, 2), rng)[0].std(axis=0))
    np.testing.assert_allclose(stddevs, [[0.08, 0.02], [0.04, 0.01]], rtol=0.02)


@pytest.mark.row("D89")
def test_truncated_noise_around_a_policy_beyond_the_bounds_is_around_the_bound():
    explorer = noisy({"kind": "truncated_gaussian_noise"})
    actions, _ = explorer.sample(means(7.0), np.random.default_rng(0))
    assert actions.max() <= 1.0
    assert actions.mean() == pytest.approx(1.0 - 0.2 * (2 / np.pi) ** 0.5, abs=0.002)  # half a normal distribution


@pytest.mark.row("D89")
def test_truncated_noise_of_0_is_none_and_a_number_that_cannot_move_stays():
    explorer = noisy({"kind": "truncated_gaussian_noise", "stddev": constant(0.0)}, rows=3)
    assert explorer.sample(means(0.25, 3), np.random.default_rng(0))[0].tolist() == [[0.25]] * 3
    fixed = noisy({"kind": "truncated_gaussian_noise"}, BoxSpec((1,), (2.0,), (2.0,)), rows=3)
    assert fixed.sample(means(0.0, 3), np.random.default_rng(0))[0].tolist() == [[2.0]] * 3


class EndsSoon(np.random.Generator):
    """Fails at its 1,000th draw, where a loop over draws would not end."""

    draws = 0

    def standard_normal(self, *args, **named):
        self.count()
        return super().standard_normal(*args, **named)

    def random(self, *args, **named):
        self.count()
        return super().random(*args, **named)

    def count(self):
        self.draws += 1
        assert self.draws < 1000


@pytest.mark.parametrize("stddev", [0.1, 3.0])
@pytest.mark.parametrize("kind", ["gaussian_noise", "truncated_gaussian_noise"])
def test_noise_on_an_action_that_is_no_number_is_none(kind, stddev):
    """As the action is not finite, its unroll is dropped; the other rows have their noise."""
    outputs = means(0.5, 3)
    outputs[1] = np.nan
    explorer = noisy({"kind": kind, "stddev": constant(stddev)}, rows=3)
    actions, _ = explorer.sample(outputs, EndsSoon(np.random.PCG64(0)))
    assert np.isnan(actions[:, 0]).tolist() == [False, True, False]
    assert np.abs(actions[[0, 2]]).max() <= 1.0


@pytest.mark.row("K04")
def test_gaussian_noise_in_the_actions_own_unit():
    explorer = noisy({"kind": "gaussian_noise", "stddev": constant(1.0), "mean": 0.5, "unit": "action"}, UNBOUNDED)
    actions, _ = explorer.sample(means(2.0), np.random.default_rng(0))
    assert actions.mean() == pytest.approx(2.5, abs=0.02)
    assert actions.std() == pytest.approx(1.0, rel=0.02)


def test_the_strength_moves_with_what_its_schedule_counts():
    stddev = {"kind": "linear", "start": 0.1, "end": 0.02, "steps": 100, "counts": "episodes"}
    rows = ActorRows(0, 1, ROWS)
    explorer = noisy({"kind": "gaussian_noise", "stddev": stddev}, rows=rows)
    for episodes, expected in ((0, 0.2), (50, 0.12), (100, 0.04)):
        rows.progress = Progress(10**6, episodes)
        actions, _ = explorer.sample(means(0.0), np.random.default_rng(0))
        assert actions.std() == pytest.approx(expected, rel=0.02)


@pytest.mark.row("K05", "K04")
def test_constant_noise_is_the_same_all_the_time():
    explorer = noisy({"kind": "constant_noise", "value": 0.1}, rows=3)
    for mean in (0.0, -0.5):
        actions, _ = explorer.sample(means(mean, 3), np.random.default_rng(0))
        np.testing.assert_allclose(actions, mean + 0.1, rtol=1e-6)


@pytest.mark.row("H11")
@pytest.mark.parametrize(("mean", "noise", "action"), [(0.9, 0.3, 1.0), (-0.9, -0.3, -1.0), (0.5, 0.3, 0.8)])
def test_what_noise_carries_beyond_the_bounds_is_cut(mean, noise, action):
    explorer = noisy({"kind": "constant_noise", "value": noise}, rows=2)
    np.testing.assert_allclose(explorer.sample(means(mean, 2), np.random.default_rng(0))[0], action, rtol=1e-6)
    free = noisy({"kind": "constant_noise", "value": noise}, UNBOUNDED, rows=2)
    np.testing.assert_allclose(free.sample(means(mean, 2), np.random.default_rng(0))[0], mean + noise, rtol=1e-6)


def test_noise_by_a_range_beyond_float32_is_cut_to_the_bounds():
    widest = float(np.finfo(np.float32).max)
    noise = {"kind": "constant_noise", "value": 0.9, "unit": "range"}
    explorer = noisy(noise, BoxSpec((1,), (-widest,), (widest,)), rows=1)
    assert explorer.sample(means(0.0, 1), np.random.default_rng(0))[0].tolist() == [[widest]]


def test_one_bound_is_kept_where_there_is_only_one():
    explorer = noisy({"kind": "constant_noise", "value": -9.0}, BoxSpec((2,), (-1.0, None), (1.0, 2.0)), rows=1)
    assert explorer.sample(means(0.0, 1, 2), np.random.default_rng(0))[0].tolist() == [[-1.0, -9.0]]


@pytest.mark.parametrize("spec", [SquashedGaussianSpec((-1.0,), (1.0,)), BetaSpec((-1.0,), (1.0,))])
def test_noise_is_on_the_mode_and_stays_where_the_policy_could_be(spec):
    explorer = noisy({"kind": "constant_noise", "value": 5.0}, spec=spec, rows=1)
    (action,) = explorer.sample(np.zeros((1, 2), np.float32), np.random.default_rng(0))[0][0]
    assert 1.0 - 3e-6 < action < 1.0
    explorer = noisy({"kind": "constant_noise", "value": 0.25, "unit": "range"}, spec=spec, rows=1)
    actions, _ = explorer.sample(np.zeros((1, 2), np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(actions, 0.5, rtol=1e-6)  # a quarter of the range above the middle


@pytest.mark.parametrize(("noise", "action"), [(5.0, 2.0), (-5.0, -1.0), (0.25, 0.75)])
def test_noise_on_a_deterministic_action_reaches_the_bounds(noise, action):
    spec = DeterministicSpec((-1.0,), (2.0,), "deterministic_policy")
    explorer = noisy(
        {"kind": "constant_noise", "value": noise, "unit": "action"}, BoxSpec((1,), (-1.0,), (2.0,)), spec, rows=1
    )
    assert explorer.sample(np.full((1, 1), 0.5, np.float32), np.random.default_rng(0))[0].tolist() == [[action]]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({"sigma": 0.0}, 0.9985, marks=pytest.mark.row("D87")),  # theta .15, dt .01
        pytest.param({"sigma": 0.0, "dt": 1.0}, 0.85, marks=pytest.mark.row("K04", "K09")),
        pytest.param({"sigma": 0.0, "dt": 1.0, "mean": 2.0, "theta": 0.5}, 1.5, marks=pytest.mark.row("K04")),
    ],
)
def test_the_process_is_drawn_to_its_mean(parameters, expected):
    process = OrnsteinUhlenbeck(OrnsteinUhlenbeckParameters(**parameters), 3, ActorRows(0, 1, 2))
    process.state += 1.0
    np.testing.assert_allclose(process.draw(np.random.default_rng(0)), np.full((2, 3), expected), rtol=1e-12)


@pytest.mark.row("D87", "K09")
def test_the_process_is_that_of_its_equation():
    parameters = OrnsteinUhlenbeckParameters(sigma=0.3, theta=0.15, dt=0.25, mean=0.5)
    process = OrnsteinUhlenbeck(parameters, 1, ActorRows(0, 1, 2))
    rng, twin_rng, x = np.random.default_rng(7), np.random.default_rng(7), np.zeros((2, 1))
    for _ in range(20):
        x = x + 0.15 * (0.5 - x) * 0.25 + 0.3 * 0.5 * twin_rng.standard_normal((2, 1))
        np.testing.assert_allclose(process.draw(rng), x, rtol=1e-12)


def test_the_process_settles_at_its_stationary_deviation():
    """x' = (1 - a) x + s N: variance s^2 / (1 - (1 - a)^2)."""
    process = OrnsteinUhlenbeck(OrnsteinUhlenbeckParameters(sigma=0.2, dt=1.0), 1, ActorRows(0, 1, 20_000))
    rng = np.random.default_rng(0)
    for _ in range(60):
        state = process.draw(rng)
    assert state.std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), rel=0.02)


@pytest.mark.row("D87", "K09")
def test_the_process_begins_anew_with_every_episode_of_its_environment():
    rows = ActorRows(0, 1, 3)
    explorer = noisy({"kind": "ornstein_uhlenbeck", "sigma": 1.0, "dt": 1.0}, UNBOUNDED, rows=rows)
    rng, twin_rng = np.random.default_rng(0), np.random.default_rng(0)
    before = explorer.sample(means(0.0, 3), rng)[0]
    rows.episodes += (0, 1, 0)
    after = explorer.sample(means(0.0, 3), rng)[0]
    twin_rng.standard_normal((3, 1))
    fresh = twin_rng.standard_normal((3, 1))
    np.testing.assert_allclose(after, np.array([[0.85], [0.0], [0.85]]) * before + fresh, rtol=1e-5)
