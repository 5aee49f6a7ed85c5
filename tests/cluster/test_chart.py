"""The chart in every combination of mode and options: schemas of all versions, faults to find, checkov, promtool."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.helm.checks import problems
from tests.helm.mutations import Mutant, mutants
from tests.helm.rendering import (
    CHART,
    ROOT,
    SCENARIOS,
    UnavailableError,
    helm_program,
    name_of,
    objects_in,
    objects_of,
    rendered,
)
from tests.helm.schemas import VERSIONS, ray_job_schema, schema_problems

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("needs_helm"), pytest.mark.timeout(1800)]
CHECKOV = ROOT / "build/checkov/bin/checkov"
MUTATED = ("pods, full", "ray, full", "ray, kueue", "pods, external redis", "pods, servers")


@pytest.fixture(autouse=True)
def crds(request: pytest.FixtureRequest) -> None:
    """Skips a scenario of Ray where KubeRay's CRDs are not there."""
    if "[ray, " not in request.node.name:
        return
    try:
        ray_job_schema()
    except UnavailableError as error:
        pytest.skip(str(error))


def test_all_versions_are_there():
    assert [version.rpartition(".")[0] for version in VERSIONS] == [f"1.{minor}" for minor in range(30, 38)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_rendering_is_right(scenario):
    objects = objects_of(scenario)
    assert problems(objects, SCENARIOS[scenario]) == []
    found = [problem for each in objects for version in VERSIONS for problem in schema_problems(each, version)]
    assert found == []


@pytest.mark.parametrize("version", [version.rpartition(".")[0] for version in VERSIONS])
def test_every_version_gets_the_same_objects(version):
    assert objects_in(rendered({}, kubernetes=version)) == [*objects_of("pods, defaults")]


def _is_found(mutant: Mutant, values: dict[str, Any]) -> bool:
    if mutant.changed is not None and schema_problems(mutant.changed, VERSIONS[-1]):
        return True
    try:
        return bool(problems(mutant.objects, values))
    except (LookupError, TypeError, ValueError, AttributeError):
        return True  # a check that cannot read an object fails, too


@pytest.mark.parametrize("scenario", MUTATED)
def test_every_fault_is_found(scenario):
    """Each field misspelt or missing, each entry twice, each policy gone: the schemas or the checks report it."""
    all_mutants = [*mutants(objects_of(scenario))]
    assert len(all_mutants) > 1500
    assert [mutant.fault for mutant in all_mutants if not _is_found(mutant, SCENARIOS[scenario])] == []


SKIPPED = {
    "CKV_K8S_8": "the Pods of `helm test` and of the Secret end by themselves: they have no probes",
    "CKV_K8S_9": "as CKV_K8S_8",
    "CKV_K8S_15": "images.pullPolicy is a value; a tag of a release is never another image",
    "CKV_K8S_21": "the namespace is that of the release, given to helm; no object names one",
    "CKV_K8S_35": "variables of a Secret are what learner.envFrom asks for; the chart's own secrets are files",
    "CKV_K8S_38": "the Job that makes the Secret needs its token",
    "CKV_K8S_43": "the digest of an image is a value (images.*.digest), unknown to the chart",
}
"""Check of checkov -> the reason why the chart does not follow it."""


@pytest.mark.parametrize("scenario", ["pods, full", "ray, full", "pods, defaults", "pods, servers"])
def test_checkov_finds_nothing(scenario, tmp_path):
    if not CHECKOV.exists():
        pytest.skip("checkov is not installed: make build/checkov/installed")
    (tmp_path / "rendered.yaml").write_text(rendered(SCENARIOS[scenario]))
    command = [CHECKOV, "--file", tmp_path / "rendered.yaml", "--framework", "kubernetes", "--output", "json"]
    command += ["--compact", "--quiet", "--skip-check", ",".join(SKIPPED)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LOG_LEVEL": "ERROR"})
    report = json.loads(done.stdout)
    failed = report["results"]["failed_checks"] if "results" in report else []
    assert [(check["check_id"], check["check_name"], check["resource"]) for check in failed] == []
    assert report["summary"]["passed"] > 100


RUN = {"namespace": "team-a", "run": "r"}
Series = list[tuple[str, dict[str, str], str]]
JOB = {"job_name": "r-distrl-learner-0123456a"}
SCRAPED = ("up", {"service": "r-distrl-dashboard"}, "1x90")
"""The dashboard, which Prometheus can scrape all the time."""
RULES: dict[str, tuple[Series, str, dict[str, str]]] = {
    "DistrlJobFailed": (
        [("kube_job_failed", {"job_name": "r-distrl-learner-0123456a", "condition": "true"}, "0x5 1x60")],
        "7m",
        {},
    ),
    "DistrlNotTraining": (
        [
            ("kube_job_info", JOB, "1x90"),
            ("distrl_updates", RUN, "0x5 _x90"),
            SCRAPED,
        ],
        "28m",
        {},
    ),
    "DistrlDashboardDown": ([("up", {"service": "r-distrl-dashboard"}, "1x5 0x60")], "12m", {}),
    "DistrlRedisDown": ([("distrl_run_up", RUN, "1x5 0x60")], "9m", {}),
    "DistrlNoUpdates": ([("distrl_updates", RUN, "0+5x5 25x60"), ("distrl_run_up", RUN, "1x70")], "22m", {}),
    "DistrlNoActors": ([("distrl_actors_up", RUN, "4x5 0x60")], "12m", {}),
    "DistrlFleetTooSmall": ([("distrl_actors_up", RUN, "4x80"), ("distrl_actors_wanted", RUN, "4x5 9x80")], "40m", {}),
    "DistrlLearnerStarving": ([("distrl_learner_wait_share", RUN, "0.1x5 0.9x80")], "40m", {}),
    "DistrlActorsBlocked": ([("distrl_actors_blocked_share", RUN, "0.1x5 0.9x80")], "60m", {}),
    "DistrlCheckpointOld": ([("distrl_checkpoint_age_s", RUN, "0+60x100")], "70m", {}),
    "DistrlUnrollsDropped": (
        [("distrl_dropped_unrolls", RUN | {"reason": "schema"}, "0x5 3x60")],
        "7m",
        {"reason": "schema"},
    ),
    "DistrlUnrollsLost": ([("distrl_unrolls", RUN | {"where": "lost"}, "0x5 3x60")], "7m", {"where": "lost"}),
    "DistrlRoleRestarts": (
        [("distrl_role_env_steps", RUN | {"role": "actor", "id": "1"}, "7x5" + " 0 7" * 30)],
        "25m",
        {"run": "r"},
    ),
    "DistrlRedisFailover": ([("distrl_redis_failovers", RUN, "0x5 1x60")], "7m", {}),
}
"""Alert -> series of another state after five minutes, a time at which it fires, and labels that it has beside."""
RAY_JOB = {"name": "r-distrl-0123456a"}
MORE_RULES: dict[str, tuple[Series, str, dict[str, str]]] = {
    "DistrlJobFailed": (
        [("kuberay_job_deployment_status", RAY_JOB | {"deployment_status": "Failed"}, "_x5 1x60")],
        "7m",
        {},
    ),
    "DistrlNotTraining": (
        [
            ("kuberay_job_deployment_status", RAY_JOB | {"deployment_status": "Initializing"}, "1x90"),
            SCRAPED,
        ],
        "16m",
        {},
    ),
    "DistrlDashboardDown": ([("up", {"service": "r-distrl-dashboard"}, "1x5 _x60")], "17m", {}),
}
"""As RULES, with KubeRay's metrics, and where the dashboard's Pod is no target any more."""
SILENT: dict[str, Series] = {
    "it trains": [("kube_job_info", JOB, "1x90"), SCRAPED, ("distrl_updates", RUN, "0x90")],
    "it has ended": [
        ("kube_job_info", JOB, "1x90"),
        SCRAPED,
        ("kube_job_complete", JOB | {"condition": "true"}, "1x90"),
    ],
    "it has failed": [
        ("kube_job_info", JOB, "1x90"),
        SCRAPED,
        ("kube_job_failed", JOB | {"condition": "true"}, "1x90"),
    ],
    "it is suspended": [
        ("kube_job_info", JOB, "1x90"),
        SCRAPED,
        ("kube_job_status_suspended", JOB, "1x90"),
    ],
    "Ray's job has ended": [
        SCRAPED,
        ("kuberay_job_deployment_status", RAY_JOB | {"deployment_status": "Complete"}, "1x90"),
    ],
    "Kueue holds Ray's job": [
        SCRAPED,
        ("kuberay_job_deployment_status", RAY_JOB | {"deployment_status": "Suspended"}, "1x90"),
    ],
    "there is no Pod of the dashboard, which has the numbers": [("kube_job_info", JOB, "1x90")],
    "the dashboard is away, which has the numbers": [
        ("kube_job_info", JOB, "1x90"),
        ("up", {"service": "r-distrl-dashboard"}, "0x90"),
    ],
    "it is another release": [SCRAPED, ("kube_job_info", {"job_name": "s-distrl-learner-0123456a"}, "1x90")],
}
"""State -> series at which DistrlNotTraining is silent."""


@pytest.fixture
def rules(tmp_path):
    """The folder with the rules as the chart renders them."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not here: sudo apt-get install prometheus")
    values = {"monitoring": {"rules": {"enabled": True, "runbookUrl": "https://example.com/operations.md"}}}
    (found,) = (each for each in objects_in(rendered(values)) if each["kind"] == "PrometheusRule")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(found["spec"]))
    return tmp_path


def _promtool(*arguments: object) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(rules):
    assert f"SUCCESS: {len(RULES)} rules found" in _promtool("check", "rules", rules / "rules.yaml")


def _test_of(rule: dict[str, Any], series: Any, at: str, labels: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield that it does not fire before the change, and fires after it."""
    alert = {"exp_labels": {**rule["labels"], **_labels_of(rule, series), **labels}}
    annotations = {
        name: text.replace("{{ $labels.reason }}", labels.get("reason", ""))
        for name, text in rule["annotations"].items()
    }
    fires = {"eval_time": at, "alertname": rule["alert"], "exp_alerts": [{**alert, "exp_annotations": annotations}]}
    rests = {"eval_time": "4m", "alertname": rule["alert"], "exp_alerts": []}
    yield {"interval": "1m", "input_series": _given(series), "alert_rule_test": [rests, fires]}


def _given(series: Series) -> list[dict[str, str]]:
    found = []
    for name, labels, values in series:
        text = ",".join(f'{key}="{value}"' for key, value in {"namespace": "team-a", **labels}.items())
        found.append({"series": f"{name}{{{text}}}", "values": values})
    return found


def _labels_of(rule: dict[str, Any], series: Any) -> dict[str, str]:
    if " by (" in rule["expr"]:
        return {"namespace": "team-a"}
    return {"namespace": "team-a", **series[0][1]}


def test_every_alert_fires_when_it_must_and_not_before(rules):
    spec = yaml.safe_load((rules / "rules.yaml").read_text())
    alerts = spec["groups"][0]["rules"]
    assert [rule["alert"] for rule in alerts] == [*RULES]
    tests = [test for rule in alerts for test in _test_of(rule, *RULES[rule["alert"]])]
    tests += [test for rule in alerts if (case := MORE_RULES.get(rule["alert"])) for test in _test_of(rule, *case)]
    silent = {"eval_time": "80m", "alertname": "DistrlNotTraining", "exp_alerts": []}
    tests += [
        {"interval": "1m", "input_series": _given(series), "alert_rule_test": [silent]} for series in SILENT.values()
    ]
    (rules / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in _promtool("test", "rules", rules / "test.yaml")


def test_a_threshold_that_is_another_one_is_found(rules):
    """The tests of the alerts fail where a rule is broken: each comparison turned round."""
    alerts = (rules / "rules.yaml").read_text()
    test_every_alert_fires_when_it_must_and_not_before(rules)
    for number, match in enumerate(re.finditer(r" (== [01]|> [\d.]+)", alerts)):
        turned = " == 77" if match[0].startswith(" ==") else f" < -{number + 1}"
        (rules / "rules.yaml").write_text(alerts[: match.start()] + turned + alerts[match.end() :])
        done = subprocess.run(["promtool", "test", "rules", rules / "test.yaml"], capture_output=True)
        assert done.returncode != 0, match[0]


def test_no_object_is_in_a_namespace_of_its_own():
    assert [name_of(each) for each in objects_of("pods, full") if "namespace" in each["metadata"]] == []


def test_the_package_is_the_chart(tmp_path):
    done = subprocess.run([helm_program(), "package", CHART, "--destination", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("distrl-*.tgz")
    assert rendered({}, chart=package) == rendered({})
