import pytest

from distrl.metrics.counters import IntervalStatistics, LagHistogram, Waits


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_waits_are_shares_of_the_time_since_the_last_look():
    clock = Clock()
    waits = Waits(clock)
    with waits.measure("unrolls"):
        clock.now += 3
    with waits.measure("update"):
        clock.now += 1
    with waits.measure("unrolls"):
        clock.now += 2
    clock.now += 4
    assert waits.shares() == {"unrolls": 0.5, "update": 0.1}
    clock.now += 2
    with waits.measure("update"):
        clock.now += 2
    assert waits.shares() == {"unrolls": 0.0, "update": 0.5}
    assert waits.shares() == {"unrolls": 0.0, "update": 0.0}  # no time has passed


def test_a_wait_under_way_counts_up_to_now():
    clock = Clock()
    waits = Waits(clock)
    with waits.measure("unrolls"):
        clock.now += 10
        assert waits.shares() == {"unrolls": 1.0}
        clock.now += 5
    clock.now += 5
    assert waits.shares() == {"unrolls": 0.5}


def test_totals_go_on_over_looks_at_the_shares():
    clock = Clock()
    waits = Waits(clock)
    assert waits.total_s("unrolls") == 0.0
    with waits.measure("unrolls"):
        clock.now += 3
        waits.shares()
        clock.now += 2
        assert waits.total_s("unrolls") == 5.0
    clock.now += 1
    waits.shares()
    assert waits.total_s("unrolls") == 5.0


def test_a_wait_that_raises_is_counted():
    clock = Clock()
    waits = Waits(clock)

    def fail():
        with waits.measure("unrolls"):
            clock.now += 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    clock.now += 1
    assert waits.shares() == {"unrolls": 0.5}


@pytest.mark.row("D67")
def test_lag_by_hand():
    lags = LagHistogram()
    assert [*lags.snapshot().values()] == [None, None, None]
    for lag in [0] * 50 + [1] * 44 + [7] * 5 + [20]:
        lags.add(lag)
    # 94 of 100 are at most 1, 99 at most 7: the 95th is 7. Mean (44 + 35 + 20) / 100.
    assert [*lags.snapshot().values()] == [0.99, 7, 20]


def test_lag_of_exactly_95_percent():
    lags = LagHistogram()
    lags.add(2, count=95)
    lags.add(9, count=5)
    assert [*lags.snapshot().values()] == [2.35, 2, 9]


def test_lag_beyond_the_last_bucket():
    lags = LagHistogram(limit=4)
    lags.add(3)
    lags.add(100, count=3)
    assert [*lags.snapshot().values()] == [75.75, 100, 100]


def test_a_lag_from_the_future_is_refused():
    with pytest.raises(ValueError, match="a policy lag of -1 updates"):
        LagHistogram().add(-1)


@pytest.mark.row("D31")
def test_a_loss_of_1_and_3():
    statistics = IntervalStatistics()
    statistics.add({"loss": 1.0, "policy_loss": -2.0})
    statistics.add({"loss": 3.0})  # an update that leaves the policy as it is
    assert statistics.snapshot() == {
        "interval/loss/mean": 2.0,
        "interval/loss/std": 1.0,
        "interval/loss/max": 3.0,
        "interval/loss/min": 1.0,
        "interval/policy_loss/mean": -2.0,
        "interval/policy_loss/std": 0.0,
        "interval/policy_loss/max": -2.0,
        "interval/policy_loss/min": -2.0,
    }
    assert statistics.snapshot() == {}  # the next interval begins


def test_statistics_are_of_finite_values():
    statistics = IntervalStatistics()
    for loss in (1.0, float("inf"), 3.0, float("-inf"), float("nan")):
        statistics.add({"loss": loss, "kl": float("inf")})
    assert statistics.snapshot() == {
        "interval/loss/mean": 2.0,
        "interval/loss/std": 1.0,
        "interval/loss/min": 1.0,
        "interval/loss/max": 3.0,
    }
