import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distrl.errors import ConfigError
from distrl.runs.directories import (
    RunRecord,
    distinct_ends,
    find_runs,
    open_run,
    process_mark,
    run_directories,
    run_directory,
    short_names,
)
from tests.run_folders import make_run


def dead_pid():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def no_trouble(text):
    raise AssertionError(text)


def test_a_run_that_ended_has_its_summary(tmp_path):
    run = open_run(make_run(tmp_path / "a", pid=dead_pid()))
    assert (run.state, run.record.run_id, run.record.started) == ("ended", "r1", 1000.0)
    assert run.summary.mean_return_100 == 20.0


@pytest.mark.parametrize(("alive", "state"), [(True, "running"), (False, "gone")])
def test_without_a_summary_the_process_decides(tmp_path, alive, state):
    run = open_run(make_run(tmp_path / "a", summary=None, pid=os.getpid() if alive else dead_pid()))
    assert (run.state, run.summary) == (state, None)


@pytest.mark.parametrize("earlier", [{"run_id": "before"}, {"launch": "before"}])
def test_the_summary_of_an_earlier_launch_is_not_this_ones(tmp_path, earlier):
    run = open_run(make_run(tmp_path / "a", summary=earlier))
    assert (run.state, run.summary) == ("running", None)


def test_somebody_elses_process_is_a_process(tmp_path, monkeypatch):
    def refuse(pid, signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert open_run(make_run(tmp_path / "a", summary=None)).state == "running"


def mark(folder, process):
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "process": process}))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_later_process_of_the_same_number_is_another(tmp_path):
    run = make_run(tmp_path / "a", summary=None)
    mark(run, process_mark(os.getpid()))
    assert open_run(run).state == "running"
    boot, tick = process_mark(os.getpid()).split(":")
    for other in (f"{boot}:{int(tick) - 1}", f"another boot:{tick}"):
        mark(run, other)
        assert open_run(run).state == "gone"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_process_that_is_dead_and_not_buried_is_gone(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        run = make_run(tmp_path / "a", summary=None, pid=process.pid)
        mark(run, process_mark(process.pid))
        assert open_run(run).state == "running"
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert open_run(run).state == "gone"


def test_there_is_no_mark_of_nobody():
    assert process_mark(dead_pid()) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a run's directory: run.json: No such file"),
        ('{"run_id": 3', "run.json is damaged"),
        ("{}", "run.json is damaged"),
    ],
)
def test_a_record_that_is_none(tmp_path, text, message):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        RunRecord.read(tmp_path / "run.json")


def test_directories_come_by_name_and_what_is_below_a_run_is_its_own(tmp_path):
    for name in ("b", "sweep/two", "sweep/one", "b/inner"):
        make_run(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    found = [path.relative_to(tmp_path).as_posix() for path in run_directories(tmp_path, no_trouble)]
    assert found == ["b", "sweep/one", "sweep/two"]
    assert [*run_directories(tmp_path / "b", no_trouble)] == [tmp_path / "b"]


def test_damaged_runs_are_found_with_what_is_wrong(tmp_path):
    make_run(tmp_path / "good")
    (make_run(tmp_path / "bad") / "run.json").write_text("{")
    (make_run(tmp_path / "worse") / "summary.json").write_text('{"run_id": "r1"}')
    assert [(run.path.name, run.state, run.problem.split(":")[0]) for run in find_runs([tmp_path], no_trouble)] == [
        ("bad", "damaged", "run.json"),
        ("good", "ended", ""),
        ("worse", "damaged", "summary.json"),
    ]


def test_a_run_that_is_named_twice_is_found_once(tmp_path):
    make_run(tmp_path / "a")
    assert [run.path for run in find_runs([tmp_path / "a", tmp_path], no_trouble)] == [tmp_path / "a"]


def test_a_place_that_is_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="nowhere is not a folder; name a run's directory"):
        [*find_runs([tmp_path / "nowhere"], no_trouble)]


def test_a_folder_that_cannot_be_looked_into_is_told(tmp_path, monkeypatch):
    make_run(tmp_path / "a")
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    told = []
    assert [run.path.name for run in find_runs([tmp_path], told.append)] == ["a"]
    assert told == [f"{tmp_path}/shut: Permission denied"]


def test_the_newest_is_the_one_launched_last(tmp_path):
    for age, name in enumerate(["new", "old"]):
        os.utime(make_run(tmp_path / name) / "run.json", (1000 - age, 1000 - age))
    assert run_directory(None, tmp_path).name == "new"
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "job.json").write_text("{}")  # a job that has not begun
    assert run_directory(None, tmp_path).name == "waits"
    with pytest.raises(ConfigError, match="there is no run under"):
        run_directory(None, tmp_path / "new")


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/x/a", "/x/b"], ["a", "b"]),
        (["/x/one/a", "/x/two/a", "/x/two/b"], ["one/a", "two/a", "two/b"]),
        (["/x/a", "/x/a"], ["a", "a"]),
        (["/x/a\udcff", "/x/b"], ["a\\xff", "b"]),
        ([], []),
    ],
)
def test_names_are_as_short_as_tells_them_apart(paths, names):
    assert short_names([Path(path) for path in paths]) == names


def test_folders_that_lie_too_deep_are_not_searched(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text("{}")
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):  # by descriptors: the path becomes too long
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    try:
        assert [*run_directories(tmp_path, print)] == [tmp_path / "a"]
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # which Python itself cannot


def test_long_paths_are_told_apart_at_once():
    alike = ("a",) * 2**17
    assert [len(name) for name in distinct_ends([("x", *alike), ("y", *alike)])] == [2**18 + 1] * 2
