import os
import signal

import pytest

from distrl.apps.experiments import pool as module
from distrl.apps.experiments.pool import Pool, shares
from tests.faults.training import alive
from tests.waiting import PATIENCE_S, wait_until


@pytest.mark.parametrize(
    ("cores", "count", "expected"),
    [
        ([0, 1, 2, 3, 4], 2, [[0, 2, 4], [1, 3]]),
        ([3, 7], 2, [[3], [7]]),
        ([3, 7], 3, [[3], [7], [3]]),
        ([], 2, [[], []]),
    ],
)
def test_cores_are_dealt_out(cores, count, expected):
    assert shares(cores, count) == expected


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Makes trainings out of a Python program: `python -m distrl` of another folder."""

    def write(text):
        folder = tmp_path / "elsewhere" / "distrl"
        folder.mkdir(parents=True)
        (folder / "__main__.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(folder.parent))
        monkeypatch.chdir(folder.parent)

    return write


def test_each_has_its_share_of_the_cores_its_log_and_its_exit_code(script, tmp_path):
    script("import os, sys; print(sys.argv[1:], sorted(os.sched_getaffinity(0))); sys.exit(int(sys.argv[1]))")
    found = {}
    with Pool(2) as pool:
        for name in ("3", "0"):
            assert pool.has_room
            pool.start(name, [name, "more"], tmp_path / f"{name}.log")
        assert not pool.has_room
        assert pool.running == ["3", "0"]
        wait_until(lambda: found.update(pool.ended()) or len(found) == 2)
        assert pool.has_room
    assert found == {"3": 3, "0": 0}
    cores = sorted(os.sched_getaffinity(0))
    for name, share in zip(("3", "0"), shares(cores, 2), strict=True):
        assert (tmp_path / f"{name}.log").read_text() == f"['{name}', 'more'] {sorted(share)}\n"


def test_leaving_stops_them_in_order(script, tmp_path):
    script(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('a last checkpoint'), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    log = tmp_path / "a.log"
    with Pool(1) as pool:
        pool.start("a", [], log)
        wait_until(lambda: "ready" in log.read_text())
    assert log.read_text() == "ready\na last checkpoint\n"


def test_what_a_training_has_left_behind_ends_with_it(script, tmp_path):
    script(
        "import subprocess, sys\n"
        "helper = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(helper.pid, flush=True)"
    )
    log = tmp_path / "a.log"
    with Pool(1) as pool:
        pool.start("a", [], log)
        wait_until(lambda: [*pool.ended()])
    wait_until(lambda: not alive(int(log.read_text())))


def test_one_alone_is_stopped(script, tmp_path):
    script("import signal\nprint('ready', flush=True)\nsignal.pause()")
    with Pool(2) as pool:
        for name in ("a", "b"):
            pool.start(name, [], tmp_path / name)
        wait_until(lambda: all("ready" in (tmp_path / name).read_text() for name in ("a", "b")))
        pool.stop("b")
        found = []
        wait_until(lambda: found.extend(pool.ended()) or found)
        assert found == [("b", -signal.SIGTERM)]
        assert pool.running == ["a"]


def test_one_that_does_not_stop_is_killed(script, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.5)
    script(
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "helper = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print('ready', helper.pid, flush=True)\nsignal.pause()"
    )
    log, found = tmp_path / "a.log", []
    with Pool(1) as pool:
        pool.start("a", [], log)
        wait_until(lambda: "ready" in log.read_text())
        pool.stop()
        wait_until(lambda: found.extend(pool.ended()) or found)
    assert found == [("a", -signal.SIGKILL)]
    helper = int(log.read_text().split()[1])
    wait_until(lambda: not alive(helper))


def test_the_lifeline_and_inherited_files_reach_them(script, tmp_path):
    script(
        "import os\n"
        "print(os.fstat(int(os.environ['DISTRL_LIFELINE_FD'])).st_mode != 0, os.fstat(int(os.environ['HELD'])).st_ino)"
    )
    held = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.environ["HELD"] = str(held)
    try:
        with Pool(1) as pool:
            pool.start("a", [], tmp_path / "a.log", [held])
            wait_until(lambda: [*pool.ended()])
    finally:
        del os.environ["HELD"]
        os.close(held)
    assert (tmp_path / "a.log").read_text().split() == ["True", str((tmp_path / "lock").stat().st_ino)]


def test_one_whose_end_waits_for_others_is_not_killed_before_that(script, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    others = tmp_path / "others"
    os.mkfifo(others)
    script(
        "import signal, sys\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(others)!r}).close(), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    log, found = tmp_path / "a.log", []
    with Pool(1, end_s=PATIENCE_S) as pool:
        pool.start("a", [], log)
        wait_until(lambda: "ready" in log.read_text())
        pool.stop()
        found.extend(pool.ended())
        others.open("w").close()  # returns once it waits for them
        wait_until(lambda: found.extend(pool.ended()) or found)
    assert found == [("a", 0)]
