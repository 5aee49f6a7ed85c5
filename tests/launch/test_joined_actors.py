"""The parent of actors that join a run: what it starts, what it makes of their ends, and how it leaves."""

import threading
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from distrl.config import RunConfig
from distrl.config.actors import ActorsConfig
from distrl.errors import ConfigError, FencedError, MissingRunError, OutageError, RunKeyError
from distrl.interrupt import Interrupt
from distrl.launch import fleet, joined_actors
from distrl.launch.joined_actors import JoinedActors, join_actors
from distrl.launch.outcome import Outcome
from distrl.launch.run_to_join import NamedRun
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import RoleStatus
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.plan import Role
from distrl.roles.suspend_clock import AwakeClock
from distrl.roles.trust import Trust, given_key, new_key, signature
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec
from tests.launch.conftest import ScriptedLauncher

FIRST, SECOND = Role("actor", 10_000), Role("actor", 10_001)


@dataclass
class Joined:
    """The parent of two actors, and the run that it has joined; each line of a script runs before a round."""

    backend: object
    launcher: ScriptedLauncher
    run: LaunchedRun
    interrupt: Interrupt = field(default_factory=Interrupt)
    told: list[str] = field(default_factory=list)
    to_join: object = field(default_factory=lambda: NamedRun("redis://host", "r", Trust))

    def outcome(self, *script, count=2, patient=False):
        self.parent = JoinedActors(
            *(self.run, self.backend, self.launcher, count, self.interrupt, self.told.append, self.to_join),
            patient=patient,
        )
        lines, one_round = iter(script), self.parent._round

        def scripted():
            line = next(lines, None)
            assert line is not None, "the script is at its end and the parent goes on"
            line()
            return one_round()

        self.parent._round = scripted
        return self.parent.run()

    def beats(self, role, **changes):
        status = RoleStatus(role.kind, role.id, 1, "host", 1, "acting", beat=1)
        return lambda: self.backend.registry.beat(replace(status, **changes))

    def dies(self, role, code, says=None):
        def happens():
            handle = self.launcher.of(role)[-1]
            handle.code, handle.error = code, says

        return happens

    def stops(self):
        self.backend.registry.set_control(stop="solved")

    def interrupted(self):
        self.interrupt.code, self.interrupt.name = 0, "SIGTERM"

    @property
    def heartbeats(self):
        return [status.id for status in self.backend.registry.roles()]


def nothing():
    pass


@pytest.fixture
def joined(backend, launcher, tmp_path, monkeypatch):
    monkeypatch.setattr(joined_actors, "TICK_S", 0.0)
    monkeypatch.setattr(joined_actors, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(joined_actors, "cores", lambda: 2)
    monkeypatch.setattr(fleet, "FIRST_BACKOFF_S", 0.0)
    config = RunConfig.model_validate({"actors": {"restart_budget": 2}, "memory": {"url": "redis://host"}})
    spec = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
    description = RunDescription(run_id="r", run_dir=str(tmp_path), config=config, spec=spec)
    return Joined(backend, launcher, LaunchedRun(RunAddress("redis://host", "r", Trust()), description))


def test_ids_come_from_the_run_and_a_run_that_ends_is_0(joined):
    assert joined.outcome(nothing, joined.stops) == Outcome(0, "solved")
    assert [handle.role for handle in joined.launcher.started] == [FIRST, SECOND]
    assert [handle.asked for handle in joined.launcher.started] == [["terminate"]] * 2
    assert joined.told == ["the run ends: solved", "2 actors of this host have left"]


def test_no_more_actors_import_at_a_time_than_there_are_cores(joined):
    def started(count):
        assert len(joined.launcher.started) == count

    joined.outcome(
        *(nothing, nothing, lambda: started(2), joined.beats(FIRST), nothing, lambda: started(3), joined.stops),
        count=5,
    )


def test_an_inference_server_that_reports_is_not_taken_for_the_actor_with_its_number(joined):
    shared = joined.run.config.model_copy(update={"actors": ActorsConfig(inference="host")})
    joined.run = replace(joined.run, description=joined.run.description.model_copy(update={"config": shared}))

    def started(*roles):
        assert [handle.role for handle in joined.launcher.started] == [*roles]

    server, first = Role("inference", FIRST.id), (FIRST, SECOND)
    joined.outcome(
        *(nothing, nothing, joined.beats(server), nothing, lambda: started(server, *first)),
        *(joined.beats(FIRST), nothing, lambda: started(server, *first, Role("actor", 10_002)), joined.stops),
        count=5,
    )


@pytest.mark.parametrize(("rate", "told"), [(0.0, "2 actors acting"), (1500.0, "2 actors acting; 3,000 steps/s")])
def test_states_are_reported_with_a_rate_if_there_is_one(joined, rate, told):
    both = [joined.beats(role, env_steps_per_s=rate) for role in (FIRST, SECOND)]
    joined.outcome(nothing, *both, nothing, joined.interrupted)
    assert told in joined.told


def test_an_outage_of_a_redis_that_the_run_has_left_is_not_waited_for(joined, monkeypatch):
    def away(_keys):
        raise OutageError("unreachable")

    monkeypatch.setattr(joined.backend.registry, "heartbeats", away)
    joined.to_join = SimpleNamespace(moved=lambda: False, launch_ended=lambda: "solved")
    assert joined.outcome(nothing, patient=True) == Outcome(0, "solved")
    assert joined.told[0] == "the launch has ended: solved"
    joined.to_join = SimpleNamespace(moved=lambda: True, launch_ended=lambda: None)
    with pytest.raises(FencedError, match="launched again"):
        joined.outcome(nothing, patient=True)


def test_a_run_that_has_removed_its_keys_has_ended(joined):
    assert joined.outcome(nothing, joined.backend.delete).exit_code == 0


def test_a_run_that_ends_while_an_actor_gets_its_id_has_ended(joined, monkeypatch):
    def gone():
        raise MissingRunError("run r is gone")

    monkeypatch.setattr(joined.backend.registry, "claim_actor", gone)
    assert joined.outcome(nothing, joined.backend.delete) == Outcome(0, "its keys are removed")


@pytest.mark.parametrize("patient", [False, True])
def test_a_run_that_is_gone_after_redis_was_away_may_have_been_lost(joined, patient):
    def lost():
        joined.backend.delete()
        joined.backend.engine.interruptions += 1

    with pytest.raises(MissingRunError, match="run r is gone"):
        joined.outcome(nothing, lost, patient=patient)
    assert [handle.code for handle in joined.launcher.started] == [0, 0]


def test_a_run_that_was_still_there_after_an_outage_and_is_gone_later_has_ended(joined):
    def away():
        joined.backend.engine.interruptions += 1

    assert joined.outcome(nothing, away, joined.backend.delete) == Outcome(0, "its keys are removed")


@pytest.mark.row("S09")
def test_an_actor_that_dies_starts_again_under_its_id_and_its_ticket_goes_back(joined):
    learner = joined.backend.become_learner()
    learner.tickets.issue(1)

    def holds_a_ticket():
        assert joined.backend.tickets.take((FIRST.id, joined.backend.registry.register_actor(FIRST.id)), 0.0)

    joined.outcome(nothing, holds_a_ticket, joined.beats(FIRST), joined.dies(FIRST, -9), nothing, joined.stops)
    assert joined.backend.tickets.counts() == (1, 0)
    assert len(joined.launcher.of(FIRST)) == 2
    assert "actor 10000 ended (signal 9); starting again in 0.0 s" in joined.told


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (2, Outcome(2, "configuration", "actor 10000: no module x")),
        (3, Outcome(3, "restart budget spent", "actor 10000 ended more often than actors.restart_budget 2 allows")),
    ],
)
def test_what_another_start_does_not_mend_ends_all_actors_of_the_host(joined, code, outcome):
    ends = [joined.dies(FIRST, code, "no module x")] if code == 2 else [joined.dies(FIRST, 3, f"x{n}y") for n in "abc"]
    script = [line for end in ends for line in (end, nothing)]
    found = joined.outcome(nothing, *script)
    assert (found.exit_code, found.stop_reason) == (outcome.exit_code, outcome.stop_reason)
    assert found.error.startswith(outcome.error)
    assert joined.launcher.of(SECOND)[0].asked == ["terminate"]


def test_an_actor_that_hangs_is_killed_and_started_again(joined):
    joined.outcome(nothing, joined.beats(FIRST, last_step_age_s=61.0), nothing, nothing, joined.stops)
    assert joined.launcher.of(FIRST)[0].asked == ["kill"]
    assert len(joined.launcher.of(FIRST)) == 2
    assert "no environment step for 61 s (environment.step_timeout_s)" in " ".join(joined.told)


@pytest.mark.row("S09")
def test_who_leaves_is_asked_first_and_its_heartbeat_goes(joined):
    joined.beats(Role("actor", 3))()
    outcome = joined.outcome(nothing, joined.beats(FIRST), joined.beats(SECOND), joined.interrupted)
    assert outcome == Outcome(0, "SIGTERM")
    assert [handle.asked for handle in joined.launcher.started] == [["terminate"]] * 2
    assert joined.heartbeats == [3]
    assert joined.told[-2:] == [
        "leaving (SIGTERM): every actor delivers the unroll that it has begun",
        "2 actors of this host have left",
    ]


@pytest.fixture
def outage(joined, monkeypatch, clock):
    """A line of a script: from now on Redis is away, which each look finds out in 3.5 s, or answers again."""
    control = joined.backend.registry.control
    monkeypatch.setattr(joined_actors.time, "monotonic", clock)
    monkeypatch.setattr(joined_actors, "AwakeClock", lambda: AwakeClock(clock))

    def away():
        clock.now += 3.5
        raise OutageError("Redis at redis://host is unreachable for 3 s")

    return lambda lasts: lambda: monkeypatch.setattr(joined.backend.registry, "control", away if lasts else control)


def test_an_outage_is_waited_for_and_nothing_starts_meanwhile(joined, outage):
    def started_again(times):
        assert len(joined.launcher.of(FIRST)) == 1 + times

    dies = joined.dies(FIRST, 6, "unreachable")
    waits = (nothing, outage(True), dies, nothing, lambda: started_again(0))
    assert joined.outcome(*waits, outage(False), nothing, lambda: started_again(1), joined.stops).exit_code == 0


def test_an_outage_longer_than_the_run_allows_ends_the_actors_unless_they_wait(joined, outage):
    with pytest.raises(OutageError, match="unreachable"):
        joined.outcome(nothing, outage(True), *[nothing] * 17)  # 18 looks, 63 s
    assert [handle.code for handle in joined.launcher.started] == [0, 0]


def test_a_shorter_outage_ends_none(joined, outage):
    script = (nothing, outage(True), *[nothing] * 16, outage(False), joined.stops)  # 17 looks, 59.5 s
    assert joined.outcome(*script) == Outcome(0, "solved")


@pytest.mark.row("S09")
def test_who_waits_survives_any_outage(joined, outage):
    script = (nothing, outage(True), *[nothing] * 99, outage(False), joined.stops)
    assert joined.outcome(*script, patient=True).exit_code == 0
    assert joined.told[:2] == [
        "Redis at redis://host is unreachable for 3 s; waiting",
        "Redis answers again after 350 s",
    ]


class Attempts:
    """Replies of `_stay`, one after the other."""

    def __init__(self, *replies):
        self.replies = list(replies)

    def __call__(self, *_, **__):
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.mark.row("S09")
@pytest.mark.parametrize(
    "error", [MissingRunError("no run r"), FencedError("launched again"), OutageError("unreachable")]
)
@pytest.mark.parametrize("wait", [True, False])
def test_only_who_waits_tries_again(monkeypatch, wait, error):
    attempts, told = Attempts(error, error, Outcome(0, "solved")), []
    monkeypatch.setattr(joined_actors, "_found", attempts)
    monkeypatch.setattr(joined_actors, "_stay", lambda run, *_, **__: run)
    monkeypatch.setattr(joined_actors, "WAIT_S", 0.0)

    def join():
        named = NamedRun("redis://h", "r", Trust)
        return join_actors(named, 2, wait=wait, log_dir=Path(), report=told.append, interrupt=Interrupt())

    if not wait:
        with pytest.raises(type(error)):
            join()
        return
    assert join() == Outcome(0, "solved")
    again = isinstance(error, FencedError)
    assert told == ["run r was launched again: joining the new launch" if again else f"waiting: {error}"]
    assert attempts.replies == []


def test_who_is_interrupted_while_waiting_leaves(monkeypatch):
    interrupt = Interrupt()
    attempts = Attempts(*[MissingRunError("no run r")] * 1000)
    monkeypatch.setattr(joined_actors, "_found", attempts)
    monkeypatch.setattr(joined_actors, "WAIT_S", 0.01)
    threading.Timer(0.05, lambda: setattr(interrupt, "code", 130)).start()
    options = {"wait": True, "log_dir": Path(), "report": lambda text: None}
    assert join_actors(NamedRun("redis://h", "r", Trust), 2, interrupt=interrupt, **options).exit_code == 130


def test_the_key_is_read_when_the_run_is_there(tmp_path):
    """Its file may be written with the run, long after `distrl actors --wait` has begun."""
    url, read = f"local:{tmp_path.name}", []

    def trust():
        read.append(True)
        raise ConfigError("no run key")

    options = {"wait": False, "log_dir": tmp_path, "report": read.append, "interrupt": Interrupt()}
    with pytest.raises(MissingRunError):
        join_actors(NamedRun(url, "r", trust), 1, **options)
    assert read == []
    backend = connect(url, "r", name="test", give_up_s=1.0)
    backend.create("{}")
    with pytest.raises(ConfigError, match="no run key"):
        join_actors(NamedRun(url, "r", trust), 1, **options)


@pytest.fixture
def signed_run(tmp_path):
    """A function that launches a run whose description is signed by a key, and the URL at which it is."""

    def launch(key):
        spec = EnvSpec("X", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
        text = RunDescription(run_id="r", run_dir=str(tmp_path), config=RunConfig(), spec=spec).published()
        backend.create(text, signature(key, text))

    launch.url = f"local:{tmp_path.name}"
    with closing(connect(launch.url, "r", name="test", give_up_s=1.0)) as backend:
        yield launch


def test_who_waits_waits_for_the_key_of_the_launch(signed_run, tmp_path, monkeypatch):
    """Hosts that do not share the run directory get a copy of the key after the launch."""
    right, wrong, told = new_key(), new_key(), []
    file = tmp_path / "run.key"
    monkeypatch.setenv("DISTRL_RUN_KEY_FILE", str(file))
    monkeypatch.setattr(joined_actors, "WAIT_S", 0.0)
    monkeypatch.setattr(joined_actors, "_stay", lambda run, *_, **__: Outcome(0, run.description.run_id))
    signed_run(right)

    def copied(line):
        told.append(line)
        file.write_text(wrong if len(told) == 1 else right)
        file.chmod(0o600)

    options = {"log_dir": tmp_path, "report": copied, "interrupt": Interrupt()}
    named = NamedRun(signed_run.url, "r", lambda: Trust(given_key()))
    with pytest.raises(RunKeyError, match="No such file"):
        join_actors(named, 1, wait=False, **options)
    assert join_actors(named, 1, wait=True, **options) == Outcome(0, "r")
    assert told[0].startswith(f"waiting: DISTRL_RUN_KEY_FILE {file} cannot be read")
    assert "does not have its signature" in told[1]
    assert len(told) == 2


def test_a_wrong_key_in_a_variable_is_not_waited_for(signed_run, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTRL_RUN_KEY", new_key())
    signed_run(new_key())
    options = {"wait": True, "log_dir": tmp_path, "report": lambda text: None, "interrupt": Interrupt()}
    with pytest.raises(RunKeyError, match="does not have its signature"):
        join_actors(NamedRun(signed_run.url, "r", lambda: Trust(given_key())), 1, **options)
