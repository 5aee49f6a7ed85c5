"""The chart with `mode: ray`, run: Pods that KubeRay makes of its RayJob, in containers and networks of one machine.

tests/faults/kuberay.py has what KubeRay adds to the chart's templates.
"""

import base64
import compileall
import json
import sysconfig
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from distrl.runs.summary import Summary
from tests.faults.api_server import ApiServer
from tests.faults.kubelet import Cluster
from tests.faults.kuberay import SUBMITTER, RayJob
from tests.faults.pods import PROBES, Pod
from tests.helm.rendering import objects_in, rendered
from tests.waiting import wait_until

pytest.importorskip("ray")
pytest.importorskip("aiohttp")
pytestmark = [pytest.mark.cluster, pytest.mark.ray, pytest.mark.row("D65"), pytest.mark.timeout(1200)]

LONG_S = 600.0
SMALL = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}
VALUES: dict[str, Any] = {
    "mode": "ray",
    "run": {"preset": "cartpole-appo", "config": {"actors": {"count": 1}, "checkpoint": {"every_s": 5}}},
    "ray": {
        "head": {"sharedMemory": "256Mi"},
        "learner": {"sharedMemory": "256Mi", "resources": SMALL},
        "actors": {"sharedMemory": "256Mi", "resources": SMALL},
        # By itself Ray gives a node 30 s to start, which two busy cores may exceed.
        "env": [{"name": "RAY_raylet_start_wait_time_s", "value": "120"}],
    },
}


class Release:
    """A release of the chart in a cluster, and the Pods of its RayJob.

    Attributes:
        head: The newest head.
        workers: The newest worker of each place.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # pip compiles an image's packages; without that, Ray's agents are not there in time.
        compileall.compile_dir(sysconfig.get_path("purelib"), quiet=2, workers=2)
        objects = objects_in(rendered(VALUES, release="demo"))
        cluster.upgrade([found for found in objects if found["kind"] != "RayJob"])
        cluster.speed = 1.0  # a node of Ray needs longer to start than a tenth of its startupProbe
        (self._found,) = (found for found in objects if found["kind"] == "RayJob")
        self.workers: list[Pod] = []
        self._start_head()

    def _start_head(self) -> None:
        """Start a cluster, and another one up to backoffLimit times where its head or the submitter fails.

        A head starts in time or not at all: Ray gives a node 30 s, which two busy cores may exceed.
        """
        for attempt in range(1 + self._found["spec"]["backoffLimit"]):
            self.job = RayJob(self._found, attempt)
            service = self.job.service()
            self.cluster.objects["Service", service["metadata"]["name"]] = service
            self.head = self.cluster.start(f"{self.job.cluster}-head", self.job.head())
            if _starts(self.head):
                return
            self.head.ending.set()
            self.cluster.wait_for(self.head)
        raise AssertionError(self.head.log)

    def start_workers(self) -> None:
        """Start the workers one by one, and another one in place of one that fails."""
        for number, template in enumerate(self.job.workers()):
            for attempt in count():
                worker = self.cluster.start(f"{self.job.cluster}-worker-{number}-{attempt}", template)
                if _starts(worker):
                    self.workers.append(worker)
                    break
                assert attempt < 3, worker.log

    @property
    def pods(self) -> list[Pod]:
        return [self.head, *self.workers]

    @property
    def log(self) -> str:
        """The output of the submitter, which follows the job."""
        return self.head.container(SUBMITTER).log

    @property
    def run_dir(self) -> Path:
        return self.cluster.claim("demo-distrl-runs") / "demo"

    @property
    def secrets(self) -> dict[str, str]:
        data = self.cluster.objects["Secret", "demo-distrl"]["data"]
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def in_head(self, *command: str) -> str:
        """Return the output of a command in the head's container."""
        code, output = self.head.container("ray-head").execute(*command)
        assert code == 0, output
        return output


def _starts(pod: Pod) -> bool:
    """Return whether a Pod becomes ready, and not failed."""
    containers = [*pod.init_containers, *pod.containers]
    wait_until(
        lambda: pod.ready or any(each.exits not in ([], [0]) for each in containers), f"{pod.name} starts", LONG_S
    )
    return pod.ready


@pytest.fixture
def release(hook_api: ApiServer, cluster: Cluster) -> Release:
    return Release(cluster)


ASK = """
import sys, urllib.error, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[1]} if len(sys.argv) > 1 else {}
request = urllib.request.Request("http://127.0.0.1:8265/api/jobs/", headers=headers)
try:
    print(urllib.request.urlopen(request, timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
"""Program that prints the jobs, or the status by which they are refused. Argument: the token, if there is one."""
JOBS = "http://127.0.0.1:8265"


def check_refusals(release: Release) -> None:
    """The job server and the cluster itself refuse another token, and none."""
    wrong, container = "b" * 64, release.head.container("ray-head")
    assert release.in_head("python", "-c", ASK, wrong).strip() == "403"
    assert release.in_head("python", "-c", ASK).strip() == "401"
    for variables in ([f"RAY_AUTH_TOKEN={wrong}"], ["-u", "RAY_AUTH_TOKEN", "RAY_AUTH_MODE=disabled"]):
        code, output = container.execute("env", *variables, "ray", "job", "submit", "--address", JOBS, "--", "true")
        assert code != 0, output
        assert "submitted successfully" not in output
        code, output = container.execute("env", *variables, "ray", "status", "--address", "127.0.0.1:6379")
        assert code != 0, output


def shown(release: Release) -> dict[str, str]:
    """Return all that Ray's job server and its lists show."""
    lists = {kind: release.in_head("ray", "list", kind, "--detail", "--address", JOBS) for kind in ("jobs", "actors")}
    return {"/api/jobs/": release.in_head("python", "-c", ASK, release.secrets["auth_token"]), **lists}


def passed_all_probes(pod: Pod) -> bool:
    return all(
        container.probed[name, True] > 0 for container in pod.containers for name in PROBES if name in container.spec
    )


def test_both_services_of_kuberay_find_the_head(needs_helm):
    (found,) = (found for found in objects_in(rendered(VALUES, release="demo")) if found["kind"] == "RayJob")
    job = RayJob(found)
    labels = job.head()["metadata"]["labels"]
    assert job.service()["spec"]["selector"].items() <= labels.items()
    assert job.selector.items() <= labels.items()
    assert {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": "ray-head"}.items() <= labels.items()


@pytest.mark.row("D70")
@pytest.mark.timeout(2400)  # building the images takes minutes
@pytest.mark.parametrize("cluster", ["checkout", "images"], indirect=True)
def test_the_ray_job_trains_until_it_is_solved_and_shows_no_secret(release):
    job, submitter = release.job, release.head.container(SUBMITTER)
    release.start_workers()
    for node in release.pods:
        _, log = node.containers[0].execute("cat", "/tmp/ray/session_latest/logs/raylet.out")
        assert "plasma_directory=/dev/shm" in log
    check_refusals(release)
    wait_until(lambda: submitter.exits or "return" in release.log, "it trains", LONG_S)
    texts = shown(release)
    assert job.job_id in texts["/api/jobs/"]
    assert "distrl: learner" in texts["actors"]
    found = [(place, name) for place, text in texts.items() for name, value in release.secrets.items() if value in text]
    assert not found

    wait_until(lambda: submitter.exits, "the job ends", LONG_S)
    assert submitter.exits == [0], release.log
    (ended,) = (each for each in json.loads(shown(release)["/api/jobs/"]) if each["submission_id"] == job.job_id)
    assert ended["status"] == "SUCCEEDED"
    summary = Summary.read(release.run_dir / "summary.json")
    assert (summary.exit_code, summary.stop_reason, summary.imbalance, summary.lost) == (0, "mean_return", 0, 0)
    assert summary.mean_return_100 >= 475
    wait_until(lambda: all(map(passed_all_probes, release.pods)), "every probe has passed", LONG_S)
    assert all(
        container.exits == [] for pod in release.pods for container in pod.containers if container is not submitter
    )
