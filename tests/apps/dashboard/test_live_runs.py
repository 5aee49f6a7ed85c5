import contextlib
import socket
import threading
from dataclasses import asdict, replace

import pytest

from distrl.apps.dashboard import live_runs as module
from distrl.apps.dashboard.live_runs import FIRST_RETRY_S, LOOK_S, LiveRun, LiveRuns, finite, host_loads, role_rows
from distrl.errors import ConfigError, MemoryBackendError
from distrl.memory_backend.backend import connect
from distrl.memory_backend.records import GpuLoad, HostLoad, RoleStatus, SupervisorStatus
from distrl.memory_backend.stream import QueueCaps
from distrl.runs.directories import RunRecord
from distrl.runs.reading import SILENT_S, Reading
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def actor(number, **changes):
    return RoleStatus(
        **{"role": "actor", "id": number, "incarnation": 1, "host": "h", "pid": 5, "state": "acting", **changes}
    )


@pytest.fixture
def job(redis_url, request):
    """A run in Redis, with a backend as its roles have one."""
    run_id = request.node.name.replace("[", "-").replace("]", "")[:90]
    backend = connect(redis_url, run_id, QueueCaps(8, 1000), name="test", give_up_s=1.0)
    backend.create("{}")
    backend.record = RunRecord(run_id=run_id, redis_url=redis_url, pid=1)
    yield backend
    backend.delete()
    backend.close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def run(job, clock):
    seen = LiveRun(job.record, clock)
    yield seen
    seen.close()


def test_what_a_job_says(job, run):
    job.registry.add_snapshot({"updates": 1, "weights_version": 5, "loss": None})
    job.registry.beat(actor(0, weights_version=3, blocked_share=0.5, incarnation=3))
    job.registry.beat(actor(1, weights_version=5))
    job.registry.beat(replace(actor(0), role="evaluator"))
    job.registry.set_control(paused=True, target_actors=2)
    look = run.look()
    assert look.problem is None
    assert look.latest == {"updates": 1, "weights_version": 5, "actors_up": 2, "actors_blocked_share": 0.25}
    wanted = replace(look, supervisor=SupervisorStatus("h", 1, 1, 2, False, 3, "the learner waits")).latest
    assert wanted["actors_wanted"] == 3
    assert (look.control.paused, look.control.target_actors) == (True, 2)
    assert look.counts == job.ledger.counts()
    row = role_rows(look)[0]
    assert (row["behind"], row["restarts"], row["blocked_share"]) == (2, 2, 0.5)
    assert "stacks" not in row
    assert {row["log"] for row in role_rows(look)} == {"actor-0", "actor-1", "evaluator"}  # names of files in logs/
    assert look.redis["used_bytes"] > 100_000
    assert look.redis["limit_bytes"] == 2**28


def test_a_look_is_good_for_a_second(job, run, clock):
    before = run.look()
    job.registry.add_snapshot({"updates": 1})
    clock.now += LOOK_S / 2
    assert run.look() is before
    clock.now += LOOK_S
    assert run.look().latest["updates"] == 1


def test_snapshots_are_kept_up_to_a_bound(job, run, clock, monkeypatch):
    for update in range(300):
        job.registry.add_snapshot({"updates": update})
    first = run.look().snapshots
    clock.now += 1.0
    job.registry.add_snapshot({"updates": 300})
    later = run.look().snapshots
    assert len(later) <= module.KEPT
    assert [snapshot["updates"] for _, snapshot in later] == [*range(301)][-len(later) :]
    assert len(first) <= module.KEPT


def test_when_a_role_was_last_heard_of(job, run, clock):
    job.registry.beat(actor(0, beat=1))
    job.registry.beat(actor(1, beat=1))
    late = {role.id: job.registry.clock() - role.at for role in job.registry.roles()}
    look = run.look()
    assert [age_s >= late[role.id] for role, age_s in zip(look.roles, look.ages_s, strict=True)] == [True, True]
    assert [row["seen_s"] for row in role_rows(look)] == look.ages_s


def test_a_role_that_is_silent_says_so(job, run):
    look = Reading(roles=(actor(0), actor(1, at=0.5)), clock=SILENT_S + 0.5)
    assert [row["silent"] for row in role_rows(look)] == [True, False]


def test_a_run_that_is_gone_from_redis_is_told_and_its_last_numbers_stay(job, run, clock):
    job.registry.add_snapshot({"updates": 7})
    run.look()
    job.delete()
    clock.now += 1.0
    look = run.look()
    assert look.latest["updates"] == 7
    assert look.problem.startswith(f"no run {job.record.run_id} at ")
    job.create("{}")
    clock.now += 1.0
    assert run.look().problem is not None  # not asked again so soon
    clock.now += FIRST_RETRY_S
    assert run.look().problem is None


def test_a_redis_that_is_not_there_is_asked_less_and_less_often(clock, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "connect", lambda *_, **__: asked.append(clock.now) or _unreachable())
    run = LiveRun(RunRecord(run_id="r", redis_url=f"unix://{tmp_path}/none", pid=1), clock)
    for _ in range(100):
        assert run.look().problem == "unreachable"
        clock.now += 1.0
    assert asked == [100.0, 102.0, 106.0, 114.0, 130.0, 160.0, 190.0]


def _unreachable():
    raise MemoryBackendError("unreachable")


def test_a_redis_that_nobody_listens_at(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GIVE_UP_S", 0.01)
    look = LiveRun(RunRecord(run_id="r", redis_url=f"unix://{tmp_path}/none", pid=1)).look()
    assert "is unreachable" in look.problem


@pytest.mark.parametrize("odd", [("SET", "metrics", "text"), ("HSET", "ledger", "produced", "x")])
def test_what_no_distrl_has_written_is_shown_as_a_problem(job, run, odd):
    command, key, *rest = odd
    job.engine.call(command, f"{job._run.keys.prefix}{key}", *rest)
    assert run.look().problem


@pytest.mark.parametrize(
    "odd",
    [
        ("HSET", "actors", "actor:0", "{}"),
        ("HSET", "actors", "actor:0", "\xff"),
        ("XADD", "metrics", "*", "json", "{"),
        ("XADD", "metrics", "*", "json", "[]"),
        ("XADD", "metrics", "*", "other", "{}"),
        ("HSET", "control", "target_actors", "many"),
    ],
)
def test_what_another_program_has_written_is_left_out(job, run, odd):
    command, key, *rest = odd
    job.engine.call(command, f"{job._run.keys.prefix}{key}", *rest)
    job.registry.beat(actor(1))
    look = run.look()
    assert (look.problem, look.snapshots, [role.id for role in look.roles]) == (None, (), [1])


class Odd:
    """A server that is no Redis: it answers with `piece` again and again, or says nothing."""

    def __init__(self, piece):
        self.piece, self.sent, self.clients = piece, 0, []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                self.clients.append(self.listening.accept()[0])
                threading.Thread(target=self.answer, args=[self.clients[-1]], daemon=True).start()

    def answer(self, client):
        with contextlib.suppress(OSError):
            client.recv(1)
            while self.piece:
                self.sent += client.send(self.piece)

    def close(self):
        for one in [self.listening, *self.clients]:
            one.close()


@pytest.fixture
def odd(request):
    server = Odd(request.param)
    yield server
    server.close()


@pytest.mark.parametrize(
    "odd",
    [b"$1500000000\r\n" + b"x" * 2**16, b"+" + b"x" * 2**16, b"*2000000000\r\n" + b":1\r\n" * 2**14],
    indirect=True,
)
def test_a_redis_that_answers_without_end_is_not_read_to_the_end(odd, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 2**20)
    look = LiveRun(RunRecord(run_id="r", redis_url=odd.url, pid=1)).look()
    assert "answers with more than 1,048,576 bytes" in look.problem
    assert odd.sent < 2**25  # what the kernel keeps for both ends comes on top


@pytest.mark.parametrize(
    "odd", [b"*1\r\n" * 2**14, b":" + b"9" * 10**4 + b"\r\n", b"$-9\r\n", b"\xff\r\n"], indirect=True
)
def test_what_is_no_answer_is_a_problem(odd):
    assert LiveRun(RunRecord(run_id="r", redis_url=odd.url, pid=1)).look().problem


@pytest.mark.parametrize("odd", [b""], indirect=True)
def test_a_redis_that_says_nothing_keeps_no_reader_of_the_list(odd, monkeypatch):
    """The looks are on threads of their own: what is asked for is answered before Redis is."""
    monkeypatch.setattr(module, "MOST_S", 1.0)
    runs = LiveRuns()
    records = [RunRecord(run_id=f"r{n}", redis_url=odd.url, pid=1) for n in range(20)]
    assert {look.problem for look in runs.looks(records, 0.1)} == {module.NOT_YET}
    assert len(odd.clients) <= module.AT_ONCE
    odd.close()
    runs.let_go(idle_s=0.0)


@pytest.mark.parametrize("odd", [b""], indirect=True)
def test_a_redis_that_says_nothing_is_given_up(odd, monkeypatch):
    monkeypatch.setattr(module, "MOST_S", 0.2)
    look = LiveRun(RunRecord(run_id="r", redis_url=odd.url, pid=1)).look()
    assert look.problem == "Redis has not answered within 0.2 s; check that it runs and the URL"


def test_without_redis():
    run = LiveRun(RunRecord(run_id="r", redis_url=None, pid=1))
    assert run.look().problem == "one process without Redis (actors.count: 0); see its files"
    with pytest.raises(ConfigError, match="one process"), run.backend():
        pass


def test_acting_wants_a_run_that_is_there(job, run):
    with run.backend() as backend:
        backend.registry.set_control(paused=True)
    assert run.look().control.paused
    job.delete()
    with pytest.raises(MemoryBackendError, match="no run"), run.backend():
        pass


def test_one_connection_a_run_let_go_of_when_nobody_asks(job):
    runs = LiveRuns()
    assert runs.of(job.record) is runs.of(job.record)
    assert [look.problem for look in runs.looks([job.record, job.record], 60.0)] == [None, None]

    def connections():
        return str(job.engine.call("CLIENT", "LIST")).count("distrl:dashboard")

    assert connections() == 1
    runs.let_go()
    assert connections() == 1
    runs.let_go(idle_s=0.0)
    wait_until(lambda: not connections(), "Redis hears of it when it next looks")
    assert runs.of(job.record).look().problem is None
    runs.let_go(idle_s=0.0)


def test_numbers_that_json_cannot_say():
    assert finite({"a": float("nan"), "b": float("inf"), "c": 1, "d": "x", "e": None, "f": True, "g": [1]}) == {
        "c": 1,
        "d": "x",
    }
    assert finite({"a": 10**400}) == {"a": 10**400}


def test_before_the_first_snapshot():
    assert Reading().latest == {}


def test_a_paused_run_has_no_rate_though_its_last_snapshot_had_one():
    snapshots = (("1-0", {"env_steps_per_s": 9.0, "updates_per_s": 2.0}),)
    learner = replace(actor(0), role="learner", state="waiting: unrolls")
    paused = (actor(0, state="paused"), actor(1, state="paused"))

    def rates(*roles):
        latest = Reading(snapshots=snapshots, roles=roles).latest
        return latest["env_steps_per_s"], latest["updates_per_s"]

    assert rates(*paused, learner) == (0.0, 0.0)
    assert rates(*paused, replace(learner, state="training")) == (0.0, 2.0)
    assert rates(paused[0], actor(1), learner) == (9.0, 2.0)
    assert rates(learner) == (9.0, 2.0)


def test_a_host_is_as_its_learner_measures_it_which_may_have_gpus():
    gpu = GpuLoad("NVIDIA H100", 0.5, 80_000.0, 10.0)
    plain, full = HostLoad(2.0, 0.25, 4000.0, 1000.0), HostLoad(2.0, 0.75, 4000.0, 1000.0, (gpu,))
    roles = [
        RoleStatus("actor", 0, 1, "hera", 5, "acting", machine=plain),
        RoleStatus("actor", 1, 1, "zeus", 5, "acting", machine=plain),
        RoleStatus("actor", 2, 1, "mac", 5, "acting"),
        RoleStatus("learner", 0, 1, "hera", 5, "training", machine=full),
    ]
    assert host_loads(roles) == {"hera": asdict(full), "zeus": asdict(plain)}
    assert "machine" not in role_rows(Reading(roles=tuple(roles)))[0]
