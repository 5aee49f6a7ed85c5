"""The number of actors that a run wants, over hours of simulated actors and learners.

The rule of five decisions: one decision multiplies the actors by at most 3 or 1/2. So five reach the optimum from a
start at which it is at most 243 times as many and at least a 32nd.
"""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.launch.actors_wanted import FALL, RISE, Bounds, Seen, Wanted, look

LOOK_S = 4
BOUNDS = Bounds(least=1, most=1000, window_s=60.0, lower_after_s=300.0)


class Simulated:
    """Actors that take seconds to start, and a learner that `best` of them feed.

    Args:
        starts_s: Time that an actor takes to start and for its first unroll; it does not count before.
        noise: Standard deviation of both speeds from look to look, as a share.
        cores: Actors that can run at the same time.
    """

    def __init__(self, best, actors, *, starts_s=8, noise=0.0, cores=math.inf, seed=1):
        self.best, self.up, self.starts_s, self.noise, self.cores = best, actors, starts_s, noise, cores
        self._starting, self._random = [], random.Random(seed)

    def _speed(self):
        return max(1.0 + self._random.gauss(0.0, self.noise), 0.05)

    def look(self, wanted):
        """Follow the wanted number until the next look, and return what is seen of it."""
        self._starting = [left - LOOK_S for left in self._starting]
        self.up += self._starting.count(0)
        self._starting = [left for left in self._starting if left > 0]
        if wanted < self.up + len(self._starting):
            self._starting, self.up = self._starting[: max(wanted - self.up, 0)], min(self.up, wanted)
        self._starting += [self.starts_s] * (wanted - self.up - len(self._starting))
        makes, takes = min(self.up, self.cores) * self._speed(), self.best * self._speed()
        done = min(makes, takes)
        blocked = 1.0 - done / makes
        return Seen(LOOK_S, 1.0 - done / takes, blocked, blocked, self.up, steps_per_s=done)


def run(world, wanted, hours=1.0, bounds=BOUNDS):
    """Return every number of actors that was wanted, in order, and the last state."""
    state, numbers = Wanted(wanted), [wanted]
    for second in range(0, round(3600 * hours), LOOK_S):
        state = look(state, world(second, state.actors), bounds)
        if state.actors != numbers[-1]:
            numbers.append(state.actors)
    return numbers, state


def always(world):
    return lambda second, wanted: world.look(wanted)


def turns(numbers):
    """Return how often the direction of changes turns."""
    signs = [now > before for before, now in pairwise(numbers)]
    return sum(now != before for before, now in pairwise(signs))


def is_optimum(actors, best):
    """Whether the learner waits for at most a tenth, and actors for at most a fifth or none can be spared."""
    fed = 1.0 - min(actors / best, 1.0) <= 0.1 + 1e-9
    spare = 1.0 - best / actors > 0.2 + 1e-9 and 1.0 - min((actors - 1) / best, 1.0) <= 0.05
    return fed and not spare


@pytest.mark.parametrize("best", [0.4, 1, 1.3, 4, 4.4, 37, 200])
@pytest.mark.parametrize("start", [1, 2, 4, 30, 100, 600])
@pytest.mark.parametrize("starts_s", [8, 200])
def test_a_constant_learner_has_its_optimum_after_five_decisions_and_keeps_it(best, start, starts_s):
    numbers, _ = run(always(Simulated(best, start, starts_s=starts_s)), start, hours=2.0)
    assert turns(numbers) == 0
    assert is_optimum(numbers[-1], best), numbers
    reachable = start * FALL**5 <= best <= start * RISE**5
    assert len(numbers) - 1 <= 5 or not reachable, numbers


@pytest.mark.parametrize(("noise", "most"), [(0.05, 0), (0.1, 0), (0.2, 2)])
@pytest.mark.parametrize("best", [1, 4, 37, 200])
@pytest.mark.parametrize("seed", range(3))
def test_noise_takes_a_change_back_once_an_hour_at_most(noise, most, best, seed):
    """The speeds of a whole fleet over four seconds hardly vary by a tenth."""
    world = Simulated(best, 2, noise=noise, seed=seed)
    _, state = run(always(world), 2, hours=0.25)  # to the optimum
    settled, _ = run(always(world), state.actors)
    assert turns(settled) <= most, settled
    assert max(settled) <= 1.3 * min(settled) + 1, settled
    assert 0.85 * best <= settled[-1] <= 1.3 * best + 1


def test_a_learner_that_gets_slower_and_faster_is_followed():
    world, wanted = Simulated(40, 4), 4
    for best, expected in ((40, [4, 12, 33, 40]), (10, [40, 20, 10]), (40, [10, 30, 40])):
        world.best = best
        numbers, state = run(always(world), wanted, hours=0.5)
        wanted = state.actors
        assert numbers == expected


@pytest.mark.parametrize("disturbed", ["paused", "Redis did not answer for 30 s", "the learner is starting"])
@pytest.mark.parametrize("seen", [Seen(1.0, 1.0, 0.0, 0.0, 4, 9.0), Seen(1.0, 0.0, 1.0, 1.0, 4, 9.0)])
def test_nothing_changes_in_an_outage_of_an_hour_nor_for_a_window_after_it(disturbed, seen):
    odd = Seen(1.0, seen.starving, seen.blocked, disturbed=disturbed)
    numbers, state = run(lambda second, _: seen if second < 4 * 50 else odd, 4)
    assert numbers == [4]
    assert state.words == f"not measured now: {disturbed}"
    for _ in range(59):
        state = look(state, seen, BOUNDS)
        assert (state.actors, state.words) == (4, state.because)  # the 50 seconds before the outage do not count
    state = look(state, seen, BOUNDS)
    assert (state.actors, state.falling_s) == ((4, 60.0) if seen.blocked else (12, 0.0))


@pytest.mark.parametrize("best", [1, 4, 37])
@pytest.mark.parametrize("every_s", [200, 600])
def test_outages_again_and_again_do_not_move_a_run_from_its_optimum(best, every_s):
    """The first heartbeat after an outage is of the outage: the learner has had nothing."""
    world = Simulated(best, 2, noise=0.05)
    _, state = run(always(world), 2, hours=0.25)  # to the optimum

    def outages(second, wanted):
        seen = world.look(wanted)
        if second % every_s < 92:
            return replace(seen, starving=1.0, disturbed="nothing was seen of the run for 90 s")
        return replace(seen, starving=1.0, blocked=0.0, refused=0.0) if second % every_s < 96 else seen

    numbers, _ = run(outages, state.actors)
    assert numbers == [state.actors]


def test_short_disturbances_do_not_restart_the_measurement():
    """Evaluations may come every few seconds."""
    hungry, evaluates = Seen(1.0, 0.5, 0.0, 0.0, 4, 9.0), Seen(1.0, disturbed="evaluating", brief=True)
    state, changed = Wanted(4), []
    for second in range(240):
        state = look(state, hungry if second % 2 else evaluates, BOUNDS)
        changed += [second] if state.actors != 4 else []
    assert changed[0] == 119  # after 60 undisturbed seconds


def test_fewer_actors_only_if_every_judgement_was_for_fewer():
    idle, fed = Seen(60.0, 0.0, 0.6, 0.6, 10, 9.0), Seen(60.0, 0.0, 0.0, 0.0, 10, 9.0)
    state = Wanted(10)
    for seen in [*[idle] * 4, fed, *[idle] * 4]:
        state = look(state, seen, BOUNDS)
        assert state.actors == 10
    assert state.because == (
        "the learner waits 0% of its time for unrolls, actors 60% for the learner; 5 soon, if that lasts"
    )
    assert look(state, idle, BOUNDS).actors == 5


def test_the_most_cautious_of_these_judgements_counts():
    state = Wanted(10)
    for blocked in (0.6, 0.6, 0.3, 0.6, 0.6):
        state = look(state, Seen(60.0, 0.0, blocked, blocked, 10, 9.0), BOUNDS)
    assert state.actors == 7


@pytest.mark.parametrize(("cores", "start", "last"), [(1.2, 1, 1), (2.0, 1, 3), (2.0, 4, 4), (8.0, 2, 8)])
def test_actors_that_only_take_each_others_cores_are_taken_back(cores, start, last):
    numbers, state = run(always(Simulated(40, start, cores=cores)), start)
    assert numbers[-1] == last
    assert turns(numbers) == 1
    assert f"more than {last} made hardly more steps per second" in state.because
    again, _ = run(always(Simulated(40, start, cores=cores)), start, hours=1.5)
    assert turns(again) == 3  # it is tried again after an hour


def test_a_learner_that_is_slow_to_take_unrolls_gets_no_more_actors():
    """It waits, the queue is full: its own decoding is what it waits for."""
    state = look(Wanted(4), Seen(60.0, 0.6, 0.5, 0.5, 4, 9.0), BOUNDS)
    assert state.actors == 4


def test_actors_that_wait_for_tickets_are_no_obstacle():
    """Actors and learner take turns where staleness is bounded; more actors shorten the actors' turn."""
    state = look(Wanted(4), Seen(60.0, 0.6, 0.4, 0.0, 4, 9.0), BOUNDS)
    assert state.actors == 10


def test_no_more_are_wanted_while_those_that_are_have_not_come():
    state = Wanted(4)
    for _ in range(10):
        state = look(state, Seen(60.0, 0.9, 0.0, 0.0, 4, 9.0), BOUNDS)
    assert state.actors == 12  # and not 36: there may be no place for them
    assert state.because.endswith("; 4 act, 12 are recommended")
    state = look(state, Seen(60.0, 0.02, 0.1, 0.1, 4, 9.0), BOUNDS)
    assert (state.actors, state.because.partition(": ")[2]) == (4, "the 4 that act are enough")


def test_environments_that_stand_still_get_no_more_actors():
    """Such as those of a simulator on another host that is away."""
    state = look(Wanted(4), Seen(60.0, 1.0, 0.0, 0.0, 4, 0.0), BOUNDS)
    assert state.actors == 4
    assert state.because.endswith("; environments make no step")


def test_bounds_hold_at_once():
    state = look(Wanted(9), Seen(1.0, 0.0, 0.0, 0.0, 9, 9.0), Bounds(1, 4, 60.0, 300.0))
    assert (state.actors, state.words) == (4, "1 to 4 actors are allowed")
    assert look(state, Seen(1.0, disturbed="paused"), Bounds(6, 8, 60.0, 300.0)).actors == 6
    state = look(Wanted(4), Seen(60.0, 0.9, 0.0, 0.0, 4, 9.0), Bounds(1, 4, 60.0, 300.0))
    assert state.because.endswith("; more than 4 are not allowed")


shares = st.floats(0.0, 1.0)
sights = st.builds(
    Seen,
    elapsed_s=st.floats(0.1, 100.0),
    starving=shares,
    blocked=shares,
    refused=shares,
    actors=st.integers(0, 2000),
    steps_per_s=st.floats(0.0, 1e9),
    disturbed=st.sampled_from(["", "", "", "paused"]),
    brief=st.booleans(),
)


@given(st.integers(1, 50), st.integers(0, 400), st.integers(1, 500), st.lists(sights, max_size=60))
@settings(deadline=None)
def test_bounds_and_rates_hold_whatever_is_seen(least, room, start, seen_list):
    bounds = Bounds(least, least + room, 60.0, 300.0)
    state = Wanted(bounds.clamp(start))
    grown_from = state.actors
    for seen in seen_list:
        before, state = state, look(state, seen, bounds)
        assert least <= state.actors <= bounds.most
        if state.actors == before.actors:
            continue
        assert not seen.disturbed  # frozen
        window = before.window.plus(seen)
        assert window.seconds >= bounds.window_s
        present = window.mean.actors
        if state.actors > before.actors:
            assert state.actors <= max(math.ceil(RISE * round(present)), least)
            grown_from = before.actors
        else:  # at most halved, or the last rise is taken back, or so many act
            assert state.actors >= min(FALL * before.actors, grown_from, max(round(present), least))


@given(sights.filter(lambda seen: seen.disturbed), st.integers(1, 20))
def test_a_disturbed_look_changes_nothing(seen, actors):
    assert look(Wanted(actors), seen, BOUNDS).actors == actors
