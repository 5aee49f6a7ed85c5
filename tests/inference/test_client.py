"""Actors of one host and their server, which is another process."""

import os
import signal
import threading

import numpy as np
import pytest

from distrl.errors import DistrlError
from distrl.inference import client
from distrl.inference.client import ServerGoneError, SharedPolicy
from distrl.inference.states import WAITING
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


def nothing():
    raise AssertionError("an actor that shares its policy fetches no weights")


def follow(policy: SharedPolicy, newest: int):
    return policy.follow(newest, nothing, 1.0)


def seen(rows, seed=0):
    return {"observation": np.random.default_rng(seed).integers(0, 3, (rows, 1)).astype(np.uint8)}


def assert_same(output, expected):
    for ours, theirs in zip(output, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_allclose(array, theirs[name], atol=1e-5)


def in_thread(call):
    """Call in a thread; return it, and a list that will hold the result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def test_actors_act_as_with_policies_of_their_own_each_in_its_version(host):
    """They have different sizes and memory, and one has gone over to a newer version before the other."""
    host.publishes(3)
    host.starts()
    first, second = host.actor(rows=2), host.actor(rows=5)
    with pytest.raises(DistrlError, match="no weights yet"):
        first.step(seen(2), first.initial_state(2))
    for policy in (first, second):
        assert follow(policy, 3) == (30, 3, 3)
    host.publishes(4)
    assert follow(second, 4) == (40, 4, 4)
    states = {policy: policy.initial_state(rows) for policy, rows in ((first, 2), (second, 5))}
    for step in range(3):
        for policy, rows, version in ((first, 2, 3), (second, 5, 4)):
            output = policy.step(seen(rows, step), states[policy])
            assert_same(output, host.own(version).step(seen(rows, step), states[policy]))
            states[policy] = output.recurrent_state
    assert (first.version, second.version) == (3, 4)
    assert follow(first, 5) == (40, 4, 4)  # the newest here, which it has not used: both then make one batch
    host.publishes(6)
    assert follow(first, 6) == (60, 6, 6)
    assert {path.name for path in host.directory.glob("weights-*")} == {"weights-4", "weights-6"}
    with pytest.raises(DistrlError, match=r"observation is uint8 \(3, 1\), not uint8 \(2, 1\)"):
        first.step(seen(3), first.initial_state(2))


def test_rows_of_actors_that_wait_together_make_one_batch(host):
    host.publishes(1)
    host.starts()
    actors = [host.actor(rows=2) for _ in range(3)]
    for actor in actors:
        follow(actor, 1)
    os.kill(host.server.pid, signal.SIGSTOP)
    asked = [in_thread(lambda actor=actor: actor.step(seen(2, 7), actor.initial_state(2))) for actor in actors]
    wait_until(lambda: all(actor._progress.state == WAITING for actor in actors))
    os.kill(host.server.pid, signal.SIGCONT)
    expected = host.own(1).step(seen(2, 7), actors[0].initial_state(2))
    for thread, results in asked:
        thread.join()
        assert_same(results[0], expected)
    assert {actor._progress.state for actor in actors} == {"acting"}
    for actor in actors:
        actor.close()
    host.opened.clear()
    assert host.ends() == (1, 6)


def test_an_unroll_goes_on_in_its_version_at_the_successor_of_a_killed_server(host):
    """Also if a newer version is published by then; the actor says meanwhile that it waits."""
    host.publishes(8)
    host.starts()
    actor = host.actor()
    follow(actor, 8)
    before = actor.step(seen(2), actor.initial_state(2))
    host.ends(signal.SIGKILL)
    host.publishes(9)
    thread, results = in_thread(lambda: actor.step(seen(2, 1), before.recurrent_state))
    wait_until(lambda: actor._progress.state == WAITING)
    host.starts()
    thread.join()
    assert_same(results[0], host.own(8).step(seen(2, 1), before.recurrent_state))
    assert actor._progress.state == "acting"
    assert actor._progress.last_step_at > 0.0
    assert follow(actor, 9) == (90, 9, 9)


def test_a_version_that_no_file_has_is_an_error_of_that_actor_alone(host):
    host.publishes(1)
    host.starts()
    first, second = host.actor(), host.actor()
    for actor in (first, second):
        follow(actor, 1)
    first.version = 5
    with pytest.raises(DistrlError, match="lost weights 5"):
        first.step(seen(2), first.initial_state(2))
    second.step(seen(2), second.initial_state(2))


def test_bounded_staleness_takes_the_newest_weights(host):
    host.publishes(1)
    host.starts()
    first, second = host.actor(newest=True), host.actor(newest=True)
    assert follow(first, 1) == (10, 1, 1)
    host.publishes(2)
    assert follow(second, 2) == (20, 2, 2)
    assert follow(first, 2) == (20, 2, 2)


def test_before_the_first_weights_an_actor_keeps_none(host):
    host.starts()
    assert follow(host.actor(), 1) is None


def test_an_actor_that_is_to_stop_waits_a_moment_for_a_server_and_then_says_so(host, monkeypatch):
    monkeypatch.setattr(client, "STOPPING_S", 0.0)
    host.stop.set()
    with pytest.raises(ServerGoneError):
        follow(host.actor(), 1)


def test_a_server_with_another_policy_is_refused(host):
    host.publishes(1)
    host.starts()
    actor = host.actor()
    object.__setattr__(actor._description, "sha256", "0" * 64)
    with pytest.raises(DistrlError, match="refuses 2 rows"):
        follow(actor, 1)
