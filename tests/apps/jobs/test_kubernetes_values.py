"""From a configuration to values of the chart; tests/cluster/test_kubernetes_jobs.py has the chart itself."""

import json
from pathlib import Path

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs import kubernetes_values
from distrl.apps.jobs.kubernetes_checks import LONGEST_GIVE_UP_S
from distrl.apps.jobs.kubernetes_commands import CHART, ClusterNamespace
from distrl.apps.jobs.kubernetes_values import merged, object_name, release_of
from distrl.apps.jobs.record import Job

USERS = {"actor": "actor", "dashboard": "operator"}
OWN_SECRET = "kubernetes.values.secret={existing: mine}"


@pytest.fixture(autouse=True)
def _context(monkeypatch):
    monkeypatch.setattr(
        kubernetes_values, "namespace_of", lambda context, name: ClusterNamespace(context or "lab", name or "n")
    )


def job(*sets, run_id="pong"):
    return Job(run_id, load(sets=["actors.count=4", *sets]), Path("/runs") / run_id)


def test_values_follow_from_the_configuration():
    sets = ["learner.threads=3", "seed=7", "launch.log_level=debug", "kubernetes.namespace=team"]
    release = release_of(job(*sets, "kubernetes.values.actors={perPod: 2, nodeSelector: {pool: cpu}}"))
    assert (release.place, release.name, release.secret) == (ClusterNamespace("lab", "team"), "pong", "pong")
    assert release.values == {
        "fullnameOverride": "pong",
        "secret": {"existing": "pong"},
        "run": {"config": {"seed": 7, "learner": {"threads": 3}, "launch": {"log_level": "debug"}}},
        "learner": {"gpus": 0, "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "6"}}},
        "actors": {
            "replicas": 2,
            "perPod": 2,
            "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "3", "memory": "4Gi"}},
            "nodeSelector": {"pool": "cpu"},
        },
    }


def test_gpus_a_redis_of_the_user_and_keda_are_values_of_the_chart():
    url = "rediss://distrl-a-learner@redis:6379"
    release = release_of(
        job("learner.device=gpu", "launch.wait_s=8.5", f"memory.url={url}", "memory.namespace=a", OWN_SECRET)
    )
    assert (release.values["learner"]["gpus"], release.values["learner"]["waitSeconds"]) == (1, 9)
    others = {f"{part}Url": f"rediss://distrl-a-{role}@redis:6379?namespace=a" for part, role in USERS.items()}
    assert release.values["redis"] == {"mode": "external", "external": {"url": url, **others}}
    assert (release.values["secret"], release.secret) == ({"existing": "mine"}, None)
    assert release.values["run"]["config"] == {"memory": {"namespace": "a"}}
    follows = release_of(job("kubernetes.values.autoscaling={enabled: true}", "actors.max_count=9"))
    assert follows.values["autoscaling"] == {"enabled": True, "minReplicas": 1, "maxReplicas": 9}
    unbounded = release_of(job("kubernetes.values.autoscaling={enabled: true}", "actors.autoscale.min_count=20"))
    assert unbounded.values["autoscaling"] == {"enabled": True, "minReplicas": 20, "maxReplicas": 1000}
    assert follows.values["run"]["config"]["actors"] == {"max_count": 9, "autoscale": {"enabled": True}}


def test_pods_have_time_for_the_last_upload():
    store = ["checkpoint.store=s3://bucket/runs", "checkpoint.store_give_up_s=100"]
    reached = "kubernetes.values.networkPolicy={enabled: false}"
    values = release_of(job(*store, reached)).values
    assert values["learner"]["terminationGracePeriodSeconds"] == 120 + 200
    assert values["redis"] == {"terminationGracePeriodSeconds": 60 + 200}
    longest = [store[0], f"checkpoint.store_give_up_s={LONGEST_GIVE_UP_S}", "learner.stall_timeout_s=4000"]
    given = release_of(job(*longest, reached)).values["learner"]["terminationGracePeriodSeconds"]
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["learner"]["properties"]
    assert given == schema["terminationGracePeriodSeconds"]["maximum"]
    shorter = "kubernetes.values.learner={terminationGracePeriodSeconds: 250}"
    assert release_of(job(*store, reached, shorter)).values["learner"]["terminationGracePeriodSeconds"] == 250


@pytest.mark.parametrize(
    ("sets", "urls"),
    [
        (["memory.url=redis://redis"], ["redis://redis", "redis://redis"]),
        (
            ["memory.url=redis://distrl-default-learner@redis/1"],
            ["redis://distrl-default-actor@redis/1", "redis://distrl-default-operator@redis/1"],
        ),
        (
            [
                "memory.url=redis+sentinel://distrl-default-learner@a,b/main?sentinel_user=s",
                "kubernetes.values.redis.external.actorUrl=redis://mine@redis",
            ],
            ["redis://mine@redis", "redis+sentinel://distrl-default-operator@a,b/main?sentinel_user=s"],
        ),
    ],
)
def test_actors_and_dashboard_have_users_of_their_own(sets, urls):
    external = release_of(job(*sets, OWN_SECRET)).values["redis"]["external"]
    assert [external["actorUrl"], external["dashboardUrl"]] == urls


def test_actors_have_the_image_with_their_environment():
    pong = "environment.id=ALE/Pong-v5"
    assert release_of(job(pong)).values["images"] == {"actor": {"repository": "distrl/actor-environments"}}
    own = "kubernetes.values.images={actor: {repository: mine}, registry: r}"
    assert release_of(job(pong, own)).values["images"] == {"actor": {"repository": "mine"}, "registry": "r"}
    assert "images" not in release_of(job("environment.id=CartPole-v1")).values


def test_long_ids_have_short_names_which_differ():
    names = [object_name(f"breakoutnoframeskip-v4-impala-{number}") for number in ("a1b2c3", "a1b2c4")]
    assert object_name("a" * 30) == "a" * 30
    assert len({*names}) == 2
    assert all(name.startswith("breakoutnoframeskip-v-") and len(name) <= 30 for name in names)


def test_trees_are_merged_and_kept():
    first = {"a": {"b": 1, "c": 2}}
    assert merged(first, {"a": {"b": {"d": 3}}}, {"e": [4]}) == {"a": {"b": {"d": 3}, "c": 2}, "e": [4]}
    assert first == {"a": {"b": 1, "c": 2}}
