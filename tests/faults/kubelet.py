"""A cluster in the small: what Helm sends to Kubernetes, run on this machine with real containers, networks and probes.

`Cluster.upgrade` takes a rendered chart as `helm upgrade --install` sends it: hooks first, then what is new or changed,
then the removal of what is no longer there. Jobs, Deployments and StatefulSets make Pods (tests/faults/pods.py);
Services and NetworkPolicies become nft rules (tests/faults/network_policies.py). There is one node, and no scheduler:
resources, affinities and the like mean nothing here.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import volumes
from tests.faults.hosts import Host, Network
from tests.faults.network_policies import Endpoint, Forward, forwards, rules, selects
from tests.faults.pods import FIRST_BACK_OFF_S, Files, Placed, Pod
from tests.faults.training import WAIT_S
from tests.faults.volumes import Volume
from tests.waiting import wait_until

Object = dict[str, Any]
NAMESPACE = "team-a"
NAMESPACES = {
    name: {"kubernetes.io/metadata.name": name} for name in (NAMESPACE, "kube-system", "monitoring", "ingress")
}
KEPT = ("helm.sh/resource-policy", "keep")
HOOK, WEIGHT = "helm.sh/hook", "helm.sh/hook-weight"
MADE_OF_TEMPLATES = ("Job", "Deployment", "StatefulSet")
ELSEWHERE = {"PodDisruptionBudget", "ServiceMonitor", "PrometheusRule", "ScaledObject", "Ingress", "NetworkPolicy"}
ELSEWHERE |= {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Secret", "PersistentVolumeClaim", "Service"}
"""Kinds that no controller here follows: they are looked up by others, or mean nothing on one node."""


@dataclass
class Running:
    """A Pod and its network."""

    pod: Pod
    host: Host
    endpoint: Endpoint
    component: str


class Job:
    """A Job: makes a Pod, and another one after a failure, as its policies say.

    Attributes:
        state: Running, Complete, or Failed and the reason.
        pods: All that it has made, in order.
    """

    def __init__(self, cluster: "Cluster", found: Object) -> None:
        self.found, self._cluster = found, cluster
        self.state, self.failures = "Running", 0
        self.pods: list[Pod] = []
        self._deleted = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def pod(self) -> Pod:
        """The newest one."""
        wait_until(lambda: self.pods, f"{self.found['metadata']['name']} makes a Pod")
        return self.pods[-1]

    def wait(self, seconds: float = WAIT_S) -> str:
        wait_until(lambda: self.state != "Running", f"{self.found['metadata']['name']} ends", seconds)
        return self.state

    def update(self, found: Object) -> None:
        assert found["spec"] == self.found["spec"], f"{found['metadata']['name']}: field is immutable"

    def let_go(self) -> None:
        """Make no more Pods."""
        self._deleted.set()

    def delete(self) -> None:
        """End its Pods, and return when they have ended."""
        self.let_go()
        for pod in self.pods:
            pod.ending.set()
        self._thread.join()

    def _run(self) -> None:
        spec = self.found["spec"]
        while True:
            name = f"{self.found['metadata']['name']}-{len(self.pods)}"
            pod = self._cluster.start(name, spec["template"], register=self.pods.append)
            self._cluster.wait_for(pod)
            if self._deleted.is_set():
                return
            if pod.phase == "Succeeded":
                self.state = "Complete"
                return
            action = _action(spec.get("podFailurePolicy", {"rules": []}), pod)
            self.failures += action == "Count"
            self._cluster.report(f"{name}: failed, {action}; {self.failures} failures")
            if action == "FailJob" or self.failures > spec.get("backoffLimit", 6):
                self.state = "Failed: " + ("PodFailurePolicy" if action == "FailJob" else "BackoffLimitExceeded")
                return
            if self.failures and self._deleted.wait(FIRST_BACK_OFF_S * 2 ** (self.failures - 1) / self._cluster.speed):
                return


def _action(policy: Object, pod: Pod) -> str:
    """Return what follows from a Pod's failure: FailJob, Ignore or Count."""
    for rule in policy["rules"]:
        if "onExitCodes" in rule:
            wanted = rule["onExitCodes"]
            codes = [c.exits[-1] for c in pod.containers if wanted.get("containerName") in (None, c.name) and c.exits]
            assert wanted["operator"] in ("In", "NotIn")
            if any(code and (code in wanted["values"]) == (wanted["operator"] == "In") for code in codes):
                return str(rule["action"])
        for condition in rule.get("onPodConditions", ()):
            assert condition == {"type": "DisruptionTarget", "status": "True"}
            if pod.disrupted:
                return str(rule["action"])
    return "Count"


class Replicas:
    """A Deployment or StatefulSet: keeps Pods of its template; a changed template replaces them one by one."""

    def __init__(self, cluster: "Cluster", found: Object) -> None:
        self.found, self._cluster = found, cluster
        self.pods: list[Pod] = []
        self._made = 0
        for _ in range(found["spec"].get("replicas", 1)):
            self._start()

    def update(self, found: Object) -> None:
        old, self.found = self.found, found
        if found["spec"]["selector"] != old["spec"]["selector"]:
            raise AssertionError(f"{found['metadata']['name']}: field is immutable: spec.selector")
        wanted = found["spec"].get("replicas", 1)
        is_new = found["spec"]["template"] != old["spec"]["template"]
        for pod in [*self.pods]:
            if is_new or len(self.pods) > wanted:
                self._end(pod)
                if len(self.pods) < wanted:
                    self._start()
        while len(self.pods) < wanted:
            self._start()

    def let_go(self) -> None:
        """Make no more Pods: it makes none by itself."""

    def delete(self) -> None:
        """End its Pods, and return when they have ended."""
        for pod in self.pods:
            pod.ending.set()
        for pod in [*self.pods]:
            self._end(pod)

    def _start(self) -> None:
        is_set = self.found["kind"] == "StatefulSet"
        suffix = str(len(self.pods)) if is_set else f"{self._made:05x}"
        self._made += 1
        name = f"{self.found['metadata']['name']}-{suffix}"
        self._cluster.start(name, self.found["spec"]["template"], register=self.pods.append)

    def _end(self, pod: Pod) -> None:
        pod.ending.set()
        self._cluster.wait_for(pod)
        self.pods.remove(pod)


class Cluster:
    """A namespace of one node.

    Attributes:
        objects: What there is, by kind and name.
        events: What has happened, in order.
        releases: Hooks and tests of the last upgrade.
        api: Address and port of the Kubernetes API, for Pods that use it, and the files of a service account.
    """

    def __init__(self, network: Network, directory: Path, images: Callable[[str], Files], speed: float = 10.0) -> None:
        self.network, self.speed, self._directory, self._images = network, speed, directory, images
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[str] = []
        self.outsiders: list[Endpoint] = []
        self.policies_apply = True
        self.account: Mapping[str, bytes] = {}
        self.variables: dict[str, str] = {}
        self._controllers: dict[tuple[str, str], Job | Replicas] = {}
        self._running: dict[str, Running] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.RLock()
        self._rules: dict[str, str] = {}
        self._claims: dict[str, threading.Lock] = {}
        self._tests: list[Object] = []
        self._began = time.monotonic()
        self._count = 0
        self._services: dict[str, str] = {}

    def report(self, text: str) -> None:
        self.events.append(f"{time.monotonic() - self._began:6.1f} {text}")

    # Helm

    def upgrade(self, objects: Sequence[Object]) -> None:
        """Install a release, or upgrade it; raise AssertionError if a hook fails or a field is immutable."""
        hooks = {id(each): each["metadata"].get("annotations", {}).get(HOOK, "") for each in objects}
        self._tests = [each for each in objects if hooks[id(each)] == "test"]
        when = "pre-upgrade" if self._controllers else "pre-install"
        before = [each for each in objects if when in hooks[id(each)].split(",")]
        self._run_hooks(sorted(before, key=lambda each: int(each["metadata"]["annotations"][WEIGHT])))
        plain = {_key(each): each for each in objects if not hooks[id(each)]}
        self._check(plain)
        gone = [key for key in self.objects if key not in plain and key[0] != "Secret"]
        self.objects |= plain
        for name in (n for (kind, n), each in plain.items() if kind == "Service" and not _is_headless(each)):
            self._services.setdefault(name, f"198.19.0.{len(self._services) + 1}")
        self.changed()
        for key, found in plain.items():
            if key in self._controllers:
                self._controllers[key].update(found)
            elif key[0] in MADE_OF_TEMPLATES:
                self._controllers[key] = (Job if key[0] == "Job" else Replicas)(self, found)
        self._remove(gone)

    def uninstall(self) -> None:
        """Remove the release, but not what it says to keep."""
        self._remove([*self.objects])

    def test(self) -> dict[str, str]:
        """Run the release's tests; return the phase and log of each Pod."""
        results = {}
        for found in self._tests:
            pod = self.start(found["metadata"]["name"], found)
            self.wait_for(pod)
            results[pod.name] = pod.phase
            self.report(f"{pod.name}: {pod.phase}: {pod.log.strip()}")
        return results

    def _run_hooks(self, hooks: Sequence[Object]) -> None:
        for found in hooks:
            self.objects[_key(found)] = found
            if found["kind"] == "Job":
                job = Job(self, found)
                assert job.wait() == "Complete", job.pods[-1].log
                self.report(f"hook {found['metadata']['name']}: {job.pods[-1].log.strip()}")
        for found in hooks:
            del self.objects[_key(found)]

    def _check(self, plain: Mapping[tuple[str, str], Object]) -> None:
        if unknown := {kind for kind, _ in plain} - ELSEWHERE - {*MADE_OF_TEMPLATES}:
            raise ValueError(f"this cluster does not know the kinds {sorted(unknown)}")

    def _remove(self, keys: Sequence[tuple[str, str]]) -> None:
        """Remove objects as Helm does: it deletes them one after the other, and waits for none to be gone."""
        gone = [key for key in keys if key[0] != "Secret" and not _is_kept(self.objects[key])]
        ended = [self._controllers.pop(key) for key in gone if key in self._controllers]
        for key in gone:
            self.report(f"{key[0]} {key[1]} is removed")
            del self.objects[key]
        self.changed()
        for controller in ended:
            controller.let_go()
            for pod in controller.pods:
                pod.ending.set()
        for controller in ended:
            controller.delete()

    # Pods

    def controller(self, kind: str, name: str) -> Any:
        """Return the Job or set of Pods whose name begins so."""
        (found,) = (each for (k, n), each in self._controllers.items() if k == kind and n.startswith(name))
        return found

    def pods(self, component: str) -> list[Pod]:
        """Return the Pods of a component that there are now."""
        with self._lock:
            return [each.pod for each in self._running.values() if each.component == component]

    def start(self, name: str, template: Object, register: Callable[[Pod], None] = lambda _: None) -> Pod:
        """Make a Pod and run it."""
        labels = template["metadata"]["labels"]
        with self._lock:
            self._count += 1
            uid = f"p{self._count}"
            host = self.network.host(uid)
            host.ip("route", "add", "198.19.0.0/16", "dev", "eth0")
            # crun shall find no control groups, not even those of both versions, which it refuses.
            subprocess.run(host.enter("mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"), check=True)
            directory = self._directory / f"{self._count:02}.{name}"
            directory.mkdir()
            placed = self._placed(template, host, directory)
            pod = Pod(name, template["spec"], placed, self.report, self.changed)
            endpoint = Endpoint(host.address, NAMESPACE, labels, pod.ports)
            self._running[uid] = Running(pod, host, endpoint, labels["app.kubernetes.io/component"])
            register(pod)
            self.changed()
        thread = threading.Thread(target=self._run, args=(uid, template["spec"]), daemon=True)
        self._threads[pod.name] = thread
        thread.start()
        return pod

    def wait_for(self, pod: Pod) -> None:
        """Wait for the end of a Pod."""
        self._threads[pod.name].join()

    def evict(self, pod: Pod) -> None:
        """End a Pod as a drain of its node does."""
        pod.disrupted = True
        pod.ending.set()

    def _run(self, uid: str, spec: Object) -> None:
        running = self._running[uid]
        held: list[threading.Lock] = []
        try:
            for claim in self._claims_for_one_pod(spec):
                while not claim.acquire(timeout=0.1):
                    if running.pod.ending.is_set():
                        break
                else:
                    held.append(claim)
            self.report(f"{running.pod.name}: starts")
            running.pod.run()
            self.report(f"{running.pod.name}: {running.pod.phase}")
        finally:
            for claim in held:
                claim.release()
            with self._lock:
                del self._running[uid]
                del self._rules[uid]
            running.host.end()
            self.changed()

    def _claims_for_one_pod(self, spec: Object) -> list[threading.Lock]:
        """Return the locks of the claims that a Pod must have for itself."""
        volumes = [v["persistentVolumeClaim"] for v in spec.get("volumes", ()) if "persistentVolumeClaim" in v]
        claims = [self.objects["PersistentVolumeClaim", volume["claimName"]] for volume in volumes]
        return [
            self._claims.setdefault(claim["metadata"]["name"], threading.Lock())
            for claim in claims
            if claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
        ]

    def _placed(self, template: Object, host: Host, directory: Path) -> Placed:
        spec, name = template["spec"], directory.name.split(".", 1)[1]
        hosts_file = directory / "hosts"
        lines = ["127.0.0.1 localhost", f"{host.address} {name}", *self._names_of_services()]
        hosts_file.write_text("".join(f"{line}\n" for line in lines))
        group = spec.get("securityContext", {}).get("fsGroup")
        found = {volume["name"]: self._volume(volume, group, host, directory) for volume in spec.get("volumes", ())}
        if spec.get("automountServiceAccountToken", True) and self.account:
            found["token"] = volumes.write_files(directory / "token", self.account, 0o644, group)
        variables = {
            f"{kind} {name}": {key: value.decode() for key, value in volumes.contents(each).items()}
            for (kind, name), each in self.objects.items()
            if kind in ("Secret", "ConfigMap")
        }
        variables["cluster"] = self.variables
        variables["fields"] = {"metadata.name": name, "metadata.namespace": NAMESPACE, "status.podIP": host.address}
        labels = template["metadata"]["labels"].items()
        variables["fields"] |= {f"metadata.labels['{label}']": value for label, value in labels}
        containers = (*spec.get("initContainers", ()), *spec["containers"])
        images = {each["image"]: self._images(each["image"]) for each in containers}
        return Placed(host, found, images, variables, directory, hosts_file, self.speed)

    def _names_of_services(self) -> Iterator[str]:
        """Yield a line of a hosts file for each Service; a headless one has the addresses of its Pods."""
        for (kind, name), found in self.objects.items():
            if kind == "Service":
                behind = [each.host.address for each in self._behind(found)]
                for address in behind if _is_headless(found) else [self._services[name]]:
                    yield f"{address} {name} {name}.{NAMESPACE}.svc.cluster.local"

    def _volume(self, volume: Object, group: int | None, host: Host, directory: Path) -> Volume:
        ((kind, source),) = ((kind, source) for kind, source in volume.items() if kind != "name")
        place = directory / "volumes" / volume["name"]
        if kind == "emptyDir":
            return volumes.empty(source, place, group, host)
        if kind == "persistentVolumeClaim":
            assert ("PersistentVolumeClaim", source["claimName"]) in self.objects, source
            return volumes.claimed(self.claim(source["claimName"]), group)
        key = ("Secret", source["secretName"]) if kind == "secret" else ("ConfigMap", source["name"])
        assert kind in ("secret", "configMap"), volume
        return volumes.chosen(source, self.objects[key], place, group)

    def claim(self, name: str) -> Path:
        """Return the folder of a PersistentVolumeClaim."""
        return self._directory / "claims" / name

    # Network

    def outsider(self, name: str, namespace: str, labels: Mapping[str, str]) -> Host:
        """Add a Pod of another namespace, which runs nothing but what the test starts there; "": no Pod at all."""
        host = self.network.host(name)
        if namespace:
            self.outsiders.append(Endpoint(host.address, namespace, labels))
        return host

    def running(self) -> list[Running]:
        with self._lock:
            return [*self._running.values()]

    def changed(self) -> None:
        """Bring the rules of all Pods up to date with the objects, Pods and their readiness."""
        with self._lock:
            ends = [each.endpoint for each in self._running.values()] + self.outsiders
            policies = [self._of_namespace(f) for (k, _), f in self.objects.items() if k == "NetworkPolicy"]
            services = forwards([*self._forwards()])
            for uid, each in self._running.items():
                text = rules(each.endpoint, policies, ends, NAMESPACES, self.network.address) + services
                if self._rules.get(uid) != text:
                    self._rules[uid] = text
                    subprocess.run(each.host.enter("nft", "-f", "-"), input=text, text=True, check=True)

    def _of_namespace(self, found: Object) -> Object:
        return {**found, "metadata": {"namespace": NAMESPACE, **found["metadata"]}}

    def _forwards(self) -> Iterator[Forward]:
        for name, address in self._services.items():
            if (found := self.objects.get(("Service", name))) is None:
                continue
            behind = self._behind(found)
            for port in found["spec"]["ports"]:
                target = port.get("targetPort", port["port"])
                ready = [
                    (r.host.address, target if isinstance(target, int) else r.pod.ports[target])
                    for r in behind
                    if r.pod.ready
                ]
                yield Forward(address, port["port"], tuple(ready))

    def _behind(self, service: Object) -> list[Running]:
        selector = {"matchLabels": service["spec"]["selector"]}
        return [each for each in self._running.values() if selects(selector, each.endpoint.labels)]

    def close(self) -> None:
        """End all Pods at once."""
        for controller in self._controllers.values():
            controller.let_go()
        for each in self.running():
            each.pod.grace_s = 0.0
            each.pod.ending.set()
        for thread in [*self._threads.values()]:
            thread.join()


def _is_kept(found: Object) -> bool:
    name, value = KEPT
    return bool(found["metadata"].get("annotations", {}).get(name) == value)


def _is_headless(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _key(found: Object) -> tuple[str, str]:
    return found["kind"], found["metadata"]["name"]
