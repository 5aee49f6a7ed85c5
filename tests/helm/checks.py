"""Properties that every rendering of the chart has, beyond the schemas; each is a list of faults, one line each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from distrl.config.checkpoint import CheckpointConfig
from tests.helm.asked import not_followed
from tests.helm.kinds import KINDS
from tests.helm.network import network_problems
from tests.helm.pods import pod_problems
from tests.helm.rendering import Object, name_of, pods_in
from tests.helm.words import COMPONENT, INSTANCE, WORKLOADS, selects, vague

LABELS = {INSTANCE, COMPONENT} | {f"app.kubernetes.io/{name}" for name in ("name", "version", "managed-by")}
LABELS |= {"helm.sh/chart"}
FOUND_BY_OTHERS: Mapping[str, set[str]] = {"RayJob": {"kueue.x-k8s.io/queue-name"}, "ConfigMap": {"grafana_dashboard"}}
ANNOTATIONS: Mapping[str, set[str]] = {
    "helm.sh/hook": {"pre-install,pre-upgrade", "test"},
    "helm.sh/hook-weight": {"-10", "-9", "-8"},
    "helm.sh/hook-delete-policy": {"before-hook-creation,hook-succeeded"},
    "helm.sh/resource-policy": {"keep"},
}
MERGE_KEYS: Mapping[str, Sequence[str]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "ports": ("name", "port", "containerPort", "protocol"),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "items": ("key", "path"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "tolerations": ("key", "operator", "value", "effect"),
    "workerGroupSpecs": ("groupName",),
    "subjects": ("kind", "name"),
    "matchExpressions": ("key",),
    "onPodConditions": ("type",),
    "deletionRules": ("policy", "condition"),
}
"""Name of a list -> fields by which its entries must differ, as server-side apply merges them."""


def problems(objects: Sequence[Object], values: Mapping[str, Any]) -> list[str]:
    """Return everything that is wrong with the objects of one rendering of the values."""
    found = [f"{name_of(each)} lacks {part}" for each in objects for part in _missing_parts(each)]
    if found:
        return found  # the others would not find what they judge
    store_s = _store_s(objects)
    for each in objects:
        mine = [*_labels(each), *_annotations(each), *_twice(each, "")]
        mine += KINDS[each["kind"]](each, objects) if each["kind"] in KINDS else ()
        if each["kind"] in WORKLOADS:
            for metadata, pod in pods_in(each):
                mine += pod_problems(metadata, pod, each, store_s)
        found += [f"{name_of(each)}: {line}" for line in mine]
    names = Counter(name_of(each) for each in objects)
    found += [f"{name} is there twice" for name, count in names.items() if count > 1]
    return [*found, *network_problems(objects), *_references(objects), *not_followed(objects, values)]


def _store_s(objects: Sequence[Object]) -> float:
    """Return how long the end of the run waits for a data store."""
    for data in (each["data"] for each in objects if each["kind"] == "ConfigMap"):
        checkpoint = yaml.safe_load(data.get("job.yaml", "{}")).get("checkpoint", {})
        if "store" in checkpoint:
            return float(CheckpointConfig(**checkpoint).end_s)
    return 0.0


def _missing_parts(found: Object) -> Iterator[str]:
    if not found["metadata"].get("labels"):
        yield "labels"
    parts = {"ConfigMap": "data", "ServiceAccount": "metadata", "Role": "rules", "RoleBinding": "subjects"}
    if not found.get(part := parts.get(found["kind"], "spec")):
        yield part
    elif found["kind"] in WORKLOADS:
        for metadata, pod in pods_in(found):
            if not metadata.get("labels") or not pod.get("containers"):
                yield "labels or containers of its Pods"


def _labels(found: Object) -> Iterator[str]:
    labels = found["metadata"].get("labels") or {}
    if missing := LABELS - labels.keys():
        yield f"no label {sorted(missing)}"
    if odd := labels.keys() - LABELS - FOUND_BY_OTHERS.get(found["kind"], set()):
        yield f"unknown label {sorted(odd)}"
    if found["kind"] == "ConfigMap" and "distrl.json" in found["data"] and "grafana_dashboard" not in labels:
        yield "Grafana does not find it"


def _annotations(found: Object) -> Iterator[str]:
    annotations = found["metadata"].get("annotations") or {}
    for name, value in annotations.items():
        if value not in ANNOTATIONS.get(name, set()):
            yield f"unknown annotation {name}: {value}"
    is_hook = found["metadata"]["labels"].get(COMPONENT) in ("secret", "test")
    hooks = {name for name in ANNOTATIONS if name.startswith("helm.sh/hook")}
    if found["kind"] == "Pod":
        hooks -= {"helm.sh/hook-weight"}
    wanted = hooks if is_hook else {"helm.sh/resource-policy"} if found["kind"] == "PersistentVolumeClaim" else set()
    if wanted != annotations.keys():
        yield f"annotations {sorted(annotations)} and not {sorted(wanted)}"
    orders = {"ServiceAccount": "-10", "Role": "-10", "RoleBinding": "-9", "Job": "-8"}
    if is_hook and found["kind"] in orders and annotations.get("helm.sh/hook-weight") != orders[found["kind"]]:
        yield "hooks are made in another order"


def _twice(value: Any, path: str) -> Iterator[str]:
    """Yield the merge keys that two entries of a list share."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, list) and name in MERGE_KEYS and all(isinstance(entry, dict) for entry in each):
                fields = MERGE_KEYS[name]
                keys = Counter(repr([entry.get(field) for field in fields]) for entry in each)
                yield from (f"{path}.{name}: {key} is there twice" for key, count in keys.items() if count > 1)
            yield from _twice(each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _twice(each, f"{path}[{number}]")


def _references(objects: Sequence[Object]) -> Iterator[str]:
    """Yield the names and selectors that lead to nothing."""
    names = {name_of(each) for each in objects}
    pods = [found for each in objects if each["kind"] in WORKLOADS for found in pods_in(each)]
    for _, pod in pods:
        account = pod.get("serviceAccountName")
        if account and f"ServiceAccount {account}" not in names:
            yield f"there is no ServiceAccount {account}"
        for volume in pod.get("volumes") or ():
            config = volume.get("configMap", {}).get("name")
            if volume["name"] == "config" and f"ConfigMap {config}" not in names:
                yield f"there is no ConfigMap {config}"
    services = [each["metadata"] for each in objects if each["kind"] == "Service"]
    for each in objects:
        yield from (
            f"{name_of(each)}: {line}" for line in _selected(each, [metadata for metadata, _ in pods], services)
        )
        if each["kind"] in ("ScaledObject", "HorizontalPodAutoscaler"):
            yield from (f"{name_of(each)}: {line}" for line in _scaled(each["spec"], objects))
        if each["kind"] == "ConfigMap":
            yield from (f"{name_of(each)}: {line}" for line in _config_map(each))


def _selected(found: Object, pods: Sequence[Object], services: Sequence[Object]) -> Iterator[str]:
    kind, selector = found["kind"], (found.get("spec") or {}).get("selector")
    if kind not in ("Deployment", "StatefulSet", "PodDisruptionBudget", "Service", "ServiceMonitor"):
        return
    if kind == "Service":
        selector = {"matchLabels": selector}
    if not any(selects(selector, metadata) for metadata in (services if kind == "ServiceMonitor" else pods)):
        yield "it selects nothing"
    yield from vague(selector)


def _scaled(spec: Object, objects: Sequence[Object]) -> Iterator[str]:
    target = spec["scaleTargetRef"]
    found = [each for each in objects if name_of(each) == f"{target.get('kind')} {target.get('name')}"]
    if not found or "apiVersion" not in target:
        yield "it scales nothing"
    if any("replicas" in each["spec"] for each in found):
        yield "an upgrade would undo its number"


def _config_map(found: Object) -> Iterator[str]:
    known: Iterable[set[str]] = ({"job.yaml"}, {"redis.conf", "users.acl", "start.sh"}, {"distrl.json"})
    if found["data"].keys() not in known:
        yield f"unknown files {sorted(found['data'])}"


def immutable(found: Object) -> Any:
    """Return the fields of an object that the API server lets no upgrade change."""
    kind, spec = found["kind"], found.get("spec") or {}
    if kind in ("Deployment",):
        return spec["selector"]
    if kind == "StatefulSet":
        changeable = {"replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"}
        changeable |= {"minReadySeconds", "revisionHistoryLimit", "ordinals"}
        return {name: value for name, value in spec.items() if name not in changeable}
    if kind in ("Job", "RayJob") and "helm.sh/hook" not in (found["metadata"].get("annotations") or {}):
        changeable = {"parallelism", "suspend", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"}
        return {name: value for name, value in spec.items() if kind == "RayJob" or name not in changeable}
    if kind == "PersistentVolumeClaim":
        return {name: value for name, value in spec.items() if name != "resources"}
    if kind == "RoleBinding":
        return found["roleRef"]
    return None
