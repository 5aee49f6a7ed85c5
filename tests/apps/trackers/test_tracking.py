"""Rows reach trackers whole and in order; a tracker that fails or hangs costs its own rows alone."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.apps.config.trackers import TrackersConfig
from distrl.apps.trackers import tracking
from distrl.apps.trackers.tracker import Ending
from distrl.apps.trackers.tracking import require_trackers
from distrl.errors import ConfigError, MissingExtraError
from tests.apps.trackers.conftest import rows_of
from tests.faults.arguments import environment
from tests.faults.training import alive
from tests.waiting import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "runs.md"

TRACKER = """
import json, os, threading

class Mine:
    def __init__(self, fails="", hangs="", how="raise"):
        self.fails, self.hangs, self.how = fails, hangs, how
    def begin(self, run):
        self.out = open(run.run_dir / "calls.jsonl", "a")
        self.did("begin", run.run_id, str(run.run_dir), run.config, run.resumed)
        return "noted in calls.jsonl"
    def record(self, row, step):
        self.did("record", row, step)
    def end(self, ending):
        self.did("end", ending.exit_code, ending.stop_reason, ending.error)
    def did(self, name, *what):
        print(json.dumps([name, *what]), file=self.out, flush=True)
        if name == self.hangs:
            threading.Event().wait()
        if name == self.fails:
            if self.how == "raise":
                raise ValueError("no " + "space\\nat http://me:" + "open" + "sesame@host")
            os._exit(7)
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(TRACKER)
    monkeypatch.chdir(tmp_path)


def calls(run_dir, name):
    lines = map(json.loads, (run_dir / "calls.jsonl").read_text().splitlines())
    return [what for called, *what in lines if called == name]


def told(made):
    """Lines for the user, without that of a tracker which takes more than a moment on a busy machine."""
    return [line for line in made.events if not line.startswith("waiting up to ")]


def own(**options):
    return {"mine:Mine": options}


def test_every_row_of_the_csv_reaches_the_tracker(launch, tmp_path):
    made = launch(own=own())
    made.take(0, 1, 2, 5)
    assert made.finish(Ending(3, "environment failed", "it broke")) == {}
    assert told(made) == ["tracker mine:Mine: noted in calls.jsonl"]
    assert calls(tmp_path, "begin") == [["run-1", str(tmp_path), {"seed": 1, "actors": {"count": 2}}, False]]
    assert [row for row, _ in calls(tmp_path, "record")] == rows_of(tmp_path)
    assert [step for _, step in calls(tmp_path, "record")] == [0, 64, 128, 320]
    assert calls(tmp_path, "end") == [[3, "environment failed", "it broke"]]


def test_a_row_that_the_csv_replaces_is_not_sent(launch, tmp_path):
    made = launch(own=own(), resumed=True)
    made.take(1, 2)
    made.take(2, loss=9.0)
    made.take(3)
    made.take(3, loss=7.0)
    made.finish()
    assert [row for row, _ in calls(tmp_path, "record")] == rows_of(tmp_path)
    assert [row["loss"] for row, _ in calls(tmp_path, "record")] == [0.5, 9.0, 7.0]
    assert calls(tmp_path, "begin")[0][-1] is True


def test_updates_that_a_learner_repeats_are_sent_once(launch, tmp_path):
    made = launch(own=own())
    made.take(1, 2, 3, 2, 3, 4)
    made.finish()
    assert [row["updates"] for row, _ in calls(tmp_path, "record")] == [1, 2, 3, 4]


LONG = pytest.mark.long


@pytest.mark.parametrize("method", [pytest.param("begin", marks=LONG), "record", pytest.param("end", marks=LONG)])
def test_a_tracker_that_raises_is_told_of_once_and_not_called_again(launch, tmp_path, method):
    made = launch(own=own(fails=method))
    made.take(*range(5))
    lacks = made.finish()
    assert lacks == {"mine:Mine": "ValueError: no space at http://•••@host"}
    assert [line for line in made.events if "not called again" in line] == [
        "tracker mine:Mine is not called again: ValueError: no space at http://•••@host (logs/trackers.log)"
    ]
    after = {"begin": ["record", "end"], "record": ["end"], "end": []}[method]
    assert [calls(tmp_path, name) for name in after] == [[]] * len(after)
    assert len(calls(tmp_path, method)) == 1
    log = (tmp_path / "logs" / "trackers.log").read_text()
    assert "Traceback" in log
    assert "opensesame" not in log


def test_a_tracker_whose_process_ends_costs_nothing_else(launch, tmp_path):
    made = launch(own=own(fails="record", how="exit") | {"mine2:Mine": {}})
    (tmp_path / "mine2.py").write_text(TRACKER.replace("calls.jsonl", "others.jsonl"))
    made.take(1, 2, 3)
    assert made.finish() == {"mine:Mine": "ended its process while the run trained with exit code 7"}
    assert len((tmp_path / "others.jsonl").read_text().splitlines()) == 5


def test_a_tracker_that_hangs_holds_nothing_up_and_is_killed_at_the_end(launch, tmp_path, monkeypatch):
    monkeypatch.setattr(tracking, "MOST_ROWS", 4)
    made = launch(own=own(hangs="record"), give_up_s=0.5)
    wait_until(lambda: made.take(1, 2) or ((tmp_path / "calls.jsonl").exists() and calls(tmp_path, "record")))
    made.take(*range(3, 13))  # 2 and 3 to 11 are sent before the end: four wait, five are dropped
    assert made.finish() == {"mine:Mine": "has not finished in time, 11 rows are missing"}
    assert calls(tmp_path, "end") == []


def test_ctrl_c_ends_the_wait(launch, tmp_path, monkeypatch):
    made = launch(own=own(hangs="end"), give_up_s=500.0)
    made.take(1)

    def interrupted(feed, until):
        raise KeyboardInterrupt

    monkeypatch.setattr(tracking._Feed, "has_ended", interrupted)
    assert "has not finished in time" in made.finish()["mine:Mine"]


def test_a_training_that_is_killed_is_ended(tmp_path):
    code = f"""
import signal, sys
from pathlib import Path
from tests.apps.trackers.conftest import Launch
made = Launch(Path({str(tmp_path)!r}), own={{"mine:Mine": {{}}}})
made.take(1, 2)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment())
    wait_until(lambda: (tmp_path / "calls.jsonl").exists() and calls(tmp_path, "record"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: calls(tmp_path, "end"))
    assert calls(tmp_path, "end") == [[1, "died", "the process of the training has died"]]


HELPED = """
import os, signal, subprocess, sys

class Mine:
    def __init__(self, ends="", **more):
        self.ends = ends
    def begin(self, run):
        helper = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
                                  stdout=subprocess.PIPE)
        helper.stdout.readline()
        (run.run_dir / "helper.new").write_text(str(helper.pid))
        (run.run_dir / "helper.new").rename(run.run_dir / "helper")
    def record(self, row, step):
        if self.ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    def end(self, ending):
        if self.ends == "raises":
            raise ValueError("no space")
"""


@pytest.mark.parametrize("ends", [pytest.param("", marks=LONG), "killed", pytest.param("raises", marks=LONG)])
def test_what_a_tracker_has_started_ends_with_it(launch, tmp_path, ends):
    (tmp_path / "mine.py").write_text(HELPED)
    made = launch(own=own(ends=ends))
    made.take(1, 2)
    wait_until((tmp_path / "helper").exists, "the tracker has a helper")
    assert bool(made.finish()) is bool(ends)
    wait_until(lambda: not alive(int((tmp_path / "helper").read_text())), "the helper has ended")


def test_what_a_tracker_has_started_ends_with_a_training_that_is_killed(tmp_path):
    (tmp_path / "mine.py").write_text(HELPED)
    code = f"""
import signal
from pathlib import Path
from tests.apps.trackers.conftest import Launch
made = Launch(Path({str(tmp_path)!r}), own={{"mine:Mine": {{}}}})
made.take(1, 2)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment())
    wait_until((tmp_path / "helper").exists, "the tracker has a helper")
    process.kill()
    process.wait()
    wait_until(lambda: not alive(int((tmp_path / "helper").read_text())), "the helper has ended")


def test_the_note_of_a_tracker_is_one_line_without_secrets(launch, tmp_path):
    (tmp_path / "mine.py").write_text(
        TRACKER.replace('"noted in calls.jsonl"', '"rows go\\nto http://me:open" + "sesame@host"')
    )
    made = launch(own=own())
    assert made.finish() == {}
    assert told(made) == ["tracker mine:Mine: rows go to http://•••@host"]


@pytest.mark.parametrize(("name", "extra"), [("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_library_that_is_missing_is_named_before_the_launch(name, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"is not installed: pip install .*\[{extra}\]"):
        require_trackers(TrackersConfig.model_validate({name: {}}))


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        (
            "mine:Mine",
            {"api_key": "opensesame"},
            'does not take its arguments {"api_key": "•••"}: got an unexpected keyword argument',
        ),
        pytest.param("mine:Yours", {}, "module 'mine' has no attribute 'Yours'", marks=LONG),
        pytest.param("mine:TRACKER", {}, "is no class", marks=LONG),
        ("mine:Bare", {}, "has no method record; it needs begin, record, end"),
        pytest.param("mine:Narrow", {}, "record gets 2 argument", marks=LONG),
        pytest.param("nowhere:Mine", {}, "module 'nowhere' cannot be imported", marks=LONG),
        ("leaves:Mine", {}, "ended its process when they were tried out with exit code 3"),
    ],
)
def test_a_class_that_cannot_track_is_refused_before_the_launch(tmp_path, name, options, reason):
    more = "\nTRACKER = 1\nclass Bare:\n    def begin(self, run): pass\n"
    more += "class Narrow(Mine):\n    def record(self, row): pass\n"
    (tmp_path / "mine.py").write_text(TRACKER + more)
    (tmp_path / "leaves.py").write_text("import os; os._exit(3)")
    with pytest.raises(ConfigError) as refused:
        require_trackers(TrackersConfig(own={name: options}))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_class_in_the_docs_tracks(launch, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = (block for block in blocks if "class JsonLines" in block)
    (tmp_path / "my_trackers.py").write_text(code)
    trackers = {"my_trackers:JsonLines": {"file": "mine.jsonl"}}
    require_trackers(TrackersConfig(own=trackers))
    assert not (tmp_path / "mine.jsonl").exists()  # a check, and no call
    made = launch(own=trackers)
    made.take(0, 1, 2)
    assert made.finish() == {}
    assert told(made) == [f"tracker my_trackers:JsonLines: rows go to {tmp_path}/mine.jsonl"]
    *written, last = map(json.loads, (tmp_path / "mine.jsonl").read_text().splitlines())
    assert written == [{"step": int(row["env_steps"]), **row} for row in rows_of(tmp_path)]
    assert last == {"exit_code": 0}
