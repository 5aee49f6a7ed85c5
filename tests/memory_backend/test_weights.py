"""weights: versions only go up, whole or not at all, and the bundle is what was put; on every backend."""

import pytest
import redis

from distrl.config.schedules import Progress
from distrl.errors import FencedError, MemoryBackendError
from distrl.memory_backend.weights import bundle_sha256
from distrl.types import PolicyBundle

BUNDLE = PolicyBundle(graph=bytes(range(256)), description='{"inputs": ["observation"], "note": "γ"}')


def test_before_the_first_version(backend):
    assert (backend.weights.version(), backend.weights.progress()) == (0, Progress(0, 0, 0))
    assert backend.weights.fetch() is None


@pytest.mark.row("D62")
def test_a_late_subscriber_gets_the_newest_version_and_the_stop(run):
    learner = run.backend
    learner = learner.become_learner()
    learner.weights.publish(1, b"one", Progress(100))
    learner.weights.publish(3, b"three" * 100_000, Progress(300, 20, 1))
    learner.registry.set_control(stop="solved")
    late = run.connect()
    assert (late.weights.version(), late.weights.progress()) == (3, (300, 20, 1))
    assert late.weights.fetch() == (3, b"three" * 100_000, Progress(env_steps=300, episodes=20, updates=1))
    assert late.unrolls.admission().stop


@pytest.mark.parametrize("version", [2, 1, 0])
def test_versions_never_go_back(backend, version):
    learner = backend.become_learner()
    learner.weights.publish(2, b"two", Progress())
    with pytest.raises(ValueError, match=f"version {version} is not above the published version 2"):
        learner.weights.publish(version, b"other", Progress())
    assert backend.weights.fetch()[:2] == (2, b"two")


def test_an_old_fence_publishes_nothing(backend):
    old, new = backend.become_learner(), backend.become_learner()
    with pytest.raises(FencedError):
        old.weights.publish(1, b"old", Progress())
    assert backend.weights.fetch() is None
    new.weights.publish(1, b"new", Progress())
    assert backend.weights.fetch()[:2] == (1, b"new")


def test_the_bundle_is_what_was_put(run):
    assert run.backend.weights.get_bundle() is None
    run.backend.weights.put_bundle(PolicyBundle(b"first", "{}"))
    run.backend.weights.put_bundle(BUNDLE)
    assert run.connect().weights.get_bundle() == BUNDLE


def test_graph_and_description_are_both_in_the_digest():
    digests = {bundle_sha256(PolicyBundle(graph, text)) for graph in (b"a", b"ab") for text in ("c", "bc")}
    assert len(digests) == 4


@pytest.mark.redis
@pytest.mark.parametrize(("field", "value"), [("graph", b"other"), ("description", b"\xff"), ("sha256", b"")])
def test_a_bundle_that_was_changed_is_refused(redis_run, field, value):
    redis_run.backend.weights.put_bundle(BUNDLE)
    with redis.Redis.from_url(redis_run.url) as client:
        client.hset(f"{redis_run.prefix}bundle", field, value)
    with pytest.raises(MemoryBackendError, match="sha256"):
        redis_run.backend.weights.get_bundle()


@pytest.mark.redis
def test_published_weights_carry_progress_and_the_servers_time(redis_run):
    redis_run.backend.become_learner().weights.publish(1, b"w", Progress(4096, 30, 2))
    with redis.Redis.from_url(redis_run.url) as client:
        fields = client.hgetall(f"{redis_run.prefix}weights")
        seconds, _microseconds = client.time()
    assert [fields[name] for name in (b"env_steps", b"episodes", b"updates")] == [b"4096", b"30", b"2"]
    assert seconds - 60 < float(fields[b"server_time_s"]) < seconds + 1


@pytest.mark.redis
@pytest.mark.parametrize("value", ["abc", "1" + 30 * "0", b"\xff", "1.5"])
@pytest.mark.parametrize("field", ["version", "env_steps", "episodes", "updates"])
def test_a_version_that_is_no_number_is_named(redis_run, field, value):
    backend, learner = redis_run.backend, redis_run.backend.become_learner()
    learner.weights.publish(1, b"w", Progress())
    with redis.Redis.from_url(redis_run.url) as client:
        client.hset(f"{redis_run.prefix}weights", field, value)
    readers = [backend.weights.fetch, backend.weights.progress]
    if field == "version":
        readers[1:] = [
            backend.weights.version,
            backend.unrolls.admission,
            lambda: learner.weights.publish(2, b"w", Progress()),
        ]
    for read in readers:
        with pytest.raises(MemoryBackendError, match=rf"weights of {redis_run.run_id} is b'.*start a new") as caught:
            read()
        assert "\n" not in str(caught.value)


@pytest.mark.redis
def test_weights_without_their_bytes_are_named(redis_run):
    redis_run.backend.become_learner().weights.publish(1, b"w", Progress())
    with redis.Redis.from_url(redis_run.url) as client:
        client.hdel(f"{redis_run.prefix}weights", "blob")
    with pytest.raises(MemoryBackendError, match=f"the weights of {redis_run.run_id} are gone"):
        redis_run.backend.weights.fetch()
