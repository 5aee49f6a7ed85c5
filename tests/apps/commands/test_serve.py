"""`distrl serve` as a process: its line, its end, and usage that is refused."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

import distrl
from distrl.apps.commands import main, served_training
from distrl.apps.web.server_records import ServerRecord
from distrl.files import read_model
from distrl.serving.export import export_run
from distrl.terminal.console import QuietView
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "first"
    sets = ["actors.count=0", "stop.updates=1", "checkpoint.every_updates=1"]
    distrl.train(distrl.load("cartpole-impala", sets=sets), run_dir=run_dir, view=QuietView(run_dir, lambda text: None))
    export_run(run_dir, None, checkpoint="newest", force=False, version="1.2.3")
    return run_dir


def started(*words):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "distrl", "serve", *map(str, words), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    line = process.stdout.readline()
    found = re.search(r"at http://127\.0\.0\.1:(\d+)/", line)
    assert found, (line, process.communicate())
    return process, line, int(found[1])


def act(port, **message):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", "/act", json.dumps(message))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.parametrize(("end", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize("kind", ["run", "file"])
def test_it_serves_until_it_is_told_to_end(run_dir, end, code, kind):
    words = [run_dir] if kind == "run" else [run_dir / "policy.onnx", "--report", run_dir]
    policy = words[0]
    process, line, port = started(*words)
    assert line.startswith(f"distrl serve CartPole-v1: {policy}, version 2{', followed' * (kind == 'run')} at http")
    assert act(port, observation=[0.0] * 4)[0] == 200
    record = run_dir / "serving" / f"{socket.gethostname()}-{port}.json"
    wait_until(record.exists)
    assert read_model(ServerRecord, record).pid == process.pid
    with process:
        process.send_signal(end)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors, record.exists()) == (code, "", False)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nowhere",), "nowhere is not a run's directory"),
        (("nowhere.onnx",), "policy nowhere.onnx cannot be read"),
        (("RUN", "--change", "later"), "--change later is neither episodes nor now"),
        (("RUN", "--host", "0.0.0.0"), r"--token-file FILE \(or set DISTRL_SERVE_TOKEN\)"),
        (("RUN", "--window", "5"), "'5' is not a time up to a second; write 0, 0.5ms or 2ms"),
        (("RUN", "--window", "2s"), "is not a time up to a second"),
        (("RUN", "--canary-share", "120%"), "'120%' is not a share between 0 and 1"),
        (("RUN", "--canary-share", "20%"), "--canary-share goes with --canary, the policy with which that share acts"),
        (
            ("RUN", "--origin", "https://a.example/"),
            "--origin https://a.example/ is no origin; write it as browsers do",
        ),
        (("RUN", "--max-body", "1GiB"), "'1GiB' is not a size up to 256MiB"),
        (("RUN", "--report", "nowhere"), "--report nowhere is not a directory; name a run's, whose page is to show"),
        (("RUN", "--canary", "other"), "other is not a run's directory"),
        (("RUN@99",), "has no checkpoint of update 99"),
    ],
)
def test_usage_that_is_refused(capsys, run_dir, words, problem):
    code = main.main(["serve", *(word.replace("RUN", str(run_dir)) for word in words)])
    out, errors = capsys.readouterr()
    assert (code, out) == (2, "")
    assert errors.count("\n") == 1
    assert re.search(problem, errors), errors


def test_windows_sizes_and_shares():
    from distrl.apps.commands import serve as module

    assert [module._window(text) for text in ("0", "1ms", "0.5ms", "0.002s")] == [0.0, 0.001, 0.0005, 0.002]
    assert [module._bytes(text) for text in ("100", "64KiB", "4MiB")] == [100, 65536, 4 * 2**20]
    assert [module._share(text) for text in ("10%", "0.25")] == [0.1, 0.25]


def test_a_training_begins_where_an_earlier_launch_could_not_be_joined(run_dir, monkeypatch, capsys):
    """The record is of a process without Redis, which has ended; what counts is how the new training does."""
    ends = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(served_training, "_started", lambda *_: subprocess.Popen(ends))
    assert main.main(["serve", str(run_dir), "--learn", "--train", "cartpole-impala"]) != 0
    assert "its training has ended with exit code 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "sets", "expected"),
    [
        ("memory: {listen: auto}", [], []),
        ("", ["memory.listen=auto"], []),
        ("", [], ["memory.listen=127.0.0.1"]),
        ("memory: {url: 'redis://127.0.0.1:6379'}", [], []),
    ],
)
def test_a_training_of_clients_listens_where_its_settings_say(tmp_path, file, sets, expected):
    config = tmp_path / "game.yaml"
    spaces = "{observation_space: {type: Box, shape: [3]}, action_space: {type: Discrete, n: 2}}"
    config.write_text(f"environment: {{id: game, spaces: {spaces}}}\nalgorithm: {{name: impala}}\n{file}\n")
    loaded, settings = served_training._plan(str(config), sets)
    assert [value for value in settings if value.startswith("memory.")] == expected + sets
    assert not loaded.config.launch.start_actors
