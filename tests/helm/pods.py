"""Properties of every Pod of the chart: rights, volumes, commands, probes."""

import re
from collections.abc import Iterator, Mapping

from distrl.apps.dashboard.server import GRACE_S as DASHBOARD_S
from distrl.apps.serve.server import GRACE_S as SERVE_S
from distrl.launch.joined_actors import LEAVE_GRACE_S as ACTORS_S
from distrl.launch.supervise import LEARNER_GRACE_S as LEARNER_S
from tests.helm.rendering import Object
from tests.helm.words import COMPONENT, INSTANCE, component_of, differing

SECRET_KEYS: Mapping[str, set[str]] = {
    "learner": {"redis-learner-password", "run-key"},
    "actor": {"redis-actor-password", "run-key"},
    "redis": {f"redis-{user}-password" for user in ("learner", "actor", "operator")},
    "dashboard": {"redis-operator-password", "dashboard-token", "dashboard-read-only-token"},
    "ray-head": {"redis-learner-password", "run-key"},
    "ray-worker": {"redis-learner-password", "run-key"},
    "serve": {"serve-token"},
    "test": {"redis-operator-password"},
}
"""Component -> keys of the Secret that its Pods see, and no other ones."""
WRITABLE: Mapping[str, set[str]] = {
    "learner": {"/runs", "/tmp", "/dev/shm"},
    "actor": {"/tmp", "/dev/shm"},
    "redis": {"/data", "/tmp"},
    "dashboard": {"/runs", "/tmp"},
    "serve": {"/tmp"},
    "ray-head": {"/runs", "/tmp", "/dev/shm"},
    "ray-worker": {"/runs", "/tmp", "/dev/shm"},
    "test": {"/tmp"},
    "secret": set(),
}
DRAIN_S: Mapping[str, float] = {
    "learner": LEARNER_S,
    "actor": ACTORS_S,
    "dashboard": DASHBOARD_S,
    "serve": SERVE_S + 5.0,  # the Service sends requests for a moment longer
    "ray-head": LEARNER_S,
    "ray-worker": LEARNER_S,
    "redis": LEARNER_S + 10.0,  # it waits until the learner has saved
    "secret": 1.0,
    "test": 1.0,
}
"""Component -> time that its process needs after SIGTERM."""
SAVING = ("learner", "redis", "ray-head", "ray-worker")
"""Components that live until the training has saved."""
PROBES: Mapping[str, set[str]] = {
    "learner": {"startupProbe", "livenessProbe"},
    "actor": {"startupProbe", "livenessProbe", "readinessProbe"},
    "redis": {"startupProbe", "livenessProbe", "readinessProbe"},
    "dashboard": {"startupProbe", "livenessProbe", "readinessProbe"},
    "serve": {"startupProbe", "livenessProbe", "readinessProbe"},
    "ray-head": {"startupProbe", "livenessProbe", "readinessProbe"},
    "ray-worker": {"startupProbe", "livenessProbe", "readinessProbe"},
    "secret": set(),
    "test": set(),
}
HEALTH = {"learner": "distrl health --role learner", "actor": "distrl health --role actors"}
PING = r"sh -c valkey-cli (--tls --insecure )?ping \| grep -q PONG"
URL = r"(redis|rediss)://\S+@\S+"
FILES = r"--token-file (?P<t>/etc/distrl/secrets/dashboard)-token --read-only-token-file (?P=t)-read-only-token"
COMMANDS: Mapping[tuple[str, str], str] = {
    ("learner", "learner"): r"train /config/job.yaml --run-dir /runs/(\S+) --run-id \1 --resume auto --dated"
    r"( --preset \S+)? --no-actors",
    ("actor", "actors"): rf"actors --redis-url {URL} --run-id \S+ --count \d+ --wait --log-dir /tmp/actors",
    ("dashboard", "dashboard"): rf"dashboard /runs --host 0.0.0.0 --port 8720 {FILES} --redis-url {URL}",
    (
        "serve",
        "serve",
    ): r"serve \S+ --host 0.0.0.0 --port 8730 --token-file /etc/distrl/secrets/serve-token( --window 1ms)?",
    ("redis", "redis"): r"sh /etc/redis/start.sh",
    ("test", "redis"): rf"runs --redis-url {URL}",
    ("test", "dashboard"): r"python3 -c import sys, .*\.read\(\)\.decode\(\)\) http://\S+:\d+/healthz",
    ("secret", "secret"): r'(?s)python3 -c """.*main\(\*sys\.argv\[1:\]\)\n+ \S+ \S+ run-key dashboard-token '
    r"dashboard-read-only-token serve-token auth_token redis-learner-password redis-actor-password "
    r"redis-operator-password",
    ("ray-head", "ray-head"): "",
    ("ray-worker", "ray-worker"): "",
}
"""Component and container -> its command line, as a regular expression."""
PORTS = {"redis": {("redis", 6379)}, "dashboard": {("http", 8720)}, "serve": {("http", 8730)}}
PORTS |= {"ray-head": {("gcs-server", 6379), ("dashboard", 8265), ("client", 10001)}}


def pod_problems(metadata: Object, pod: Object, owner: Object, store_s: float = 0.0) -> Iterator[str]:
    """Yield what is wrong with the Pods of an object; `store_s`: how long the run's end may wait for a data store."""
    component = component_of(metadata)
    if component not in WRITABLE:
        yield f"unknown component {component}"
        return
    name = "app.kubernetes.io/name"
    labels = {INSTANCE, COMPONENT, *([] if component.startswith("ray") else [name])}
    if component.startswith("ray") and name in metadata["labels"]:
        yield "KubeRay's Service of the RayJob does not find its head"
    if labels - metadata["labels"].keys() or metadata["labels"][INSTANCE] != owner["metadata"]["labels"].get(INSTANCE):
        yield "its Pods lack labels by which they are found"
    yield from _rights(component, pod, owner)
    yield from _life(component, metadata, pod, owner, store_s if component in SAVING else 0.0)
    yield from _volumes(component, pod)
    names = [container["name"] for container in pod["containers"]]
    wanted_names = [name for kind, name in COMMANDS if kind == component]
    if names not in (wanted_names, wanted_names[:1] if component == "test" else wanted_names):
        yield f"its containers are {names}"
    for container in pod["containers"]:
        yield from container_problems(component, container, pod)


def _rights(component: str, pod: Object, owner: Object) -> Iterator[str]:
    security = pod.get("securityContext") or {}
    wanted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    wanted |= dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 10001) | {"fsGroupChangePolicy": "OnRootMismatch"}
    yield from differing("securityContext", security, wanted)
    scales = component == "ray-head" and owner["spec"]["rayClusterSpec"].get("enableInTreeAutoscaling") is True
    has_token = component == "secret" or scales
    wanted = {"automountServiceAccountToken": has_token, "enableServiceLinks": False}
    yield from differing("its Pods' specification", pod, wanted)
    if not scales and not pod.get("serviceAccountName"):
        yield "it runs as the default service account"
    if shared := {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys():
        yield f"it shares the host's {sorted(shared)}"


def _life(component: str, metadata: Object, pod: Object, owner: Object, store_s: float) -> Iterator[str]:
    if owner["kind"] not in ("Deployment", "StatefulSet") and pod.get("restartPolicy") != "Never":
        yield "its containers start again in the same Pod"
    if pod.get("terminationGracePeriodSeconds", 0) < (needed := 1.5 * DRAIN_S[component] + store_s):
        yield f"its grace period is shorter than {needed:g} s"
    for container in pod["containers"] if component.startswith("ray") else ():
        values = {variable["name"]: variable.get("value") for variable in container.get("env") or ()}
        if float(values.get("RAY_JOB_STOP_WAIT_TIME_S") or 0.0) < needed:
            yield "Ray kills the training before it has saved"
    if component == "redis":
        ending = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        if ending != ["sleep", f"{LEARNER_S + 5 + store_s:g}"]:
            yield "it does not wait until the learner has saved"
    if component == "serve":
        ending = {"exec": {"command": ["sleep", "5"]}}
        yield from differing("lifecycle", pod["containers"][0].get("lifecycle") or {}, {"preStop": ending})
    if component in ("actor", "serve", "ray-head", "ray-worker"):
        spread = pod.get("topologySpreadConstraints") or [{}]
        selected = (spread[0].get("labelSelector") or {}).get("matchLabels")
        if selected != {name: metadata["labels"][name] for name in (INSTANCE, COMPONENT)}:
            yield "its Pods are not spread over the nodes"


def _volumes(component: str, pod: Object) -> Iterator[str]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or ()}
    mounted = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts") or ()}
    if mounted != volumes.keys():
        yield f"volumes {sorted(volumes)} and mounts {sorted(mounted)} differ"
    for name, volume in volumes.items():
        yield from _volume(component, name, volume)
    certificate = volumes.get("redis-ca", {}).get("secret")
    if certificate is not None and certificate.get("items") != [{"key": "ca.crt", "path": "ca.crt"}]:
        yield "its Pods see the private key of Redis"
    seen = {item["key"] for item in (volumes.get("secrets", {}).get("secret") or {}).get("items", ())}
    if seen != SECRET_KEYS.get(component, set()):
        yield f"its Pods see {sorted(seen)} of the Secret"
    if any(
        item["key"] != item["path"] for item in (volumes.get("secrets") or {"secret": {}})["secret"].get("items", ())
    ):
        yield "a key of the Secret is not where programs look for it"


def _volume(component: str, name: str, volume: Object) -> Iterator[str]:
    if "hostPath" in volume:
        yield f"volume {name} is the node's"
    named = {"secret": "secretName", "configMap": "name", "persistentVolumeClaim": "claimName"}
    sources = volume.keys() - {"name"}
    if len(sources) != 1 or any(not (volume[kind] or {}).get(name) for kind, name in named.items() if kind in volume):
        yield f"volume {volume} is of nothing"
    secret = volume.get("secret")
    if secret is not None and secret.get("defaultMode") != 0o440:
        yield f"others may read volume {name}"
    if (
        "emptyDir" in volume
        and (name not in ("runs", "data") or component == "dashboard")
        and "sizeLimit" not in volume["emptyDir"]
    ):
        yield f"volume {name} has no limit"
    if name == "shm" and volume.get("emptyDir", {}).get("medium") != "Memory":
        yield "/dev/shm is on the disk"


def container_problems(component: str, container: Object, pod: Object) -> Iterator[str]:
    """Yield what is wrong with a container."""
    where = f"container {container.get('name')}"
    security = container.get("securityContext") or {}
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "privileged": False}
    yield from differing(where, security, wanted | {"capabilities": {"drop": ["ALL"]}})
    yield from _amounts(where, container)
    yield from _program(component, where, container)
    yield from _probes(component, container)
    yield from _mounts(component, container, pod)
    names = {variable["name"] for variable in container.get("env") or ()}
    without = component in ("redis", "secret") or (component, container["name"]) == ("test", "dashboard")
    if not without and "HOME" not in names:
        yield f"{where} has no HOME that it may write to"
    yield from _variables(component, container)


def _amounts(where: str, container: Object) -> Iterator[str]:
    for kind in ("requests", "limits"):
        amounts = (container.get("resources") or {}).get(kind) or {}
        if missing := {"cpu", "memory"} - amounts.keys():
            yield f"{where} has no {kind} of {sorted(missing)}"
        if odd := amounts.keys() - {"cpu", "memory", "nvidia.com/gpu"}:
            yield f"{where} has {kind} of {sorted(odd)}, which are none"
    image, _, tag = container["image"].rpartition("@" if "@" in container["image"] else ":")
    if not image or tag in ("", "latest"):
        yield f"{where} runs any image: {container['image']}"
    if container.get("imagePullPolicy") not in ("Always", "IfNotPresent", "Never"):
        yield f"{where} leaves the pull policy open"


def _program(component: str, where: str, container: Object) -> Iterator[str]:
    words = " ".join(map(str, [*(container.get("command") or ()), *(container.get("args") or ())]))
    wanted_words = COMMANDS.get((component, container["name"]))
    if container["name"] != "autoscaler" and (wanted_words is None or not re.fullmatch(wanted_words, words)):
        yield f"{where} runs another command: {words}"
    if any(not variable.keys() & {"value", "valueFrom"} for variable in container.get("env") or ()):
        yield f"{where} has a variable without a value"
    ports = {(port.get("name"), port["containerPort"]) for port in container.get("ports") or () if "protocol" in port}
    if ports != (PORTS.get(component, set()) if component != "test" else set()):
        yield f"{where} has the ports {sorted(map(str, ports))}"


def _variables(component: str, container: Object) -> Iterator[str]:
    """Files that variables and arguments name must be mounted."""
    seen = {f"/etc/distrl/secrets/{key}" for key in SECRET_KEYS.get(component, ())}
    values = {variable["name"]: variable.get("value") for variable in container.get("env") or ()}
    texts = [*values.values(), *(container.get("args") or ())]
    for text in texts:
        if isinstance(text, str) and text.startswith("/etc/distrl/secrets/") and text not in seen:
            yield f"{text} is not mounted"
    if component in ("learner", "actor", "ray-head", "ray-worker"):
        yield from differing("env", values, {"DISTRL_RUN_KEY_FILE": "/etc/distrl/secrets/run-key"})
    if component.startswith("ray"):
        yield from differing("env", values, {"RAY_USAGE_STATS_ENABLED": "0"})
    if component in ("learner", "actor", "dashboard", "ray-head", "ray-worker") or container["name"] == "redis":
        file = values.get("DISTRL_REDIS_PASSWORD_FILE")
        if component != "redis" and file not in seen:
            yield f"the password of Redis is not in {file}"
    without = component in ("redis", "secret") or (component, container["name"]) == ("test", "dashboard")
    if not without and values.get("PYTHONUNBUFFERED") != "1":
        yield "its log is late"


def _probes(component: str, container: Object) -> Iterator[str]:
    probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
    if probes.keys() != PROBES[component]:
        yield f"its probes are {sorted(probes)}"
    ports = {port["name"] for port in container.get("ports") or ()}
    for name, probe in probes.items():
        yield from (f"{name} {line}" for line in _probe(component, probe, ports))


def _probe(component: str, probe: Object, ports: set[str]) -> Iterator[str]:
    if missing := {"periodSeconds", "timeoutSeconds", "failureThreshold"} - probe.keys():
        yield f"leaves {sorted(missing)} open"
    if len({"exec", "httpGet", "tcpSocket"} & probe.keys()) != 1:
        yield "asks nothing"
    port = probe.get("httpGet", {}).get("port")
    if isinstance(port, str) and port not in ports:
        yield f"asks a port that is not there: {port}"
    if "httpGet" in probe and not str(probe["httpGet"].get("path")).endswith("healthz"):
        yield f"asks {probe['httpGet'].get('path')}"
    words = " ".join(probe.get("exec", {}).get("command") or ())
    if "exec" in probe and not re.fullmatch(HEALTH.get(component, PING), words):
        yield f"runs {words}"


def _mounts(component: str, container: Object, pod: Object) -> Iterator[str]:
    mounts = container.get("volumeMounts") or ()
    writable = {mount["mountPath"] for mount in mounts if not mount.get("readOnly")}
    allowed = WRITABLE[component] if len(pod["containers"]) == 1 or container["name"] == "redis" else set()
    if writable != allowed:
        yield f"it may write to {sorted(writable)} and not {sorted(allowed)}"
