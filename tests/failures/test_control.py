"""Operators' commands act on a running job."""

import json

import pytest

import distrl
from distrl.data_store.checkpoints import load_newest
from distrl.runs.metrics_csv import read_table

pytestmark = [pytest.mark.slow, pytest.mark.redis]


def test_status_pause_resume_scale_and_stop_act_on_a_running_job(start_run, unhurried, command_here):
    run = start_run(
        *unhurried, "--set", "network.learning_rate_decay_rate=0", "--set", "network.learning_rate_decay_steps=0"
    )
    run.wait_for_updates(3)
    where = ("--run", str(run.run_dir))

    def status():
        done = command_here("status", *where, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    told = status()
    assert [(role["role"], role["id"]) for role in told["roles"]] == [("actor", 0), ("actor", 1), ("learner", 0)]
    assert told["imbalance"] == 0
    assert told["snapshot"]["updates"] >= 3
    text = command_here("status", *where).stdout
    assert "running" in text
    assert "actor 1" in text

    assert command_here("pause", *where).returncode == 0
    run.wait_until(lambda: {run.state("actor", 0), run.state("actor", 1)} == {"paused"}, "both actors pause")
    run.wait_until(lambda: run.backend.ledger.counts().queued == 0, "the queue is empty")
    paused_at = run.backend.weights.version()
    assert "paused" in command_here("status", *where).stdout
    assert run.backend.weights.version() == paused_at
    assert command_here("resume", *where).returncode == 0
    run.wait_until(lambda: run.backend.weights.version() > paused_at + 10, "training goes on")

    before = command_here("set", *where).stdout.splitlines()
    assert before[0].startswith("network.learning_rate = ")
    assert command_here("set", "network.learning_rate=0.000123", "launch.log_level=debug", *where).returncode == 0
    run.wait_until(lambda: run.snapshot["learning_rate"] == pytest.approx(0.000123), "updates take the new rate")
    learned = run.snapshot["updates"]
    assert command_here("checkpoint", *where).returncode == 0
    assert load_newest(run.run_dir / "checkpoints").step >= learned
    with distrl.attach(run.run_dir) as job:
        job.change({"algorithm.entropy_weight": 0.0625})
        assert {one.path: one.value for one in job.steerable()}["algorithm.entropy_weight"] == 0.0625
    refused = command_here("set", "actors.count=3", *where)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)

    assert command_here("scale", "3", *where).returncode == 0
    run.wait_until(
        lambda: not run.state("actor", 2).startswith(("absent", "starting", "waiting: policy")), "a third actor acts"
    )
    assert "scaled from 2 to 3 actors" in run.told
    third = run.role("actor", 2).pid
    assert command_here("scale", "1", *where).returncode == 0
    run.wait_until(lambda: run.state("actor", 1) == run.state("actor", 2) == "absent", "one actor is left")
    assert not run.alive(third)

    pids = run.pids
    assert len(pids) == 3
    assert command_here("stop", *where).returncode == 0
    summary = run.finish()
    assert (run.process.returncode, summary.exit_code, summary.stop_reason) == (0, 0, "asked")
    assert (summary.imbalance, summary.restarts, summary.foreign, summary.lost) == (0, 0, 0, 0)
    assert not any(map(run.alive, pids))

    # Counters add up: the last row of the table says what the summary does.
    metrics = read_table(run.run_dir / "metrics.csv")
    last = {name: column[-1] for name, column in metrics.items()}
    for name in ("updates", "env_steps", "trained_steps", "episodes", "weights_version", "restarts", "mean_return_100"):
        assert last[name] == getattr(summary, name), name
    assert {reason: last[f"dropped_{reason}"] for reason in summary.dropped} == summary.dropped

    # Who asked what is in the run's own log.
    events = (run.run_dir / "logs" / "events.log").read_text()
    asked = [line.split("asked: ")[1].split(" (by ") for line in events.splitlines() if " asked: " in line]
    assert [what for what, _ in asked] == [
        "pause",
        "resume",
        'network.learning_rate 0.000123, launch.log_level "debug"',
        "checkpoint now",
        "algorithm.entropy_weight 0.0625",
        "scale to 3",
        "scale to 1",
        "stop",
    ]
    assert {by.split(", ")[1] for _, by in asked} == {"command line)", "Python)"}
    assert "from now on: " in (run.run_dir / "logs" / "learner.log").read_text()

    # Afterwards status tells how it ended, and the others say that it has.
    assert "stopped as asked" in command_here("status", *where).stdout
    late = command_here("scale", "2", *where)
    assert (late.returncode, late.stderr.count("\n")) == (2, 1)
    assert "has ended (asked)" in late.stderr
