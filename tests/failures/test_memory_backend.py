"""Redis dies, hangs or forgets in the middle of a run: one line, exit 6, what was learned is saved, nothing is left.

And queues, batches and bounds of staleness that leave actors and learner little room: refused at once, or they go on.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

import distrl
from distrl.memory_backend.embedded_redis import find_server
from tests.waiting import lasts, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis]


class Server:
    """A redis-server that belongs to no run, like one on another host; it keeps nothing on disk."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.start()

    def start(self) -> None:
        """Empty."""
        options = ["--port", "0", "--save", "", "--unixsocket", str(self.socket), "--dir", str(self.socket.parent)]
        self.process = subprocess.Popen([str(find_server()), *options], stdout=subprocess.DEVNULL)
        wait_until(self.socket.exists, "Redis listens")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def server(tmp_path):
    started = Server(tmp_path)
    yield started
    started.kill()


@pytest.fixture
def guest(tmp_path):
    """Starts actor 7 by hand: whose exit code can be seen, as no supervisor asks it to end."""
    started = []

    def start(run, url: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent), **run.key}
        command = [sys.executable, "-m", "distrl", "actor", "--redis-url", url, "--id", "7"]
        command += ["--run-id", run.backend._run.keys.run_id]
        with (tmp_path / "guest.err").open("wb") as words:
            started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=words))
        run.wait_until(lambda: run.backend.unrolls.highest().get((7, 1), -1) >= 0, "it is trained on")
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def errors(words: str) -> list[str]:
    """All that was said, but for what is tried out meanwhile on a busy machine."""
    return [line for line in words.splitlines() if not line.startswith("trying out ")]


def assert_only_checkpoint_has(run, updates):
    """None was due before the end: what is saved was learned after the last one."""
    (saved,) = (run.run_dir / "checkpoints").glob("ckpt-*")
    assert int(saved.name.removeprefix("ckpt-")) >= updates
    assert (run.run_dir / "policy" / "weights.msgpack").exists()


def test_a_killed_redis_ends_the_run_with_6_in_one_line_and_leaves_nothing(start_run, unhurried):
    run = start_run(*unhurried, "--set", "checkpoint.every_s=null")
    run.wait_for_updates(10)
    server, learned = int(run.backend.engine.call("INFO", "server")["process_id"]), run.updates
    pids, directory = [*run.pids, server], run.socket.parent
    os.kill(server, signal.SIGKILL)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    (line,) = errors(run.errors.read_text())
    assert f"Redis at unix://{directory}" in line
    assert "is unreachable for 5 s" in line
    assert not any(map(run.alive, pids))
    assert not directory.exists()
    # The numbers are those of the last look, up to half a second old, and they add up.
    assert summary.updates >= 1
    assert summary.trained > 0
    assert summary.imbalance == 0
    assert_only_checkpoint_has(run, learned)


@pytest.mark.long
@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_a_redis_elsewhere_is_given_up_after_its_time_by_every_role(start_run, unhurried, server, guest, how):
    run = start_run(
        *(*unhurried, "--redis-url", server.url),
        *("--set", "memory.give_up_s=2", "--set", "checkpoint.every_s=null"),
    )
    run.wait_for_updates(3)
    actor = guest(run, server.url)
    pids, learned = run.pids, run.updates
    server.process.send_signal(signal.SIGKILL if how == "dies" else signal.SIGSTOP)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    words = f"Redis at {server.url} is unreachable for 2 s"
    (line,) = errors(run.errors.read_text())
    assert words in line
    actor.wait(timeout=100)
    assert actor.returncode == 6
    assert not any(map(run.alive, pids))
    # Each role by itself, and for the same reason: none was killed.
    logs = [*(run.run_dir / "logs" / f"{role}.log" for role in ("learner", "actor-0", "actor-1"))]
    for log in (*logs, run.run_dir.parent / "guest.err"):
        assert f"distrl: error: {words}" in log.read_text(), log
    assert_only_checkpoint_has(run, learned)


@pytest.mark.long
def test_a_redis_that_comes_back_empty_ends_the_run_with_6_and_costs_no_update(start_run, unhurried, server, guest):
    """Redis is back without the run: nothing begins anew, and no role takes it for another learner."""
    run = start_run(*unhurried, "--redis-url", server.url, "--set", "checkpoint.every_s=null")
    run.wait_for_updates(3)
    actor = guest(run, server.url)
    pids, learned = run.pids, run.updates
    server.kill()
    server.start()
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    (line,) = errors(run.errors.read_text())
    assert "gone" in line
    actor.wait(timeout=100)
    assert actor.returncode == 6
    assert not any(map(run.alive, pids))
    assert_only_checkpoint_has(run, learned)


@pytest.mark.long
def test_a_fail_over_of_three_seconds_costs_no_unroll(start_run, unhurried, server, guest):
    """The master is demoted while all are connected, as in any planned fail-over, and every write is refused."""
    run = start_run(*unhurried, "--redis-url", server.url)
    run.wait_for_updates(3)
    guest(run, server.url)
    with redis.Redis.from_url(server.url) as admin:
        admin.replicaof("127.0.0.1", "1")
        lasts(3.0)
        admin.replicaof("NO", "ONE")
    run.wait_for_updates(run.updates + 3)
    run.process.send_signal(signal.SIGTERM)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (0, 0, "SIGTERM"), run.told
    assert (summary.imbalance, summary.lost, summary.restarts) == (0, 0, 0)


def sets(*values: str) -> list[str]:
    return [argument for value in values for argument in ("--set", value)]


def test_a_queue_that_closes_before_a_batch_is_in_it_is_refused_before_anything_is_launched(command_here, tmp_path):
    few = sets("memory.queue_bytes=65536", "learner.batch_size=8")
    done = command_here("train", "--preset", "cartpole-impala", *few, "--run-dir", "run")
    assert done.returncode == 2
    (line,) = errors(done.stderr)
    assert line.startswith("distrl: error: memory.queue_bytes 65,536 is full before a batch of 8 unrolls of ")
    assert "set at least " in line
    assert not (tmp_path / "run").exists()


LSTM = "network.middleware_parameters={kind: lstm, number_of_lstm_cells: 256}"


@pytest.mark.long
@pytest.mark.parametrize(
    "larger",
    [
        # What is said of an unroll beside its numbers is more than those.
        ["actors.environments=1", "actors.unroll_length_steps=2", "learner.batch_size=256"],
        ["actors.environments=64", "actors.unroll_length_steps=2", "learner.batch_size=8", LSTM],
    ],
    ids=["small ones", "with memory"],
)
def test_unrolls_that_turn_out_larger_than_the_queue_do_not_stop_the_run(start_run, endless, larger):
    """How large they are is known once there is one; were the queue closed before a batch is there, all would wait."""
    most = sets("memory.queue_bytes=65536", "algorithm.minibatches=1", "learner.stall_timeout_s=60", *larger)
    run = start_run(*endless, *most, *sets("stop.updates=5"))
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.updates) == (0, "updates", 5), run.told
    assert (summary.imbalance, summary.lost, sum(summary.dropped.values())) == (0, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "batch"), [("impala", 16), ("a3c", 8)])
def test_a_batch_of_more_than_all_actors_make_at_once_is_made_of_one_version_all_the_same(start_run, algorithm, batch):
    """Each unroll waits for its ticket, and one actor brings all of them."""
    run = start_run(
        *("--preset", f"cartpole-{algorithm}", "--actors", "1"),
        *sets("stop.mean_return=null", "stop.env_steps=null", "stop.updates=5", "learner.stall_timeout_s=60"),
        *sets(f"learner.batch_size={batch}", "algorithm.max_staleness_updates=0"),
        *sets("actors.environments=4", "actors.unroll_length_steps=16"),
    )
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.updates) == (0, "updates", 5), run.told
    assert (summary.trained, summary.policy_lag.max) == (5 * batch, 0)
    assert (summary.imbalance, sum(summary.dropped.values())) == (0, 0)
