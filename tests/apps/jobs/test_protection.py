import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.protection import bound_to_node, unprotected


@pytest.mark.parametrize(
    ("url", "password", "lacks"),
    [
        (None, None, []),
        ("unix:///run/redis.sock", None, []),
        ("redis://localhost:6379", None, []),
        ("redis://box:6379", None, ["encrypted", "password"]),
        ("rediss://box:6379", None, ["password"]),
        ("rediss+sentinel://box:26379/mymaster", "pw", []),
        ("redis+cluster://box:6379", "pw", ["encrypted"]),
    ],
)
def test_the_plan_names_the_protection_that_redis_lacks(monkeypatch, url, password, lacks):
    for name in ("DISTRL_REDIS_URL", "DISTRL_REDIS_PASSWORD", "DISTRL_REDIS_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)
    if password is not None:
        monkeypatch.setenv("DISTRL_REDIS_PASSWORD", password)
    found = unprotected(load("cartpole-impala", flags={"--redis-url": url}).config)
    assert len(found) == len(lacks)
    assert all(word in line for word, line in zip(lacks, found, strict=True))


def test_nothing_is_said_of_a_password_that_other_hosts_have():
    config = load("cartpole-impala", flags={"--redis-url": "redis://box:6379"}).config
    (line,) = unprotected(config, knows_password=False)
    assert "encrypted" in line


def test_checkpoints_that_end_with_their_node():
    assert "checkpoint.store" in bound_to_node(load("cartpole-impala").config)[0]
    assert bound_to_node(load("cartpole-impala", sets=["checkpoint.store=s3://b/runs"]).config) == []
