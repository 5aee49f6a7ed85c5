"""The chart, run: its Pods by a kubelet in the small, with their probes, rights, Secrets and networks as rendered."""

import base64
import copy
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from distrl.runs.summary import Summary
from tests.faults.api_server import ApiServer
from tests.faults.connections import SERVE, listen, reached
from tests.faults.kubelet import NAMESPACE, Cluster
from tests.faults.pods import PROBES, Pod
from tests.helm.rendering import objects_in, of_mode, pods_in, rendered
from tests.helm.words import quantity
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.row("D65"), pytest.mark.timeout(1200)]

LONG_S = 400.0
"""For a training that is solved within a minute on an idle machine."""
VALUES: Mapping[str, Any] = {
    "run": {"preset": "cartpole-appo", "config": {"checkpoint": {"every_s": 1}}},
    "actors": {"replicas": 2, "perPod": 1, "terminationGracePeriodSeconds": 40},
}
KEYS = {"run-key", "dashboard-token", "dashboard-read-only-token", "serve-token", "auth_token"}
KEYS |= {f"redis-{user}-password" for user in ("learner", "actor", "operator")}


class Release:
    """A release of the chart in a cluster, with an API server for its hook."""

    def __init__(self, cluster: Cluster, api: ApiServer) -> None:
        self.cluster, self.api = cluster, api

    def install(self, **run: Any) -> None:
        """Install it, or upgrade it to another configuration."""
        config = {**VALUES["run"]["config"], **run.get("config", {})}
        values = {**VALUES, "run": {**VALUES["run"], **run, "config": config}}
        self.cluster.upgrade(objects_in(rendered(values, release="demo")))

    @property
    def learner(self) -> Any:
        """The learner's Job."""
        return self.cluster.controller("Job", "demo-distrl-learner")

    @property
    def actors(self) -> list[Pod]:
        return [*self.cluster.controller("Deployment", "demo-distrl-actors").pods]

    @property
    def run_dir(self) -> Path:
        return self.cluster.claim("demo-distrl-runs") / "demo"

    @property
    def summary(self) -> Summary:
        return Summary.read(self.run_dir / "summary.json")

    @property
    def keys(self) -> dict[str, str]:
        data: dict[str, str] = self.cluster.objects["Secret", "demo-distrl"]["data"]
        return data

    def saved_steps(self) -> int:
        """Return the step of the newest checkpoint; 0: there is none."""
        return max((int(path.name.split("-")[1]) for path in self.run_dir.glob("checkpoints/ckpt-*")), default=0)

    def wait_for_training(self) -> None:
        """Wait until the newest learner trains, and has something to go back to."""
        wait_until(lambda: self.learner.state != "Running" or "return" in self.learner.pod.log, "it trains", LONG_S)
        wait_until(lambda: self.learner.state != "Running" or self.saved_steps(), "it saves")
        assert self.learner.state == "Running", self.learner.pod.log


@pytest.fixture
def release(cluster: Cluster, hook_api: ApiServer) -> Release:
    return Release(cluster, hook_api)


def passed_all_probes(pod: Pod) -> bool:
    return all(
        container.probed[name, True] > 0 for container in pod.containers for name in PROBES if name in container.spec
    )


LOOK = """
import importlib.util, os, pathlib, re
status = pathlib.Path("/proc/self/status").read_text()
print(os.getuid(), os.getgid(), *re.findall(r"^(?:CapEff|CapBnd|NoNewPrivs):\\s+(\\w+)$", status, re.MULTILINE))
print(os.access("/opt/distrl", os.W_OK), pathlib.Path(importlib.util.find_spec("distrl").origin).parts[:3])
print([name for name in ("tensorflow", "ray", "starlette") if importlib.util.find_spec(name)])
"""
"""Prints user and rights of a container, where its distrl is, and what else it has."""
NO_RIGHTS = f"10001 10001 {'0' * 16} {'0' * 16} 1"
HAS = {"learner": ["tensorflow", "ray", "starlette"], "actors": [], "dashboard": ["starlette"]}


@pytest.mark.row("D70")
@pytest.mark.timeout(2400)  # building the images takes minutes
@pytest.mark.parametrize("cluster", ["images"], indirect=True)
def test_a_release_of_the_built_images_trains_until_it_is_solved_with_every_probe_as_written(release):
    """Redis alone runs from another image than in a cluster: its Pod has this machine's Valkey, not valkey/valkey."""
    cluster = release.cluster
    cluster.speed = 1.0
    release.install()
    assert release.keys.keys() == KEYS  # made by the hook, with the Python of an image
    release.wait_for_training()
    pods = [release.learner.pod, *release.actors, *cluster.pods("dashboard"), *cluster.pods("redis")]
    assert len(pods) == 5
    for container in (pod.containers[0] for pod in pods[:-1]):
        said = container.execute("python3", "-c", LOOK)[1]
        assert said == f"{NO_RIGHTS}\nFalse ('/', 'opt', 'distrl')\n{HAS[container.name]}\n", container.name
        assert "Read-only file system" in container.execute("touch", "/opt/distrl/x")[1]
    held = {pod.name: sum(each.memory_info().rss for each in pod.containers[0].processes()) for pod in pods}
    print({name: f"{size / 2**20:.0f} MiB" for name, size in held.items()})
    limits = {pod.name: quantity(pod.containers[0].spec["resources"]["limits"]["memory"]) for pod in pods}
    assert [name for name, size in held.items() if size > limits[name]] == []

    assert release.learner.wait(LONG_S) == "Complete", release.learner.pod.log
    assert [pod.container("learner").exits for pod in release.learner.pods] == [[0]]
    summary = release.summary
    assert (summary.exit_code, summary.stop_reason, summary.imbalance, summary.lost) == (0, "mean_return", 0, 0)
    assert summary.mean_return_100 >= 475
    assert summary.resumed_updates == 0
    ended = "the actors' launch ends, and its next one waits"
    wait_until(lambda: all(pod.ready and len(pod.container("actors").exits) == 1 for pod in release.actors), ended)
    assert [pod.container("actors").exits for pod in release.actors] == [[0], [0]]
    assert [pod.containers[0].exits for pod in pods[-2:]] == [[], []]
    assert [event for event in cluster.events if "is killed" in event] == []
    wait_until(lambda: all(map(passed_all_probes, pods)), "every probe has passed")
    assert cluster.test() == {"demo-distrl-test": "Succeeded"}


def test_a_release_trains_until_it_is_solved_through_a_killed_learner_and_its_actors_then_wait(release):
    release.install()
    cluster = release.cluster
    release.wait_for_training()
    first = release.learner.pod
    first.container("learner").signal(signal.SIGKILL)
    assert release.learner.wait(LONG_S) == "Complete"
    exits = [pod.container("learner").exits for pod in release.learner.pods]
    assert exits == [[137], [0]], release.learner.pods[1].log
    summary = release.summary
    assert (summary.exit_code, summary.stop_reason, summary.imbalance, summary.lost) == (0, "mean_return", 0, 0)
    assert summary.mean_return_100 >= 475
    assert summary.resumed_updates > 0

    wait_until(
        lambda: all(len(pod.container("actors").exits) == 1 for pod in release.actors), "the actors' launch ends"
    )
    pods = [*release.actors, *cluster.pods("redis"), *cluster.pods("dashboard")]
    assert len(pods) == 4
    again = {pod.name: pod.container("actors").probed["startupProbe", True] for pod in release.actors}
    wait_until(
        lambda: all(pod.container("actors").probed["startupProbe", True] > again[pod.name] for pod in release.actors),
        "waiting actors are alive",
    )
    probed = [pod.container("actors").probed["livenessProbe", True] for pod in release.actors]
    wait_until(  # ten minutes of the Pods' time
        lambda: all(
            pod.container("actors").probed["livenessProbe", True] >= count + 20
            for pod, count in zip(release.actors, probed, strict=True)
        ),
        "they stay so",
    )
    for pod in release.actors:
        assert pod.container("actors").exits == [0]
        assert pod.log.splitlines()[-1].startswith("waiting: no run demo at redis://demo-distrl-redis:6379")
    assert all(map(passed_all_probes, [*pods, *release.learner.pods]))
    assert all(pod.ready for pod in pods)
    assert {name: pod.container("redis").exits for name, pod in ((p.name, p) for p in cluster.pods("redis"))} == {
        "demo-distrl-redis-0": []
    }
    assert cluster.test() == {"demo-distrl-test": "Succeeded"}


def test_a_stopped_actor_is_started_again_and_an_upgrade_under_way_goes_on_from_where_it_was(release):
    release.install(config={"stop": {"mean_return": None, "env_steps": 10**9}})
    cluster, first = release.cluster, release.learner
    release.wait_for_training()
    stopped, other = (pod.container("actors") for pod in release.actors)
    wait_until(lambda: stopped.ready and other.ready, "both act")
    before = stopped.output.stat().st_size
    stopped.signal(signal.SIGSTOP)
    wait_until(lambda: stopped.exits == [137] and stopped.ready, "it is started again", LONG_S)
    wait_until(lambda: b"1 actor acting" in stopped.output.read_bytes()[before:], "it acts again", LONG_S)
    assert any("livenessProbe has failed 10 times: no heartbeat within 30 s" in event for event in cluster.events)
    assert (other.exits, other.probed["livenessProbe", False]) == ([], 0)

    keys, asked = release.keys, len(release.api.requests)
    release.install(config={"stop": {"mean_return": None, "env_steps": 10**9 + 1}})
    second = release.learner
    assert second is not first
    assert first.pods[-1].container("learner").exits == [143]
    assert release.api.requests[asked:] == [("get", "demo-distrl", 200)]
    assert release.keys == keys
    release.wait_for_training()
    cluster.uninstall()
    assert second.pods[-1].container("learner").exits == [143], second.pods[-1].log
    summary = release.summary
    assert (summary.stop_reason, summary.imbalance, summary.lost) == ("SIGTERM", 0, 0)
    assert summary.resumed_updates > 0
    assert {key for key in cluster.objects if key[0] != "Secret"} == {
        ("PersistentVolumeClaim", name) for name in ("demo-distrl-runs", "demo-distrl-redis")
    }
    assert cluster.running() == []


def test_a_release_that_is_installed_again_with_other_keys_goes_on_from_where_it_was(release):
    """The claims are those of before; the run key, by which the earlier Redis knew its data, and passwords are new."""
    endless = {"stop": {"mean_return": None, "env_steps": 10**9}}
    release.install(config=endless)
    release.wait_for_training()
    release.cluster.uninstall()
    before = release.keys
    del release.cluster.objects["Secret", "demo-distrl"]
    release.install(config=endless)
    assert not set(before.values()) & set(release.keys.values())
    release.wait_for_training()
    acting = [pod.container("actors").output for pod in release.actors]
    wait_until(lambda: all(b"1 actor acting" in output.read_bytes() for output in acting), "actors act", LONG_S)
    release.cluster.uninstall()
    summary = release.summary
    assert (summary.stop_reason, summary.imbalance, summary.lost) == ("SIGTERM", 0, 0)
    assert summary.resumed_updates > 0


def test_a_wrong_configuration_fails_the_job_at_once(release):
    release.install(config={"learner": {"batch_sise": 1}})
    assert release.learner.wait(LONG_S) == "Failed: PodFailurePolicy"
    (pod,) = release.learner.pods
    assert pod.container("learner").exits == [2]
    assert "batch_sise" in pod.log


def test_the_hook_makes_the_keys_once_and_adds_those_that_are_missing(release):
    objects = objects_in(rendered(VALUES, release="demo"))
    hook = [found for found in objects if "secret" in found["metadata"]["name"] or found["kind"] == "Role"]
    cluster, requests = release.cluster, release.api.requests
    cluster.upgrade(hook)
    first = dict(release.keys)
    assert first.keys() == KEYS
    values = [base64.b64decode(value).decode() for value in first.values()]
    assert len(set(values)) == len(KEYS)
    assert all(len(value) == 64 and int(value, 16) for value in values)
    assert requests == [("get", "demo-distrl", 404), ("create", "", 201)]

    cluster.upgrade(hook)
    assert release.keys == first
    assert requests[2:] == [("get", "demo-distrl", 200)]
    del release.keys["auth_token"]
    cluster.upgrade(hook)
    assert requests[3:] == [("get", "demo-distrl", 200), ("patch", "demo-distrl", 200)]
    assert release.keys.keys() == KEYS
    assert {name: value for name, value in release.keys.items() if name != "auth_token"} == {
        name: value for name, value in first.items() if name != "auth_token"
    }
    assert {kind for kind, _ in cluster.objects} == {"NetworkPolicy", "Secret"}  # the hook's own objects are gone

    release.api.account = "another"
    with pytest.raises(AssertionError, match=r"the Kubernetes API refuses GET .*/demo-distrl: 403"):
        cluster.upgrade(hook)


OTHERS = {
    "dns": ("kube-system", {"k8s-app": "kube-dns"}),
    "prometheus": ("monitoring", {"app": "prometheus"}),
    "operator": ("ingress", {"app.kubernetes.io/name": "kuberay-operator"}),
    "neighbour": (NAMESPACE, {"app.kubernetes.io/component": "redis"}),
    "outside": ("", {}),
}
"""Pods that are not the release's: namespace and labels; "outside" is no Pod."""
PORTS = (53, 443, 6379, 6443, 8265, 8720, 9999)


def allowed(mode: str) -> set[tuple[str, str, int]]:
    """Return the connections that documentation allows: source, target, port."""
    roles = ["learner", "actor"] if mode == "pods" else ["ray-head", "ray-worker"]
    clients = [*roles, "dashboard", "test"]
    found = {(client, "redis", 6379) for client in clients} | {(client, "dns", 53) for client in clients}
    found |= {("test", "dashboard", 8720), ("prometheus", "dashboard", 8720)}
    found |= {("secret", name, port) for name in OTHERS for port in (443, 6443)}  # 0.0.0.0/0, as the chart says
    if mode == "ray":
        pairs = {(source, target) for source in roles for target in roles} - {("ray-head", "ray-head")}  # it is alone
        found |= {(*pair, port) for pair in pairs for port in PORTS}
        found |= {("operator", "ray-head", 8265)}
    return found


@pytest.mark.parametrize("mode", ["pods", "ray"])
def test_allowed_pairs_connect_and_all_others_time_out(cluster, mode):
    objects = objects_in(rendered(of_mode(mode, VALUES), release="demo"))
    cluster.objects |= {("NetworkPolicy", f["metadata"]["name"]): f for f in objects if f["kind"] == "NetworkPolicy"}
    others = {name: cluster.outsider(name, *place) for name, place in OTHERS.items()}
    for host in others.values():
        listen(host, PORTS)
    for number, (metadata, spec) in enumerate(pair for found in objects for pair in pods_in(found)):
        serving = copy.deepcopy(spec)
        serving["volumes"] = []
        serving["containers"] = [
            {"name": "serve", "image": "any", "command": ["python3", "-c", SERVE, *map(str, PORTS)]}
        ]
        serving["securityContext"] = {"runAsUser": 0}  # for low ports
        serving["terminationGracePeriodSeconds"] = 0
        cluster.start(f"pod{number}", {"metadata": metadata, "spec": serving})
    running = cluster.running()
    wait_until(lambda: all("ready" in each.pod.log for each in running), "all listen")
    assert len(running) == len({each.component for each in running}) + (mode == "ray")  # two kinds of Ray's workers

    targets = {
        (name, address, port): (address, port)
        for name, address in [
            *((each.component, each.host.address) for each in running),
            *((name, host.address) for name, host in others.items()),
        ]
        for port in PORTS
    }
    sources = [*((each.component, each.host) for each in running), *others.items()]
    found = set()
    for source, host in sources:
        mine = {
            key: target
            for key, target in targets.items()
            if target[0] != host.address and not (source in others and key[0] in others)
        }
        found |= {(source, name, port) for name, _, port in reached(host, mine)}
    assert found == allowed(mode)
