"""The chart as helm renders it: lint, refused values, equal renderings, and what an upgrade may change."""

import copy
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

import distrl
from distrl.apps.config.configuration import load
from tests.helm.asked import RAY_GROUPS
from tests.helm.checks import immutable, problems
from tests.helm.rendering import CHART, SCENARIOS, helm, name_of, objects_in, objects_of, of_mode, pods_in, rendered
from tests.helm.schemas import VERSIONS, schema_problems
from tests.helm.words import WORKLOADS, component_of

pytestmark = [pytest.mark.usefixtures("needs_helm"), pytest.mark.row("D64", "D65")]
OF_PODS: list[tuple[dict[str, Any], str]] = [
    ({"images": {"actor": {"tag": "a"}}}, "images.actor.tag"),
    ({"learner": {"gpus": 1}}, "learner.gpus"),
    ({"learner": {"backoffLimit": 5}}, "learner.backoffLimit"),
    ({"learner": {"backoffLimit": 0}}, "learner.backoffLimit"),
    ({"learner": {"terminationGracePeriodSeconds": 121}}, "learner.terminationGracePeriodSeconds"),
    ({"learner": {"env": [{"name": "A", "value": "b"}]}}, "learner.env"),
    ({"learner": {"envFrom": [{"secretRef": {"name": "a"}}]}}, "learner.envFrom"),
    ({"learner": {"volumes": [{"name": "a", "emptyDir": {}}]}}, "learner.volumes"),
    ({"learner": {"resources": {"requests": {"cpu": "9"}}}}, "learner.resources.requests.cpu"),
    ({"actors": {"replicas": 5}}, "actors.replicas"),
    ({"actors": {"tmpSize": "2Gi"}}, "actors.tmpSize"),
    ({"actors": {"env": [{"name": "A", "value": "b"}]}}, "actors.env"),
    ({"actors": {"nodeSelector": {"a": "b"}}}, "actors.nodeSelector"),
]
"""Values, and the name of the one of which a RayJob has no use."""
OF_RAY: list[tuple[dict[str, Any], str]] = [
    ({"version": "2.59.0"}, "ray.version"),
    ({"queueName": "a"}, "ray.queueName"),
    ({"backoffLimit": 0}, "ray.backoffLimit"),
    ({"activeDeadlineSeconds": 60}, "ray.activeDeadlineSeconds"),
    ({"learner": {"gpus": 1}}, "ray.learner.gpus"),
    ({"head": {"resources": {"limits": {"memory": "9Gi"}}}}, "ray.head.resources.limits.memory"),
    ({"autoscaler": {"enabled": True}}, "ray.autoscaler.enabled"),
    ({"volumes": [{"name": "a", "emptyDir": {}}]}, "ray.volumes"),
]
"""As OF_PODS, in ray, of which Pods have no use."""
GAMES = {"serveFrom": [{"ipBlock": {"cidr": "10.2.0.0/16"}}]}
INGRESS = {"enabled": True, "host": "h", "tlsSecretName": "t"}
MODES = ("pods", "ray")
LEARNING = ("learner", "ray-head", "ray-worker")
"""Components that run the learner's image."""


@pytest.mark.parametrize(
    "scenario",
    [
        "pods, defaults",
        "pods, full",
        "ray, full",
        "pods, a data store",
        "ray, a data store",
        "pods, openshift's name servers",
        "ray, a name server of each node",
    ],
)
def test_a_rendering_has_every_property(scenario):
    assert problems(objects_of(scenario), SCENARIOS[scenario]) == []


@pytest.mark.parametrize("mode", MODES)
def test_lint_finds_nothing(mode):
    done = helm("lint", "--strict", str(CHART), values={"mode": mode})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("scenario", ["pods, full", "ray, full"])
def test_two_renderings_are_equal_to_the_byte(scenario):
    assert rendered(SCENARIOS[scenario]) == rendered(SCENARIOS[scenario])


TEMPLATES = [path for path in (CHART / "templates").rglob("*") if path.is_file()]
UNSTEADY = re.compile(r"(?<![.$\w])(?:rand\w*|lookup|uuidv4|gen[A-Z]\w+|now|ago|getHostByName)\b")
"""Functions of templates whose results differ between two renderings."""


def unsteady(template: str) -> list[str]:
    """Return the functions in the actions of a template that make two renderings differ."""
    actions = re.sub(r"/\*.*?\*/|\"[^\"]*\"|`[^`]*`", "", " ".join(re.findall(r"(?s){{(.*?)}}", template)))
    return UNSTEADY.findall(actions)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_draws_nothing_at_random_and_asks_no_server(path):
    assert unsteady(path.read_text()) == []


@pytest.mark.parametrize(
    "action", ["{{- randAlphaNum 5 }}", "{{ $a := (lookup `v1` `Secret` `a` `b`) }}", "{{- $a | default (genCA 3) -}}"]
)
def test_a_template_that_draws_at_random_is_found(action):
    assert unsteady(f"a: 1\n{action}") != []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learner": {"gpu": 1}}, "additional properties 'gpu' not allowed"),
        ({"mode": "slurm"}, "mode"),
        ({"autoscaling": {"minReplicas": 0}}, "minReplicas"),
        ({"autoscaling": {"stabilizationWindowSeconds": 60}}, "stabilizationWindowSeconds"),
        ({"redis": {"mode": "external"}}, "external/url"),
        ({"redis": {"external": {"url": "redis://u:secret@h"}}}, "external/url"),
        ({"redis": {"tls": {"enabled": True}}}, "secretName"),
        ({"podSecurityContext": {"runAsNonRoot": False}}, "runAsNonRoot"),
        ({"podSecurityContext": {"runAsUser": 0}}, "runAsUser"),
        ({"learner": {"env": [{"name": "DISTRL_RUN_KEY_FILE", "value": "x"}]}}, "env/0/name"),
        ({"learner": {"terminationGracePeriodSeconds": 5}}, "terminationGracePeriodSeconds"),
        ({"learner": {"resources": {"requests": {"cpu": "2 cores"}}}}, "resources"),
        ({"run": {"config": {"memory": {"url": "redis://h"}}}}, "run.config.memory.url is set by the chart"),
        ({"run": {"config": {"launch": {"wait_s": 3}}}}, "run.config.launch.wait_s is set by the chart"),
        ({"run": {"id": "a b"}}, "run/id"),
        ({"dashboard": {"ingress": {"enabled": True}}}, "ingress"),
        ({"monitoring": {"rules": {"runbookUrl": "x"}}}, "runbookUrl"),
        ({"monitoring": {"rules": {"runbookUrl": "https://h/o'clock.md"}}}, "runbookUrl"),
        ({"learner": {"podLabels": {"app.kubernetes.io/component": "a"}}}, "learner/podLabels"),
        ({"redis": {"persistence": {"annotations": {"helm.sh/resource-policy": "a"}}}}, "persistence/annotations"),
        ({"redis": {"podAnnotations": {"distrl/config": "a"}}}, "redis/podAnnotations"),
        ({"monitoring": {"grafana": {"labels": {"app.kubernetes.io/name": "a"}}}}, "grafana/labels"),
        ({"dashboard": {"nodeSelector": {"a": 1}}}, "dashboard/nodeSelector/a"),
        *(
            ({"mode": "ray", "ray": {group: {"nodeSelector": {"a": 1}}}}, f"ray/{group}/nodeSelector/a")
            for group in RAY_GROUPS
        ),
        ({"learner": {"gpus": 4}, "run": {"config": {"learner": {"replicas": 2}}}}, "replicas: 2 differ"),
        ({"learner": {"gpus": 1}, "run": {"config": {"learner": {"replicas": 2}}}}, "replicas: 2 differ"),
        ({"images": {"actor": {"repository": ""}}}, "repository"),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 2, "prometheusAddress": "http://p"}},
            "9 is",
        ),
        ({"autoscaling": {"enabled": True}}, "autoscaling.enabled needs autoscaling.prometheusAddress"),
        (
            {
                "autoscaling": {"enabled": True, "prometheusAddress": "http://p"},
                "actors": {"replicas": 0},
                "run": {"config": {"data": {"sets": "a/set"}}},
            },
            "autoscaling.enabled has no use with actors.replicas: 0",
        ),
        ({"actors": {"replicas": 0}}, "actors.replicas: 0 is of a run that learns from data alone"),
        (
            {"autoscaling": {"enabled": True, "prometheusAddress": "http://p"}, "dashboard": {"enabled": False}},
            "and dashboard.enabled: true, which exports distrl_actors_wanted",
        ),
        ({"redis": {"maxMemory": "8gb"}}, "maxMemory: 8gb must be less than redis.resources.limits.memory: 2560Mi"),
        ({"redis": {"maxMemory": "2560mb"}}, "maxMemory: 2560mb must be less"),
        ({"redis": {"maxMemory": "1gb", "resources": {"limits": {"memory": 1.0e9}}}}, "maxMemory: 1gb must be less"),
        ({"learner": {"sharedMemory": "64Gi"}}, "learner.sharedMemory: 64Gi must be less"),
        ({"actors": {"sharedMemory": "4096Mi"}}, "actors.sharedMemory: 4096Mi must be less"),
        ({"redis": {"external": {"url": "redis://h"}}}, "redis.external has no use with redis.mode: own"),
        ({"networkPolicy": {"redisTo": [{"ipBlock": {"cidr": "10.0.0.7/32"}}]}}, "redisTo has no use"),
        ({"dashboard": {"ingress": INGRESS}}, "dashboard.ingress.enabled needs networkPolicy.dashboardFrom"),
        ({"dashboard": {"service": {"type": "LoadBalancer"}}}, "type: LoadBalancer needs networkPolicy.dashboardFrom"),
        ({"dashboard": {"service": {"type": "NodePort"}}}, "type: NodePort needs networkPolicy.dashboardFrom"),
        ({"dashboard": {"enabled": False, "ingress": INGRESS}}, "has no use with dashboard.enabled: false"),
        ({"mode": "ray", "redis": {"external": {"caSecretName": "a"}}}, "redis.external has no use"),
        ({"serve": {"enabled": True}}, "serve.enabled needs serve.policy, such as s3://bucket/runs/ID"),
        ({"serve": {"enabled": True, "policy": "s3://a/r"}}, "serve.enabled needs networkPolicy.serveFrom"),
        ({"networkPolicy": GAMES, "serve": {"enabled": True, "policy": "/runs/r"}}, "set persistence.accessModes"),
        (
            {"persistence": {"enabled": False}, "serve": {"enabled": True, "policy": "/runs/r"}}
            | {"mode": "ray", "run": {"config": {"checkpoint": {"store": "s3://a/b"}}}},
            "serve.policy in /runs has no use with persistence.enabled: false",
        ),
        (
            {"networkPolicy": GAMES}
            | {"serve": {"enabled": True, "policy": "s3://a/r", "autoscaling": {"enabled": True, "minReplicas": 9}}},
            "serve.autoscaling.minReplicas: 9 is more than serve.autoscaling.maxReplicas: 8",
        ),
        ({"serve": {"args": ["--port=1"]}}, "serve/args/0"),
        ({"serve": {"terminationGracePeriodSeconds": 5}}, "terminationGracePeriodSeconds"),
        *(({"mode": "ray", **values}, f"{name} has no use with mode: ray") for values, name in OF_PODS),
        *(({"ray": values}, f"{name} has no use with mode: pods") for values, name in OF_RAY),
        *(
            (
                {"mode": "ray", "ray": {group: {"sharedMemory": "8Gi"}}},
                f"ray.{group}.sharedMemory: 8Gi must be less than ray.{group}.resources.limits.memory: {limit}",
            )
            for group, limit in (("head", "4Gi"), ("learner", "8Gi"), ("actors", "8Gi"))
        ),
        *(
            ({"mode": mode, "run": {"args": args}}, f"run.args: {args[-1]}: set it in run.config.checkpoint")
            for mode in MODES
            for args in (
                ["--set", "checkpoint.store=s3://a"],
                ["--set=checkpoint.store=s3://a"],
                ["--set", "checkpoint={store: s3://a}"],
                ["--seed", "1", "--set", "checkpoint.store_give_up_s=500"],
            )
        ),
        ({"mode": "ray", "persistence": {"enabled": False}}, "mode: ray needs run.config.checkpoint.store"),
        (
            {"mode": "ray", "persistence": {"enabled": False}, "run": {"config": {"checkpoint": {"store": None}}}},
            "mode: ray needs run.config.checkpoint.store",
        ),
        (
            {"mode": "ray", "ray": {"autoscaler": {"enabled": True, "minReplicas": 9, "maxReplicas": 2}}},
            "ray.autoscaler.minReplicas: 9 is more than ray.autoscaler.maxReplicas: 2",
        ),
    ],
    ids=str,
)
def test_a_value_that_is_wrong_is_refused(values, message):
    done = helm("template", "r", str(CHART), values=values)
    assert done.returncode == 1
    assert message in done.stderr


def test_the_servers_of_a_run_with_a_store_serve_it_from_there():
    store = {"checkpoint": {"store": "s3://bucket/runs/", "store_give_up_s": 1}}
    values = {"run": {"config": store}, "networkPolicy": GAMES, "serve": {"enabled": True, "replicas": 3}}
    values |= {"persistence": {"enabled": False}, "redis": {"terminationGracePeriodSeconds": 62}}
    found = objects_in(rendered(values))
    (deployment,) = (each for each in found if name_of(each) == "Deployment r-distrl-serve")
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][:2] == ["serve", "s3://bucket/runs/r"]
    assert "HorizontalPodAutoscaler" not in {each["kind"] for each in found}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("gpus", "image"), [(0, "learner"), (1, "learner-gpu"), (4, "learner-gpu")])
def test_a_learner_with_gpus_has_the_image_and_the_configuration_for_them(mode, gpus, image):
    values = {"learner": {"gpus": gpus}}
    found = objects_in(rendered({"mode": mode, **(values if mode == "pods" else {"ray": values})}))
    images = {pod["containers"][0]["image"] for metadata, pod in _pods(found) if component_of(metadata) in LEARNING}
    assert images == {f"distrl/{image}:{distrl.__version__}"}
    wanted = {0: None, 1: {"device": "gpu"}, 4: {"device": "gpu", "replicas": 4}}
    assert _job(found).get("learner") == wanted[gpus]


def test_an_image_that_is_named_is_also_that_of_gpus():
    found = objects_in(rendered({"learner": {"gpus": 1}, "images": {"learner": {"repository": "a/b", "tag": "c"}}}))
    assert [p["containers"][0]["image"] for m, p in _pods(found) if component_of(m) == "learner"] == ["a/b:c"]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_learns_from_data_has_a_volume_and_no_actors(mode, tmp_path):
    volumes = {
        "env": [{"name": "MINARI_DATASETS_PATH", "value": "/data"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "recorded", "readOnly": True}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    }
    config = {
        "environment": {"id": "CartPole-v1"},
        "algorithm": {"name": "dqn"},
        "data": {"sets": ["cartpole/expert", "/data/steps.parquet"]},
        **({"actors": {"count": 0}} if mode == "ray" else {}),
    }
    none, pods = {"actors": {"replicas": 0}}, {"learner": volumes}
    values = {
        "mode": mode,
        "run": {"config": config},
        "monitoring": {"rules": {"enabled": True}},
        **({"ray": none | volumes} if mode == "ray" else none | pods),
    }
    found = objects_in(rendered(values))
    assert problems(found, values) == []
    assert not [name_of(each) for each in found if component_of(each["metadata"]) == "actor"]
    (job := tmp_path / "job.yaml").write_text(yaml.safe_dump(_job(found)))
    started = load(file=job, sets=["launch.start_actors=false"] if mode == "pods" else []).config
    assert (started.learns_from_data, started.deterministic, started.actors.count) == (True, False, 0)
    if mode == "ray":
        (ray,) = (each for each in found if each["kind"] == "RayJob")
        groups = {group["groupName"]: group["replicas"] for group in ray["spec"]["rayClusterSpec"]["workerGroupSpecs"]}
        assert groups == {"learner": 1, "actors": 0}
    # No alert that no actor is up.
    (rules,) = (each for each in found if each["kind"] == "PrometheusRule")
    (alert,) = (rule for rule in rules["spec"]["groups"][0]["rules"] if rule["alert"] == "DistrlNoActors")
    assert alert["expr"].endswith(" == 0 and on () vector(0) > 0")


@pytest.mark.parametrize(("gpus", "replicas"), [(0, 2), (1, 1), (4, 4)])
def test_devices_that_the_configuration_has_already_are_kept(gpus, replicas):
    values = {"learner": {"gpus": gpus}, "run": {"config": {"learner": {"replicas": replicas}}}}
    assert _job(objects_in(rendered(values)))["learner"]["replicas"] == replicas


def _pods(objects: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    yield from (found for each in objects if each["kind"] in WORKLOADS for found in pods_in(each))


def _job(objects: Iterable[Any]) -> Any:
    """Return the configuration that a rendering gives to the learner."""
    (found,) = (each for each in objects if name_of(each) == "ConfigMap r-distrl-job")
    return yaml.safe_load(found["data"]["job.yaml"])


def _graces(learner: int, redis: int, ray: int, **checkpoint: Any) -> dict[str, Any]:
    graces = {"learner": learner, "redis": redis, "ray": ray}
    values = {name: {"terminationGracePeriodSeconds": seconds} for name, seconds in graces.items()}
    return {**values, "run": {"config": {"checkpoint": checkpoint}}}


@pytest.mark.parametrize(
    ("mode", "graces", "short"),
    [
        ("pods", _graces(60, 60, 60), None),
        ("pods", _graces(149, 180, 60, store="s3://a"), "learner.terminationGracePeriodSeconds: 149 .* at least 150"),
        ("pods", _graces(150, 179, 60, store="s3://a"), "redis.terminationGracePeriodSeconds: 179 .* at least 180"),
        ("pods", _graces(150, 180, 60, store="s3://a"), None),
        ("pods", _graces(60, 60, 60, store=None, store_give_up_s=99), None),
        ("pods", _graces(71, 182, 60, store="s3://a", store_give_up_s=20.5), "71 .* up to 42 s: set at least 72"),
        ("ray", _graces(120, 180, 179, store="s3://a"), "ray.terminationGracePeriodSeconds: 179 .* at least 180"),
        ("ray", _graces(120, 180, 180, store="s3://a"), None),
    ],
    ids=str,
)
def test_a_grace_period_lasts_until_the_data_store_has_the_checkpoint(mode, graces, short):
    done = helm("template", "r", str(CHART), values=of_mode(mode, graces))
    if short is None:
        assert done.returncode == 0, done.stderr
    else:
        assert re.search(short, done.stderr)


def test_other_settings_of_the_checkpoint_may_be_arguments():
    args = ["--set", "checkpoint.every_s=5", "--set=checkpoint.keep=3"]
    assert helm("template", "r", str(CHART), values={"run": {"args": args}}).returncode == 0


@pytest.mark.parametrize("dashboard", [{"ingress": INGRESS}, {"service": {"type": "LoadBalancer"}}], ids=str)
def test_a_dashboard_may_be_open_to_all_where_no_policy_denies_it(dashboard):
    values = {"dashboard": dashboard, "networkPolicy": {"enabled": False}}
    assert helm("template", "r", str(CHART), values=values).returncode == 0


@pytest.mark.parametrize(
    ("size", "limit"), [("999mb", "1Gi"), ("1gb", "1.5Gi"), ("1gb", 1073741825), ("1gb", "1.1G"), ("1gb", "1074M")]
)
def test_a_size_that_fits_is_accepted(size, limit):
    resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": limit}}
    assert (
        helm("template", "r", str(CHART), values={"redis": {"maxMemory": size, "resources": resources}}).returncode == 0
    )


SCALED = {"enabled": True, "prometheusAddress": "http://p:9090"}
NO_DASHBOARD = {"dashboard": {"enabled": False}}
EXTERNAL = {"redis": {"mode": "external", "external": {"url": "redis://h"}}, "secret": {"existing": "mine"}}
EXCLUDED: dict[str, tuple[dict[str, Any], str]] = {
    "Kueue and Ray's autoscaler": (
        {"mode": "ray", "ray": {"queueName": "a", "autoscaler": {"enabled": True}}},
        "at '/ray/queueName': value must be ''",
    ),
    "a claim for one Pod on several nodes": (
        {"mode": "ray", "persistence": {"accessModes": ["ReadWriteOncePod"]}},
        "at '/persistence/accessModes/0': value must be one of 'ReadWriteOnce', 'ReadWriteMany'",
    ),
    "KEDA without a Deployment": (
        {"mode": "ray", "autoscaling": SCALED},
        "at '/autoscaling/enabled': value must be false",
    ),
    "Ray without its token": (
        {"mode": "ray", "ray": {"env": [{"name": "RAY_AUTH_MODE", "value": "disabled"}]}},
        "at '/ray/env/0/name': 'not' failed",
    ),
    **{
        f"{name} without metrics": (
            {"monitoring": {name: {"enabled": True}}, **NO_DASHBOARD},
            "at '/dashboard/enabled': value must be true",
        )
        for name in ("serviceMonitor", "rules", "grafana")
    },
    "a Redis that the network denies": (EXTERNAL, "at '/networkPolicy/redisTo': minItems: got 0, want 1"),
}
"""Values that exclude each other, and the schema's words."""


@pytest.mark.parametrize("combination", EXCLUDED)
def test_values_that_exclude_each_other_are_refused_by_the_schema(combination):
    values, message = EXCLUDED[combination]
    done = helm("template", "r", str(CHART), values=values)
    assert (done.returncode, "of the schema" in done.stderr) == (1, True)
    assert [line.strip(" -") for line in done.stderr.splitlines() if line.strip().startswith("- at '/")] == [message]


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        *(({"mode": "ray"}, f"launch.{name}") for name in ("launcher", "ray_address", "wait_for_nodes", "print_logs")),
        ({"mode": "pods"}, "actors.count"),
        ({"mode": "ray", "ray": {"learner": {"gpus": 1}}}, "learner.device"),
        ({"redis": {"tls": {"enabled": True, "secretName": "t"}}}, "memory.tls"),
    ],
)
def test_a_setting_that_the_chart_makes_is_refused(values, setting):
    section, name = setting.split(".")
    done = helm("template", "r", str(CHART), values={**values, "run": {"config": {section: {name: 1}}}})
    assert done.returncode == 1
    assert f"run.config.{setting} is set by the chart: leave it out of run.config" in done.stderr


def test_values_of_the_other_mode_that_are_the_defaults_are_no_reason_to_refuse():
    """A file of values may repeat the defaults; they are also in a template, which must have the same ones."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for mode in MODES:
        assert rendered({**values, "mode": mode}) == rendered({"mode": mode})
    used = {"waitSeconds": 1000, "tmpSize": "5Gi"}
    text = rendered({"mode": "ray", "learner": used})
    assert "wait_s: 1000" in text
    assert text.count("sizeLimit: 5Gi") == len(RAY_GROUPS)


@pytest.mark.parametrize(
    ("size", "half"), [("150Mi", 78643200), ("0.25Gi", 134217728), ("1.5G", 750000000), ("200000001", 100000000)]
)
def test_half_of_the_shared_memory_is_for_the_objects_of_ray(size, half):
    found = objects_in(rendered({"mode": "ray", "ray": {"actors": {"sharedMemory": size}}}))
    (job,) = (each for each in found if each["kind"] == "RayJob")
    (actors,) = (each for each in job["spec"]["rayClusterSpec"]["workerGroupSpecs"] if each["groupName"] == "actors")
    assert actors["rayStartParams"] == {"object-store-memory": str(half)}


def test_a_node_of_ray_too_small_for_its_objects_is_refused():
    done = helm("template", "r", str(CHART), values={"mode": "ray", "ray": {"actors": {"sharedMemory": "149Mi"}}})
    assert done.returncode == 1
    assert "sharedMemory of Ray's nodes must be at least 150Mi" in done.stderr


@pytest.mark.parametrize(("mode", "wanted"), [("pods", "ReadWriteOncePod"), ("ray", "ReadWriteMany")])
def test_the_claim_suits_the_number_of_pods_that_mount_it(mode, wanted):
    (claim,) = (each for each in objects_of(f"{mode}, defaults") if name_of(each).endswith("Claim r-distrl-runs"))
    assert claim["spec"]["accessModes"] == [wanted]


def test_the_schema_names_every_value_and_no_other_one():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert sorted(_unnamed(values, schema, schema, "")) == []
    assert sorted(_open(schema, "")) == ["$defs.kubernetes", "properties.run.properties.config"]


def _resolved(schema: Any, root: Any) -> Any:
    """Return a schema without references; a field that is `true` is described by another one, in `allOf`."""
    if "$ref" in schema:
        return root["$defs"][schema["$ref"].rpartition("/")[2]]
    others = [_resolved(each, root).get("properties", {}) for each in schema.get("allOf", ()) if "properties" in schema]
    described = {name: each for other in others for name, each in other.items()}
    fields = {name: described[name] if each is True else each for name, each in schema.get("properties", {}).items()}
    return {**schema, "properties": fields} if fields else schema


def _unnamed(values: Any, schema: Any, root: Any, path: str) -> Iterator[str]:
    """Yield the values that the schema does not name, and the names without a value."""
    schema = _resolved(schema, root)
    if not isinstance(values, dict) or "properties" not in schema:
        return
    optional = {"supplementalGroups", "seLinuxOptions", "localhostProfile"}
    for name in values.keys() ^ (schema["properties"].keys() - optional):
        yield f"{path}.{name}"
    for name in values.keys() & schema["properties"].keys():
        yield from _unnamed(values[name], schema["properties"][name], root, f"{path}.{name}")


def _open(schema: Any, path: str) -> Iterator[str]:
    """Yield the objects in a schema that may have any fields; conditions restrict what is closed elsewhere."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "additionalProperties" not in schema and path.count("items") == 0:
            yield path
        if "properties" in schema and "type" in schema and schema.get("additionalProperties") is not False:
            yield path
        for name, each in schema.items():
            yield from _open(each, f"{path}.{name}".lstrip("."))


@pytest.mark.parametrize("mode", MODES)
def test_the_configuration_is_one_that_distrl_accepts(mode, tmp_path):
    config = {"actors": {"unroll_length_steps": 16}, "launch": {"log_level": "debug"}, "seed": 7}
    values = {"mode": mode, "run": {"config": config | ({"actors": {"count": 3}} if mode == "ray" else {})}}
    (job,) = (each for each in objects_in(rendered(values)) if name_of(each) == "ConfigMap r-distrl-job")
    path = tmp_path / "job.yaml"
    path.write_text(job["data"]["job.yaml"])
    loaded = load(file=path, preset="cartpole-impala").config
    assert (loaded.seed, loaded.launch.log_level, loaded.launch.sigterm_exit_code) == (7, "debug", 143)
    assert loaded.memory.url == "redis://distrl-default-learner@r-distrl-redis:6379"
    assert loaded.launch.launcher == ("ray" if mode == "ray" else "process")
    assert loaded.actors.count == (3 if mode == "ray" else 4)


CHANGES: dict[str, dict[str, Any]] = {
    "image": {"images": {"learner": {"tag": "0.2.0"}, "actor": {"tag": "0.2.0"}, "dashboard": {"tag": "0.2.0"}}},
    "configuration": {"run": {"config": {"seed": 8}}},
    "replicas": {"actors": {"replicas": 5}, "ray": {"actors": {"replicas": 5}}},
    "resources": {
        "learner": {"resources": {"requests": {"cpu": 3, "memory": "2Gi"}, "limits": {"cpu": 3, "memory": "2Gi"}}},
        "ray": {
            "actors": {"resources": {"requests": {"cpu": 3, "memory": "2Gi"}, "limits": {"cpu": 3, "memory": "2Gi"}}}
        },
    },
    "sizes": {"persistence": {"size": "40Gi"}, "redis": {"persistence": {"size": "40Gi"}, "maxMemory": "2gb"}},
    "environment": {"learner": {"env": [{"name": "A", "value": "b"}]}, "ray": {"env": [{"name": "A", "value": "b"}]}},
    "monitoring": {"monitoring": {name: {"enabled": True} for name in ("serviceMonitor", "rules", "grafana")}},
    "autoscaling": {"autoscaling": SCALED, "ray": {"autoscaler": {"enabled": True}}},
    "tls": {"redis": {"tls": {"enabled": True, "secretName": "t"}}},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", MODES)
def test_an_upgrade_changes_no_field_that_cannot_be_changed(mode, change):
    before = {name_of(each): each for each in objects_of(f"{mode}, defaults")}
    after = {name_of(each): each for each in objects_in(rendered(of_mode(mode, CHANGES[change])))}
    for name in before.keys() & after.keys():
        assert immutable(before[name]) == immutable(after[name]), name
    kept = ("PersistentVolumeClaim", "StatefulSet", "Deployment", "Service", "Secret")
    assert {name for name in before if name.startswith(kept)} <= after.keys()


@pytest.mark.parametrize(
    ("change", "again"), [("image", True), ("configuration", True), ("monitoring", False), ("replicas", False)]
)
def test_an_upgrade_starts_the_learner_again_only_where_something_of_it_has_changed(change, again):
    def learner(values):
        found = objects_in(rendered(values))
        return [name_of(each) for each in found if name_of(each).startswith("Job r-distrl-learner")]

    assert (learner({}) != learner(of_mode("pods", CHANGES[change]))) is again


def test_a_learner_that_starts_again_expects_the_new_number_of_actors():
    assert _job(objects_in(rendered(of_mode("pods", CHANGES["replicas"]))))["actors"]["count"] == 10


def test_another_version_of_the_chart_selects_the_same_pods(tmp_path):
    """Labels with versions are no part of selectors, which cannot be changed."""
    for each in objects_of("pods, full"):
        selector = copy.deepcopy((each.get("spec") or {}).get("selector") or {})
        assert "version" not in str(selector), name_of(each)
        assert "helm.sh/chart" not in str(selector), name_of(each)


@pytest.mark.parametrize("name", ["on", "y", "null"])
def test_names_that_yaml_reads_as_other_types_are_strings(name):
    """A release, and names of objects that exist, may be called so."""
    claims = {"existingClaim": "123", "storageClass": "yes"}
    values: dict[str, Any] = {
        "fullnameOverride": name,
        "secret": {"existing": "123"},
        "learner": {"priorityClassName": "on"},
        "persistence": {"storageClass": "yes"},
        "redis": {"persistence": claims, "tls": {"enabled": True, "secretName": "007"}},
        "dashboard": {"ingress": {"enabled": True, "host": "*.example.com", "tlsSecretName": "0x1", "className": "no"}},
        "networkPolicy": {"apiServerCidrs": ["::/0"], "dashboardFrom": [{"ipBlock": {"cidr": "::/0"}}]},
    }
    found = objects_in(rendered(values, release=name))
    assert [problem for each in found for problem in schema_problems(each, VERSIONS[-1])] == []
    assert name_of(found[-1]).split()[1].startswith(f"{name}-")


@pytest.mark.parametrize("values", [{}, {"nameOverride": "A_b"}], ids=str)
@pytest.mark.parametrize("release", ["a.b", "123"])
def test_a_name_that_no_service_can_have_is_refused(release, values):
    done = helm("template", release, str(CHART), values=values)
    assert done.returncode == 1
    assert "cannot be the name of a Service: set fullnameOverride" in done.stderr
    assert helm("template", release, str(CHART), values={**values, "fullnameOverride": "b"}).returncode == 0


@pytest.mark.parametrize("release", ["a", "distrl", "a-release-with-a-name-of-fifty-three-characters-at-mo"])
def test_names_fit(release):
    for each in objects_in(rendered({"mode": "ray"}, release=release)):
        assert len(each["metadata"]["name"]) <= (47 if each["kind"] == "RayJob" else 63)
