"""An actor joins, waits for its policy, tells its state, and carries no framework."""

import json
import subprocess
import sys
import threading

import pytest
import redis

from distrl.errors import ConfigError, MemoryBackendError
from distrl.roles.actor import ActorRole
from distrl.roles.description import RunAddress
from distrl.roles.join import MAKING
from distrl.roles.plan import Role
from distrl.roles.trust import Trust, new_key, signature
from tests.waiting import wait_until

pytestmark = pytest.mark.redis


def looks_of(admin, at_least):
    """Return the counts of all commands once so many have looked for the bundle, or else None."""
    counts = admin.info("commandstats")
    return counts if counts.get("cmdstat_hexists", {"calls": 0})["calls"] >= at_least else None


def test_an_actor_waits_for_the_policy_and_ends_when_asked(described_run, redis_url, tmp_path):
    backend = described_run()
    stop = threading.Event()
    role = ActorRole(Role("actor", 3), RunAddress(redis_url, tmp_path.name, Trust()), stop)
    thread = threading.Thread(target=role.run)
    thread.start()
    wait_until(
        lambda: [status.state for status in backend.registry.roles()] and not role.status().state.startswith("starting")
    )
    status = role.status()
    assert (status.role, status.id, status.incarnation, status.state) == ("actor", 3, 1, "waiting: policy")
    assert status.last_step_age_s == 0.0  # it waits for the learner, not for its environment
    assert backend.registry.is_registered((3, 1))
    stop.set()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_an_actor_that_waits_for_the_policy_does_not_read_the_configuration_again_and_again(
    described_run, redis_url, tmp_path
):
    described_run()
    stop = threading.Event()
    role = ActorRole(Role("actor", 3), RunAddress(redis_url, tmp_path.name, Trust()), stop)
    thread = threading.Thread(target=role.run)
    thread.start()
    wait_until(lambda: role.status().state == "waiting: policy")
    with redis.Redis.from_url(redis_url) as admin:
        admin.config_resetstat()
        looks = wait_until(lambda: looks_of(admin, at_least=5), "it looks five times")
    stop.set()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert "cmdstat_hmget" not in looks  # which reads the configuration


def test_every_start_is_a_new_incarnation(described_run, redis_url, tmp_path):
    described_run()
    stop = threading.Event()
    stop.set()
    incarnations = []
    for _ in range(2):
        role = ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, Trust()), stop)
        role.run()
        incarnations.append(role.status().incarnation)
    assert incarnations == [1, 2]


def test_while_its_environment_is_made_the_age_goes_on(described_run, redis_url, tmp_path, monkeypatch):
    backend = described_run()
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, config, count):
            entered.set()
            leave.wait(20)

        def close(self):
            pass

    monkeypatch.setattr("distrl.roles.join.VectorEnvironment", Slow)
    stop = threading.Event()
    role = ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, Trust()), stop)
    thread = threading.Thread(target=role.run)
    thread.start()
    assert entered.wait(20)
    first = role.status()
    assert first.state == MAKING
    wait_until(lambda: role.status().last_step_age_s > first.last_step_age_s + 0.05)
    wait_until(lambda: backend.registry.roles()[0].state == MAKING)
    stop.set()
    leave.set()
    thread.join(timeout=60)


def test_a_run_that_is_not_there_is_an_error(redis_url):
    with pytest.raises(MemoryBackendError, match="no-such-run"):
        ActorRole(Role("actor", 0), RunAddress(redis_url, "no-such-run", Trust()), threading.Event())


def test_actors_carry_no_framework():
    code = "import sys, distrl.roles.running, distrl.roles.actor, distrl.actors.policy, onnxruntime\n"
    code += (
        "print(sorted({'tensorflow', 'keras', 'jax', 'ray', 'tf2onnx'} & {name.split('.')[0] for name in sys.modules}))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_an_actor_imports_named_code_with_the_key_or_by_name_alone(described_run, redis_url, run_key, tmp_path):
    described_run(environment={"id": "benchmarks.sleeping:Sleeping"})
    stop = threading.Event()
    stop.set()

    def join(trust: Trust) -> int:
        role = ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, trust), stop)
        role.run()
        return role.status().incarnation

    assert join(Trust(run_key)) == 1
    assert join(Trust(allowed=frozenset({"benchmarks.sleeping:Sleeping"}))) == 2
    with pytest.raises(ConfigError, match=r"names code, environment\.id: benchmarks\.sleeping:Sleeping"):
        join(Trust())
    with pytest.raises(ConfigError, match="in Redis does not have its signature"):
        join(Trust(new_key()))
    assert join(Trust(run_key)) == 3  # those that were refused have not registered


def test_the_description_of_another_run_does_not_do(described_run, redis_url, run_key, tmp_path):
    """Both are signed by one key, as of two runs whose operator has set it for both."""
    backend = described_run()
    description = json.loads(backend.config_json()) | {"run_id": "other"}
    text = json.dumps(description)
    backend.engine.call("HSET", backend._run.keys.run, "config", text, "signature", signature(run_key, text))
    with pytest.raises(ConfigError, match="is of run other: it was rewritten"):
        ActorRole(Role("actor", 0), RunAddress(redis_url, tmp_path.name, Trust(run_key)), threading.Event())
