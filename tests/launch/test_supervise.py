"""One loop decides what becomes of a run: roles that end, hang, are too few or too many, and a learner that stalls."""

import pytest

from distrl.errors import MemoryBackendError
from distrl.launch import places, scaling, supervise
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.records import AWAITS_EVALUATION, RoleStatus
from distrl.metrics.phrases import COMPILING, READING
from distrl.roles.plan import Role
from distrl.roles.suspend_clock import AwakeClock
from distrl.types import UnrollHeader
from tests.forging import add_to_ledger

LEARNER, ACTOR, EVALUATOR = Role("learner"), Role("actor"), Role("evaluator")


def nothing():
    """A line of a script in which nothing happens."""


@pytest.fixture
def passes(clock, monkeypatch):
    """A line of a script: two seconds pass. The supervisor takes a longer step for its own sleep."""
    monkeypatch.setattr(supervise, "AwakeClock", lambda: AwakeClock(clock))

    def line():
        clock.now += 2.0

    return line


def test_the_learners_own_stop_ends_the_run_in_its_own_time(world):
    asked = []
    outcome = world.run(
        world.asks(stop="mean_return"),
        lambda: asked.extend(list(handle.asked) for handle in world.launcher.started),
        world.dies(LEARNER, 0),
    )
    assert (outcome.exit_code, outcome.stop_reason, outcome.error) == (0, "mean_return", None)
    assert asked == [[], []]  # a learner that is saving is not asked again
    assert world.launcher.of(ACTOR)[0].asked == ["terminate"]
    assert world.view.events == []


@pytest.mark.parametrize(("code", "name"), [(130, "Ctrl-C"), (0, "SIGTERM")])
def test_signals_end_the_run_through_the_registry(world, code, name):
    def press():
        world.interrupt.code, world.interrupt.name = code, name

    outcome = world.run(press)
    assert (outcome.exit_code, outcome.stop_reason) == (code, name)
    assert world.backend.registry.control().stop == name
    assert [(handle.role, handle.asked) for handle in world.launcher.started] == [
        (LEARNER, ["terminate"]),
        (ACTOR, ["terminate"]),
    ]


def test_an_operators_stop_ends_the_run(world):
    outcome = world.run(world.asks(stop="asked"))
    assert (outcome.exit_code, outcome.stop_reason) == (0, "asked")


@pytest.mark.parametrize("how", ["asked", "Ctrl-C"])
def test_stopping_is_a_failure_if_the_learner_could_not_save(world, how):
    def the_disk_is_full():
        learner = world.launcher.of(LEARNER)[0]
        learner.ends_with, learner.error = 1, "unexpected OSError: No space left on device"
        if how == "asked":
            world.backend.registry.set_control(stop=how)
        else:
            world.interrupt.code, world.interrupt.name = 130, how

    outcome = world.run(the_disk_is_full, nothing)
    assert (outcome.exit_code, outcome.stop_reason) == (1, how)
    assert outcome.error == "learner did not end cleanly: unexpected OSError: No space left on device"


def test_a_learner_that_reached_its_goal_and_could_not_save_is_not_started_again(world):
    def the_disk_is_full():
        """Also for the learner's log, which holds an older error."""
        world.backend.registry.add_snapshot(
            {"updates": 9, "env_steps": 9, "wall_s": 9, "stop_reason": "updates", "unsaved": "update 9 is in /tmp/x"}
        )
        world.backend.registry.set_control(stop="updates")
        world.dies(LEARNER, 1, "old trouble")()

    outcome = world.run(the_disk_is_full, nothing)
    assert (outcome.exit_code, outcome.stop_reason) == (1, "updates")
    assert outcome.error == "learner: update 9 is in /tmp/x"
    assert len(world.launcher.of(LEARNER)) == 1


def test_a_learner_that_had_to_be_killed_saved_nothing(world, monkeypatch):
    monkeypatch.setattr(supervise, "LEARNER_GRACE_S", 0.05)

    def deaf():
        world.launcher.of(LEARNER)[0].obeys = False
        world.backend.registry.set_control(stop="asked")

    outcome = world.run(world.beats(LEARNER, state="training"), deaf, nothing)
    assert (outcome.exit_code, outcome.error) == (1, "learner did not end cleanly: killed after 0.05 s")


def test_a_learner_whose_log_is_gone_is_told_of_by_its_exit_code(world):
    def breaks():
        world.launcher.of(LEARNER)[0].ends_with = 1
        world.backend.registry.set_control(stop="asked")

    outcome = world.run(breaks, nothing)
    assert outcome.error == "learner did not end cleanly: exit code 1, and no error in its log"


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("state", ["starting: importing the framework", f"{COMPILING}, 25 s"])
@pytest.mark.parametrize(("code", "name"), [(130, "Ctrl-C"), (0, "SIGTERM")])
def test_a_learner_that_starts_or_compiles_is_ended_at_once_and_that_is_no_error(
    world, monkeypatch, obeys, again, state, code, name
):
    """It has nothing to save, and neither an import nor a compiler can be interrupted."""
    monkeypatch.setattr(supervise, "STARTING_GRACE_S", 0.0)
    monkeypatch.setattr(supervise, "LEARNER_GRACE_S", 1e6)

    def press():
        learner = world.launcher.of(LEARNER)[-1]
        learner.obeys, learner.ends_with = obeys, -15  # an interpreter that has no handler yet
        world.interrupt.code, world.interrupt.name = code, name

    trained = (world.beats(LEARNER, state="training", incarnation=4), world.dies(LEARNER, -9), nothing)
    incarnation = 5 if state.startswith(COMPILING) else 0
    starts = world.beats(LEARNER, state=state, incarnation=incarnation)
    outcome = world.run(*(trained if again else ()), starts, press)
    assert (outcome.exit_code, outcome.stop_reason, outcome.error) == (code, name, None)
    assert world.launcher.of(LEARNER)[-1].asked == (["terminate"] if obeys else ["terminate", "kill"])


@pytest.mark.parametrize("again", [False, True])
def test_a_learner_of_which_nothing_has_been_heard_is_starting(world, monkeypatch, again):
    monkeypatch.setattr(supervise, "STARTING_GRACE_S", 0.0)
    monkeypatch.setattr(supervise, "LEARNER_GRACE_S", 1e6)

    def stop():
        world.launcher.of(LEARNER)[-1].obeys = False
        world.backend.registry.set_control(stop="asked")

    trained = (world.beats(LEARNER, state="training", incarnation=4), world.dies(LEARNER, -9), nothing)
    outcome = world.run(*(trained if again else ()), stop, nothing)
    assert (outcome.exit_code, outcome.error) == (0, None)


def test_a_learner_that_another_kills_while_it_saves_had_no_30_s(world):
    """The kernel kills it for want of memory, or an operator does."""

    def dies():
        world.launcher.of(LEARNER)[0].ends_with = -9
        world.backend.registry.set_control(stop="asked")

    outcome = world.run(world.beats(LEARNER, state="training"), dies, nothing)
    assert (outcome.exit_code, outcome.error) == (1, "learner did not end cleanly: signal 9")


@pytest.mark.parametrize("before", [(), (f"{COMPILING}, 25 s",)])
def test_a_learner_that_begins_to_train_while_it_is_asked_to_end_has_time_to_save(world, monkeypatch, before):
    monkeypatch.setattr(supervise, "STARTING_GRACE_S", 0.0)
    monkeypatch.setattr(supervise, "LEARNER_GRACE_S", 0.05)

    def press():
        learner = world.launcher.of(LEARNER)[0]
        learner.obeys = False
        monkeypatch.setattr(learner, "terminate", world.beats(LEARNER, state="training"))
        world.interrupt.code, world.interrupt.name = 0, "SIGTERM"

    outcome = world.run(*(world.beats(LEARNER, state=state) for state in before), press)
    assert outcome.error == "learner did not end cleanly: killed after 0.05 s"


def test_a_learner_that_begins_to_compile_while_it_is_asked_to_end_has_nothing_to_save(world, monkeypatch):
    monkeypatch.setattr(supervise, "LEARNER_GRACE_S", 0.05)

    def press():
        learner = world.launcher.of(LEARNER)[0]
        learner.obeys = False
        monkeypatch.setattr(learner, "terminate", world.beats(LEARNER, state=f"{COMPILING}, 1 s"))
        world.interrupt.code, world.interrupt.name = 0, "SIGTERM"

    outcome = world.run(world.beats(LEARNER, state="training"), press)
    assert (outcome.exit_code, outcome.error) == (0, None)


def test_an_actor_joined_by_hand_that_falls_silent_is_forgotten_and_gives_its_ticket_back(world):
    guest = Role("actor", 7)
    world.backend.become_learner().tickets.issue(1)
    assert world.backend.tickets.take((7, 1), 0.0)
    outcome = world.run(
        world.beats(guest, last_step_age_s=1.0),
        nothing,
        world.beats(guest, last_step_age_s=61.0, beat=2),
        nothing,
        world.asks(stop="asked"),
        nothing,
    )
    assert outcome.exit_code == 0
    assert world.backend.tickets.counts() == (1, 0)
    assert [status.id for status in world.backend.registry.roles()] == []
    assert world.view.events[0] == "actor 7, joined by hand, has been silent for 61 s: forgotten"


@pytest.mark.row("O09")
def test_a_dead_actor_is_replaced_and_its_ticket_goes_back(world):
    world.backend.become_learner().tickets.issue(1)
    assert world.backend.tickets.take((0, 1), 0.0)
    counts = []
    outcome = world.run(
        world.beats(),
        world.dies(ACTOR, -9),
        nothing,
        lambda: counts.append(world.backend.tickets.counts()),
        world.asks(stop="asked"),
    )
    assert outcome.exit_code == 0
    assert counts == [(1, 0)]
    assert [handle.code for handle in world.launcher.of(ACTOR)] == [-9, 0]
    assert world.view.events == [
        "actor 0 ended (signal 9); starting again in 0.0 s",
        "actor 0 started again (restart 1)",
        "stopping: asked",
    ]


def test_an_actor_that_ends_while_the_run_stops_is_not_replaced(world):
    outcome = world.run(world.asks(stop="updates"), world.dies(ACTOR, 0), nothing, world.dies(LEARNER, 0))
    assert outcome.stop_reason == "updates"
    assert len(world.launcher.of(ACTOR)) == 1


def test_an_environment_that_keeps_raising_ends_the_run_with_3_and_its_words(world):
    boom = "environment X failed in step: ValueError: boom"
    outcome = world.run(world.dies(ACTOR, 3, boom), nothing, world.dies(ACTOR, 3, boom), actors={"restart_budget": 1})
    assert (outcome.exit_code, outcome.stop_reason) == (3, "restart budget spent")
    assert outcome.error == (
        "actor 0 ended more often than actors.restart_budget 1 allows (exit code 3: environment X failed in step: "
        "ValueError: boom)"
    )
    assert len(world.launcher.of(ACTOR)) == 2


def test_a_role_that_keeps_crashing_ends_the_run_with_1(world):
    outcome = world.run(world.dies(LEARNER, 1, "unexpected KeyError: 'x'"), actors={"restart_budget": 0})
    assert (outcome.exit_code, outcome.stop_reason) == (1, "restart budget spent")
    assert "exit code 1: unexpected KeyError: 'x'" in outcome.error


def test_an_error_that_comes_again_and_again_while_nothing_is_learned_ends_the_run_with_it(world):
    dies = world.dies(LEARNER, 1, "unexpected KeyError: 'x'")
    outcome = world.run(dies, nothing, dies, nothing, dies, nothing, dies)
    assert (outcome.exit_code, outcome.stop_reason) == (1, "keeps failing")
    assert outcome.error == "learner failed 4 times in the same way: unexpected KeyError: 'x'"
    assert len(world.launcher.of(LEARNER)) == 4


def test_an_environment_error_that_comes_again_and_again_while_nothing_is_produced_ends_the_run_with_3(world):
    """Its numbers, such as that of the step, differ."""
    dies = [world.dies(ACTOR, 3, f"environment X failed in step: a reward is nan, at step {n}") for n in (7, 9, 12, 7)]
    outcome = world.run(dies[0], nothing, dies[1], nothing, dies[2], nothing, dies[3])
    assert (outcome.exit_code, outcome.stop_reason) == (3, "keeps failing")
    assert outcome.error == (
        "actor 0 failed 4 times in the same way: environment X failed in step: a reward is nan, at step 7"
    )
    assert len(world.launcher.of(ACTOR)) == 4


def test_an_environment_that_has_worked_may_be_away_for_a_while(world):
    """Such as a simulator on another host: `actors.restart_budget` decides."""

    def push():
        world.backend.registry.register_actor(0)
        world.backend.unrolls.push(UnrollHeader(0, 1, 0, 1, 8), b"")

    dies = world.dies(ACTOR, 3, "environment X failed in step: away")
    outcome = world.run(push, nothing, *[dies, nothing] * 5, world.asks(stop="asked"))
    assert (outcome.exit_code, outcome.stop_reason) == (0, "asked")
    assert len(world.launcher.of(ACTOR)) == 6


@pytest.mark.parametrize("between", ["learned", "another error", "a signal"])
def test_errors_in_between_which_something_happens_are_within_the_budget(world, between):
    dies = world.dies(LEARNER, 1, "unexpected KeyError: 'x'")
    second = {
        "learned": dies,
        "another error": world.dies(LEARNER, 1, "unexpected OSError: y"),
        "a signal": world.dies(LEARNER, -9),
    }[between]

    def trains():
        add_to_ledger(world.backend, {"produced": 1, "trained": 1})

    happens = trains if between == "learned" else nothing
    first_two = [dies, nothing, second, happens, nothing]
    outcome = world.run(*first_two, *[dies, nothing] * 3, world.asks(stop="asked"))
    assert (outcome.exit_code, outcome.stop_reason) == (0, "asked")
    assert len(world.launcher.of(LEARNER)) == 6


def test_a_signal_is_not_explained_by_an_older_error(world):
    world.run(world.dies(ACTOR, 1, "old trouble"), nothing, world.dies(ACTOR, -11), nothing, world.asks(stop="asked"))
    assert "actor 0 ended (exit code 1: old trouble); starting again in 0.0 s" in world.view.events
    assert "actor 0 ended (signal 11); starting again in 0.0 s" in world.view.events


@pytest.mark.parametrize(("code", "reason"), [(2, "configuration"), (5, "non-finite training"), (6, "memory backend")])
def test_what_no_restart_can_mend_ends_the_run_at_once(world, code, reason):
    outcome = world.run(world.dies(LEARNER, code, "what happened"))
    assert (outcome.exit_code, outcome.stop_reason, outcome.error) == (code, reason, "learner: what happened")
    assert len(world.launcher.of(LEARNER)) == 1
    assert world.launcher.of(ACTOR)[0].asked == ["terminate"]


def test_an_actor_that_cannot_reach_redis_is_started_again_while_the_supervisor_can(world):
    outcome = world.run(
        world.beats(), world.dies(ACTOR, 6, "Redis is unreachable for 60 s"), nothing, world.asks(stop="asked")
    )
    assert outcome.exit_code == 0
    assert [handle.code for handle in world.launcher.of(ACTOR)] == [6, 0]
    assert world.view.events[:2] == [
        "actor 0 ended (exit code 6: Redis is unreachable for 60 s); starting again in 0.0 s",
        "actor 0 started again (restart 1)",
    ]


def test_one_actor_that_does_not_reach_redis_for_long_ends_no_run_that_goes_on(world):
    def others_produce():
        world.backend.engine.call("HINCRBY", world.backend._run.keys.ledger, "produced", 1)

    once = [world.dies(ACTOR, 6, "Redis is unreachable for 3 s"), others_produce]
    outcome = world.run(*once * 8, world.asks(stop="asked"), actors={"restart_budget": 3})
    assert (outcome.exit_code, outcome.stop_reason) == (0, "asked")
    assert len(world.launcher.of(ACTOR)) == 9


@pytest.mark.parametrize(("budget", "starts"), [(0, 1), (20, 4)])
def test_an_actor_that_can_never_reach_redis_ends_the_run_with_6(world, budget, starts):
    dies = world.dies(ACTOR, 6, "the run's key is gone")
    script = [dies, nothing] * (starts - 1)
    outcome = world.run(*script, dies, nothing, actors={"restart_budget": budget})
    assert (outcome.exit_code, len(world.launcher.of(ACTOR))) == (6, starts)
    assert "the run's key is gone" in outcome.error


def test_a_role_without_a_place_is_shown_so_and_not_as_acting(world, monkeypatch):
    monkeypatch.setattr(places, "PATIENCE_S", 0.0)
    shown = []

    def no_place():
        world.launcher.of(ACTOR)[-1].waits_for = "1 CPU"

    def look():
        shown.append({status.state for status in world.backend.registry.roles() if status.role == "actor"})

    def nowhere():
        world.launcher.of(ACTOR)[-1].waits_for = "1 CPU, which no node has"

    def finds_place():
        world.launcher.of(ACTOR)[-1].waits_for = None

    begin = (world.beats(), world.dies(ACTOR, -9), nothing, no_place)
    outcome = world.run(
        *begin,
        nothing,
        look,
        nowhere,
        nothing,
        finds_place,
        nothing,
        world.beats(incarnation=2),
        world.asks(stop="asked"),
    )
    assert outcome.exit_code == 0
    assert shown == [{"waiting: place, needs 1 CPU"}]
    lacks = [event for event in world.view.events if event.startswith("no place for actor 0: needs 1 CPU")]
    remedy = "; add nodes, or distrl scale takes fewer"
    assert lacks == [f"no place for actor 0: needs 1 CPU{where}{remedy}" for where in ("", ", which no node has")]
    assert "actor 0 waits for a place no longer" in world.view.events


def test_actors_wait_until_the_learner_has_its_place_and_make_room_for_it(world, monkeypatch):
    monkeypatch.setattr(places, "PATIENCE_S", 0.0)
    up = []

    def actors_up():
        return [handle.role.id for handle in world.launcher.started if handle.role != LEARNER and handle.code is None]

    def no_place():
        world.launcher.of(LEARNER)[-1].waits_for = "2 CPU"

    def look():
        up.append(actors_up())

    def finds_place():
        world.launcher.of(LEARNER)[-1].waits_for = None

    outcome = world.run(
        nothing,
        world.dies(LEARNER, -9),
        no_place,  # the learner is started again
        look,  # and an actor has made room
        finds_place,
        nothing,
        nothing,
        look,
        world.asks(stop="asked"),
        actors={"count": 2},
    )
    assert outcome.exit_code == 0
    assert up == [[0], [0, 1]]
    assert "no place for learner: needs 2 CPU; add nodes, or lower learner.threads" in world.view.events
    assert "actor 1 ended (signal 9: it makes room for the learner); starting again in 0.0 s" in world.view.events


def test_a_redis_that_is_gone_ends_the_run_with_6(world, monkeypatch):
    def gone():
        def control():
            raise MemoryBackendError("Redis at unix:///x is unreachable for 5 s (gone); check that it runs and the URL")

        monkeypatch.setattr(world.backend.registry, "control", control)

    outcome = world.run(gone)
    assert (outcome.exit_code, outcome.stop_reason) == (6, "memory backend")
    assert outcome.error.startswith("Redis at unix:///x is unreachable")
    assert all(handle.asked == ["terminate"] for handle in world.launcher.started)


def test_a_hung_actor_is_killed_and_its_successor_has_all_the_time_it_needs(world):
    outcome = world.run(
        world.beats(last_step_age_s=59.0),
        nothing,
        world.beats(last_step_age_s=61.0, beat=2),
        nothing,
        nothing,
        nothing,  # the successor has not beaten yet: the old heartbeat, which is still there, is not its own
        world.beats(incarnation=2, last_step_age_s=0.1),
        world.asks(stop="asked"),
    )
    assert outcome.exit_code == 0
    assert [handle.asked for handle in world.launcher.of(ACTOR)] == [["kill"], ["terminate"]]
    assert world.view.events[0] == (
        "actor 0 ended (signal 9: no environment step for 61 s (environment.step_timeout_s)); starting again in 0.0 s"
    )


def test_an_environment_that_keeps_hanging_ends_the_run_with_3(world):
    hangs = world.beats(last_step_age_s=100.0)
    outcome = world.run(hangs, nothing, nothing, actors={"restart_budget": 0})
    assert (outcome.exit_code, outcome.stop_reason) == (3, "restart budget spent")
    assert "no environment step for 100 s" in outcome.error


def test_an_inference_server_that_keeps_hanging_is_no_failure_of_the_environment(world):
    hangs = world.beats(Role("inference"), state="serving", last_step_age_s=100.0)
    outcome = world.run(hangs, nothing, nothing, actors={"restart_budget": 0, "inference": "host"})
    assert (outcome.exit_code, outcome.stop_reason) == (1, "restart budget spent")
    assert outcome.error == (
        "inference 0 ended more often than actors.restart_budget 0 allows "
        "(signal 9: no answer for 100 s (environment.step_timeout_s))"
    )


def test_an_actor_that_waits_is_not_hung_however_long(world):
    outcome = world.run(
        world.beats(state="paused", last_step_age_s=1e6),
        nothing,
        world.beats(state="waiting: room", last_step_age_s=1e6, beat=2),
        nothing,
        world.asks(stop="asked"),
    )
    assert outcome.exit_code == 0
    assert world.launcher.of(ACTOR)[0].asked == ["terminate"]


def test_scaling_adds_after_the_highest_id_and_retires_the_highest(world):
    present, wanted = [], []

    def look():
        present.append([handle.role.id for handle in world.launcher.started if handle.code is None][1:])
        wanted.append(world.view.wanted)

    outcome = world.run(
        world.beats(Role("actor", 1)),
        world.asks(target_actors=4),
        nothing,
        look,
        world.asks(target_actors=1),
        look,
        look,
        world.asks(target_actors=2),
        nothing,
        look,
        look,
        world.asks(stop="asked"),
        actors={"count": 2},
    )
    assert outcome.exit_code == 0
    assert present == [[0, 1, 2, 3], [0], [0], [0, 1], [0, 1]]
    assert wanted == [4, 1, 1, 2, 2]  # which the view shows beside the number that is up
    assert [event for event in world.view.events if "scaled" in event] == [
        "scaled from 2 to 4 actors",
        "scaled from 4 to 1 actors",
        "scaled from 1 to 2 actors",
    ]
    # A retired actor's heartbeat is gone with it.
    assert world.backend.registry.roles() == []


def autoscaled(**changes):
    """Settings of a run that judges at every look."""
    return {"count": 1, "autoscale": {"enabled": True, "window_s": 1e-9, "lower_after_s": 0.0, **changes}}


def starving(world, share=0.5, **actor):
    """A line of a script: a learner and its actors report how long they wait for each other."""

    def beat():
        world.beats(LEARNER, state="training", blocked_share=share, waits={"update": 0.1})()
        for handle in world.launcher.started:
            if handle.role.kind == "actor" and handle.code is None:
                told = {"env_steps": 256, "env_steps_per_s": 100.0, **actor}
                world.beats(handle.role, **told)()

    return beat


def test_a_run_follows_the_number_of_actors_that_it_wants(world):
    present, told = [], []

    def look():
        present.append(sum(handle.code is None for handle in world.launcher.started) - 1)
        told.append(world.backend.registry.supervisor())

    outcome = world.run(
        starving(world),
        nothing,
        look,
        starving(world, 0.0, blocked_share=0.5),
        nothing,
        look,
        world.asks(stop="asked"),
        actors=autoscaled(),
    )
    assert outcome.exit_code == 0
    assert present == [2, 1]
    assert [(one.actors, one.autoscales, one.actors_wanted) for one in told] == [(2, True, 2), (1, True, 1)]
    assert told[0].wanted_because == "the learner waits 50% of its time for unrolls, actors 0% for the learner"
    assert world.view.events == [
        f"2 actors wanted: {told[0].wanted_because}",
        "scaled from 1 to 2 actors",
        f"1 actor wanted: {told[1].wanted_because}",
        "scaled from 2 to 1 actors",
        "stopping: asked",
    ]


def test_autoscaling_begins_within_its_bounds(world):
    world.run(nothing, nothing, world.asks(stop="asked"), actors=autoscaled(min_count=3))
    assert world.view.events[:2] == ["3 actors wanted: 3 to 8 actors are allowed", "scaled from 1 to 3 actors"]


def test_an_operators_number_of_actors_ends_autoscaling(world):
    outcome = world.run(
        starving(world),
        world.asks(target_actors=1, autoscale=False),
        *[starving(world)] * 3,
        world.asks(stop="asked"),
        actors=autoscaled(),
    )
    assert outcome.exit_code == 0
    assert [event for event in world.view.events if "scaled" in event] == [
        "scaled from 1 to 2 actors",
        "scaled from 2 to 1 actors",
    ]
    assert len(world.launcher.of(Role("actor", 1))) == 1


def test_autoscaling_that_an_operator_switches_on_goes_on_from_the_number_that_there_is(world):
    """The number that was requested before, which is still in Redis, has no effect."""
    numbers = []

    def look():
        supervisor = world.backend.registry.supervisor()
        numbers.append((supervisor.autoscales, supervisor.actors, supervisor.actors_wanted))

    pace = {"window_s": 1e-9, "lower_after_s": 0.0}
    outcome = world.run(
        world.asks(target_actors=3),
        *[nothing] * 3,
        world.asks(autoscale=True, min_actors=1, max_actors=4),
        nothing,
        look,
        starving(world),
        nothing,
        look,
        world.asks(autoscale=True, min_actors=1, max_actors=2),
        nothing,
        look,
        world.asks(stop="asked"),
        actors={"count": 1, "autoscale": pace},
    )
    assert outcome.exit_code == 0
    assert numbers == [(True, 3, 3), (True, 4, 4), (True, 2, 2)]


def test_a_run_whose_actors_join_by_themselves_says_how_many_it_wants(world):
    guest = Role("actor", 1_000_000)

    def beat():
        world.beats(LEARNER, state="training", blocked_share=0.5, waits={"update": 0.1})()
        world.beats(guest, env_steps=256, env_steps_per_s=100.0)()

    told = []
    outcome = world.run(
        beat,
        nothing,
        lambda: told.append(world.backend.registry.supervisor()),
        world.asks(stop="asked"),
        actors=autoscaled(),
        launch={"start_actors": False},
        memory={"url": "redis://nowhere"},
    )
    assert outcome.exit_code == 0
    assert (told[0].actors, told[0].actors_wanted) == (None, 2)
    assert world.launcher.of(guest) == []


@pytest.mark.parametrize("target", [9, 10**6, 10**17, 0])
def test_a_number_of_actors_that_the_run_may_not_have_is_refused_and_taken_back(world, target):
    targets = []
    outcome = world.run(
        world.asks(target_actors=target),
        nothing,
        lambda: targets.append(world.backend.registry.control().target_actors),
        world.asks(stop="asked"),
        actors={"max_count": 8},
    )
    assert outcome.exit_code == 0
    assert targets == [1]
    assert len(world.launcher.of(ACTOR)) == len(world.launcher.started) - 1 == 1
    assert world.view.events[0] == f"not scaled to {target} actors: 1 to 8 are allowed (actors.max_count)"


@pytest.mark.parametrize("at_launch", [True, False])
def test_however_many_actors_are_started_a_stop_is_obeyed_meanwhile(world, at_launch):
    started = []

    def press():
        started.append(len(world.launcher.started))
        world.interrupt.code, world.interrupt.name = 130, "Ctrl-C"

    begin = nothing if at_launch else world.asks(target_actors=10**6, target_forced=True)
    count = 10**6 if at_launch else 1
    outcome = world.run(begin, nothing, nothing, press, actors={"count": count})
    assert (outcome.exit_code, outcome.stop_reason) == (130, "Ctrl-C")
    assert started[0] <= 1 + 4 * supervise.STARTS_PER_ROUND
    assert len(world.launcher.started) == started[0]


def test_actors_that_ended_together_are_started_again_a_few_at_a_time(world):
    up = []

    def all_die():
        for handle in world.launcher.started:
            handle.code = -9 if handle.role.kind == "actor" else None

    def count():
        up.append(sum(handle.code is None for handle in world.launcher.started) - 1)

    outcome = world.run(*[nothing] * 3, all_die, count, count, count, world.asks(stop="asked"), actors={"count": 6})
    assert outcome.exit_code == 0
    assert up == [2, 4, 6]


def test_no_more_actors_are_added_while_many_have_not_reported(world, monkeypatch):
    """Hundreds of interpreters that import at once leave no processor to the learner and to `distrl stop`."""
    monkeypatch.setattr(scaling, "cores", lambda: 1)
    started = []

    def count():
        started.append(len(world.launcher.started) - 1)

    def report():
        for number in range(3):
            world.beats(Role("actor", number))()

    rounds = (*[nothing] * 6, count, report, *[nothing] * 3, count)
    outcome = world.run(*rounds, world.asks(stop="asked"), actors={"count": 100})
    assert outcome.exit_code == 0
    assert started == [scaling.ACTORS_PER_CORE, scaling.ACTORS_PER_CORE + 3]


def test_only_roles_that_are_up_are_shown(world):
    shown = []
    world.run(
        world.beats(LEARNER, state="training"),
        world.beats(),
        world.beats(Role("actor", 7)),  # started by hand, on some other host
        lambda: (shown.append([(row["role"], row["id"]) for row in world.view.roles]), world.dies(ACTOR, -9)()),
        lambda: shown.append([(row["role"], row["id"]) for row in world.view.roles]),
        world.asks(stop="asked"),
    )
    assert shown[0] == [("actor", 0), ("actor", 7), ("learner", 0)]
    assert shown[1] in ([("actor", 7), ("learner", 0)], shown[0])  # the second if it is up again already


def test_an_id_that_an_actor_by_hand_has_is_not_given_to_another(world):
    by_hand = world.beats(Role("actor", 1), host="elsewhere")
    world.run(by_hand, world.asks(target_actors=2), *[nothing] * 3, world.asks(stop="asked"))
    assert [handle.role.id for handle in world.launcher.started if handle.role.kind == "actor"] == [0, 2]


def test_no_update_for_too_long_ends_the_run_with_4_but_a_pause_is_no_stall(world, passes):
    pause = (world.asks(paused=True), nothing, passes, passes, nothing)
    go_on = (world.asks(paused=False), world.learns(1), nothing, passes, passes, nothing, nothing)
    outcome = world.run(*pause, *go_on, learner={"stall_timeout_s": 3})
    assert (outcome.exit_code, outcome.stop_reason) == (4, "stalled")
    report = world.run_dir / "logs" / "stall.txt"
    assert outcome.error == f"no update for 4 s (learner.stall_timeout_s); {report} has the stacks of all roles"
    assert report.read_text().startswith("no update for 4 s (learner.stall_timeout_s)\n\nunrolls: 0 queued, ")
    # It stalled after the pause, not in it.
    assert world.backend.registry.control().paused is False


def test_a_learner_that_waits_for_the_last_evaluation_is_not_stalled(world, passes):
    def waits(beat):
        return world.beats(LEARNER, state=AWAITS_EVALUATION, beat=beat)

    nap = (nothing, passes, passes, nothing)
    rest = (waits(2), *nap, waits(3), *nap, world.asks(stop="asked"))
    assert world.run(world.learns(1), waits(1), *nap, *rest, learner={"stall_timeout_s": 3}).exit_code == 0


@pytest.mark.parametrize(("steps", "stalls"), [(14, False), (16, True)])
def test_a_compilation_of_the_first_update_has_a_clock_of_its_own(world, passes, steps, stalls):
    """Which begins with it, however long the run has waited before."""
    waits = world.beats(LEARNER, state="training", last_step_age_s=4000.0)
    compiles = world.beats(LEARNER, state=f"{COMPILING}, 25 s", last_step_age_s=4000.0, beat=2)
    trains = world.beats(LEARNER, state="training", beat=3)
    after = [] if stalls else [trains, nothing, passes, nothing, world.learns(1), world.asks(stop="asked")]
    script = [waits, nothing, passes, compiles, nothing, *[passes] * steps, nothing, *after]
    assert world.run(*script, learner={"stall_timeout_s": 3}).exit_code == (4 if stalls else 0)
    assert world.view.events[:-1] == []


@pytest.mark.parametrize("goes_on", [True, False])
def test_reading_data_is_no_stall_while_it_goes_on(world, passes, goes_on):
    reads = [
        world.beats(LEARNER, state=f"{READING}: {beat}%", last_step_age_s=0.0 if goes_on else 4.0 * beat, beat=beat)
        for beat in range(1, 5)
    ]
    script = [nothing, *(step for beat in reads for step in (beat, passes, passes)), world.asks(stop="asked")]
    assert world.run(*script, learner={"stall_timeout_s": 3}).exit_code == (0 if goes_on else 4)


def test_a_run_on_data_awaits_no_actors_where_others_start_them(world, passes):
    data = {"data": {"sets": ["a/b"]}, "algorithm": {"name": "dqn"}, "actors": {"count": 0}}
    joins = {"launch": {"start_actors": False}, "memory": {"url": "redis://h"}, "learner": {"stall_timeout_s": 3}}
    outcome = world.run(world.learns(1), *[passes] * 4, **data, **joins)
    assert (outcome.exit_code, outcome.stop_reason) == (4, "stalled")
    assert world.view.events == []


def test_a_run_that_starts_no_actors_waits_for_them_and_is_not_stalled_meanwhile(world, passes):
    joins = {"launch": {"start_actors": False}, "memory": {"url": "redis://h"}, "learner": {"stall_timeout_s": 3}}
    nap = (passes, passes)
    there = world.beats(Role("actor", 10_000))
    outcome = world.run(*nap, *nap, world.asks(target_actors=3), *nap, there, *nap, *nap, **joins)
    assert (outcome.exit_code, outcome.stop_reason) == (4, "stalled")  # once they are there
    assert [handle.role for handle in world.launcher.started] == [LEARNER]
    assert world.view.events[:3] == [
        "no actor is there: waiting until actors join",
        "not scaled to 3 actors: they join by themselves",
        "actors have joined",
    ]


def test_a_learner_that_hangs_at_its_end_is_stalled_although_the_actors_of_other_hosts_have_left(world, passes):
    joins = {"launch": {"start_actors": False}, "memory": {"url": "redis://h"}, "learner": {"stall_timeout_s": 3}}
    there = world.beats(Role("actor", 10_000))

    def leave():
        world.backend.registry.forget("actor:10000")

    outcome = world.run(there, world.learns(1), world.asks(stop="mean_return"), leave, *[passes] * 4, **joins)
    assert (outcome.exit_code, outcome.stop_reason) == (4, "stalled")
    assert world.view.events == ["no actor is there: waiting until actors join", "actors have joined"]


@pytest.mark.parametrize(("case", "code"), [("each within its time", 0), ("slow start", 4), ("second learner", 4)])
def test_the_learners_start_and_its_first_update_have_a_clock_each(world, passes, case, code):
    """The start of a second learner gives no further time: one after the other could die before an update."""
    starts = world.beats(LEARNER, state="starting: building the network", incarnation=0)
    trains, again = (world.beats(LEARNER, state="training", incarnation=number) for number in (1, 2))
    learns = (*[passes] * 4, trains, *[passes] * 4)
    rest = {
        "each within its time": (*learns, world.learns(1), world.asks(stop="asked")),
        "slow start": [passes] * 7,
        "second learner": (*learns, world.dies(LEARNER, -9), again, *[passes] * 3),
    }
    assert world.run(starts, *rest[case], learner={"stall_timeout_s": 10}).exit_code == code


def test_a_stall_is_told_where_the_disk_does_not_take_the_report(world, passes):
    (world.run_dir / "logs" / "stall.txt").mkdir()  # cannot be written over
    outcome = world.run(nothing, passes, passes, nothing, nothing, learner={"stall_timeout_s": 3})
    assert (outcome.exit_code, outcome.stop_reason) == (4, "stalled")
    assert "as they cannot be written: [Errno 21] Is a directory" in outcome.error
    assert "unrolls: 0 queued, 0 in flight, 0 bytes" in world.view.events


@pytest.mark.parametrize("gone", [False, True])
def test_who_joined_by_hand_is_told_that_the_run_has_failed(world, monkeypatch, gone):
    """Where that cannot be told, what has happened counts all the same."""
    set_control = world.backend.registry.set_control

    def unreachable(**changes):
        if gone:
            raise MemoryBackendError("Redis is unreachable")
        set_control(**changes)

    monkeypatch.setattr(world.backend.registry, "set_control", unreachable)
    outcome = world.run(world.dies(LEARNER, 5))
    assert (outcome.exit_code, outcome.stop_reason) == (5, "non-finite training")
    assert world.backend.registry.control().stop == (None if gone else "non-finite training")


def test_updates_that_always_take_long_are_no_news(world, passes):
    slow = [step for updates in range(2, 6) for step in (*[passes] * 9, world.learns(updates))]
    world.run(world.learns(1), *slow, world.asks(stop="asked"), learner={"stall_timeout_s": 100})
    told = [event for event in world.view.events if "learn" in event]
    assert told == ["nothing learned for 16 s: no role has reported yet, no actor is up", "learning again after 18 s"]


def test_the_user_is_told_once_that_nothing_is_learned_and_once_that_it_goes_on(world, passes):
    starting = [passes] * 9  # of which the panel tells
    waiting = (world.learns(1), world.beats(LEARNER, state="waiting: unrolls"), *[passes] * 9)
    world.run(*starting, *waiting, world.learns(2), world.asks(stop="asked"), learner={"stall_timeout_s": 100})
    told = [event for event in world.view.events if "learn" in event]
    assert told == [
        "nothing learned for 16 s: learner waiting: unrolls, no actor is up",
        "learning again after 18 s",
    ]


@pytest.mark.parametrize(("step_s", "stalls"), [(2.0, True), (1000.0, False)])
def test_time_that_the_supervisor_slept_through_is_no_stall(world, clock, monkeypatch, step_s, stalls):
    monkeypatch.setattr(supervise, "AwakeClock", lambda: AwakeClock(clock))

    def passes():
        clock.now += step_s

    script = [world.learns(1), *[passes] * 7, *([] if stalls else [world.asks(stop="asked")])]
    outcome = world.run(*script, learner={"stall_timeout_s": 10})
    assert outcome.exit_code == (4 if stalls else 0)


def test_updates_keep_the_run_from_stalling(world, passes):
    steps = [step for n in range(1, 6) for step in (world.learns(n), passes)]
    outcome = world.run(*steps, world.asks(stop="asked"), learner={"stall_timeout_s": 5})
    assert outcome.stop_reason == "asked"


def test_unrolls_that_a_replay_memory_takes_in_keep_the_run_from_stalling(world, passes):
    def takes_in(sequence):
        def step():
            world.backend.unrolls.push(UnrollHeader(0, 1, sequence, 1, 8), b"")
            entries = world.backend.unrolls.take(1, 0.0)
            learner = world.backend.become_learner()
            learner.unrolls.settle(entries, EntryOutcome.TRAINED)

        return step

    steps = [step for n in range(5) for step in (takes_in(n), passes)]
    outcome = world.run(*steps, world.asks(stop="asked"), learner={"stall_timeout_s": 5})
    assert outcome.stop_reason == "asked"


def test_heartbeats_of_an_unknown_run_are_nobodys(world):
    hand_made = RoleStatus("actor", 5, 1, "elsewhere", 1, "acting", beat=1, last_step_age_s=1e6)
    outcome = world.run(lambda: world.backend.registry.beat(hand_made), nothing, nothing, world.asks(stop="asked"))
    assert outcome.exit_code == 0
    assert all("kill" not in handle.asked for handle in world.launcher.started)


EVALUATING = {"every_env_steps": 1000}


def test_a_dead_evaluator_is_replaced_and_takes_nobodys_ticket(world):
    def joins():
        assert world.backend.registry.register_actor(0) == 1
        world.backend.become_learner().tickets.issue(1)
        assert world.backend.tickets.take((0, 1), 0.0)

    beats = world.beats(EVALUATOR, state="evaluating")
    outcome = world.run(
        joins, beats, world.dies(EVALUATOR, -9), nothing, world.asks(stop="asked"), evaluation=EVALUATING
    )
    assert outcome.exit_code == 0
    assert len(world.launcher.of(EVALUATOR)) == 2
    assert world.backend.tickets.counts() == (0, 1)  # that of actor 0, which lives
    assert world.view.events[0].startswith("evaluator ended (signal 9); starting again in")
    assert world.launcher.of(EVALUATOR)[1].asked == ["terminate"]  # after the learner


def test_a_hung_evaluator_is_killed_and_replaced(world):
    hangs = world.beats(EVALUATOR, state="evaluating", last_step_age_s=61.0)
    outcome = world.run(hangs, nothing, nothing, world.asks(stop="asked"), evaluation=EVALUATING)
    assert outcome.exit_code == 0
    first, *_ = world.launcher.of(EVALUATOR)
    assert first.asked == ["kill"]
    assert len(world.launcher.of(EVALUATOR)) == 2
    assert "no environment step for 61 s (environment.step_timeout_s)" in world.view.events[0]


def test_an_evaluator_that_ends_while_the_run_stops_is_not_replaced(world):
    def both_end():
        world.backend.registry.set_control(stop="evaluation_return")
        world.launcher.of(EVALUATOR)[0].code = 0

    outcome = world.run(both_end, nothing, world.dies(LEARNER, 0), evaluation=EVALUATING)
    assert (outcome.exit_code, outcome.stop_reason) == (0, "evaluation_return")
    assert len(world.launcher.of(EVALUATOR)) == 1


@pytest.mark.parametrize(("memory", "kept"), [({"url": "redis://h", "keep_s": 700}, {700}), ({}, set())])
def test_the_supervisor_sends_heartbeats_and_keeps_the_keys_in_a_redis_of_its_operators(
    world, monkeypatch, memory, kept
):
    asked = []
    monkeypatch.setattr(world.backend, "keep", asked.append)
    beats = []

    def look():
        beats.append(world.backend.registry.supervisor().beat)

    world.run(look, look, world.asks(stop="asked"), nothing, memory=memory)
    assert beats[0] < beats[1]
    assert set(asked) == kept
