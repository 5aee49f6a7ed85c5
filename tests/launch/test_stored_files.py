"""Copies of a run's own files: which, when, and that a launch that was overtaken stops."""

import threading

import pytest

from distrl.config.load import load
from distrl.data_store.stored_run import StoredRun, Writer
from distrl.errors import StoreError
from distrl.launch import stored_files
from distrl.launch.stored_files import StoredFiles
from tests.data_store.stores import Breaking
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def objects(tmp_path):
    return Breaking(f"file://{tmp_path}/s")


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    for name in ("run.key", "redis.password", "run.json", "metrics.csv", "evaluations.jsonl", "job.yaml", "job.json"):
        (folder / name).write_text(name)
    (folder / "logs" / "learner.log").write_text("a line")
    (folder / "config.yaml").write_text("environment: {kwargs: {api_key: hunter2}}")
    return folder


@pytest.fixture
def storing(objects, run_dir):
    made = []

    def make(after=0):
        loaded = load("cartpole-impala", sets=["environment.kwargs={api_key: hunter2}"])
        lines = []
        made.append(StoredFiles(StoredRun(objects, "r"), run_dir, loaded, launch="l", after=after, report=lines.append))
        made[-1].lines = lines
        return made[-1]

    yield make
    for one in made:
        one._end.set()


def test_files_without_secrets(storing, objects):
    objects.put("r/summary.json", b"of an earlier launch")
    storing().finish(10.0)
    names = {name.removeprefix("r/") for name in objects.sizes("r")}
    assert names == {"config.yaml", "metrics.csv", "evaluations.jsonl", "job.json", "logs/learner.log"}
    assert not any(b"hunter2" in objects.get(f"r/{name}") for name in names)


def test_only_what_has_changed(storing, objects, run_dir, monkeypatch):
    monkeypatch.setattr(stored_files, "EVERY_S", 0.01)
    storing_now = storing()
    wait_until(lambda: "learner.log" in "".join(storing_now._sent))
    objects.writes = 0
    (run_dir / "summary.json").write_text("{}")
    storing_now.finish(10.0)
    assert objects.writes == 1
    assert objects.get("r/summary.json") == b"{}"


@pytest.mark.row("T08")
def test_a_launch_that_was_overtaken_stores_no_more(storing, objects, run_dir):
    run = StoredRun(objects, "r")
    Writer.claim(run, 0, "l")
    first = storing()
    wait_until(lambda: "r/metrics.csv" in objects.sizes("r"))
    Writer.claim(run, 1, "another launch")
    (run_dir / "summary.json").write_text("{}")
    first.finish(10.0)
    assert objects.get("r/summary.json") is None


def test_a_store_that_does_not_answer(storing, objects, monkeypatch):
    monkeypatch.setattr(stored_files, "EVERY_S", 0.01)
    objects.down = True
    one = storing()
    wait_until(lambda: one.lines)
    objects.down = False
    wait_until(lambda: len(one.lines) >= 2)
    assert one.lines[0].startswith("the data store does not take the run's files: file:")
    assert one.lines[1:] == ["the run's files are stored again"]
    objects.down = True
    (one._run_dir / "summary.json").write_text("{}")
    with pytest.raises(StoreError, match=r"lacks the run's last files: file:.*no answer; they are in .*run"):
        one.finish(0.2)


def test_a_store_that_hangs(storing, objects):
    goes_on = threading.Event()
    objects.before_write = lambda number: goes_on.wait(PATIENCE_S)
    with pytest.raises(StoreError, match=r"has not taken the run's files within 0\.2 s"):
        storing().finish(0.2)
    goes_on.set()


def test_the_summary_of_an_earlier_launch_is_not_stored_again(storing, objects, run_dir):
    """It lies in the directory until the launch has written run.json."""
    (run_dir / "summary.json").write_text("earlier")
    objects.put("r/summary.json", b"earlier")
    storing_now = storing()
    wait_until(lambda: "learner.log" in "".join(storing_now._sent))  # the last file
    assert objects.get("r/summary.json") is None
    (run_dir / "summary.json").write_text("this one")
    storing_now.finish(10.0)
    assert objects.get("r/summary.json") == b"this one"
