"""A supervisor turns the heartbeats of its roles into what the decision about the number of actors needs."""

import pytest

from distrl.config import RunConfig
from distrl.launch.autoscaling import GAP_S, Autoscaling
from distrl.memory_backend.records import Control, RoleStatus

LEARNER = {"role": "learner", "id": 0, "state": "training", "waits": {"update": 0.4}, "blocked_share": 0.5}
ACTOR = {"role": "actor", "id": 0, "state": "acting", "env_steps": 256, "env_steps_per_s": 100.0}


def status(**told):
    return RoleStatus(incarnation=1, host="h", pid=1, **told)


def roles(*others, learner=None, actors=2, **actor):
    """Heartbeats of a starving learner and its actors."""
    fleet = [status(**ACTOR | {"id": number} | actor) for number in range(actors)]
    return [status(**LEARNER | (learner or {})), *fleet, *others]


class Run:
    """Looks at a run four times a second."""

    def __init__(self, count=2, **sections):
        actors = {"count": count, "max_count": 100, **sections.pop("actors", {})}
        self.now = 0.0
        self.autoscaling = Autoscaling(RunConfig.model_validate({"actors": actors, **sections}), clock=lambda: self.now)

    def looks(self, seen, seconds=60.0, control=None):
        for _ in range(round(4 * seconds)):
            self.now += 0.25
            self.autoscaling.look(control or Control(), seen)
        return self.autoscaling.wanted


def test_a_learner_that_waits_wants_more_actors_after_a_minute():
    run = Run()
    assert run.looks(roles(), 59.5) == 2
    assert run.looks(roles(), 0.5) == 4
    assert run.autoscaling.reason == "the learner waits 50% of its time for unrolls, actors 0% for the learner"
    assert not run.autoscaling.enabled


def test_actors_that_wait_for_the_learner_are_too_many_after_five_minutes():
    seen = roles(learner={"blocked_share": 0.0}, actors=10, blocked_share=0.6, waits={"waiting: room": 0.6})
    run = Run(count=10)
    assert run.looks(seen, 299.0) == 10
    assert run.looks(seen, 1.0) == 5


def test_a_learner_that_has_waited_for_long_is_seen_as_well():
    run = Run()
    run.looks(roles(), 1.0)
    waits = {"state": "waiting: unrolls", "blocked_share": 1.0}
    for second in range(60):
        run.looks(roles(learner={**waits, "last_step_age_s": float(second)}), 1.0)
    assert run.autoscaling.wanted == 6


@pytest.mark.parametrize(
    ("seen", "control"), [(roles(), Control(paused=True)), (roles()[1:], Control()), (roles(env_steps=0), Control())]
)
def test_nothing_is_measured_after_a_disturbance_until_the_learner_has_made_an_update(seen, control):
    """All actors begin an unroll at the same time, so that the learner waits for as long as one takes."""
    run = Run()
    run.looks(roles(), 30.0)
    run.looks(seen, 30.0, control)
    waits = {"state": "waiting: unrolls", "blocked_share": 1.0}
    for second in range(100):
        assert run.looks(roles(learner={**waits, "last_step_age_s": 31.0 + second}), 1.0) == 2
    assert run.autoscaling.reason.startswith("not measured now: no update has followed yet (")
    assert run.looks(roles(), 59.5) == 2
    assert run.looks(roles(), 1.0) == 4


@pytest.mark.parametrize(
    ("seen", "control", "reason"),
    [
        (roles(state="paused"), Control(paused=True), "paused"),
        (roles(), Control(stop="asked"), "stopping"),
        (roles()[1:], Control(), "no learner is up"),
        (
            roles(learner={"state": "starting: building the network"}),
            Control(),
            "the learner is starting: building the network",
        ),
        (
            roles(learner={"state": "filling the replay: 3 of 10"}),
            Control(),
            "the learner is filling the replay: 3 of 10",
        ),
        (roles(learner={"waits": {}}), Control(), "the learner has made no update yet"),
        (roles(learner={"last_step_age_s": 61.0}), Control(), "the learner has made no update for 61 s"),
        (roles(state="starting"), Control(), "no actor has finished an unroll"),
        (roles(env_steps=0), Control(), "no actor has finished an unroll"),
        (roles(actors=0), Control(), "no actor has finished an unroll"),
        (roles(status(role="evaluator", id=0, state="evaluating")), Control(), "evaluating"),
    ],
)
def test_a_run_that_does_not_train_undisturbed_decides_nothing(seen, control, reason):
    run = Run()
    assert run.looks(seen, 600.0, control) == 2
    assert run.autoscaling.reason == f"not measured now: {reason}"


def test_an_evaluator_that_waits_disturbs_nothing():
    assert Run().looks(roles(status(role="evaluator", id=0, state="waiting: weights"))) == 4


def test_time_without_a_look_counts_for_nothing():
    """Redis did not answer, or the machine slept."""
    run = Run()
    run.looks(roles(), 59.0)
    run.now += GAP_S
    assert run.looks(roles(), 59.0) == 2
    assert run.looks(roles(), 1.5) == 4


def test_actors_that_start_count_for_nothing():
    starting = status(**ACTOR | {"id": 7, "state": "waiting: policy"})
    first_unroll = status(**ACTOR | {"id": 8, "env_steps": 0})
    run = Run(count=4)
    assert run.looks(roles(starting, first_unroll)) == 4
    assert run.autoscaling.reason.endswith("; 2 act, 4 are recommended")


def test_actors_that_compute_gradients_act():
    assert Run().looks(roles(state="differentiating")) == 4


@pytest.mark.parametrize(
    ("sections", "most"),
    [
        ({}, 100),
        ({"actors": {"autoscale": {"max_count": 5}}}, 5),
        ({"algorithm": {"name": "ppo"}, "learner": {"batch_size": 7}}, 7),
        ({"algorithm": {"name": "ppo", "max_staleness_updates": 2}, "learner": {"batch_size": 7}}, 21),
        ({"launch": {"start_actors": False}, "memory": {"url": "redis://h"}}, 100),
        ({"launch": {"start_actors": False}, "memory": {"url": "redis://h"}, "actors": {"max_count": None}}, 1000),
    ],
)
def test_no_more_are_wanted_than_are_allowed_or_get_a_ticket(sections, most):
    run = Run(**sections)
    for actors in (2, 6, 18, 54, 162, 486, 1458):
        run.looks(roles(actors=actors, env_steps_per_s=100.0))
    assert run.autoscaling.wanted == most


def test_rounds_fix_the_number_of_actors():
    run = Run(algorithm={"name": "a2c"})
    run.autoscaling.obey(Control(autoscale=True), 2)
    assert (run.looks(roles(), 600.0), run.autoscaling.enabled) == (None, False)
    assert run.autoscaling.reason == "a2c makes each update of one gradient of every actor"


def test_operators_switch_it_on_within_bounds_and_off():
    run = Run(actors={"autoscale": {"enabled": True}})
    run.autoscaling.obey(Control(), 2)
    assert run.autoscaling.enabled
    run.autoscaling.obey(Control(autoscale=False), 2)
    assert not run.autoscaling.enabled
    run.autoscaling.obey(Control(autoscale=True, min_actors=4, max_actors=8), 9)
    assert (run.looks([], 0.25), run.autoscaling.enabled) == (8, True)
    run.autoscaling.obey(Control(autoscale=True, min_actors=9, max_actors=0), 8)
    assert run.looks([], 0.25) == 9
    run.autoscaling.obey(Control(), 9)  # Redis has lost the request
    assert (run.looks([], 0.25), run.autoscaling.enabled) == (9, True)


def test_a_number_that_an_operator_has_chosen_is_measured_anew():
    run = Run()
    run.looks(roles(), 59.0)
    run.autoscaling.restart(3)
    assert run.looks(roles(actors=3), 59.0) == 3
    assert run.looks(roles(actors=3), 1.0) == 6
