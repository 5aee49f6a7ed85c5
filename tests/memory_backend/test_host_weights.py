"""Weights of one host: each version crosses the network once, and a lost, full or stuck directory costs only that."""

import resource
import threading

import pytest

from distrl.config.schedules import Progress
from distrl.memory_backend import host_weights
from distrl.memory_backend.host_weights import SharedDirectory

BLOB = bytes(range(256)) * 400


@pytest.fixture
def directory():
    made = SharedDirectory()
    yield made
    made.close()


@pytest.fixture
def host(run, directory, monkeypatch):
    """A function that makes another role of this host, and the number of times that weights were read from Redis."""

    def joined():
        backend = run.connect()
        backend.share_weights(directory.path)
        call = backend.engine.call

        def counted(*command):
            joined.fetches += "blob" in command
            return call(*command)

        monkeypatch.setattr(backend.engine, "call", counted)
        return backend.weights

    joined.fetches = 0
    return joined


def test_the_directory_is_this_users_alone_and_is_removed(directory):
    assert directory.path.stat().st_mode & 0o777 == 0o700
    (directory.path / "weights").write_bytes(b"x")
    other = SharedDirectory()
    other.close()
    assert not other.path.exists()


@pytest.mark.row("S11")
def test_one_role_fetches_a_version_and_the_others_read_it(run, host):
    learner, roles = run.backend.become_learner(), [host() for _ in range(4)]
    assert [role.fetch() for role in roles] == [None] * 4
    host.fetches = 0
    for version in (1, 2):
        learner.weights.publish(version, BLOB + b"%d" % version, (progress := Progress(10 * version, version, 7)))
        assert [role.fetch() for role in roles] == [(version, BLOB + b"%d" % version, progress)] * 4
        assert host.fetches == version


@pytest.mark.row("S11")
def test_roles_that_ask_at_the_same_time_fetch_once(run, host):
    run.backend.become_learner().weights.publish(1, BLOB, Progress())
    found, start = [], threading.Barrier(6)

    def fetch(role):
        start.wait()
        found.append(role.fetch())

    threads = [threading.Thread(target=fetch, args=(host(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(1, BLOB, Progress())] * 6
    assert host.fetches == 1


def test_a_number_that_is_given_again_after_a_fail_over_is_another_version(run, host):
    learner, role = run.backend.become_learner(), host()
    learner.weights.publish(5, b"lost", Progress(50))
    assert role.fetch() == (5, b"lost", Progress(50))
    run.backend.engine.call("DEL", run.backend.weights._keys.weights)  # the promoted replica has an older state
    learner.weights.publish(5, b"other", Progress(40))
    assert role.fetch() == (5, b"other", Progress(40))
    assert host().fetch() == (5, b"other", Progress(40))


def test_without_the_directory_a_role_fetches_alone(run, host, directory, caplog):
    run.backend.become_learner().weights.publish(1, BLOB, Progress())
    role = host()
    gone = directory.path.rename(directory.path.with_name(f"{directory.path.name}-gone"))
    assert role.fetch() == role.fetch() == (1, BLOB, Progress())
    gone.rename(directory.path)
    assert len(caplog.messages) == 1


def test_a_role_that_hangs_while_it_fetches_is_waited_for_once(run, host, directory, monkeypatch, caplog):
    learner = run.backend.become_learner()
    monkeypatch.setattr(host_weights, "PATIENCE_S", 0.01)
    role, other = host(), host()
    monkeypatch.setattr(host_weights, "PATIENCE_S", 3600.0)
    with (directory.path / "weights.lock").open("ab") as held:
        assert host_weights._is_locked_by_us(held)
        for version in (1, 2):
            learner.weights.publish(version, BLOB, Progress())
            assert role.fetch() == (version, BLOB, Progress())
    host.fetches = 0
    learner.weights.publish(3, BLOB, Progress())
    assert [role.fetch(), other.fetch()] == [(3, BLOB, Progress())] * 2
    assert host.fetches == 1  # they share again
    assert caplog.messages == []


def test_where_there_is_no_room_every_role_fetches_alone_and_nothing_is_left(run, host, directory, caplog):
    run.backend.become_learner().weights.publish(1, BLOB, Progress())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(BLOB) // 2, before[1]))
    try:
        assert [host().fetch() for _ in range(2)] == [(1, BLOB, Progress())] * 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(caplog.messages) == 2
    assert not (directory.path / "weights").exists()
    assert not (directory.path / "weights.new").exists()


def test_what_a_killed_role_has_begun_to_write_is_not_read(run, host, directory):
    run.backend.become_learner().weights.publish(1, BLOB, Progress())
    (directory.path / "weights.new").write_bytes(b"1 2\n0\nhalf")
    assert host().fetch() == host().fetch() == (1, BLOB, Progress())
    assert host.fetches == 1
