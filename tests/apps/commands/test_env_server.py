"""`distrl serve-env`, and the example that needs nothing of distrl."""

import ast
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import distrl
from distrl.apps.commands import main
from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote.connection import TOKEN_VARIABLE, Route
from distrl.environments.remote.environment import RemoteEnvironment
from distrl.environments.remote.protocol import Channel
from distrl.environments.vector import VectorEnvironment

ROOT = Path(distrl.__file__).parent.parent
EXAMPLE = ROOT / "examples" / "remote_client.py"
LONG_S = 100.0
HERE = "127.0.0.1"


@pytest.fixture
def served(monkeypatch):
    """Return serve-env's requests, without serving."""
    calls = []

    def double(environment, **arguments):
        calls.append((environment, {name: value for name, value in arguments.items() if name != "write"}))
        return 130

    monkeypatch.setattr("distrl.environments.remote.server.serve_environment", double)
    return calls


def run(capsys, *arguments):
    code = main.main(["serve-env", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_flags_are_what_is_served(served, capsys):
    assert run(capsys, "CartPole-v1") == (130, "", "")
    arguments = ["--host", "0.0.0.0", "--port", "7000", "--token-file", "t", "--connections", "3"]
    run(capsys, "Pendulum-v1", *arguments, "--set", "environment.kwargs.g=9.5")
    run(capsys, "CartPole-v1", "--connect", "[::1]:6025")
    own = {"listen_at": (HERE, 6025), "dial": None, "connections": 64, "token_file": None}
    assert served == [
        (EnvironmentConfig(id="CartPole-v1"), own),
        (
            EnvironmentConfig(id="Pendulum-v1", kwargs={"g": 9.5}),
            {"listen_at": ("0.0.0.0", 7000), "dial": None, "connections": 3, "token_file": "t"},
        ),
        (EnvironmentConfig(id="CartPole-v1"), {**own, "dial": ("::1", 6025), "connections": 1}),
    ]


@pytest.mark.parametrize("target", ["host", "host:", ":6025", "host:port", "host:0", "host:65536"])
def test_connect_needs_a_host_and_a_port(served, capsys, target):
    code, out, err = run(capsys, "CartPole-v1", "--connect", target)
    assert (code, out, err) == (
        2,
        "",
        f"distrl: error: --connect {target}: it must be HOST:PORT, with a port from 1 to 65535\n",
    )
    assert served == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "environment.atari={}"], "--set environment.atari: serve-env takes environment.kwargs only"),
        (["--set", "environment.vectorization=own"], "--set environment.vectorization: serve-env takes"),
        (["--set", "environment.preprocessing=[]"], "--set environment.preprocessing: serve-env takes"),
        (["--set", "learner.batch_size=1"], "--set learner.batch_size: serve-env takes"),
        (["--connect", "a:1", "--port", "6025"], "--host and --port are addresses to listen on"),
        (["--connect", "a:1", "--host", "127.0.0.1"], "--host and --port are addresses to listen on"),
    ],
)
def test_what_would_have_no_effect_is_refused_by_name(served, capsys, arguments, message):
    code, out, err = run(capsys, "CartPole-v1", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"distrl: error: {message}")
    assert served == []


def test_an_environment_that_is_unknown_is_one_line(capsys):
    code, out, err = run(capsys, "CartPol-v1")
    assert (code, out) == (2, "")
    assert err.startswith("distrl: error: unknown environment 'CartPol-v1'; the nearest ids are CartPole-v1")
    assert err.count("\n") == 1


def test_help_shows_both_directions(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for shown in ("distrl serve-env CartPole-v1", "tcp://127.0.0.1:6025", "tcp-listen://0.0.0.0:6025", "--token-file"):
        assert shown in out


@pytest.fixture
def start():
    """Starts processes, and ends them."""
    started = []

    def begin(*command, stderr=None, **variables):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.slow
def test_ctrl_c_ends_it_with_130(start):
    process = start("-m", "distrl", "serve-env", "distrl.environments.worlds.toy:StepCounter", "--port", "0")
    port = process.stdout.readline().removeprefix(f"listening on {HERE}:").strip()
    remote = RemoteEnvironment(Route.of(EnvironmentConfig(id=f"tcp://{HERE}:{port}")))
    remote.reset(seed=0)
    assert remote.step(1)[1] == 1.0
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG_S) == 130
    remote.close()
    assert process.stdout.read().splitlines()[-1] == "stopped by Ctrl-C"


@pytest.mark.row("N30", "N31")
def test_the_example_dials_and_is_played_and_dials_again(start, free_port):
    token = "0123456789abcdef"
    for _ in range(2):
        start(str(EXAMPLE), HERE, str(free_port), **{TOKEN_VARIABLE: token})
    kwargs = {"connect_timeout_s": LONG_S}
    config = EnvironmentConfig(id=f"tcp-listen://{HERE}:{free_port}", kwargs=kwargs, step_timeout_s=1000.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, token)
        one = RemoteEnvironment(Route.of(config))
        one.reset(seed=0)
        assert one.set_state(x=3).tolist() == [3.0]
        one.close()
        environments = VectorEnvironment(config, 2)
    seen = [environments.reset(seed=0)["observation"].ravel().tolist()]
    last = None
    for _ in range(5):
        last = environments.step({"action": [1, 0]})
        seen.append(last.observations["observation"].ravel().tolist())
    environments.close()
    assert seen == [[0, 0], [1, -1], [2, -2], [3, -3], [4, -4], [5, -5]]
    assert (last.rewards.tolist(), last.terminated.tolist()) == ([1.0, 0.0], [True, True])


def test_the_example_says_how_it_is_called(start):
    process = start(str(EXAMPLE), HERE, stderr=subprocess.PIPE)
    assert process.communicate(timeout=LONG_S) == ("", "usage: remote_client.py HOST PORT\n")
    assert process.returncode == 1


def test_the_example_says_why_it_is_refused(start):
    with socket.create_server((HERE, 0)) as server:
        server.settimeout(LONG_S)
        process = start(str(EXAMPLE), HERE, str(server.getsockname()[1]))
        channel = Channel(server.accept()[0], message_timeout_s=LONG_S)
        channel.receive(first_byte_s=LONG_S)
        channel.dismiss("the token is another one")
        assert process.stdout.readline() == "the token is another one\n"
        server.accept()[0].close()  # it goes on trying


def test_an_error_in_the_example_is_shown(start):
    with socket.create_server((HERE, 0)) as server:
        server.settimeout(LONG_S)
        process = start(str(EXAMPLE), HERE, str(server.getsockname()[1]), stderr=subprocess.PIPE)
        with closing(Channel(server.accept()[0], message_timeout_s=LONG_S)) as channel:
            channel.receive(first_byte_s=LONG_S)
            channel.send({"status": "ok"})
            channel.send({"cmd": "reset"})
            channel.send({"cmd": "step", "action": "left"})  # its author's mistake, not the network's
            _, err = process.communicate(timeout=LONG_S)
    assert err.splitlines()[-1].startswith("TypeError")


def test_the_example_is_thirty_lines_that_need_nothing_of_distrl():
    tree = ast.parse(EXAMPLE.read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"os", "socket", "sys", "time", "msgpack", "msgpack_numpy"}
    texts = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    code = [n for n, line in enumerate(EXAMPLE.read_text().splitlines(), 1) if line.strip() and n not in texts]
    assert len(code) <= 30
