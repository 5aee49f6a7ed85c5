"""The same training as Ray actors: the same accounts, and nothing left on a private cluster, however it ends."""

import os
import signal
from pathlib import Path

import pytest

from tests.faults.arguments import environment
from tests.faults.ray_cluster import LocalCluster

pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.redis]


def private_directories() -> set[Path]:
    return set(Path("/tmp").glob("distrl-*"))


def tree(pid: int) -> set[int]:
    """Every descendant that runs."""
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


@pytest.mark.row("O01")
def test_a_run_on_ray_balances_survives_a_kill_and_leaves_nothing(start_run, unhurried):
    run = start_run(*unhurried, "--launcher", "ray")
    run.wait_for_updates(1)
    processes = tree(run.process.pid)
    # Ray puts its own prefix before every title.
    titles = {psutil.Process(pid).cmdline()[0].strip() for pid in run.pids[1:]}
    assert titles == {"ray::distrl: learner", "ray::distrl: actor 0", "ray::distrl: actor 1"}
    run.kill("actor", 1)
    run.wait_until(lambda: run.backend.unrolls.highest().get((1, 2), -1) >= 0, "the replacement is trained on")
    run.process.terminate()
    summary = run.finish()
    assert (summary.exit_code, summary.stop_reason, summary.restarts) == (0, "SIGTERM", 1)
    assert (summary.imbalance, summary.foreign, summary.lost, summary.rolled_back) == (0, 0, 0, 0)
    assert set(summary.peak_rss_mb) == {"learner", "actor 0", "actor 1"}
    assert len(processes) > 5  # Ray's own among them
    run.wait_until(lambda: not any(map(run.alive, processes)), "every process has ended")


@pytest.mark.row("O01")
@pytest.mark.long
def test_a_run_joins_a_cluster_and_leaves_it_running(start_run, endless, redis_url, free_port, tmp_path):
    cluster = LocalCluster(free_port, tmp_path / "ray.log", variables=environment())
    try:
        before = cluster.pids
        address = ["--launcher", "ray", "--ray-address", cluster.address, "--redis-url", redis_url]
        summary = start_run(*endless, *address, "--set", "stop.updates=5").finish()
        assert (summary.exit_code, summary.stop_reason, summary.updates, summary.imbalance) == (0, "updates", 5, 0)
        assert len(before) > 3
        assert all(map(psutil.pid_exists, before))
    finally:
        cluster.end()


@pytest.mark.long
def test_nothing_is_left_on_ray_of_a_run_whose_parent_was_killed(start_run, endless):
    run = start_run(*endless, "--launcher", "ray")
    run.wait_for_updates(5)
    processes, directories = tree(run.process.pid), private_directories()
    mine = {d for d in directories if d == run.socket.parent or _used_by(d, processes)}
    assert len(mine) == 2  # Redis' and Ray's
    os.kill(run.process.pid, signal.SIGKILL)
    run.wait_until(lambda: not any(map(run.alive, processes)) and not any(d.exists() for d in mine), "nothing is left")


def _used_by(directory: Path, processes: set[int]) -> bool:
    commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process.pid in processes)
    return any(str(directory) in " ".join(command or ()) for command in commands)
