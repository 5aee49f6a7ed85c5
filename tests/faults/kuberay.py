"""The Pods that KubeRay makes of a RayJob with submissionMode SidecarMode, without its operator.

Each function names the one of KubeRay's that it follows, in ray-operator/controllers/ray of ray-project/kuberay: the
operator adds the command, variables, ports, labels and containers, and takes all else from the template. KubeRay makes
the Pods of a group with generated names; here they are numbered.
"""

import copy
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING
from typing import Any

from tests.faults.kubelet import NAMESPACE
from tests.helm.words import quantity

Object = dict[str, Any]
SHELL = ["/bin/bash", "-c", "--"]
"""utils.GetContainerCommand."""
SUBMITTER = "ray-job-submitter"
GCS_PORT, METRICS_PORT, AGENT_PORT, DASHBOARD_PORT = 6379, 8080, 52365, 8265
START = {"block": "true", "dashboard-agent-listen-port": str(AGENT_PORT), "metrics-export-port": str(METRICS_PORT)}
"""common/pod.go, setMissingRayStartParams: options of `ray start` where rayStartParams has none."""
FIELDS = {
    "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
    "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
    "RAY_CLOUD_INSTANCE_ID": "metadata.name",
    "RAY_NODE_TYPE_NAME": "metadata.labels['ray.io/group']",
}
"""common/pod.go, setContainerEnvVars: variables of Ray's container that are fields of its Pod."""
CONSTANTS = {
    "RAY_PORT": str(GCS_PORT),
    "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
    "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
}
"""The same function: variables that are equal in all Pods."""
APPLICATION = "app.kubernetes.io/name"
WAIT_FOR_HEAD = """
SECONDS=0
until ray health-check --address {head}:{port} > /dev/null 2>&1; do
    echo "$SECONDS seconds elapsed: Waiting for GCS to be ready."
    sleep 5
done
"""
"""common/pod.go, DefaultWorkerPodTemplate: the init container wait-gcs-ready, without its advice after two minutes."""
SUBMIT = (
    "until python -c \"import urllib.request; urllib.request.urlopen('http://localhost:{port}/api/gcs_healthz',"
    ' timeout=5)" >/dev/null 2>&1 ; do echo "Waiting for Ray Dashboard GCS to become healthy" ; sleep 2 ; done ;'
    " ray job submit --address http://127.0.0.1:{port} --submission-id {job} -- {entrypoint} ;"
)
"""common/job.go, BuildJobSubmitCommand in SidecarMode; its call of Python is worded otherwise."""


class RayJob:
    """A RayJob whose names have been drawn.

    Args:
        attempt: Number of its clusters before this one, which have failed.

    Attributes:
        cluster: Name of its RayCluster; KubeRay draws five characters.
        job_id: Submission id of the job.
        head_name: Full name of the head's Service.
    """

    def __init__(self, found: Object, attempt: int = 0) -> None:
        self._spec: Object = found["spec"]
        assert self._spec["submissionMode"] == "SidecarMode"
        name = found["metadata"]["name"]
        self.cluster, self.job_id = f"{name}-abcd{attempt}", f"{name}-fghi{attempt}"
        self.head_name = f"{self.cluster}-head-svc.{NAMESPACE}.svc.cluster.local"

    def service(self) -> Object:
        """Return the head's Service (common/service.go, BuildServiceForHeadPod): headless, ready or not."""
        labels = self._spec["rayClusterSpec"]["headGroupSpec"]["template"]["metadata"]["labels"]
        name = {label: labels[label] for label in (APPLICATION,) if label in labels}
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self.selector | name, "ports": []}
        return {"kind": "Service", "metadata": {"name": self.head_name.partition(".")[0]}, "spec": spec}

    @property
    def selector(self) -> dict[str, str]:
        """Labels by which the Service of the RayJob finds the head (HeadServiceLabels)."""
        return self._labels("head") | {"ray.io/cluster": self.cluster, "ray.io/node-type": "head"}

    def _labels(self, kind: str) -> dict[str, str]:
        """Return the labels of labelPod that a template may change."""
        names = {APPLICATION: "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
        return {"ray.io/identifier": f"{self.cluster}-{kind}", **names}

    def head(self) -> Object:
        """Return the head's Pod template (DefaultHeadPodTemplate, BuildPod; getSubmitterContainer of the RayJob)."""
        group = self._spec["rayClusterSpec"]["headGroupSpec"]
        template = self._template(group, "headgroup", "head", {"dashboard-host": "0.0.0.0"}, "127.0.0.1")
        ray_container = template["spec"]["containers"][0]
        ray_container["env"].append({"name": "RAY_USAGE_STATS_EXTRA_TAGS", "value": "kuberay_crd=RayJob"})
        template["spec"]["containers"].append(self._submitter(ray_container))
        return template

    def workers(self) -> Iterator[Object]:
        """Yield the workers' Pod templates (DefaultWorkerPodTemplate, BuildPod)."""
        for group in self._spec["rayClusterSpec"]["workerGroupSpecs"]:
            for _ in range(group["replicas"]):
                address = {"address": f"{self.head_name}:{GCS_PORT}"}
                template = self._template(group, group["groupName"], "worker", address, self.head_name)
                kept = group["template"]["spec"]["containers"][0]
                wait = {name: kept[name] for name in ("image", "imagePullPolicy", "securityContext", "volumeMounts")}
                wait |= {"name": "wait-gcs-ready", "command": SHELL, "env": [*kept["env"], *self._token()]}
                wait["args"] = [WAIT_FOR_HEAD.format(head=self.head_name, port=GCS_PORT)]
                template["spec"]["initContainers"] = [copy.deepcopy(wait)]
                yield template

    def _template(self, group: Object, name: str, kind: str, options: Mapping[str, str], address: str) -> Object:
        template: Object = copy.deepcopy(group["template"])
        labels = {"ray.io/is-ray-node": "yes", **self._labels(kind)}
        fixed = {"ray.io/cluster": self.cluster, "ray.io/node-type": kind, "ray.io/group": name}
        template["metadata"]["labels"] = {**labels, **template["metadata"]["labels"], **fixed}
        container = template["spec"]["containers"][0]
        assert not container.keys() & {"command", "args"}
        # The chart mounts a volume at /dev/shm, so that KubeRay adds none; its probes take the place of KubeRay's.
        assert "/dev/shm" in {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"livenessProbe", "readinessProbe"} <= container.keys()
        command = _ray_start(kind, {**options, **START, **group["rayStartParams"]}, container["resources"]["limits"])
        container["command"], container["args"] = SHELL, [f"ulimit -n 65536; {command}"]
        container.setdefault("ports", []).append({"name": "metrics", "containerPort": METRICS_PORT})
        container["env"] += self._token()
        if kind == "worker":
            names = {"FQ_RAY_IP": address, "RAY_IP": address.partition(".")[0]}
            container["env"] += [{"name": name, "value": value} for name, value in names.items()]
        fields = {name: {"fieldRef": {"fieldPath": path}} for name, path in FIELDS.items()}
        container["env"] += [{"name": name, "valueFrom": source} for name, source in fields.items()]
        values = {**CONSTANTS, "RAY_ADDRESS": f"{address}:{GCS_PORT}", "KUBERAY_GEN_RAY_START_CMD": command}
        container["env"] += [{"name": name, "value": value} for name, value in values.items()]
        return template

    def _token(self) -> list[Object]:
        """Return the variables of SetContainerTokenAuthEnvVars."""
        auth = self._spec["rayClusterSpec"]["authOptions"]
        reference = {"secretKeyRef": {"name": auth["secretName"], "key": "auth_token"}}
        return [
            {"name": "RAY_AUTH_MODE", "value": auth["mode"]},
            {"name": "RAY_AUTH_TOKEN", "valueFrom": reference},
        ]

    def _submitter(self, ray_container: Object) -> Object:
        """Return the container of GetDefaultSubmitterContainer and configureSubmitterContainer."""
        command = SUBMIT.format(port=DASHBOARD_PORT, job=self.job_id, entrypoint=self._spec["entrypoint"].strip())
        address = f"{self.head_name}:{DASHBOARD_PORT}"
        values = {"PYTHONUNBUFFERED": "1", "RAY_DASHBOARD_ADDRESS": address, "RAY_JOB_SUBMISSION_ID": self.job_id}
        return {
            "name": SUBMITTER,
            "image": ray_container["image"],
            "command": ["/bin/bash", "-ce", "--"],
            "args": [command],
            "env": [*({"name": name, "value": value} for name, value in values.items()), *self._token()],
        }


def _ray_start(kind: str, options: dict[str, str], limits: Mapping[str, Any]) -> str:
    """Return the command of generateRayStartCommand."""
    resources = {"num-cpus": "cpu", "memory": "memory", "num-gpus": "nvidia.com/gpu"}
    for option, resource in resources.items():
        if resource in limits:
            whole = quantity(limits[resource]).to_integral_value(ROUND_CEILING)
            options.setdefault(option, str(whole))
    words = [f"--{name}" if value == "true" else f"--{name}={value}" for name, value in sorted(options.items())]
    return " ".join(["ray start", *(["--head"] if kind == "head" else []), *words])
