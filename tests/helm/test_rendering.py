"""The chart as helm renders it: lint, refused values, equal renderings, and what an upgrade may change."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from distrl.config.load import load
from tests.helm.checks import immutable, problems
from tests.helm.rendering import CHART, OF_PODS, SCENARIOS, helm, name_of, objects_in, objects_of, rendered

pytestmark = [pytest.mark.usefixtures("needs_helm"), pytest.mark.row("D64", "D65")]
MODES = ("pods", "ray")


@pytest.mark.parametrize("scenario", ["pods, defaults", "pods, full", "ray, full"])
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


def test_templates_draw_nothing_at_random_and_ask_no_server():
    for path in (CHART / "templates").rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not [word for word in ("rand", "lookup", "uuidv4", "genCA", "now ") if f"{{{{ {word}" in text], path


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
    ],
    ids=str,
)
def test_a_value_that_is_wrong_is_refused(values, message):
    done = helm("template", "r", str(CHART), values=values)
    assert done.returncode == 1
    assert message in done.stderr


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
    "KEDA without Prometheus": (
        {"autoscaling": {"enabled": True}},
        "at '/autoscaling/prometheusAddress': minLength: got 0, want 1",
    ),
    "KEDA without metrics": ({"autoscaling": SCALED, **NO_DASHBOARD}, "at '/dashboard/enabled': value must be true"),
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
    return root["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


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
        "learner": {"resources": {"requests": {"cpu": 3, "memory": "1Gi"}, "limits": {"cpu": 3, "memory": "1Gi"}}}
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
    values = {name: value for name, value in CHANGES[change].items() if mode == "pods" or name != OF_PODS}
    after = {name_of(each): each for each in objects_in(rendered({"mode": mode, **values}))}
    for name in before.keys() & after.keys():
        assert immutable(before[name]) == immutable(after[name]), name
    kept = ("PersistentVolumeClaim", "StatefulSet", "Deployment", "Service", "Secret")
    assert {name for name in before if name.startswith(kept)} <= after.keys()


@pytest.mark.parametrize(("change", "again"), [("image", True), ("configuration", True), ("monitoring", False)])
def test_an_upgrade_starts_the_learner_again_only_where_something_of_it_has_changed(change, again):
    def learner(values):
        found = objects_in(rendered(values))
        return [name_of(each) for each in found if name_of(each).startswith("Job r-distrl-learner")]

    assert (learner({}) != learner(CHANGES[change])) is again


def test_another_version_of_the_chart_selects_the_same_pods(tmp_path):
    """Labels with versions are no part of selectors, which cannot be changed."""
    for each in objects_of("pods, full"):
        selector = copy.deepcopy((each.get("spec") or {}).get("selector") or {})
        assert "version" not in str(selector), name_of(each)
        assert "helm.sh/chart" not in str(selector), name_of(each)


@pytest.mark.parametrize("release", ["a", "distrl", "a-release-with-a-name-of-fifty-three-characters-at-mo"])
def test_names_fit(release):
    for each in objects_in(rendered({"mode": "ray"}, release=release)):
        assert len(each["metadata"]["name"]) <= (47 if each["kind"] == "RayJob" else 63)
