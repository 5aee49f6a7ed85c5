"""Properties of the objects of each kind, beyond those of their Pods."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.helm.pods import container_problems
from tests.helm.rendering import CHART, Object
from tests.helm.words import component_of, differing, quantity

ALERTS = re.findall(r"alert: (\w+)", (CHART / "files/alerts.yaml").read_text())


def _service_account(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    if found.get("automountServiceAccountToken") is not False:
        yield "its token is mounted everywhere"


def _role(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    rules = found.get("rules")
    (name,) = {each["metadata"]["name"] for each in objects if each["kind"] == "RoleBinding"}
    secret = name.removesuffix("-secret")
    wanted = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    wanted += [{**wanted[0], "resourceNames": [secret], "verbs": ["get", "patch"]}]
    if rules != wanted:
        yield "it may do more, or less, than make one Secret"


def _role_binding(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    name = found["metadata"]["name"]
    yield from differing(
        "roleRef", found["roleRef"], {"name": name, "kind": "Role", "apiGroup": "rbac.authorization.k8s.io"}
    )
    yield from differing("subject", found["subjects"][0], {"name": name, "namespace": "team-a"})


def _deployment(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    strategy = spec.get("strategy") or {}
    if "revisionHistoryLimit" not in spec or not strategy.get("type"):
        yield "its strategy and history are left open"
    component = component_of(found["metadata"])
    rolling = {"actor": {"maxSurge": 0, "maxUnavailable": "50%"}, "serve": {"maxSurge": 1, "maxUnavailable": 0}}.get(
        component
    )
    yield from differing("strategy", strategy, {"rollingUpdate": rolling})
    if component == "actor" and "progressDeadlineSeconds" not in spec:
        yield "its roll-out fails while actors wait for the run"
    scaler = {"actor": "ScaledObject", "serve": "HorizontalPodAutoscaler"}.get(component)
    scaled = any(each["kind"] == scaler for each in objects)
    if "replicas" not in spec and not scaled:
        yield "its number is left open"


def _service(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    ports = spec.get("ports") or [{}]
    if not spec.get("type") or any(not {"name", "port", "targetPort", "protocol"} <= port.keys() for port in ports):
        yield "its type or ports are left open"
    if component_of(found["metadata"]) == "serve":
        kept = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 3600}}}
        yield from differing("spec", spec, kept)


def _persistent_volume_claim(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    if not spec.get("accessModes") or "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield "its size or its modes of access are left open"


def _pod(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    if "activeDeadlineSeconds" not in spec:
        yield "it may wait for ever"
    served = any(each["kind"] == "Deployment" and component_of(each["metadata"]) == "dashboard" for each in objects)
    if len(spec["containers"]) != 1 + served:
        yield "it does not test Redis and the dashboard"


def _stateful_set(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    yield from differing("spec", spec, {"replicas": 1, "serviceName": found["metadata"]["name"]})
    if "revisionHistoryLimit" not in spec:
        yield "its history is left open"
    if "distrl/config" not in (spec["template"]["metadata"].get("annotations") or {}):
        yield "another configuration does not restart it"


def _service_monitor(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    if not spec["endpoints"]:
        yield "it scrapes nothing"
    for endpoint in spec["endpoints"]:
        wanted = {"port": "http", "path": "/metrics"}
        yield from differing("endpoint", endpoint, wanted)
        authorization = endpoint.get("authorization") or {}
        credentials = authorization.get("credentials") or {}
        if authorization.get("type") != "Bearer" or credentials.get("key") != "dashboard-read-only-token":
            yield "it scrapes without the read-only token"
        if not credentials.get("name"):
            yield "its token is in no Secret"
        if not endpoint.get("interval"):
            yield "it leaves the interval open"


def _ingress(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    if not spec.get("tls") or not all(each.get("secretName") and each.get("hosts") for each in spec["tls"]):
        yield "it serves without TLS"
    hosts = [host for each in spec.get("tls") or () for host in each.get("hosts") or ()]
    if not spec["rules"] or [rule.get("host") for rule in spec["rules"]] != hosts:
        yield "it serves other hosts than its certificate"
    paths = [path for rule in spec["rules"] for path in (rule.get("http") or {}).get("paths") or ()]
    wanted = {"path": "/", "pathType": "Prefix"}
    name = found["metadata"]["name"]
    wanted["backend"] = {"service": {"name": name, "port": {"name": "http"}}}
    if paths != [wanted]:
        yield "it does not lead to the dashboard"


def _pod_disruption_budget(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    if not {"maxUnavailable", "unhealthyPodEvictionPolicy"} <= spec.keys():
        yield "it says nothing"


def _prometheus_rule(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found.get("spec") or {}
    if [rule.get("alert") for rule in spec["groups"][0]["rules"]] != ALERTS:
        yield "its alerts are not those of files/alerts.yaml"
    for rule in spec["groups"][0]["rules"]:
        if not {"severity", "run"} <= rule.get("labels", {}).keys() or not rule.get("for"):
            yield f"{rule.get('alert')} lacks severity, run or duration"
        if not {"summary", "runbook_url"} <= rule.get("annotations", {}).keys():
            yield f"{rule.get('alert')} does not say what to do"


def _job(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found["spec"]
    if "backoffLimit" not in spec:
        yield "it leaves the number of starts open"
    if component_of(found["metadata"]) == "secret":
        if "activeDeadlineSeconds" not in spec:
            yield "it may wait for ever"
        return
    wanted: Any = {
        "rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "learner", "operator": "In", "values": [2]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
    }
    yield from differing("spec", spec, {"podFailurePolicy": wanted, "podReplacementPolicy": "Failed"})
    if "ttlSecondsAfterFinished" not in spec:
        yield "it stays for ever"
    last_words = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    yield from differing("learner", spec["template"]["spec"]["containers"][0], last_words)


def _ray_job(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec, cluster = found["spec"], found["spec"]["rayClusterSpec"]
    if len(found["metadata"]["name"]) > 47:
        yield "its name is too long for KubeRay"
    yield from differing("spec", spec, {"submissionMode": "SidecarMode"})
    yield from differing("authOptions", cluster.get("authOptions") or {}, {"mode": "token"})
    if not (cluster.get("authOptions") or {}).get("secretName") or not cluster.get("rayVersion"):
        yield "its token, or the version that needs one, is missing"
    if not spec.get("entrypoint", "").startswith("distrl 'train' ") or not spec.get("backoffLimit"):
        yield "it does not train, or not again after a failure"
    yield from _end_of_cluster(spec)
    yield from _groups(cluster)
    if cluster.get("enableInTreeAutoscaling"):
        yield from _autoscaler(cluster)
    elif "autoscalerOptions" in cluster:
        yield "an autoscaler is described that does not run"


def _end_of_cluster(spec: Object) -> Iterator[str]:
    rules = (spec.get("deletionStrategy") or {}).get("deletionRules")
    if bool(rules) is bool(spec.get("shutdownAfterJobFinishes")):
        yield "its cluster stays for ever, or ends by two rules"
    if spec.get("shutdownAfterJobFinishes") and "ttlSecondsAfterFinished" not in spec:
        yield "its cluster is removed before logs can be read"
    if rules:
        conditions = {value for rule in rules for name, value in rule["condition"].items() if name != "ttlSeconds"}
        if conditions != {"SUCCEEDED", "FAILED", "Failed"} or any("ttlSeconds" not in r["condition"] for r in rules):
            yield "its cluster stays after some ends"


def _groups(cluster: Object) -> Iterator[str]:
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    numbers = {"replicas", "minReplicas", "maxReplicas", "rayStartParams"}
    if [group.get("groupName") for group in groups] != [None, "learner", "actors"]:
        yield "its groups are not the learner's and the actors'"
        return
    if any(not numbers <= group.keys() for group in groups[1:]):
        yield "it leaves the number of nodes open"
    wanted = {"dashboard-host": "0.0.0.0", "num-cpus": "0"}
    yield from differing("head", groups[0].get("rayStartParams") or {}, wanted)
    for group in groups:
        volumes = {volume["name"]: volume for volume in group["template"]["spec"].get("volumes") or ()}
        shared = quantity((volumes.get("shm") or {}).get("emptyDir", {}).get("sizeLimit") or 0)
        if (group.get("rayStartParams") or {}).get("object-store-memory") != str(int(shared / 2)):
            yield "Ray's objects do not have half of /dev/shm"


def _autoscaler(cluster: Object) -> Iterator[str]:
    options = cluster.get("autoscalerOptions") or {}
    yield from differing("autoscaler", options, {"version": "v2"})
    if "idleTimeoutSeconds" not in options or "imagePullPolicy" not in options:
        yield "the autoscaler's options are left open"
    container = {"name": "autoscaler", "image": "a:1", "args": ["-"], **options}
    container |= {"volumeMounts": [], "env": [*options.get("env", ()), {"name": "PYTHONUNBUFFERED", "value": "1"}]}
    yield from container_problems("secret", container, {"containers": [container]})
    if [mount.get("mountPath") for mount in options.get("volumeMounts") or ()] != ["/tmp"]:
        yield "the autoscaler has nowhere to write"
    if {"name": "HOME", "value": "/tmp"} not in options.get("env", ()):
        yield "the autoscaler has no home"
    if cluster["workerGroupSpecs"][1].get("minReplicas", 0) < 1:
        yield "all nodes of actors may go"


def _scaled_object(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found["spec"]
    if spec.get("minReplicaCount", 0) < 1 or "maxReplicaCount" not in spec or "pollingInterval" not in spec:
        yield "all actors may go, or any number may come"
    yield from differing("fallback", spec.get("fallback") or {}, {"behavior": "currentReplicas"})
    behaviour = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior", {})
    if behaviour.get("scaleDown", {}).get("stabilizationWindowSeconds", 0) < 300:
        yield "actors go at every blip"
    (trigger,) = spec["triggers"]
    yield from differing("trigger", trigger, {"type": "prometheus", "metricType": "AverageValue"})
    metadata = trigger["metadata"]
    yield from differing("trigger", metadata, {"ignoreNullValues": "false"})
    if missing := {"serverAddress", "query", "threshold"} - metadata.keys():
        yield f"the trigger has no {sorted(missing)}"
    if odd := metadata.keys() - {"serverAddress", "query", "threshold", "ignoreNullValues"}:
        yield f"the trigger has {sorted(odd)}"


def _horizontal_pod_autoscaler(found: Object, objects: Sequence[Object]) -> Iterator[str]:
    spec = found["spec"]
    if spec.get("minReplicas", 0) < 1 or "maxReplicas" not in spec:
        yield "all servers may go, or any number may come"
    (metric,) = spec["metrics"]
    target = metric["resource"]["target"]
    yield from differing("metric", metric["resource"], {"name": "cpu"})
    if target["type"] != "Utilization" or "averageUtilization" not in target:
        yield "it follows no share of the CPU"


KINDS: Mapping[str, Callable[[Object, Sequence[Object]], Iterator[str]]] = {
    "ServiceAccount": _service_account,
    "Role": _role,
    "RoleBinding": _role_binding,
    "Job": _job,
    "Deployment": _deployment,
    "Service": _service,
    "PersistentVolumeClaim": _persistent_volume_claim,
    "Pod": _pod,
    "StatefulSet": _stateful_set,
    "RayJob": _ray_job,
    "ScaledObject": _scaled_object,
    "HorizontalPodAutoscaler": _horizontal_pod_autoscaler,
    "ServiceMonitor": _service_monitor,
    "Ingress": _ingress,
    "PodDisruptionBudget": _pod_disruption_budget,
    "PrometheusRule": _prometheus_rule,
}
"""Kind -> its check."""
