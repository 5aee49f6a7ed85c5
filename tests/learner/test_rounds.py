"""Rounds are over when all actors have answered, or at the time-out; a dead actor costs one time-out."""

import logging
from types import SimpleNamespace

import pytest

from distrl.errors import NonFiniteError
from distrl.learner.rounds import Rounds, names
from distrl.memory_backend.records import Control
from distrl.types import UnrollHeader


@pytest.fixture
def world():
    """Rounds of three workers with a time-out of ten seconds, a clock, and what operators ask."""
    made = SimpleNamespace(now=100.0, control=Control(), asked=0)

    def control():
        made.asked += 1
        return made.control

    made.rounds = Rounds(3, control, 10.0, clock=lambda: made.now)
    return made


def gradient(actor, version=1, incarnation=1):
    return UnrollHeader(actor, incarnation, 0, version, 1)


def take(world, *actors, version=1):
    for actor in actors:
        assert world.rounds.takes(gradient(actor, version))
        world.rounds.taken(gradient(actor, version))


def pass_without(world, version, *actors):
    """A round that ends by the time-out."""
    world.rounds.begin(version)
    take(world, *actors, version=version)
    assert not world.rounds.is_over()
    world.now += 10.0
    assert world.rounds.is_over()


def test_a_round_is_over_when_everybody_has_answered(world):
    world.rounds.begin(1)
    assert not world.rounds.is_over()
    world.now += 1000.0  # before the first gradient nothing runs out
    assert not world.rounds.is_over()
    take(world, 2, 0)
    assert not world.rounds.is_over()
    assert world.rounds.missing == [1]
    take(world, 1)
    assert world.rounds.is_over()
    assert world.rounds.missing == []
    world.rounds.begin(2)
    assert not world.rounds.is_over()
    assert world.rounds.missing == [0, 1, 2]


@pytest.mark.row("B11", "T03")
def test_a_round_goes_on_after_the_time_out_and_says_without_whom(world, caplog):
    world.rounds.begin(7)
    take(world, 1, version=7)
    world.now += 9.9
    assert not world.rounds.is_over()
    world.now += 0.1
    with caplog.at_level(logging.WARNING):
        assert world.rounds.is_over()
    assert caplog.messages == [
        "the round of version 7 goes on without actor 0, actor 2: no gradient within 10 s (learner.sync_timeout_s)"
    ]
    assert world.rounds.missing == [0, 2]


def test_a_dead_worker_costs_one_time_out_and_is_waited_for_again_once_it_is_heard_of(world, caplog):
    pass_without(world, 1, 0, 2)
    world.rounds.begin(2)
    take(world, 0, 2, version=2)
    assert world.rounds.is_over()  # at once
    assert world.rounds.missing == [1]
    world.rounds.begin(3)
    take(world, 0, version=3)
    with caplog.at_level(logging.INFO):
        assert world.rounds.takes(gradient(1, version=2, incarnation=2))  # too late for its own round
    assert "actor 1 is back: rounds wait for it again" in caplog.messages
    take(world, 2, version=3)
    assert not world.rounds.is_over()
    take(world, 1, version=3)
    assert world.rounds.is_over()


def test_everybody_contributes_once(world):
    world.rounds.begin(4)
    take(world, 1, version=4)
    assert not world.rounds.takes(gradient(1, version=4, incarnation=2))
    assert world.rounds.takes(gradient(1, version=3))  # whose age is another's to judge
    world.rounds.begin(5)
    assert world.rounds.takes(gradient(1, version=5, incarnation=2))


def test_who_is_refused_has_answered(world, caplog):
    world.rounds.begin(3)
    take(world, 0, 1, version=3)
    world.rounds.refused(gradient(2, version=3), "nonfinite")
    with caplog.at_level(logging.WARNING):
        assert world.rounds.is_over()
    assert caplog.messages == ["the round of version 3 goes on without actor 2: nonfinite"]
    assert world.rounds.missing == [2]
    world.rounds.begin(4)
    take(world, 0, 1, version=4)
    assert not world.rounds.is_over()  # it lives, and is waited for


def test_a_round_in_which_nothing_can_be_used_is_an_error(world):
    world.rounds.begin(3)
    world.rounds.refused(gradient(0), "nonfinite")
    world.rounds.refused(gradient(1), "schema")
    assert not world.rounds.is_over()
    world.now += 10.0
    with pytest.raises(NonFiniteError, match="no gradient of version 3 could be used: nonfinite, schema"):
        world.rounds.is_over()


def test_those_that_are_added_are_waited_for_from_their_first_gradient_on(world):
    world.rounds.begin(1)
    take(world, 0)
    world.control = Control(target_actors=4)
    assert not world.rounds.is_over()
    take(world, 1, 2)
    assert world.rounds.is_over()
    assert world.rounds.missing == [3]
    world.rounds.begin(2)
    take(world, 0, 1, 2, 3, version=2)
    assert world.rounds.is_over()
    world.rounds.begin(3)
    take(world, 0, 1, 2, version=3)
    assert not world.rounds.is_over()


def test_an_actor_that_joins_is_waited_for_until_it_misses_a_round(world, caplog):
    world.rounds.begin(1)
    take(world, 0, 1, 10_000, 2)
    assert world.rounds.is_over()
    world.rounds.begin(2)
    take(world, 0, 1, 2, version=2)
    assert not world.rounds.is_over()
    assert world.rounds.missing == [10_000]
    world.now += 10.0
    with caplog.at_level(logging.WARNING):
        assert world.rounds.is_over()  # it has left
    assert "goes on without actor 10000: no gradient within 10 s" in caplog.messages[0]
    assert world.rounds.missing == []
    world.rounds.begin(3)
    take(world, 0, 1, 2, version=3)
    assert world.rounds.is_over()


@pytest.mark.parametrize("target", [None, 2])
def test_where_all_actors_join_rounds_wait_for_those_that_have_been_heard_of(target):
    now = [100.0]
    rounds = Rounds(0, lambda: Control(target_actors=target), 10.0, clock=lambda: now[0])
    world = SimpleNamespace(rounds=rounds)
    rounds.begin(1)
    assert not rounds.is_over()
    take(world, 10_000)
    assert rounds.is_over()
    rounds.begin(2)
    assert rounds.takes(gradient(10_001, version=1))  # too old for this round, but it has joined
    take(world, 10_000, version=2)
    assert rounds.missing == [10_001]
    assert not rounds.is_over()
    take(world, 10_001, version=2)
    assert rounds.is_over()


def test_those_that_are_retired_are_not_waited_for(world):
    world.rounds.begin(1)
    take(world, 0)
    assert not world.rounds.is_over()
    world.control = Control(target_actors=1)
    assert not world.rounds.is_over()  # asked twice a second, not after every gradient
    assert world.asked == 1
    world.now += 0.5
    assert world.rounds.is_over()
    assert world.rounds.missing == []
    take(world, 2)  # its last one, which was under way
    world.rounds.begin(2)
    take(world, 0, version=2)
    assert world.rounds.is_over()


def test_a_pause_is_nobodys_fault(world):
    world.rounds.begin(1)
    take(world, 0)
    world.control = Control(paused=True)
    for _ in range(30):
        world.now += 1.0
        assert not world.rounds.is_over()
    world.control = Control()
    world.now += 9.0
    assert not world.rounds.is_over()
    world.now += 1.0
    assert world.rounds.is_over()
    assert world.rounds.missing == [1, 2]


def test_names():
    assert names([1, 3]) == "actor 1, actor 3"


def test_who_joins_a_lone_worker_is_waited_for_although_no_round_ever_waited(world):
    rounds = Rounds(1, world.rounds._control, 10.0, clock=lambda: world.now)
    rounds.begin(1)
    rounds.taken(gradient(0))
    assert rounds.is_over()
    world.control = Control(target_actors=2)
    rounds.begin(2)
    assert rounds.takes(gradient(1, version=1))  # too late for its round, but heard of
    rounds.taken(gradient(0, version=2))
    assert not rounds.is_over()
    rounds.taken(gradient(1, version=2))
    assert rounds.is_over()
    assert rounds.missing == []
