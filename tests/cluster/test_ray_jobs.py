"""The target `ray` on a cluster with a token: what it refuses, what Ray shows of a job, and Ray's own way to stop it.

tests/cluster/test_jobs.py has the life of a job.
"""

import json
import subprocess
import urllib.request

import pytest

from distrl.runs.summary import Summary
from tests.cluster.test_jobs import RUN_ID, SLOW, Bed
from tests.faults.arguments import environment
from tests.faults.ray_cluster import RAY, ClusterWithJobs
from tests.waiting import wait_until

pytest.importorskip("ray")
pytest.importorskip("aiohttp")
pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.ray, pytest.mark.row("S19")]


@pytest.fixture
def cluster(free_port, tmp_path):
    started = ClusterWithJobs(free_port, free_port + 1, tmp_path / "ray.log")
    yield started
    started.end()


@pytest.fixture
def bed(cluster, tmp_path):
    return Bed("ray", tmp_path, ["--address", cluster.jobs], cluster.token)


def by_ray(cluster, *words):
    """Return the output of a command of Ray's."""
    command = [RAY, *words, "--address", cluster.jobs]
    return subprocess.run(command, env=environment(**cluster.token), capture_output=True, text=True, check=True).stdout


def shown_by_ray(cluster):
    """Return all that Ray's lists, its job server and its files show."""
    headers = {"Authorization": f"Bearer {cluster.token['RAY_AUTH_TOKEN']}"}
    with urllib.request.urlopen(urllib.request.Request(f"{cluster.jobs}/api/jobs/", headers=headers), timeout=20) as it:
        jobs = it.read().decode()
    files = [path.read_bytes().decode(errors="replace") for path in cluster.directory.rglob("*") if path.is_file()]
    return [jobs, *(by_ray(cluster, "list", kind, "--detail") for kind in ("jobs", "actors")), *files]


def submit_and_wait(bed, tmp_path):
    """Submit a job, and return its directory once an actor acts."""
    bed.submit(*SLOW, "--actors", "2")

    def acts():
        done = bed.run("status", RUN_ID, "--json")
        roles = json.loads(done.stdout).get("roles", ()) if done.returncode == 0 else ()
        return any(role["state"] == "acting" for role in roles)

    wait_until(acts, "an actor acts")
    return tmp_path / "runs" / RUN_ID


def test_neither_password_nor_key_is_shown_and_a_stop_by_ray_saves_a_checkpoint(bed, cluster, tmp_path):
    run_dir = submit_and_wait(bed, tmp_path)
    hidden = [(run_dir / name).read_text().strip() for name in ("redis.password", "run.key")]
    shown = shown_by_ray(cluster)
    assert RUN_ID in shown[0]
    assert "distrl: actor 1" in shown[2]
    assert not [text for text in shown if any(secret in text for secret in hidden)]

    by_ray(cluster, "job", "stop", RUN_ID)  # waits for the end, and Ray kills after 3 s by default
    assert bed.job["state"] == "gone"
    assert Summary.read(run_dir / "summary.json").imbalance == 0
    assert list((run_dir / "checkpoints").glob("ckpt-*"))
    again = bed.run("submit", "--on", "ray", *bed.options, "--yes", "--run-id", RUN_ID, "--run-dir", "other", *SLOW)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert f"the run id {RUN_ID} is taken" in again.stderr


def refused(bed, tmp_path, *arguments):
    """Return the line of a submission that is refused and leaves nothing behind."""
    done = bed.run("submit", "--on", "ray", "--yes", *SLOW, *arguments)
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "runs").exists()
    (line,) = done.stderr.splitlines()
    return line


def test_what_can_never_run_is_refused_in_one_line(bed, cluster, tmp_path):
    large = ["--address", cluster.jobs, "--actors", "6", "--set", "learner.threads=3"]
    assert "it needs 9 CPU (learner 3, 6 actors of 1), the cluster has 8, its largest node 8" in refused(
        bed, tmp_path, *large
    )
    plan = bed.run("submit", "--on", "ray", *large, *SLOW, "--wait", "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "wait_for_nodes: true" in plan.stdout
    assert "http://127.0.0.1:1: " in refused(bed, tmp_path, "--address", "http://127.0.0.1:1")
    for wrong in ({"RAY_AUTH_TOKEN": "b" * 64}, {"RAY_AUTH_MODE": "disabled"}):
        stranger = Bed("ray", tmp_path, variables={**cluster.token, **wrong})
        assert "refuses this host's token" in refused(stranger, tmp_path, "--address", cluster.jobs)
