"""Every error of Redis, once at each command of each operation: applied exactly once, or final at once."""

from itertools import count

import pytest
import redis

from distrl.config.schedules import Progress
from distrl.errors import MemoryBackendError
from distrl.memory_backend import redis_client
from distrl.memory_backend.backend import connect
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.records import RoleStatus
from distrl.types import UnrollHeader
from tests.faults.resp_server import BROKEN_AFTER, BROKEN_BEFORE, RespServer

pytestmark = [pytest.mark.redis, pytest.mark.row("S02")]

PASSING = [
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOREPLICAS Not enough good replicas to write.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    BROKEN_BEFORE,
    BROKEN_AFTER,
]
LOSE_REPLIES = [PASSING[1], BROKEN_BEFORE, BROKEN_AFTER]
"""Faults that end the connection: behind EXEC, they also cost its reply. LOADING does so in redis-py."""
LOGINS = ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled."]
NO_RIGHT = "NOPERM this user has no permissions to access one of the keys used as arguments"
MOST_COMMANDS = 40
PRODUCER = (0, 1)


class Scene:
    """A run whose actor and learner reach Redis through the script, and a view of it beside that.

    Each operation returns what may fail, and a check that it was applied once; the check gets whether a reply was lost.
    """

    def __init__(self, url, scripted_url):
        self.direct = connect(url, "r", name="direct", give_up_s=5.0)
        self.direct.create("{}")
        self.actor = connect(scripted_url, "r", name="actor 0", give_up_s=60.0)
        self.backend = connect(scripted_url, "r", name="learner", give_up_s=60.0)
        self.actor.registry.register_actor(0)
        self.learner = self.backend.become_learner()
        self.sequence, self.copies, self.tickets, self.version, self.beats = -1, 0, 0, 0, 0

    def close(self):
        for backend in (self.direct, self.actor, self.backend):
            backend.close()

    def _push(self, backend):
        backend.unrolls.push(UnrollHeader(*PRODUCER, self.sequence, 0, 1), b"x" * 100)

    def _settle(self, entries):
        self.learner.unrolls.settle(entries[:1], EntryOutcome.TRAINED)
        for copy in entries[1:]:
            self.learner.unrolls.settle([copy], EntryOutcome.DUPLICATE)

    def _check_accounts(self):
        found, trained = self.direct.ledger.counts(), self.sequence + 1
        assert (found.imbalance, found.queued, found.in_flight, found.stream_bytes) == (0, 0, 0, 0)
        assert (found.produced, found.trained, sum(found.dropped.values())) == (
            trained + self.copies,
            trained,
            self.copies,
        )

    def push(self):
        self.sequence += 1

        def check(reply_lost):
            entries = self.learner.unrolls.take(8, 0.0)
            assert len(entries) in ((1, 2) if reply_lost else (1,))  # the learner drops a copy
            self.copies += len(entries) - 1
            self._settle(entries)
            self._check_accounts()

        return lambda: self._push(self.actor), check

    def take(self):
        self.sequence += 1
        self._push(self.direct)
        taken = []

        def check(_reply_lost):
            assert [entry.header.sequence for entry in taken] == [self.sequence]
            self._settle(taken)
            self._check_accounts()

        return lambda: taken.extend(self.learner.unrolls.take(8, 0.0)), check

    def settle(self):
        self.sequence += 1
        self._push(self.direct)
        entries = self.learner.unrolls.take(8, 0.0)
        return lambda: self._settle(entries), lambda _reply_lost: self._check_accounts()

    def publish(self):
        self.version += 1

        def check(_reply_lost):
            assert self.direct.weights.version() == self.version

        return lambda: self.learner.weights.publish(self.version, b"weights", Progress()), check

    def issue_a_ticket(self):
        self.tickets += 1

        def check(_reply_lost):
            assert self.direct.tickets.counts() == (self.tickets, 0)

        return lambda: self.learner.tickets.issue(1), check

    def take_a_ticket(self):
        self.direct.engine.call("RPUSH", self.direct._run.keys.tickets, 1)
        self.tickets += 1
        taken = []

        def check(_reply_lost):
            assert taken == [True]
            assert self.direct.tickets.counts() == (self.tickets - 1, 1)
            assert self.direct.tickets.reclaim(PRODUCER) == 1

        return lambda: taken.append(self.actor.tickets.take(PRODUCER, 0.0)), check

    def fence(self):
        before, found = self.learner.fence.number, []

        def check(reply_lost):
            (self.learner,) = found
            assert self.learner.fence.number - before in ((1, 2) if reply_lost else (1,))  # it only has to rise
            self.learner.tickets.issue(0)  # raises unless it holds the token

        return lambda: found.append(self.backend.become_learner()), check

    def heartbeat(self):
        self.beats += 1
        status = RoleStatus("actor", 0, 1, "host", 1, "acting", beat=self.beats)

        def check(_reply_lost):
            assert [role.beat for role in self.direct.registry.roles()] == [self.beats]

        return lambda: self.actor.registry.beat(status), check


OPERATIONS = ["push", "take", "settle", "publish", "issue_a_ticket", "take_a_ticket", "fence", "heartbeat"]


@pytest.fixture(scope="module")
def server():
    with EmbeddedRedis.start(maxmemory_bytes=2**26, max_bulk_bytes=2**24) as started:
        with redis.Redis.from_url(started.url) as admin:
            admin.execute_command("ACL", "SETUSER", "ada", "on", ">secret", "+@all", "~*")
        yield started


@pytest.fixture
def script(server):
    made = RespServer(server.url.removeprefix("unix://"))
    yield made
    made.close()


@pytest.fixture
def new_scene(server, script, monkeypatch):
    """Makes a scene in place of the one before."""
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "secret")
    monkeypatch.setattr(redis_client, "_FIRST_BACK_OFF_S", 0.001)
    made = []

    def end():
        for scene in made:
            scene.direct.delete()
            scene.close()
        made.clear()

    def make():
        end()
        made.append(Scene(server.url, f"redis://ada@{script.address}"))
        return made[0]

    yield make
    end()


def each_command(scene, script, operation, fault):
    """Yield (what may fail, its check), while the script lets one more of the operation's commands fail each time."""
    for skip in count():
        assert skip < MOST_COMMANDS
        run, check = getattr(scene, operation)()
        script.fail(fault, skip)
        yield run, check
        if script.failed is None:
            assert skip > 0
            return


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.split()[0] if fault[0].isupper() else fault)
def test_what_passes_is_repeated_and_applied_once(new_scene, script, operation, fault):
    scene, failed = new_scene(), 0
    for run, check in each_command(scene, script, operation, fault):
        run()
        script.relent()
        failed += script.failed is not None
        check(fault in LOSE_REPLIES)
    assert scene.actor.engine.interruptions + scene.backend.engine.interruptions == failed
    assert scene.actor.engine.failovers == scene.backend.engine.failovers == 0


def refusal(script, run):
    """The error of what may fail, in words; None if it does not."""
    try:
        run()
    except MemoryBackendError as error:
        return str(error)
    finally:
        script.relent()
    return None


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_missing_right_is_final_at_once_and_is_named_with_user_command_and_key(new_scene, script, operation):
    scene, refused, unheard = new_scene(), 0, 0
    for run, check in each_command(scene, script, operation, NO_RIGHT):
        told = refusal(script, run)
        if told is None:  # what is read ahead for the next transaction is read again by it
            unheard += script.failed is not None
        else:
            refused += 1
            key = [word for word in script.failed if word.startswith("distrl:")][:1]
            assert "\n" not in told
            assert f"refuses {' '.join([script.failed[0], *key])} to user ada: " in told
            run()  # nothing of it was applied
        check(False)
    assert refused > unheard
    assert scene.actor.engine.interruptions + scene.backend.engine.interruptions == unheard


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", LOGINS, ids=lambda fault: fault.split()[0])
def test_a_login_that_is_refused_is_final_at_once_and_names_the_user(new_scene, script, operation, fault):
    for skip in count():
        scene = new_scene()
        run, _ = getattr(scene, operation)()
        script.fail(fault, skip)
        told = refusal(script, run)
        assert (told is None) == (script.failed is None)
        assert scene.actor.engine.interruptions == scene.backend.engine.interruptions == 0
        if told is None:
            assert skip > 0
            return
        assert "user ada" in told
        assert "\n" not in told
