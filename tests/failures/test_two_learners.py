"""Two learners for one run: the second fences out the first one when that is silent."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import distrl
from distrl.data_store.checkpoints import load_newest

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]


def where(run) -> list[str]:
    """A run that a role started by hand joins."""
    record = json.loads((run.run_dir / "run.json").read_text())
    return ["--redis-url", record["redis_url"], "--run-id", record["run_id"]]


def logged(run) -> str:
    return (run.run_dir / "logs" / "learner.log").read_text()


def checkpoints(run) -> list[int]:
    return sorted(
        int(path.name[5:]) for path in (run.run_dir / "checkpoints").glob("ckpt-*") if path.name[5:].isdigit()
    )


@pytest.fixture
def by_hand(tmp_path):
    """Starts a role of a run by hand, with its words in a file; whatever is left ends with the test."""
    started = []
    environment = {**os.environ, "PYTHONPATH": str(Path(distrl.__file__).parent.parent)}

    def start(kind: str, run, *more: str) -> tuple[subprocess.Popen[bytes], Path]:
        words = tmp_path / f"{kind}-{len(started)}.err"
        command = [sys.executable, "-m", "distrl", kind, *where(run), *more]
        with words.open("wb") as file:
            started.append(subprocess.Popen(command, cwd=tmp_path, env=environment | run.key, stderr=file))
        return started[-1], words

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def last_error(words: str) -> str:
    """The one line that a user sees of how a role ended."""
    (line,) = [line for line in words.splitlines() if "distrl: error: " in line]
    return line.partition("distrl: error: ")[2]


def test_a_learner_whose_run_was_taken_over_publishes_and_saves_nothing_more(start_run, unhurried):
    """Another learner holds a newer token, as a second learner does once it is ready."""
    run = start_run(*unhurried, "--set", "checkpoint.every_updates=5")
    run.wait_for_updates(10)
    os.kill(run.role("learner").pid, signal.SIGSTOP)
    token, version = run.backend.become_learner().fence.number, run.backend.weights.version()
    newest = checkpoints(run)[-1]
    os.kill(run.role("learner").pid, signal.SIGCONT)
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (6, 6, "memory backend")
    assert (summary.restarts, summary.imbalance) == (0, 0)  # two that start each other's end over would never end
    assert f"another learner runs {summary.run_id} (token {token}, ours {token - 1}); stop this one" in summary.error
    assert last_error(run.errors.read_text()) == summary.error
    assert summary.weights_version <= version
    # Of the checkpoint that was being written when the learner was stopped, perhaps, and no later one.
    assert checkpoints(run)[-1] <= newest + 5


def test_a_learner_started_by_hand_takes_over_from_one_that_is_silent_and_keeps_what_it_learned(
    start_run, unhurried, redis_url, by_hand
):
    run = start_run(*unhurried, "--redis-url", redis_url, "--set", "checkpoint.every_s=null")
    run.wait_for_updates(5)
    silent = run.role("learner").pid
    os.kill(silent, signal.SIGSTOP)
    second, words = by_hand("learner", run)
    run.wait_until(lambda: run.role("learner").pid == second.pid, "the second has joined")
    run.wait_until(lambda: run.state("learner") == "training", "it trains")
    token, version = run.role("learner").incarnation, run.backend.weights.version()
    run.wait_until(lambda: run.backend.weights.version() > version + 10, "with the actors that there are")
    os.kill(silent, signal.SIGCONT)
    summary = run.finish()
    assert (run.process.returncode, summary.stop_reason, summary.imbalance) == (6, "memory backend", 0)
    assert f"(token {token}, ours {token - 1}); stop this one" in summary.error
    assert "FencedError" in logged(run)
    # The run has ended with its supervisor. What the second one has learned is the newest there is.
    second.wait(timeout=100)
    assert second.returncode == 6
    assert "is gone" in last_error(words.read_text())
    newest = load_newest(run.run_dir / "checkpoints")
    assert newest is not None
    assert newest.step > 10
    assert newest.meta["weights_version"] > version + 10


def test_an_actor_started_by_hand_ends_with_the_run_however_that_ended(start_run, unhurried, redis_url, by_hand):
    """Without a request: the run has failed, and Redis, which is not the run's own, is still there."""
    run = start_run(*unhurried, "--redis-url", redis_url)
    run.wait_for_updates(1)
    guest, words = by_hand("actor", run, "--id", "7")
    run.wait_until(lambda: run.backend.unrolls.highest().get((7, 1), -1) >= 0, "it is trained on")
    run.backend.become_learner()  # the learner fails
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.imbalance) == (6, "memory backend", 0)
    guest.wait(timeout=100)
    assert guest.returncode == 0
    assert "is gone from" in words.read_text()
    assert "distrl: error" not in words.read_text()
