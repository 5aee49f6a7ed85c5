"""The supervisor at the end of a learner that was asked to end, that failed, or that ended unasked; and its time."""

import pytest

from distrl.config.schedules import Progress
from distrl.launch import supervise
from distrl.launch.time_limit import TimeLimit
from distrl.roles.plan import Role
from tests.forging import add_to_ledger

LEARNER, ACTOR, EVALUATOR = Role("learner"), Role("actor"), Role("evaluator")
BROKEN = "unexpected TypeError: broken"


def nothing():
    """A line of a script in which nothing happens."""


@pytest.mark.parametrize("role", [LEARNER, ACTOR, EVALUATOR])
def test_a_role_that_ends_while_the_run_goes_on_is_started_again(world, role):
    """Such as at SIGTERM to it alone. The learner saves and exits with 0; that is no stop of the run."""
    outcome = world.run(
        world.dies(role, 0), nothing, world.asks(stop="asked"), nothing, evaluation={"every_env_steps": 100}
    )
    assert (outcome.exit_code, outcome.stop_reason) == (0, "asked")
    assert len(world.launcher.of(role)) == 2
    assert world.view.events[:2] == [
        f"{role.name} ended (exit code 0, though the run goes on); starting again in 0.0 s",
        f"{role.name} started again (restart 1)",
    ]


def test_a_learner_that_sees_a_stop_before_the_supervisor_has_ended_as_asked(world):
    def stops():
        world.backend.registry.set_control(stop="asked")
        world.dies(LEARNER, 0)()

    outcome = world.run(stops, nothing)
    assert (outcome.exit_code, outcome.stop_reason, len(world.launcher.of(LEARNER))) == (0, "asked", 1)


def test_a_learner_that_a_signal_ends_after_its_natural_end_is_not_started_again(world):
    """Such as a library that crashes when the interpreter ends: the learner has saved everything before."""

    def crashes():
        world.backend.registry.add_snapshot({"updates": 9, "env_steps": 9, "wall_s": 9, "stop_reason": "updates"})
        world.backend.registry.set_control(stop="updates")
        world.dies(LEARNER, -11)()

    outcome = world.run(crashes, nothing)
    assert (outcome.exit_code, outcome.stop_reason, outcome.error) == (0, "updates", None)
    assert (len(world.launcher.of(LEARNER)), world.view.events) == (1, [])


def settles(world, outcome):
    """Return a line of a script: the learner takes one unroll, which becomes `outcome` in the ledger."""
    return lambda: add_to_ledger(world.backend, {"produced": 1, outcome: 1})


def publishes(world, version, updates):
    """Return a line of a script: the learner publishes weights behind which there are so many updates."""
    return lambda: world.backend.become_learner().weights.publish(version, b"w", Progress(9 * version, 0, updates))


def test_storing_unrolls_is_no_progress_between_equal_errors(world):
    dies = world.dies(LEARNER, 1, BROKEN)
    lives = [step for n in range(4) for step in (publishes(world, n + 1, 0), settles(world, "stored"), nothing, dies)]
    outcome = world.run(*lives, nothing)
    assert (outcome.exit_code, outcome.stop_reason) == (1, "keeps failing")
    assert outcome.error == f"learner failed 4 times in the same way: {BROKEN}"
    assert len(world.launcher.of(LEARNER)) == 4
    counts = world.backend.ledger.counts()
    assert (counts.produced, counts.trained, counts.stored, counts.imbalance) == (4, 0, 4, 0)


@pytest.mark.parametrize("learns", ["by replay", "from the stream"])
def test_updates_between_equal_errors_are_progress(world, learns):
    dies = world.dies(LEARNER, 1, BROKEN)
    learned = [
        publishes(world, n + 1, 2 * n) if learns == "by replay" else settles(world, "trained") for n in range(1, 7)
    ]
    outcome = world.run(*[step for line in learned for step in (line, dies, nothing)], world.asks(stop="asked"))
    assert (outcome.exit_code, outcome.stop_reason) == (0, "asked")
    assert len(world.launcher.of(LEARNER)) == 7


class Clock:
    """The time that a test sets, in place of the supervisor's clock."""

    now = 100.0

    def look(self):
        return self.now

    def age_s(self, since):
        return self.now - since


def test_the_time_limit_begins_with_the_training_and_counts_that_of_earlier_launches():
    clock = Clock()
    limit = TimeLimit(0.3, 8.0, clock)
    clock.now = 200.0
    assert not limit.is_over(trains=False)
    assert not limit.is_over(trains=True)
    clock.now = 209.9
    assert not limit.is_over(trains=False)
    clock.now = 210.0
    assert limit.is_over(trains=False)
    assert not TimeLimit(None, 0.0, clock).is_over(trains=True)


@pytest.fixture
def passes(monkeypatch):
    """A line of a script: `stop.minutes` pass."""
    over = []
    monkeypatch.setattr(supervise.TimeLimit, "is_over", lambda self, *, trains: bool(over))
    return lambda: over.append(True)


def test_a_first_learner_counts_its_minutes_itself(world, passes):
    outcome = world.run(
        world.beats(LEARNER, state="training"), passes, nothing, world.asks(stop="minutes"), world.dies(LEARNER, 0)
    )
    assert (outcome.exit_code, outcome.stop_reason, world.view.events) == (0, "minutes", [])


@pytest.mark.parametrize(("updates", "code", "error"), [(4, 0, None), (0, 1, f"learner: {BROKEN}")])
@pytest.mark.parametrize("when", ["down", "training again"])
def test_the_minutes_end_a_run_whose_learner_keeps_failing(world, passes, when, updates, code, error):
    """It is no error if the learner has learned something."""
    lives = [world.beats(LEARNER, state="training"), publishes(world, 1, updates), world.dies(LEARNER, 1, BROKEN)]
    again = [nothing, world.beats(LEARNER, state="training", incarnation=2)] if when == "training again" else []
    outcome = world.run(*lives, *again, passes, nothing)
    assert (outcome.exit_code, outcome.stop_reason, outcome.error) == (code, "minutes", error)
    assert world.view.events[-1] == "stopping: minutes"
    assert world.backend.registry.control().stop == "minutes"
