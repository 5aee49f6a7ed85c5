import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.apps.reports.curves import Curve, band, curve, smoothed, thinned
from distrl.errors import ConfigError

VALUES = st.lists(st.floats(-1e6, 1e6), max_size=40)


def floats(*values):
    return np.array(values, np.float64)


def table(**columns):
    return {name: floats(*values) for name, values in columns.items()}


METRICS = table(
    env_steps=[10, 20, 30], updates=[1, 2, 3], episodes=[5, 6, 6], wall_s=[0.5, 1.0, 1.5], loss=[3, np.nan, 1]
)


@pytest.mark.row("P13")
@pytest.mark.parametrize(
    ("over", "x"), [("steps", [10, 30]), ("updates", [1, 3]), ("episodes", [5, 6]), ("time", [0.5, 1.5])]
)
def test_another_x_axis_has_the_same_values(over, x):
    points = curve(METRICS, "loss", over)
    assert (list(points.x), list(points.y)) == (x, [3, 1])


def test_a_band_of_medians():
    lines = [Curve(np.array([0.0, 1.0]), np.array([y, 2 * y])) for y in (1.0, 2.0, 9.0)]
    found = band(lines, "median")
    assert (found.centre.tolist(), found.low.tolist(), found.high.tolist()) == ([2.0, 4.0], [1.0, 2.0], [9.0, 18.0])


def test_a_metric_that_is_none_names_the_nearest():
    with pytest.raises(ConfigError, match="no metric is named 'los'; did you mean loss"):
        curve(METRICS, "los")


@pytest.mark.row("P10")
def test_a_moving_average_begins_with_the_first_value_itself():
    assert list(smoothed(floats(1, 2, 3, 4), 2)) == [1, 1.5, 2.5, 3.5]


@given(values=VALUES, window=st.integers(1, 101))
def test_a_moving_average_is_the_mean_of_the_last_values(values, window):
    expected = [np.mean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]
    np.testing.assert_allclose(smoothed(floats(*values), window), expected, atol=1e-6)


def test_what_is_thinned_keeps_its_ends_and_its_extremes():
    y = np.zeros(10_000)
    y[1234], y[7000] = 9.0, -9.0
    points = thinned(Curve(np.arange(10_000.0), y), 100)
    assert len(points.x) <= 100
    assert (points.x[0], points.x[-1], points.y.max(), points.y.min()) == (0.0, 9999.0, 9.0, -9.0)
    assert points.y[list(points.x).index(1234.0)] == 9.0
    assert (np.diff(points.x) > 0).all()


@given(values=VALUES, most=st.integers(4, 30))
def test_thinned_curves_are_some_of_their_points(values, most):
    given_points = Curve(np.arange(float(len(values))), floats(*values))
    points = thinned(given_points, most)
    assert len(points.x) <= most
    assert all(given_points.y[int(x)] == y for x, y in zip(*points, strict=True))
    if values:
        assert (points.y.max(), points.y.min()) == (max(values), min(values))


@pytest.mark.row("P11")
def test_the_mean_of_seeds_and_one_deviation_around_it():
    x, centre, low, high = band([Curve(floats(0, 1), floats(1, 3)), Curve(floats(0, 1), floats(3, 5))])
    assert [list(each) for each in (x, centre, low, high)] == [[0, 1], [2, 4], [1, 3], [3, 5]]


def test_the_middle_half_of_seeds_and_the_quartiles_around_it():
    seeds = [Curve(floats(0), floats(value)) for value in (1.0, 2.0, 3.0, 100.0)]
    _, centre, low, high = band(seeds, "iqm")
    assert (list(centre), list(low), list(high)) == ([2.5], [1.75], [27.25])


def test_the_middle_half_of_seeds_and_its_interval():
    """Each of 27 resamples is more than 2.5 %: one has the least score alone, and one the greatest."""
    _, centre, low, high = band([Curve(floats(0), floats(value)) for value in (1.0, 2.0, 6.0)], "interval")
    assert (list(centre), list(low), list(high)) == ([2.5], [1.0], [6.0])


def test_seeds_are_compared_where_all_of_them_are_known_on_the_lines_between_their_points():
    found = band([Curve(floats(0, 10), floats(0, 10)), Curve(floats(4, 6, 20), floats(0, 2, 16))])
    assert list(found.x) == [4, 6, 10]
    np.testing.assert_allclose(found.centre, [2, 4, 8])


def test_seeds_that_share_no_x_make_no_band():
    assert len(band([Curve(floats(0, 1), floats(0, 1)), Curve(floats(5, 6), floats(0, 1))]).x) == 0


def test_a_band_has_no_more_points_than_asked_for():
    x = np.arange(1000.0)
    found = band([Curve(x, x), Curve(x + 0.5, x)], points=50)
    assert (len(found.x), found.x[0], found.x[-1]) == (50, 0.5, 999.0)
