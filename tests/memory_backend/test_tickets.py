"""tickets: every ticket is in exactly one hand, whatever dies; on every backend."""

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.errors import FencedError
from distrl.types import UnrollHeader


def register(backend):
    """Register the actors that take tickets here, 0 twice."""
    for actor in (0, 0, 1, 2, 3, 4):
        backend.registry.register_actor(actor)


@pytest.fixture
def backend(run):
    register(run.backend)
    return run.backend


def test_a_ticket_moves_from_the_box_to_the_producer_and_is_used_up_by_the_push(backend):
    backend.become_learner().tickets.issue(2)
    assert backend.tickets.counts() == (2, 0)
    assert backend.tickets.take((0, 1), 0.0)
    assert backend.tickets.counts() == (1, 1)
    backend.unrolls.push(UnrollHeader(0, 1, 0, 1, 64), b"x")
    assert backend.tickets.counts() == (1, 0)
    assert backend.tickets.take((1, 1), 0.0)
    assert not backend.tickets.take((0, 1), 0.0)
    assert backend.tickets.counts() == (0, 1)


def test_a_push_uses_up_only_its_own_producers_ticket(backend):
    backend.become_learner().tickets.issue(2)
    assert backend.tickets.take((0, 1), 0.0)
    assert backend.tickets.take((0, 2), 0.0)
    backend.unrolls.push(UnrollHeader(0, 2, 0, 1, 64), b"x")
    assert backend.tickets.counts() == (0, 1)
    assert backend.tickets.reclaim((0, 1)) == 1


def test_the_ticket_of_a_dead_producer_comes_back(backend):
    backend.become_learner().tickets.issue(1)
    assert backend.tickets.take((3, 1), 0.0)
    assert not backend.tickets.take((4, 1), 0.01)
    assert backend.tickets.reclaim((3, 1)) == 1
    assert backend.tickets.reclaim((3, 1)) == 0
    assert backend.tickets.take((4, 1), 0.0)
    assert backend.tickets.counts() == (0, 1)


def test_take_waits_for_a_ticket(run):
    actor, learner = run.backend, run.connect()
    learner = learner.become_learner()
    timer = threading.Timer(0.05, lambda: learner.tickets.issue(1))
    timer.start()
    assert actor.tickets.take((0, 1), 30.0)
    timer.join()


def test_an_old_fence_issues_nothing(backend):
    old, _new = backend.become_learner(), backend.become_learner()
    with pytest.raises(FencedError):
        old.tickets.issue(5)
    assert backend.tickets.counts() == (0, 0)


def test_issuing_none_is_allowed(backend):
    backend.become_learner().tickets.issue(0)
    assert backend.tickets.counts() == (0, 0)


action = st.tuples(st.sampled_from(["issue", "take", "push", "reclaim"]), st.integers(0, 2))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(action, max_size=25))
def test_tickets_are_neither_lost_nor_made(run, actions):
    backend = run.backend
    backend.delete()
    backend.create("{}")
    register(backend)
    learner = backend.become_learner()
    free, held = 0, [0, 0, 0]
    for verb, actor in actions:
        if verb == "issue":
            learner.tickets.issue(2)
            free += 2
        elif verb == "take":
            assert backend.tickets.take((actor, 1), 0.0) == (free > 0)
            moved = min(free, 1)
            free, held[actor] = free - moved, held[actor] + moved
        elif verb == "push":
            backend.unrolls.push(UnrollHeader(actor, 1, 0, 0, 1), b"x")
            held[actor] = 0
        else:
            assert backend.tickets.reclaim((actor, 1)) == held[actor]
            free, held[actor] = free + held[actor], 0
        assert backend.tickets.counts() == (free, sum(held))


@pytest.mark.parametrize(("free", "held", "queued", "after"), [(1, 1, 1, (2, 1)), (4, 1, 1, (2, 1)), (0, 3, 3, (0, 3))])
def test_a_recount_issues_what_is_missing_and_withdraws_what_is_too_much(backend, free, held, queued, after):
    learner = backend.become_learner()
    producer = (0, backend.registry.register_actor(0))
    learner.tickets.issue(free + held)
    for _ in range(held):
        assert backend.tickets.take(producer, 0.0)
    for sequence in range(queued):
        backend.unrolls.push(UnrollHeader(9, 1, sequence, 0, 1), b"x")
    learner.tickets.recount(4, forget_held=False)
    assert backend.tickets.counts() == after


def test_a_recount_may_forget_who_holds_a_ticket(backend):
    learner = backend.become_learner()
    producer = (0, backend.registry.register_actor(0))
    learner.tickets.issue(3)
    assert backend.tickets.take(producer, 0.0)
    learner.tickets.recount(3, forget_held=True)
    assert backend.tickets.counts() == (3, 0)
