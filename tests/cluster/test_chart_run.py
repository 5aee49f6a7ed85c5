"""A rendering of the chart, run as processes of this machine: Redis with its users, learner, actors and dashboard.

Each process has the command, the variables and the files of its container. Paths and addresses of the cluster are
replaced by those of the test; everything else is as rendered.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distrl.memory_backend.embedded_redis import find_server
from distrl.runs.summary import Summary
from tests.faults.arguments import environment
from tests.faults.prometheus import scraping
from tests.helm.rendering import CHART, Object, name_of, objects_in, pods_in, rendered
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.row("D65")]
VALUES = {
    "run": {
        "id": "pong",
        "preset": "cartpole-impala",
        "config": {"stop": {"mean_return": None, "env_steps": None}, "checkpoint": {"every_s": 5}}
        | {"evaluation": {"every_env_steps": 20_000, "episodes": 2}},
    },
    "actors": {"replicas": 1, "perPod": 2},
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "rules", "grafana")},
}
OTHERS = ("kube_", "kuberay_")
"""Beginnings of the metrics of kube-state-metrics and KubeRay."""


class Cluster:
    """The directory in which the containers' files lie, and the processes that run."""

    def __init__(self, directory: Path, port: int, dashboard_port: int, objects: list[Object]) -> None:
        self.directory, self.port, self.dashboard_port = directory, port, dashboard_port
        self.objects = {name_of(each): each for each in objects}
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        keys = [item for each in objects for _, pod in pods_in(each) for volume in pod.get("volumes") or ()
                for item in volume.get("secret", {}).get("items", ())]  # fmt: skip
        for number, key in enumerate(sorted({item["key"] for item in keys})):
            (self.secrets / key).write_text(f"{number:064x}\n")
            (self.secrets / key).chmod(0o600)
        for name, folder in (("ConfigMap r-distrl-job", "config"), ("ConfigMap r-distrl-redis", "redis")):
            (directory / folder).mkdir()
            for file, text in self.objects[name]["data"].items():
                (directory / folder / file).write_text(self.here(text))
        for folder in ("tmp", "runs", "data", "bin", "empty"):
            (directory / folder).mkdir()
        (directory / "bin" / "valkey-server").symlink_to(find_server())

    def here(self, text: str, runs: str = "runs") -> str:
        """Return a text with the paths and addresses of this machine; `runs`: the folder that is /runs in the Pod."""
        for path in (
            "/etc/distrl/secrets",
            "/etc/redis",
            "/config/",
            "/runs",
            "/tmp/users.acl",
            "/tmp/actors",
            "/data",
        ):
            folder = {"/etc/distrl/secrets": "/secrets", "/etc/redis": "/redis", "/runs": f"/{runs}"}.get(path, path)
            text = re.sub(rf"(?<![\w/.]){path}", f"{self.directory}{folder}", text)
        text = text.replace("r-distrl-redis:6379", f"127.0.0.1:{self.port}").replace("0.0.0.0", "127.0.0.1")
        return text.replace("8720", str(self.dashboard_port)).replace(
            "appendfsync everysec", f"appendfsync everysec\nport {self.port}"
        )

    @contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the first container of an object's Pods."""
        ((_, pod),) = pods_in(self.objects[name])
        container = pod["containers"][0]
        # The dashboard does not mount the claim: it knows the run by Redis alone.
        runs = "empty" if container["name"] == "dashboard" else "runs"
        words = [self.here(word, runs) for word in (*container.get("command", ()), *container.get("args", ()))]
        command = words if "command" in container else [sys.executable, "-m", "distrl", *words]
        variables = {each["name"]: self.here(each["value"]) for each in container.get("env", ())}
        variables["HOME"] = str(self.directory / "tmp")
        variables["PATH"] = f"{self.directory}/bin:{os.environ['PATH']}"
        log = self.directory / f"{container['name']}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment(**variables), cwd=self.directory
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=60.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, container: str) -> str:
        return (self.directory / f"{container}.log").read_text(errors="replace")

    def get(self, path: str, token: str | None = None) -> str:
        """Return an answer of the dashboard; "" before it answers."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.dashboard_port}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {(self.secrets / token).read_text().strip()}")
        try:
            with urllib.request.urlopen(request, timeout=10.0) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError:
            raise
        except OSError:
            return ""

    def samples(self) -> dict[str, list[Any]]:
        """Return name -> samples of /metrics, as Prometheus gets them."""
        found: dict[str, list[Any]] = {}
        for family in text_string_to_metric_families(self.get("/metrics", "dashboard-read-only-token")):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample)
        return found


@pytest.fixture
def cluster(needs_helm, tmp_path, free_port):
    made = Cluster(tmp_path, free_port, _another_port(free_port), objects_in(rendered(VALUES)))
    with ExitStack() as running:
        running.enter_context(made.running("StatefulSet r-distrl-redis"))
        yield made


def _another_port(taken: int) -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    assert port != taken
    return port


def learner_of(cluster: Cluster) -> str:
    (name,) = (name for name in cluster.objects if name.startswith("Job r-distrl-learner"))
    return name


def redis_cli(cluster: Cluster, *words: str) -> str:
    """Return what Redis answers to a client without a login."""
    with subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(cluster.port), *words], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        return client.stdout.read().strip()


_CLIENT = """
import sys, redis
try:
    print(redis.Redis(port=int(sys.argv[1])).execute_command(*sys.argv[2:]))
except redis.RedisError as error:
    print(error)
"""


def test_a_rendering_trains_is_scraped_and_ends_as_a_job_must(cluster):
    wait_until(lambda: redis_cli(cluster, "PING") == "True", "Redis answers the probe")
    assert "no permissions" in redis_cli(cluster, "GET", "distrl:default:{pong}:run")
    with (
        cluster.running(learner_of(cluster)) as learner,
        cluster.running("Deployment r-distrl-actors") as actors,
        cluster.running("Deployment r-distrl-dashboard"),
    ):
        wait_until(lambda: "ok" in cluster.get("/healthz"), "the dashboard answers its probe", 120.0)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            cluster.get("/metrics")
        finds_data(cluster, learner)
        assert learner.poll() is None, cluster.log("learner")
        found = cluster.samples()
        assert {sample.labels["run"] for sample in found["distrl_run_up"]} == {"pong"}
        assert max(sample.value for sample in found["distrl_actors_up"]) == 2.0
        assert {"where", "reason"} <= {label for name in ("distrl_unrolls", "distrl_dropped_unrolls")
                                       for sample in found[name] for label in sample.labels}  # fmt: skip
        learner.send_signal(signal.SIGTERM)
        assert learner.wait(timeout=90.0) == 143, cluster.log("learner")
        summary = Summary.read(cluster.directory / "runs/pong/summary.json")
        assert (summary.stop_reason, summary.imbalance, summary.error) == ("SIGTERM", 0, None)
        assert actors.wait(timeout=60.0) == 0, cluster.log("actors")
    resumed(cluster, summary)


def finds_data(cluster: Cluster, learner: subprocess.Popen[bytes]) -> None:
    """A Prometheus that scrapes the run has a series for every expression of Grafana and every selector of an alert."""
    endpoint = cluster.objects["ServiceMonitor r-distrl"]["spec"]["endpoints"][0]
    rules = [rule["expr"] for rule in cluster.objects["PrometheusRule r-distrl"]["spec"]["groups"][0]["rules"]]
    missing = {*expressions_of_grafana(), *(selector for rule in rules for selector in selectors_in(rule))}
    with scraping(
        endpoint,
        {"namespace": "team-a", "service": "r-distrl-dashboard"},
        target=f"127.0.0.1:{cluster.dashboard_port}",
        secrets=cluster.secrets,
        folder=cluster.directory / "prometheus",
        port=_another_port(cluster.port),
    ) as prometheus:

        def has_all() -> bool:
            missing.difference_update([each for each in missing if prometheus.query(each)])
            return learner.poll() is not None or not missing

        try:
            wait_until(has_all, "every expression finds data", 240.0)
        except AssertionError as error:
            raise AssertionError(f"no series of {sorted(missing)}") from error
        assert prometheus.query('distrl_updates{run="another"}') == []
        firing = {rule for rule in rules if prometheus.query(rule)}
        assert not {rule for rule in firing if rule.startswith(("distrl_run_up{", "up{"))}


def resumed(cluster: Cluster, before: Summary) -> None:
    """The Pod that replaces the learner goes on, and actors that wait join it."""
    with cluster.running("Deployment r-distrl-actors"), cluster.running(learner_of(cluster)) as learner:
        wait_until(
            lambda: cluster.log("actors").count("joined run pong") == 2, "the actors join the next launch", 120.0
        )
        wait_until(lambda: "update" in cluster.log("learner").rpartition("run pong in")[2], "it updates", 120.0)
        learner.send_signal(signal.SIGTERM)
        assert learner.wait(timeout=90.0) == 143, cluster.log("learner")
    after = Summary.read(cluster.directory / "runs/pong/summary.json")
    assert after.resumed_updates == before.updates > 0
    assert after.imbalance == 0


def test_the_dashboard_reports_a_redis_that_is_gone(needs_helm, tmp_path, free_port):
    made = Cluster(tmp_path, free_port, _another_port(free_port), objects_in(rendered(VALUES)))
    with made.running("Deployment r-distrl-dashboard"), ExitStack() as redis:
        server = redis.enter_context(made.running("StatefulSet r-distrl-redis"))
        wait_until(lambda: redis_cli(made, "PING") == "True", "Redis answers")
        with made.running(learner_of(made)), made.running("Deployment r-distrl-actors"):
            wait_until(lambda: "distrl_run_up" in made.samples(), "the run is shown", 240.0)
            server.send_signal(signal.SIGKILL)
            wait_until(lambda: made.samples()["distrl_run_up"][0].value == 0.0, "the alert has its number", 60.0)


def expressions_of_grafana() -> Iterator[str]:
    """Yield the expressions of the dashboard for Grafana, for one namespace and run."""
    board = json.loads((CHART / "files/grafana.json").read_text())
    for target in (target for panel in board["panels"] for target in panel["targets"]):
        yield target["expr"].replace("$namespace", "team-a").replace("$run", "pong")


def selectors_in(expression: str) -> Iterator[str]:
    """Yield the selectors in an expression of PromQL, but those of metrics that distrl does not export."""
    for selector in re.findall(r"[A-Za-z_:][\w:]*\{[^}]*\}", expression):
        if not selector.startswith(OTHERS):
            yield selector
