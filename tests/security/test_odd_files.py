"""Pipes and devices in place of a run's files: no reader of runs opens one as if it were a file, so none can hang.

An audit hook notices such an opening before it blocks.
"""

import itertools
import os
import stat
import sys
from contextlib import suppress

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from distrl.apps.commands.main import app
from distrl.apps.dashboard.app import make_app
from distrl.apps.dashboard.index import id_of
from distrl.apps.jobs import run_logs
from distrl.apps.reports.loaded_run import load_run
from distrl.apps.web.access import Access
from distrl.config import RunConfig
from distrl.config.load import LoadedConfig
from distrl.errors import DistrlError
from distrl.launch.checks import Checked
from distrl.launch.start import opened, plan_start
from distrl.learner.policy_files import kept_best, read_policy
from distrl.learner.weight_source import read_source
from distrl.runs.run_directory import require_free
from distrl.serving.exported_policy import load_policy
from tests.run_folders import make_run

FILES = (
    *("run.json", "summary.json", "config.yaml", "metrics.csv", "manifest.json", "labels.json", "evaluations.jsonl"),
    *("roles.csv", "job.json", "run.lock", "best.webm", "sweep.yaml", "sweep.json", "search.yaml", "population.json"),
    *("logs/events.log", "logs/learner.log", "logs/job.log", "logs/job.exit", "tensorboard/events.out.tfevents.1"),
    *("policy/graph.onnx", "policy/description.json", "policy/weights.msgpack", "policy/best.msgpack"),
    *("checkpoints/best", "checkpoints/ckpt-000000000001/manifest.json", "checkpoints/ckpt-000000000001/meta.json"),
)
COMMANDS = {
    "runs": ("runs", "."),
    "compare": ("compare", "run", "other"),
    "report": ("report", "run", "--force"),
    "plot": ("plot", "run", "--output", "curve.svg", "--force"),
    "config show": ("config", "show", "run"),
    "logs": ("logs", "run"),
    "jobs": ("jobs",),
    "status": ("status", "run"),
    "doctor": ("doctor", "run"),
}
IN_CI = ("runs", "report", "status")
"""Commands that read many runs, all of one run, and a run that is under way; `make long` tries the others."""
PAGES = (
    *("", "/curve?names=loss", "/marks", "/histograms", "/config", "/events", "/logs/learner", "/checkpoints"),
    *("/logs/learner/matches?words=a", "/logs/learner/whole", "/evaluations", "/films", "/films/best.webm"),
)


def resume(run):
    loaded = LoadedConfig.of(RunConfig())
    with opened(plan_start(loaded.config, run, "auto", None), Checked(loaded, None, ()), print):
        pass


CALLS = {
    "load_run": load_run,
    "read_policy": read_policy,
    "kept_best": lambda run: kept_best(run / "policy"),
    "read_source": lambda run: read_source(str(run / "policy")),
    "load_policy": lambda run: load_policy(run / "policy" / "graph.onnx"),
    "lines": lambda run: [*run_logs.lines(run / "logs")],
    "resume": resume,
}


class Watch:
    """Notes, and forbids, what opens something else than a file or a folder so that it may block or never end."""

    def __init__(self):
        self.folder, self.noticed = "", []
        sys.addaudithook(self._hook)  # it stays for good, and does nothing outside a test

    def _hook(self, event, arguments):
        if event != "open" or not self.folder or not isinstance(arguments[0], str | os.PathLike):
            return
        path, flags = os.fspath(arguments[0]), arguments[2] or 0
        if not isinstance(path, str) or self.folder not in os.path.abspath(path) or flags & os.O_NONBLOCK:
            return
        if os.path.exists(path) and not stat.S_IFMT(os.stat(path).st_mode) & (stat.S_IFREG | stat.S_IFDIR):
            self.noticed.append(path)
            raise OSError("opened as if it were a file")


_watch = []


@pytest.fixture
def watch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _watch[:] = _watch or [Watch()]
    _watch[0].folder, _watch[0].noticed = str(tmp_path), []
    yield _watch[0]
    _watch[0].folder = ""


def odd_runs(folder):
    """Yield a run with a pipe, or a link to a device, in place of each of its files in turn."""
    make_run(folder / "other")
    kinds = itertools.cycle([os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
    run = make_run(folder / "run", manifest={})
    for name, put in zip(FILES, kinds, strict=False):
        path, kept = run / name, folder / "kept"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.rename(kept)
        put(path)
        yield run
        path.unlink()
        if kept.exists():
            kept.rename(path)


def in_long(name, kept):
    return name if name in kept else pytest.param(name, marks=pytest.mark.long)


@pytest.mark.parametrize("name", [in_long(name, IN_CI) for name in COMMANDS])
def test_no_command_opens_what_is_no_file(watch, tmp_path, monkeypatch, name):
    monkeypatch.setattr("distrl.apps.reports.report.figures", lambda table: ())  # drawing takes time
    monkeypatch.setattr("distrl.apps.reports.pictures.picture", lambda *about: b"")
    for _ in odd_runs(tmp_path):
        CliRunner().invoke(app, COMMANDS[name])
    assert watch.noticed == []


@pytest.mark.parametrize("name", [in_long(name, CALLS.keys() - {"resume"}) for name in CALLS])
def test_no_reader_opens_what_is_no_file(watch, tmp_path, name):
    for run in odd_runs(tmp_path):
        with suppress(DistrlError, OSError):
            CALLS[name](run)
    assert watch.noticed == []


def test_no_page_opens_what_is_no_file(watch, tmp_path):
    for _ in odd_runs(tmp_path):
        with TestClient(make_app(tmp_path, Access("127.0.0.1")), base_url="http://127.0.0.1:8720") as client:
            assert client.get("/api/runs").status_code == 200
            assert {client.get(f"/api/runs/{id_of('run')}{page}").status_code for page in PAGES} <= {200, 400, 404, 409}
            client.get("/api/sweeps")
    assert watch.noticed == []


def test_no_directory_to_train_in_is_a_pipe(watch, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DistrlError, match="pipe is not a folder"):
        require_free(tmp_path / "pipe", None)
