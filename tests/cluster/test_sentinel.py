"""A training over Sentinels: the master is killed again and again, and may take the newest writes along."""

import json
import os
import signal
import subprocess
import sys
import threading
from hashlib import sha256

import pytest

from distrl.memory_backend.backend import connect
from tests.faults.arguments import environment, sets
from tests.faults.sentinel import Watched
from tests.faults.training import Run
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S03")]

SLEEPING = ["--env", "benchmarks.sleeping:Sleeping", "--set", "environment.kwargs={step_s: 0.002}"]
SHAPE = sets("actors.count=2", "actors.environments=1", "actors.unroll_length_steps=8", "learner.batch_size=1")
SHAPE += sets("memory.queue_batches=8")  # more than a learner that is stopped may have taken


@pytest.fixture
def watched(tmp_path):
    servers = Watched(tmp_path / "servers")
    yield servers
    servers.close()


@pytest.fixture
def run(watched, tmp_path):
    started = Run(tmp_path / "run", *SLEEPING, *SHAPE, "--redis-url", watched.url, cwd=tmp_path)
    yield started
    started.end()


def status_of(run):
    """Return the object that `distrl status --json` prints."""
    command = [sys.executable, "-m", "distrl", "status", str(run.run_dir), "--json"]
    return json.loads(subprocess.run(command, env=environment(), capture_output=True, check=True).stdout)


def stop(run):
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert summary.error is None, run.told
    assert summary.imbalance == 0
    return summary


class Reader(threading.Thread):
    """Reads the weights over and over, as actors do.

    Attributes:
        seen: Fail-overs that its connection has noticed, version and digest, at each reading.
    """

    def __init__(self, url, run_id):
        super().__init__(daemon=True)
        self.backend = connect(url, run_id, name="reader", give_up_s=60.0)
        self.seen, self.ended = [], threading.Event()

    def run(self):
        while not self.ended.wait(0.005):
            weights = self.backend.weights.fetch()
            self.seen.append((self.backend.engine.failovers, weights.version, sha256(weights.blob).hexdigest()))

    def end(self):
        self.ended.set()
        self.join()
        self.backend.close()


def test_a_master_is_killed_three_times_and_the_training_goes_on(watched, run):
    run.wait_for_updates(20)
    reader = Reader(watched.url, run.record["run_id"])
    reader.start()
    wait_until(lambda: reader.seen, "the weights are read")
    for _ in range(3):
        killed = watched.kill_master()
        run.wait_for_updates(run.updates + 50)
        watched.start_as_replica(killed)
    reader.end()
    summary = stop(run)
    assert summary.restarts == 0
    assert summary.failovers == watched.switches >= 3
    assert summary.trained > 150
    # One server's versions never go back, the next one's rise above them, and a version has the same weights on all.
    versions = {}
    for failovers, version, _ in reader.seen:
        versions.setdefault(failovers, []).append(version)
    assert len(versions) == summary.failovers + 1
    assert all(read == sorted(read) for read in versions.values())
    newest = [read[-1] for read in versions.values()]
    assert newest == sorted(set(newest))
    assert len({(version, digest) for _, version, digest in reader.seen}) == len(set().union(*versions.values()))
    assert f"fail-overs of Redis: {summary.failovers}" in run.told


@pytest.mark.parametrize("fate", [signal.SIGCONT, signal.SIGKILL], ids=["learner goes on", "learner dies too"])
def test_what_no_replica_had_is_lost_and_told(watched, run, fate):
    run.wait_for_updates(20)
    learner = run.role("learner").pid
    watched.cut_replication()
    run.wait_for_updates(run.updates + 20)  # no unroll that a replica has is left in the queue
    os.kill(learner, signal.SIGSTOP)
    wait_until(lambda: run.backend.ledger.counts().queued > 0, "unrolls wait that no replica has")
    watched.kill_master()
    os.kill(learner, fate)
    wait_until(lambda: run.backend.ledger.counts().lost_to_failover > 0, "what is lost is noticed")
    run.wait_for_updates(run.updates + 50)
    told = status_of(run)
    assert told["ledger"]["lost_to_failover"] > 0
    assert told["ledger"]["failovers"] == watched.switches >= 1
    assert told["imbalance"] == 0
    summary = stop(run)
    assert summary.lost >= summary.lost_to_failover >= told["ledger"]["lost_to_failover"]
    assert summary.restarts == (1 if fate == signal.SIGKILL else 0)
    assert "to a fail-over of Redis)" in run.told
    assert "unrolls were lost to a fail-over of Redis" in (run.run_dir / "logs" / "events.log").read_text()
