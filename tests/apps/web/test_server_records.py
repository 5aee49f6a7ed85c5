import math
import statistics

import numpy as np
import pytest

from distrl.apps.web.server_records import Moments, half_of_difference, quantile_of_t


def moments(values):
    return Moments(len(values), statistics.fmean(values), sum((one - statistics.fmean(values)) ** 2 for one in values))


def test_moments_of_parts_are_those_of_the_whole():
    values = np.random.default_rng(0).normal(1e6, 3.0, 60).tolist()
    found = Moments()
    for begin, end in ((0, 1), (1, 1), (1, 20), (20, 60)):
        part = Moments()
        for value in values[begin:end]:
            part = part.plus(Moments(1, value))
        found = found.plus(part)
    assert (found.count, found.mean) == (60, pytest.approx(statistics.fmean(values)))
    assert found.m2 / 59 == pytest.approx(statistics.variance(values))


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.7764), (9, 2.2622), (30, 2.0423), (1e6, 1.96)])
def test_quantiles_of_students_t(freedom, quantile):
    assert quantile_of_t(freedom) == pytest.approx(quantile, rel=3e-3)


def test_the_interval_of_a_mean():
    assert moments([1.0, 2.0, 3.0, 4.0]).half is None
    # Mean 3, standard deviation 1.5811; 2.7764 x 1.5811 / sqrt(5)
    assert moments([1.0, 2.0, 3.0, 4.0, 5.0]).half == pytest.approx(1.9632, rel=3e-3)
    assert moments([7.0] * 5).half == 0.0


def test_the_interval_of_a_difference():
    one, other = moments([1.0, 2.0, 3.0, 4.0, 5.0]), moments([2.0, 4.0, 6.0, 8.0, 10.0])
    # Squared errors 0.5 and 2; freedom 2.5^2 / (0.25 / 4 + 4 / 4) = 5.882, of which t is 2.4585
    assert half_of_difference(one, other) == pytest.approx(2.4585 * math.sqrt(2.5), rel=3e-3)
    assert half_of_difference(one, moments([1.0] * 4)) is None
    assert half_of_difference(moments([7.0] * 5), moments([8.0] * 9)) == 0.0
