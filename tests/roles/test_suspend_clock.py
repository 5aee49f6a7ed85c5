"""Time that was slept through does not count, whenever what is asked about began."""

import pytest

from distrl.roles.suspend_clock import NAP_S, NAPS, AwakeClock


@pytest.fixture
def awake(clock):
    return AwakeClock(clock)


def test_time_between_looks_counts(awake, clock):
    for _ in range(10):
        clock.now += NAP_S
        assert awake.look() == clock.now
    assert awake.age_s(0.0) == 10 * NAP_S


@pytest.mark.parametrize(
    ("since", "age_s"),
    [
        (0.0, 4.0),  # before the nap from 2 to 300
        (2.0, 2.0),
        (100.0, 2.0),  # stamped by another thread just before the nap was noticed
        (301.0, 1.0),
    ],
)
def test_a_nap_does_not_count(awake, clock, since, age_s):
    for now in (1.0, 2.0, 300.0, 302.0):
        clock.now = now
        awake.look()
    assert awake.age_s(since) == age_s


def test_the_last_naps_are_remembered(awake, clock):
    for _ in range(2 * NAPS):
        clock.now += 100.0
        awake.look()
    assert awake.age_s(NAPS * 100.0) == 0.0
    assert awake.age_s(0.0) == NAPS * 100.0
