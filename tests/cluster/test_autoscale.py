"""A run with real processes and a real Redis follows the number of actors that it wants, up and down.

The learner takes a second for each batch, of one unroll of eight steps. So it needs four actors whose unroll takes four
seconds, and one whose unroll takes half a second.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distrl.runs.metrics_csv import read_table
from tests.faults.arguments import environment, sets
from tests.faults.training import Run

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.row("S16")]

SLOW_S, FAST_S = "0.5", "0.05"
SETTINGS = (
    "actors.environments=1",
    "actors.unroll_length_steps=8",
    "actors.max_count=16",
    "actors.autoscale.window_s=12",
    "actors.autoscale.lower_after_s=24",
    "learner.batch_size=1",
    "algorithm.max_staleness_updates=null",
)
LEARNS = ("--env", "tests.faults.environments:Paced", "--algorithm", "tests.faults.learners:Sleepy")


def paced(file: Path) -> str:
    """Return the setting by which the environment reads how long its steps take."""
    return f"environment.kwargs={{file: {file}}}"


@pytest.fixture
def pace(tmp_path: Path) -> Path:
    """The file with the seconds of a step."""
    file = tmp_path / "step_s"
    file.write_text(SLOW_S)
    return file


@pytest.fixture
def run(tmp_path: Path, pace: Path) -> Iterator[Run]:
    """A run that begins with one actor."""
    started = Run(tmp_path / "run", *LEARNS, "--actors", "1", *sets(*SETTINGS, paced(pace)), cwd=tmp_path)
    yield started
    started.end()


def command(run: Run, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "distrl", *arguments, "--run", str(run.run_dir)]


def actors(run: Run) -> int:
    """Return how many actors act."""
    return sum(role.role == "actor" and role.env_steps > 0 for role in run.backend.registry.roles())


def scaled(run: Run, actors: int) -> list[str]:
    """Return the events by which the run came to that number."""
    return [line for line in run.told.splitlines() if line.endswith(f" to {actors} actors")]


def decisions(folder: Path) -> list[str]:
    """Return the lines of `distrl autoscale`, without their times."""
    return [line[20:] for line in (folder / "watched").read_text().splitlines()[1:]]


def test_a_run_goes_from_one_actor_to_four_and_back_and_a_killed_watcher_leaves_nothing(run, pace, tmp_path):
    run.wait_for_updates(1)
    with (tmp_path / "watched").open("wb") as output:
        watcher = subprocess.Popen(
            command(run, "autoscale", "--min", "1", "--max", "8"), stdout=output, cwd=tmp_path, env=environment()
        )
    run.wait_until(lambda: actors(run) == 4 and scaled(run, 4), "four actors act")
    supervisor = run.backend.registry.supervisor()
    assert (supervisor.autoscales, supervisor.actors, supervisor.actors_wanted) == (True, 4, 4)

    pace.write_text(FAST_S)
    run.wait_until(lambda: actors(run) == 1 and scaled(run, 1), "one actor is left")
    run.wait_until(lambda: decisions(tmp_path)[-1].startswith("1 actor wanted: the learner waits "), "it is printed")
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    assert any(line.startswith("4 actors wanted: the learner waits ") for line in decisions(tmp_path))

    pace.write_text(SLOW_S)  # the run goes on to decide without its watcher
    run.wait_until(lambda: actors(run) >= 3, "more actors act again")
    fixed = subprocess.run(command(run, "scale", "2"), cwd=tmp_path, env=environment(), check=True, timeout=60.0)
    assert fixed.returncode == 0
    run.wait_until(lambda: actors(run) == 2, "two actors are left")
    run.wait_until(lambda: not run.backend.registry.supervisor().autoscales, "an operator's number ends autoscaling")

    pids = run.pids
    subprocess.run(command(run, "stop"), cwd=tmp_path, env=environment(), check=True, timeout=60.0)
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts, summary.imbalance) == (0, "asked", 0, 0)
    assert (summary.lost, summary.foreign) == (0, 0)
    assert not any(map(run.alive, pids))
    wanted = read_table(run.run_dir / "metrics.csv")["actors_wanted"]
    assert {1, 4} <= {*wanted}
