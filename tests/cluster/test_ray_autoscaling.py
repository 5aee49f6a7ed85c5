"""A run on a Ray cluster chooses its number of actors, and the cluster's autoscaler its number of nodes by that.

Learner and actors are those of test_autoscale.py: the run wants four actors while a step takes long, and one after.
"""

import psutil
import pytest

from tests.cluster.test_autoscale import FAST_S, LEARNS, SETTINGS, SLOW_S, actors, paced
from tests.faults.arguments import environment, sets
from tests.faults.ray_cluster import LocalCluster, autoscaling
from tests.faults.training import Run

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.ray, pytest.mark.row("S16")]


@pytest.fixture
def cluster(free_port, tmp_path):
    """A head with room for the learner and one actor, and an autoscaler that adds nodes for two roles each."""
    option, variables = autoscaling(free_port, tmp_path / "autoscaler.yaml", cpus=2, most_nodes=2)
    options = ("--include-dashboard=false", option)
    started = LocalCluster(free_port, tmp_path / "ray.log", *options, cpus=2, variables=environment(**variables))
    commands = [psutil.Process(pid).cmdline() for pid in started.pids]
    assert any(word.endswith("autoscaler/v2/monitor.py") for command in commands for word in command)
    yield started
    started.end()


@pytest.fixture
def pace(tmp_path):
    """The file with the seconds of a step."""
    file = tmp_path / "step_s"
    file.write_text(SLOW_S)
    return file


@pytest.fixture
def start_run(cluster, pace, tmp_path, redis_url):
    """Start a run with one actor that follows the number that it wants."""
    runs = []

    def start(*settings):
        where = ["--launcher", "ray", "--ray-address", cluster.address, "--redis-url", redis_url, "--actors", "1"]
        follows = sets(*SETTINGS, paced(pace), "actors.autoscale.enabled=true", "launch.wait_for_nodes=true", *settings)
        runs.append(Run(tmp_path / "run", *LEARNS, *where, *follows, cwd=tmp_path))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


def test_nodes_come_and_go_with_the_actors_that_the_run_wants(start_run, cluster, pace):
    run = start_run()
    run.wait_until(lambda: actors(run) == 4, "four actors act")
    assert cluster.nodes == 3
    pace.write_text(FAST_S)
    run.wait_until(lambda: actors(run) == 1, "one actor is left")
    run.wait_until(lambda: cluster.nodes == 1, "the nodes are gone")
    pace.write_text(SLOW_S)
    run.wait_until(lambda: cluster.nodes == 3, "nodes are added again")
    run.process.kill()
    run.wait_until(lambda: cluster.nodes == 1, "a run that was killed leaves no demand")


def test_a_run_that_was_stopped_leaves_no_demand(start_run, cluster):
    run = start_run("actors.autoscale.min_count=9")  # more than the cluster can have
    run.wait_until(lambda: cluster.nodes == 3 and actors(run) >= 4, "all nodes are added")
    run.backend.registry.set_control(stop="asked")
    summary = run.finish()
    assert (summary.exit_code, summary.error, summary.imbalance, summary.foreign) == (0, None, 0, 0)
    run.wait_until(lambda: cluster.nodes == 1, "the nodes are gone")
