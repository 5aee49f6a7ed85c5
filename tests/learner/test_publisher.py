"""Publisher: finite weights, versions that only grow, and as many tickets as staleness allows."""

import threading

import numpy as np
import pytest

from distrl.config.schedules import Progress
from distrl.errors import FencedError, NonFiniteError
from distrl.learner.publisher import Publisher, StalenessBound
from distrl.memory_backend.codec import decode_weights

KERNEL = {"main/policy/kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture
def publisher(run):
    """Makes the publisher of a learner that has just taken over."""

    def make(k=None, batch_size=3):
        bound = k if isinstance(k, StalenessBound) else StalenessBound(k)
        run.learner = run.backend.become_learner()
        return Publisher(run.learner, batch_size, bound)

    return make


@pytest.mark.row("D62")
def test_actors_fetch_exactly_what_was_published(run, publisher):
    given = {**KERNEL, "main/steps": np.array([3], np.int64)}
    publisher().publish(given, version=4, progress=Progress(120))
    version, blob, _ = run.backend.weights.fetch()
    weights = decode_weights(blob)
    assert (version, weights.version, list(weights.arrays)) == (4, 4, list(given))
    for name, array in given.items():
        np.testing.assert_array_equal(weights.arrays[name], array)
        assert weights.arrays[name].dtype == array.dtype


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_unpublished(run, publisher, value):
    made = publisher()
    made.publish(KERNEL, version=1, progress=Progress())
    broken = {"main/policy/kernel": KERNEL["main/policy/kernel"].copy()}
    broken["main/policy/kernel"][1, 2] = value
    with pytest.raises(NonFiniteError, match="main/policy/kernel of version 2 are not finite") as raised:
        made.publish(broken, version=2, progress=Progress())
    assert raised.value.exit_code == 5
    assert run.backend.weights.version() == 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_only_grow(run, publisher, version):
    made = publisher()
    made.publish(KERNEL, version=3, progress=Progress())
    with pytest.raises(ValueError, match=f"{version} is not above the published version 3"):
        made.publish(KERNEL, version=version, progress=Progress())
    made.publish(KERNEL, version=7, progress=Progress())
    assert run.backend.weights.version() == 7


def test_an_old_learner_publishes_nothing(run, publisher):
    old = publisher(k=0)
    publisher()
    with pytest.raises(FencedError):
        old.publish(KERNEL, version=1, progress=Progress())
    with pytest.raises(FencedError):
        old.issue_tickets()
    assert (run.backend.weights.version(), run.backend.tickets.counts()) == (0, (0, 0))


@pytest.mark.parametrize(("k", "first", "after_one_update"), [(None, 0, 0), (0, 3, 6), (1, 6, 9), (4, 15, 18)])
def test_tickets_for_k_plus_1_batches_and_then_one_batch_per_update(run, publisher, k, first, after_one_update):
    made = publisher(k)
    made.issue_first_tickets()
    assert run.backend.tickets.counts() == (first, 0)
    made.issue_tickets()
    assert run.backend.tickets.counts() == (after_one_update, 0)


@pytest.mark.parametrize(
    ("before", "after", "issued"),
    [
        (1, 1, [3, 3, 3]),
        (1, 3, [9, 3, 3]),  # two batches ahead more, and from then on one per update
        (3, 1, [0, 0, 3]),  # two fewer: two updates bring none
        (2, 0, [0, 0, 3]),
        (0, 1, [6, 3, 3]),
    ],
)
def test_tickets_follow_a_bound_that_changes(run, publisher, before, after, issued):
    bound = StalenessBound(before)
    made = publisher(bound)
    made.issue_first_tickets()
    count = (before + 1) * 3
    bound.updates = after
    for more in issued:
        made.issue_tickets()
        count += more
        assert run.backend.tickets.counts() == (count, 0)
    # As many as would be there if it had always been so, once as many updates have used theirs.
    assert count - 3 * len(issued) == (after + 1) * 3


@pytest.mark.parametrize(
    ("free", "held", "queued", "in_flight", "issued"),
    [
        (0, 0, 0, 0, 6),
        (2, 0, 0, 0, 4),
        (1, 1, 1, 1, 2),
        (6, 0, 0, 0, 0),
        (0, 2, 2, 2, 0),
        (3, 2, 1, 4, 0),  # more than needed: never fewer than none
    ],
)
def test_after_a_restart_only_the_missing_ones(run, publisher, free, held, queued, in_flight, issued):
    for sequence in range(in_flight + queued):
        run.push(0, sequence)
    run.backend.unrolls.take(in_flight, 0.0)
    run.learner.tickets.issue(free + held)
    for actor in range(held):
        run.backend.tickets.take((actor % 3, 1), 0.0)
    publisher(k=1).issue_first_tickets()
    assert run.backend.tickets.counts() == (free + issued, held)


def test_a_restart_after_the_bound_came_down_uses_up_what_is_too_much(run, publisher):
    bound = StalenessBound(8)
    publisher(bound).issue_first_tickets()
    assert run.backend.tickets.counts() == (27, 0)
    bound = StalenessBound(1)  # as a restarted learner is told
    made = publisher(bound)
    made.issue_first_tickets()
    for _ in range(10):
        for _ in range(3):  # an update uses up a batch's
            run.backend.tickets.take((0, 1), 0.0)
            run.backend.engine.call("DEL", run.backend._run.keys.held((0, 1)))
        made.issue_tickets()
    assert run.backend.tickets.counts() == (6, 0)


def test_tickets_that_move_while_they_are_counted_are_counted_once(run, publisher, monkeypatch):
    """An actor that pushes between the two reads would be counted as holding a ticket and as having used it."""
    run.learner.tickets.issue(3)
    for actor in range(3):
        run.backend.tickets.take((actor, 1), 0.0)
    pushes = iter(range(3))
    made = publisher(k=0)
    tickets = run.learner.tickets
    count = tickets.counts

    def count_and_push():
        counts = count()
        for actor in pushes:
            run.push(actor, 0)
            break
        return counts

    monkeypatch.setattr(tickets, "counts", count_and_push)
    made.issue_first_tickets()
    assert (count(), run.ledger.queued) == ((0, 0), 3)


def test_concurrent_actors_do_not_change_the_total(run, publisher):
    """Three actors take and push as fast as they can while a new learner counts."""
    run.learner.tickets.issue(300)

    def act(actor):
        sequence = 0
        while run.backend.tickets.take((actor, 1), 0.0):
            run.push(actor, sequence)
            sequence += 1

    actors = [threading.Thread(target=act, args=(actor,)) for actor in range(3)]
    for thread in actors:
        thread.start()
    publisher(k=1, batch_size=200).issue_first_tickets()
    for thread in actors:
        thread.join(20.0)
    free, held = run.backend.tickets.counts()
    assert free + held + run.ledger.queued == 400
