"""The rate limiter: steps are sampled exactly as often as configured."""

import pytest

from distrl.replay.rate_limiter import RateLimiter


def test_what_is_due_after_each_insertion():
    """2 samples for each step over the first 10, in batches of 8: one batch for every 4 steps."""
    limiter, due = RateLimiter(2.0, 10), []
    for _ in range(6):
        limiter.insert(5)
        batches = 0
        while limiter.may_sample(8):
            limiter.sample(8)
            batches += 1
        due.append(batches)
    # inserted 5, 10, 15, 20, 25, 30: allowed 0, 0, 10, 20, 30, 40
    assert due == [0, 0, 1, 1, 1, 2]
    assert (limiter.inserted_steps, limiter.sampled_steps, limiter.waits) == (30, 40, True)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 7.5])
def test_in_the_long_run_it_is_the_ratio(ratio):
    limiter = RateLimiter(ratio, 100)
    for _ in range(400):
        limiter.insert(32)
        while limiter.may_sample(64):
            limiter.sample(64)
    allowed = ratio * (limiter.inserted_steps - 100)
    assert allowed - 64 < limiter.sampled_steps <= allowed


@pytest.mark.row("O07")
def test_without_a_ratio_only_the_first_steps_are_waited_for():
    limiter = RateLimiter(None, 10)
    limiter.insert(9)
    assert (limiter.may_sample(1), limiter.filling, limiter.waits) == (False, True, False)
    limiter.insert(1)
    for _ in range(1000):
        assert limiter.may_sample(512)
        limiter.sample(512)


def test_progress_while_it_fills():
    limiter = RateLimiter(1.0, 1000)
    limiter.insert(400)
    assert limiter.progress == "filling the replay: 400 of 1,000"


@pytest.mark.parametrize(
    ("updates_every_4_steps", "warm_up", "updates"),
    [
        pytest.param(2, 0, 50, marks=pytest.mark.row("D24")),
        pytest.param(1, 20, 20, marks=pytest.mark.row("G08")),
    ],
)
def test_updates_of_a_hundred_steps(updates_every_4_steps, warm_up, updates):
    limiter, batch, made = RateLimiter(updates_every_4_steps * 64 / 4, warm_up), 64, 0
    for _ in range(100):
        limiter.insert(1)
        while limiter.may_sample(batch):
            limiter.sample(batch)
            made += 1
    assert made == updates
