"""Two hundred simulated actors of one learner: what an update costs does not depend on how many there are."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from typing import NamedTuple

import pytest

from tests.faults.arguments import environment, sets
from tests.faults.own_redis import OwnRedis
from tests.faults.processes import cpu_share
from tests.faults.training import Run
from tests.waiting import lasts, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S12")]

ACTORS = (50, 100, 200)
PER_PROCESS = 50
FIRST = 1000
MEASURED_S = 12.0
BATCH = 20
PAGES = ("/", "/api/runs", "/api/fleet", "/metrics")


class Measured(NamedTuple):
    """Costs with a number of actors.

    Attributes:
        commands: Of Redis, per update.
        sent_bytes: By Redis, per second.
        page_bytes: Of the dashboard, by path.
        times: For the reader alone: updates per second, shares of a core, seconds per page.
    """

    actors: int
    commands: float
    sent_bytes: float
    page_bytes: dict[str, int]
    times: dict[str, float]


@pytest.fixture
def server(tmp_path, free_port):
    server = OwnRedis(tmp_path / "redis", free_port).start()
    yield server
    server.end(signal.SIGKILL)


@pytest.fixture
def run(server, tmp_path):
    """A training of unrolls that 20 actors make."""
    (tmp_path / "runs").mkdir()
    shape = sets("actors.environments=1", "actors.unroll_length_steps=16", f"learner.batch_size={BATCH}")
    url = ["--redis-url", server.url]
    started = Run(
        tmp_path / "runs" / "run", "--env", "benchmarks.sleeping:Sleeping", *shape, "--no-actors", *url, cwd=tmp_path
    )
    yield started
    started.end()


@pytest.fixture
def join(run):
    """Start simulated actors in processes of their own, until so many act."""
    processes = []

    def until(count):
        record = run.record
        while PER_PROCESS * len(processes) < count:
            first = FIRST + PER_PROCESS * len(processes)
            command = ["-m", "tests.faults.producers", record["redis_url"], record["run_id"], first, PER_PROCESS]
            arguments = [sys.executable, *map(str, command)]
            processes.append(subprocess.Popen(arguments, env=environment(**run.key), stdin=subprocess.DEVNULL))

        def act():
            assert all(process.poll() is None for process in processes)
            highest = run.backend.unrolls.highest()
            return all((number, 1) in highest for number in range(FIRST, FIRST + count))

        wait_until(act, f"{count} act")
        return processes

    yield until
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def dashboard(run, free_port):
    """Return a page of the dashboard with the seconds that it took."""
    port = free_port + 1  # Redis has the first
    command = [sys.executable, "-m", "distrl", "dashboard", str(run.run_dir.parent), "--port", str(port)]
    server = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def get(path):
        began = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60.0) as answer:
            return answer.read(), time.monotonic() - began

    def answers():
        try:
            return get("/healthz")
        except OSError:
            return None

    wait_until(answers, "the dashboard answers")
    yield get
    server.terminate()
    server.wait(timeout=60.0)


def counts(run):
    """Return the commands that Redis has run, the bytes that it has sent, and the updates."""
    told = run.backend.engine.call("INFO", "stats")
    return told["total_commands_processed"], told["total_net_output_bytes"], run.updates


def measure(run, dashboard, actors):
    learner = run.role("learner").pid
    began, before = time.monotonic(), counts(run)
    shares = {
        name: cpu_share(pid, MEASURED_S / 2) for name, pid in (("learner", learner), ("supervisor", run.process.pid))
    }
    took_s = time.monotonic() - began
    commands, sent, updates = (after - first for first, after in zip(before, counts(run), strict=True))
    (listed,) = json.loads(dashboard("/api/runs")[0])["runs"]
    pages = {path: dashboard(path) for path in PAGES} | {"the run": dashboard(f"/api/runs/{listed['id']}")}
    times = {"updates_per_s": updates / took_s, **shares, **{path: seconds for path, (_, seconds) in pages.items()}}
    sizes = {path: len(text) for path, (text, _) in pages.items()}
    return Measured(actors, commands / updates, sent / took_s, sizes, {name: round(t, 3) for name, t in times.items()})


def test_costs_grow_no_faster_than_the_number_of_actors(run, join, dashboard):
    measured = []
    for actors in ACTORS:
        processes = join(actors)
        lasts(3.0)
        measured.append(measure(run, dashboard, actors))
        print(measured[-1])
    first, last = measured[0], measured[-1]
    more = last.actors / first.actors
    # An update takes as many unrolls, so its share of pushes, admissions and heartbeats is the same.
    assert last.commands <= 1.5 * first.commands
    assert last.sent_bytes <= 1.5 * more * first.sent_bytes
    assert all(size <= 1.1 * more * first.page_bytes[path] for path, size in last.page_bytes.items())
    assert len(run.backend.registry.roles()) == ACTORS[-1] + 1
    run.backend.registry.set_control(stop="asked")
    summary = run.finish()
    assert (summary.exit_code, summary.restarts, summary.imbalance) == (0, 0, 0)
    assert (summary.lost, summary.foreign, summary.rolled_back) == (0, 0, 0)
    assert "forgotten" not in run.told
    assert [process.wait(timeout=60.0) for process in processes] == [0] * len(processes)
