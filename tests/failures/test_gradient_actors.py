"""Gradient actors as real processes: a dead worker, a slow one, workers that come and go, Ray, and resuming."""

import os
import signal
from pathlib import Path

import pytest

from distrl.data_store.checkpoints import load_newest

pytestmark = [pytest.mark.slow, pytest.mark.redis]

# Worker 0 is slow.
MODULE = """
import sys

from distrl.environments.worlds.toy import StepCounter
from tests.waiting import lasts


class Uneven(StepCounter):
    def step(self, action):
        if "--id 0 " in " ".join([*sys.argv, ""]):
            lasts(0.05)
        return super().step(action)
"""
TINY = ["--set", "network.middleware_parameters.scheme=[4]", "--set", "checkpoint.every_s=null"]


def applied(run_dir: Path) -> dict[tuple[int, int], int]:
    """(actor, incarnation) -> gradients that are in the newest checkpoint's weights, at most."""
    newest = load_newest(run_dir / "checkpoints")
    assert newest is not None
    return {(actor, incarnation): sequence + 1 for actor, incarnation, sequence in newest.meta["applied"]}


def endless(preset: str) -> list[str]:
    return ["--preset", preset, "--set", "stop.mean_return=null", "--set", "stop.env_steps=null"]


@pytest.mark.row("B11")
def test_a_round_goes_on_without_a_killed_worker_whose_replacement_joins_again(start_run):
    run = start_run(*endless("cartpole-a2c"), "--set", "actors.count=2", "--set", "learner.sync_timeout_s=2")
    # Gradient actors carry the framework, and say so.
    run.wait_until(lambda: run.state("actor", 1) == "starting: importing the framework", "it says what it imports")
    run.wait_for_updates(3)
    assert "tensorflow" in Path(f"/proc/{run.role('actor', 1).pid}/maps").read_text()
    run.wait_until(lambda: run.state("actor", 1) == "differentiating", "it says what it does")
    run.kill("actor", 1)
    run.wait_until(lambda: "rounds go on without actor 1" in run.told, "the user is told")
    alone = run.updates
    run.wait_until(lambda: run.updates > alone + 20, "the other one goes on, and not at one round per time-out")
    run.wait_until(lambda: "rounds have every worker again" in run.told, "the replacement has joined")
    joined = run.updates
    run.wait_until(lambda: run.updates > joined + 5, "and goes on")
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 1, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    log = (run.run_dir / "logs" / "learner.log").read_text()
    (line,) = [line for line in log.splitlines() if "goes on without" in line]
    assert "without actor 1: no gradient within 2 s (learner.sync_timeout_s)" in line
    assert log.count("actor 1 is back") == 1
    counts = applied(run.run_dir)
    assert counts.keys() == {(0, 1), (1, 1), (1, 2)}
    # One gradient of each actor in each round. Until the learner has read the replacement's first one, no round waits
    # for it: that one may be too old, and so may the next, for the one round that was already complete in the queue.
    assert counts[0, 1] == summary.updates
    assert summary.dropped["stale"] <= 2
    assert summary.trained == sum(counts.values()) - summary.dropped["stale"]
    assert counts[1, 1] + counts[1, 2] < summary.updates
    assert sum(summary.dropped.values()) == summary.dropped["stale"]


@pytest.mark.long
@pytest.mark.row("A02")
@pytest.mark.parametrize("algorithm", ["a3c", "a2c"])
def test_only_rounds_wait_for_a_slow_worker(start_run, tmp_path, algorithm):
    (tmp_path / "uneven.py").write_text(MODULE)
    # Workers begin seconds apart, in which the slow one makes a few gradients.
    updates = {"a2c": 20, "a3c": 200}[algorithm]
    run = start_run(
        *("--env", "uneven:Uneven", "--algorithm", algorithm, "--actors", "2", *TINY),
        *(
            "--set",
            "actors.environments=1",
            "--set",
            "actors.unroll_length_steps=8",
            "--set",
            f"stop.updates={updates}",
        ),
    )
    summary = run.finish()
    assert (summary.exit_code, summary.updates, summary.imbalance) == (0, updates, 0)
    counts = applied(run.run_dir)
    slow, fast = counts.get((0, 1), 0), counts[1, 1]
    if algorithm == "a2c":
        assert (slow, fast, summary.trained) == (20, 20, 40)
        assert summary.policy_lag.max == 0
    else:
        assert slow + fast == summary.trained == updates
        assert fast > 2 * slow


def lose_what_is_queued(run) -> int:
    """As a Redis that comes back without its newest pushes: the entries and all that was counted with them."""
    client, keys = run.backend.engine, run.backend.unrolls._keys
    entries = client.call("XRANGE", keys.unrolls, "-", "+")
    sizes = [len(fields[b"payload"]) for _, fields in entries]
    lost = {
        "produced": len(sizes),
        "stream_entries": len(sizes),
        "stream_bytes": sum(sizes),
        "pushed_bytes": sum(sizes),
    }
    decrements = [("HINCRBY", keys.ledger, name, -count) for name, count in lost.items()]
    client.transaction([("XTRIM", keys.unrolls, "MAXLEN", 0), *decrements])
    return len(entries)


@pytest.mark.long
def test_a_round_that_redis_lost_whole_is_made_again(start_run, distrl_command):
    run = start_run(*endless("cartpole-a2c"), "--set", "actors.count=2", "--set", "learner.sync_timeout_s=1")
    run.wait_for_updates(3)
    where = ("--run", str(run.run_dir))

    def states() -> set[str]:
        return {run.state("actor", actor) for actor in (0, 1)}

    # Paused between two rounds, the learner reading an empty stream; a pause within one is tried again.
    while True:
        assert distrl_command("pause", *where).returncode == 0
        run.wait_until(lambda: states() == {"paused"}, "both are paused")
        if run.backend.ledger.counts().in_flight == 0:
            break
        assert distrl_command("resume", *where).returncode == 0
        run.wait_until(lambda: "paused" not in states(), "both go on")
    learner = run.role("learner").pid
    os.kill(learner, signal.SIGSTOP)
    run.wait_until(lambda: run.backend.engine.call("INFO", "clients")["blocked_clients"] == 0, "it reads no more")
    assert distrl_command("resume", *where).returncode == 0
    run.wait_until(lambda: run.backend.ledger.counts().queued == 2, "both have contributed")
    version = run.backend.weights.version()
    assert lose_what_is_queued(run) == 2
    os.kill(learner, signal.SIGCONT)
    run.wait_until(lambda: run.backend.weights.version() > version + 5, "rounds go on")
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.restarts) == (0, 0, 0)
    assert summary.lost == 2
    assert sum(summary.dropped.values()) <= 1  # where the second of the new ones took longer than the time-out
    for actor in (0, 1):
        assert "contributing again" in (run.run_dir / "logs" / f"actor-{actor}.log").read_text()


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["a2c", "a3c"])
def test_workers_come_and_go(start_run, distrl_command, algorithm):
    run = start_run(*endless(f"cartpole-{algorithm}"), "--set", "actors.count=1")
    where = ("--run", str(run.run_dir))
    run.wait_for_updates(3)
    assert distrl_command("scale", "3", *where).returncode == 0
    run.wait_until(lambda: {(1, 1), (2, 1)} <= run.backend.unrolls.highest().keys(), "both contribute")
    version = run.backend.weights.version()
    assert distrl_command("scale", "1", *where).returncode == 0
    run.wait_until(lambda: run.state("actor", 2) == "absent", "one is left")
    after = run.backend.weights.version()
    run.wait_until(lambda: run.backend.weights.version() > after + 10, "it goes on alone")
    assert after >= version
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.lost, summary.restarts) == (0, 0, 0, 0)
    assert "no gradient within" not in (run.run_dir / "logs" / "learner.log").read_text()


@pytest.mark.long
def test_a_learner_that_was_started_again_opens_new_rounds(start_run):
    run = start_run(*endless("cartpole-a2c"), "--set", "actors.count=2", "--set", "checkpoint.every_updates=5")
    run.wait_for_updates(12)
    version = run.backend.weights.version()
    fence = run.role("learner").incarnation
    run.kill("learner")
    run.wait_until(lambda: run.role("learner").incarnation > fence, "another learner trains")
    # What the workers have sent to the dead one is too old, and they hear of it by newer weights.
    run.wait_until(lambda: run.backend.weights.version() > version + 20, "rounds go on")
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance, summary.lost) == (0, 1, 0, 0)
    assert summary.dropped["stale"] <= 2
    assert summary.rolled_back <= 2 * 6
    assert summary.trained == 2 * summary.updates + summary.rolled_back
    assert "goes on without" not in (run.run_dir / "logs" / "learner.log").read_text()


@pytest.mark.long
def test_a_resumed_run_goes_on_with_every_workers_own_optimizer(start_run):
    arguments = ["--preset", "cartpole-a2c", "--set", "actors.count=2", "--set", "network.shared_optimizer=false"]
    run = start_run(*arguments, "--set", "stop.updates=10")
    first = run.finish()
    assert (first.exit_code, first.updates, first.imbalance) == (0, 10, 0)

    def iterations() -> dict[str, int]:
        newest = load_newest(run.run_dir / "checkpoints")
        assert newest is not None
        groups = {group: arrays for group, arrays in newest.arrays.items() if "optimizer" in group}
        return {group: int(arrays["optimizer/iteration"]) for group, arrays in groups.items()}

    assert iterations() == {"main.optimizer_0": 10, "main.optimizer_1": 10}
    again = start_run(*arguments, "--set", "stop.updates=15", "--resume", str(run.run_dir))
    again.process.wait(timeout=200)
    assert (again.process.returncode, iterations()) == (0, {"main.optimizer_0": 15, "main.optimizer_1": 15}), again.told


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["a2c", "a3c"])
def test_the_same_as_ray_actors(start_run, algorithm):
    pytest.importorskip("ray")
    run = start_run(*endless(f"cartpole-{algorithm}"), "--launcher", "ray", "--set", "actors.count=2")
    run.wait_until(lambda: {(0, 1), (1, 1)} <= run.backend.unrolls.highest().keys(), "both contribute")
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.restarts) == (0, 0, 0), run.told
    counts = applied(run.run_dir)
    assert sum(counts.values()) == summary.trained
    assert counts.keys() == {(0, 1), (1, 1)}
    if algorithm == "a2c":
        assert set(counts.values()) == {summary.updates}


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["a3c", "a2c"])
def test_gradients_that_are_not_finite_are_counted_passed_over_and_end_the_run_once_there_are_no_others(
    start_run, algorithm
):
    """One may be an accident, and the training goes on; sixteen in a row, or a whole round, are none."""
    run = start_run(*endless(f"cartpole-{algorithm}"), "--actors", "2", "--set", "algorithm.reward_scale=1e38")
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (5, 5, "non-finite training")
    assert run.errors.read_text().endswith(f"distrl: error: {summary.error}\n")
    assert (summary.updates, summary.trained, summary.restarts) == (0, 0, 0)
    assert summary.dropped["nonfinite"] == (16 if algorithm == "a3c" else 2)
    assert (summary.imbalance, summary.lost) == (0, 0)
    assert list((run.run_dir / "checkpoints").iterdir()) == []
