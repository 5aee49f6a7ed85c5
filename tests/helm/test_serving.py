"""The servers of the chart: what a rendering starts serves, its probes pass, and clients need the Secret's token."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys

import pytest

import distrl
from distrl.terminal.console import QuietView
from tests.helm.rendering import objects_of
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_helm")]
TOKEN = "token-of-the-secret"


def ask(port, method, path, body=None, **headers):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, body, headers)
        return connection.getresponse().status


def test_a_rendering_serves_and_its_probes_pass(tmp_path, free_port):
    sets = ["actors.count=0", "stop.updates=1", "checkpoint.every_updates=1"]
    config = distrl.load("cartpole-impala", sets=sets)
    distrl.train(config, run_dir=tmp_path / "run", view=QuietView(tmp_path / "run", lambda text: None))
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o400)
    (pod,) = (
        each["spec"]["template"]["spec"]
        for each in objects_of("pods, servers")
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "r-distrl-serve")
    )
    (container,) = pod["containers"]
    places = {"s3://bucket/runs/pong": tmp_path / "run", "/etc/distrl/secrets/serve-token": tmp_path / "token"}
    places["8730"] = free_port
    arguments = [str(places.get(word, word)) for word in container["args"]]
    assert not set(map(str, places)) & {*arguments}
    variables = {one["name"]: one["value"] for one in container["env"]} | {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "distrl", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | variables) as process:
        try:
            assert "distrl serve CartPole-v1" in process.stdout.readline()
            for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                wait_until(lambda path=container[name]["httpGet"]["path"]: ask(free_port, "GET", path) == 200)
            body = json.dumps({"observation": [0.0] * 4})
            assert ask(free_port, "POST", "/act", body, Authorization=f"Bearer {TOKEN}") == 200
            assert ask(free_port, "POST", "/act", body) == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait(pod["terminationGracePeriodSeconds"]) == 0
        finally:
            process.kill()
