"""A training to iterate over: snapshots come in order, and leaving the loop ends it."""

import subprocess
import sys
import threading

import pytest

import distrl
from distrl.errors import ConfigError
from distrl.launch.iteration import iterate
from distrl.metrics.snapshot import METRICS
from distrl.runs.directories import open_run
from distrl.runs.metrics_csv import read_table
from distrl.terminal.console import ListenedView, QuietView
from tests.waiting import wait_until

SMALL = ["actors.count=0", "actors.environments=4", "algorithm.minibatches=1", "stop.mean_return=null"]


def toy(*sets):
    return distrl.load("cartpole-impala", sets=[*SMALL, *sets])


def test_snapshots_come_in_order_and_the_summary_at_last(tmp_path):
    results, returned = [], []

    def loop():
        returned.append((yield from distrl.iterate(toy("stop.updates=30"), run_dir=tmp_path / "run")))

    for result in loop():
        assert threading.current_thread() is threading.main_thread()
        results.append(result["updates"])
    assert results == sorted(results)
    assert results[-1] == 30
    (summary,) = returned
    assert (summary.exit_code, summary.stop_reason, summary.updates) == (0, "updates", 30)
    assert set(read_table(tmp_path / "run" / "metrics.csv")["updates"]) >= set(results)


def test_leaving_the_loop_ends_the_run_in_order(tmp_path):
    for result in distrl.iterate(toy("stop.updates=100000"), run_dir=tmp_path / "run"):
        if result["updates"] >= 20:
            break
    run = open_run(tmp_path / "run")
    assert (run.state, run.summary.stop_reason, run.summary.exit_code) == ("ended", "asked", 0)
    assert 20 <= run.summary.updates < 100000
    assert "training" not in {thread.name for thread in threading.enumerate()}


def test_what_the_training_raises_is_raised_in_the_loop(tmp_path):
    with pytest.raises(ConfigError, match="NoSuchEnvironment"):
        list(distrl.iterate(toy("environment.id=NoSuchEnvironment-v0"), run_dir=tmp_path / "run"))


def test_an_error_in_the_loop_ends_the_training_first():
    ended = []

    def train(tell, interrupt):
        tell({"updates": 1})
        wait_until(lambda: interrupt.code is not None)
        ended.append(interrupt.name)
        raise KeyError("too late to matter")

    def body():
        for _ in iterate(train):
            raise ZeroDivisionError("in the body")

    with pytest.raises(ZeroDivisionError, match="in the body"):
        body()
    assert ended == ["asked"]


def test_callbacks_get_each_snapshot_once_and_may_end_the_run(tmp_path):
    first, second = [], []
    summary = distrl.train(
        toy("stop.updates=20"), run_dir=tmp_path / "run", callbacks=[first.append, lambda given: second.append(given)]
    )
    told = [(given["updates"], given["stop_reason"]) for given in first]
    assert told == [(10, None), (20, None), (20, "updates")]
    assert second == first
    assert summary.updates == 20

    def refuse(snapshot):
        raise RuntimeError("seen enough")

    with pytest.raises(RuntimeError, match="seen enough"):
        distrl.train(toy("stop.updates=50"), run_dir=tmp_path / "other", callbacks=[refuse])
    assert open_run(tmp_path / "other").state == "ended"


def test_a_callback_that_returns_false_ends_the_run_in_order(tmp_path, capsys):
    seen = []

    def enough(snapshot):
        seen.append(snapshot["updates"])
        return snapshot["updates"] < 20

    summary = distrl.train(toy("stop.updates=100000"), run_dir=tmp_path / "run", callbacks=[enough], view="plain")
    assert (summary.exit_code, summary.stop_reason, summary.error) == (0, "callback", None)
    assert 20 <= summary.updates < 100_000
    assert "stopped by the callback (exit code 0)" in capsys.readouterr().out
    assert (tmp_path / "run" / "checkpoints" / f"ckpt-{summary.updates:012}").is_dir()


def test_a_listener_gets_each_snapshot_once_with_all_names():
    """The view is updated twice a second, also while no new snapshot comes, with the rates of roles that pause."""
    got, stopped = [], []
    view = ListenedView(QuietView(write=lambda line: None), [got.append], lambda: stopped.append(True))
    first = {"updates": 1, "wall_s": 1.0}
    last = {"updates": 2, "wall_s": 2.0, "loss": 0.5}
    for snapshot in ({}, first, {**first, "env_steps_per_s": 0.0}, dict(first), last, {**last, "stop_reason": "asked"}):
        view.update(snapshot, [], None)
    assert [given["updates"] for given in got] == [1, 2, 2]
    names = {metric.name for metric in METRICS}
    assert [given.keys() - names for given in got] == [set(), {"loss"} - names, {"loss"} - names]
    assert all(names <= given.keys() for given in got)
    assert (got[0]["episodes"], got[2]["stop_reason"], stopped) == (None, "asked", [])


def test_a_generator_that_is_still_held_does_not_keep_the_program(tmp_path):
    program = """
from distrl.launch.iteration import iterate
from tests.waiting import wait_until

def train(tell, interrupt):
    tell({"updates": 1})
    wait_until(lambda: interrupt.code is not None)
    print("stopped:", interrupt.name)

results = iterate(train)
for result in results:
    break
print("left")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, ["left", "stopped: asked"], "")


def test_a_training_on_another_thread_leaves_signals_to_the_program(tmp_path):
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(distrl.train(toy("stop.updates=2"), run_dir=tmp_path / "run"))
    )
    thread.start()
    thread.join()
    (summary,) = ended
    assert (summary.exit_code, summary.updates) == (0, 2)
