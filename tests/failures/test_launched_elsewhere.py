"""A dashboard beside the Redis of a run that was launched elsewhere: it shows the run and stops it."""

import json
import re
import subprocess
import sys
import urllib.request

import pytest

from tests.faults.arguments import environment

pytestmark = [pytest.mark.slow, pytest.mark.redis, pytest.mark.long]


def ask(address, body=None):
    headers = {"X-Distrl": "1", "Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(address, None if body is None else json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_a_run_of_another_machine_is_shown_and_stopped(start_run, unhurried, redis_url, tmp_path, free_port):
    run = start_run(*unhurried, "--redis-url", redis_url)
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [sys.executable, "-m", "distrl", "dashboard", str(empty), "--port", str(free_port)]
    with subprocess.Popen(
        [*command, "--redis-url", redis_url], stdout=subprocess.PIPE, text=True, env=environment()
    ) as dashboard:
        runs = re.search(r"http://\S+", dashboard.stdout.readline())[0] + "api/runs"

        def numbers():
            return [row["numbers"].get("updates", 0) for row in ask(runs)["runs"]]

        run.wait_until(lambda: max(numbers(), default=0) >= 3, "the run is listed, and learns")
        (row,) = ask(runs)["runs"]
        assert (row["state"], row["env"]) == ("running", "benchmarks.sleeping:Sleeping")
        assert ask(f"{runs}/{row['id']}/curve?metric=updates&over=steps&points=10")["curves"]["updates"]["y"]
        ask(f"{runs}/{row['id']}/control", {"action": "stop"})
        summary = run.finish()
        assert (summary.stop_reason, summary.exit_code, summary.imbalance) == ("asked", 0, 0)
        run.wait_until(lambda: ask(runs)["runs"] == [], "it is no longer listed")
        dashboard.terminate()
