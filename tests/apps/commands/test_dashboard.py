import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.apps.dashboard import access, beside
from distrl.errors import how_to_install

TOKEN = "token-of-many-letters"


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (access.TOKEN_VARIABLE, access.READ_ONLY_TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "runs").mkdir()
    return tmp_path


def refused(capsys, *arguments):
    """The one line of an error of usage."""
    assert main.main(["dashboard", *arguments]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    return line.removeprefix("distrl: error: ")


def test_a_folder_that_is_not_there(capsys):
    assert refused(capsys, "elsewhere") == (
        "elsewhere is no directory; name the one that holds the runs: distrl dashboard RUNS_DIR"
    )


def test_runs_of_a_redis_need_no_folder_here(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main.main(["dashboard", "--redis-url", "redis://127.0.0.1:1"]) == 6
    assert "redis://127.0.0.1:1" in capsys.readouterr().err


def test_a_port_that_is_taken(capsys, free_port):
    with socket.create_server(("127.0.0.1", free_port)):
        assert refused(capsys, "--port", str(free_port)).startswith(f"port {free_port} of 127.0.0.1 is taken")


def test_other_hosts_want_a_token(capsys):
    assert "can be reached by other machines and there is no token" in refused(capsys, "--host", "0.0.0.0")


@pytest.mark.parametrize(("content", "problem"), [(None, "cannot be read"), ("", "is empty"), ("short", "at least 16")])
def test_tokens_in_files(capsys, workplace, content, problem):
    if content is not None:
        (workplace / "token").write_text(content)
        (workplace / "token").chmod(0o600)
    assert problem in refused(capsys, "--host", "0.0.0.0", "--token-file", "token")


def test_alerts_are_checked_at_the_start(capsys, workplace):
    (workplace / "alerts.yaml").write_text("silent_s: 1\n")
    problem = "silent_s: 1 (from --alerts alerts.yaml) must be greater than or equal to 5"
    assert refused(capsys, "--alerts", "alerts.yaml") == problem


def test_without_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(beside.NEEDED, "no_such_module", "uvicorn")
    assert refused(capsys) == f"uvicorn, which the dashboard needs, is not installed: {how_to_install('dashboard')}"


@pytest.mark.row("P14")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_from_start_to_interrupt(workplace, free_port, number):
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(distrl.__file__).parent.parent),
        access.TOKEN_VARIABLE: TOKEN,
    }
    command = [sys.executable, "-m", "distrl", "dashboard", "--port", str(free_port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == (
            f"distrl dashboard of runs at http://127.0.0.1:{free_port}/ (Ctrl-C ends it)\n"
        )
        asking = urllib.request.Request(
            f"http://127.0.0.1:{free_port}/api/runs", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(asking, timeout=60) as answer:
            told = answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{free_port}/api/runs", timeout=60)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert json.loads(told) == {"runs": [], "matched": 0, "total": 0}
    assert (out, err) == ("", "")
    assert process.returncode == 130


def test_train_with_a_page(monkeypatch, capsys):
    """It is up while the training lasts, and its address is told."""
    seen = []

    class Beside:
        def __init__(self, run_dir):
            seen.append(run_dir.name)

        def __enter__(self):
            return "http://127.0.0.1:1/#/run/x"

        def __exit__(self, *_):
            seen.append("ended")

    monkeypatch.setattr(main, "dashboard_beside", Beside)

    def train(*_, **__):
        seen.append("trained")
        raise distrl.ConfigError("enough")

    monkeypatch.setattr(distrl, "train", train)
    assert main.main(["train", "--plain", "--preset", "cartpole-impala", "--dashboard", "--run-dir", "runs/a"]) == 2
    assert seen == ["a", "trained", "ended"]
    assert "dashboard at http://127.0.0.1:1/#/run/x" in capsys.readouterr().out


def test_an_address_that_is_no_redis_is_told_of_at_the_start(capsys):
    without_scheme = refused(capsys, "--redis-url", "user:s3cret@host")
    assert without_scheme.startswith("the given URL is not a Redis URL (it has no scheme); use redis://")
    assert "s3" not in without_scheme
    assert "s3" not in refused(capsys, "--redis-url", "redis://:s3/cret@host")
    assert main.main(["dashboard", "--redis-url", "redis://127.0.0.1:1"]) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("distrl: error: Redis at redis://127.0.0.1:1")
