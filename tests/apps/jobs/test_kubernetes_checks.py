import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.kubernetes_checks import check_config, notes_on_data, notes_on_store, pod_bounds, pods_for
from distrl.errors import ConfigError

STORE = "checkpoint.store=s3://bucket/runs"
LEARNS = ("actors.count=0", "algorithm.name=dqn")
TO_STORE = "kubernetes.values.networkPolicy.extraEgress=[{ports: [{port: 443}]}]"


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["launch.launcher=ray"], "launch.launcher: ray has no use with --on kubernetes"),
        (["actors.count=0"], "the run is one process (launch.mode), which needs no cluster; use --on here"),
        (["launch.start_actors=false", "memory.listen=auto"], "--no-actors has no use with --on kubernetes"),
        (["kubernetes.values.actors.perPod=3"], "actors: 4 is no multiple of 3, the number of actors in each Pod"),
        (["memory.url=redis://localhost"], "each Pod would look for Redis on itself"),
        (["memory.url=redis://redis"], "name it in kubernetes.values.secret.existing"),
        (
            ["memory.url=redis://ada@redis", "kubernetes.values={secret: {existing: s}}"],
            "the user in memory.url is not distrl-default-learner, that of `distrl redis acl` for memory.namespace",
        ),
        (["memory.namespace=team"], "memory.namespace has no use with --on kubernetes, whose chart has"),
        (
            ["launch.wait_s=9", "memory.url=redis://r", "kubernetes.values.learner={waitSeconds: 5}"],
            "launch.wait_s: 9 and kubernetes.values.learner.waitSeconds: 5 are the same setting",
        ),
        (
            ["memory.url=rediss://redis", "memory.tls.ca_file=/home/me/ca.crt"],
            "memory.tls.ca_file: /home/me/ca.crt is a path of this host: put the certificate into a Secret as ca.crt",
        ),
        (["memory.url=rediss://redis", "memory.tls={cert_file: /c, key_file: /k}"], "no certificate of a client"),
        (["memory.url=rediss://redis?ca_file=/ca.crt"], "memory.url names files of this host"),
        (["memory.url=redis://redis?password_file=/p"], "memory.url names files of this host"),
        (
            ["learner.init_from=/home/me/runs/old"],
            "learner.init_from: /home/me/runs/old is a path of this host; name a run",
        ),
        (["checkpoint.store=file:///shared"], "checkpoint.store: /shared is a path of this host; name a bucket, or"),
        ([STORE], "checkpoint.store s3://bucket/runs: the chart's network policies keep the learner from it; allow"),
        (
            [STORE, "checkpoint.store_give_up_s=1740.5", "learner.stall_timeout_s=4000"],
            "checkpoint.store_give_up_s: 1740.5 is more than 1740: the end of the learner's Pod may take twice that",
        ),
        (["memory.listen=auto"], "memory.listen has no use with --on kubernetes"),
        (
            [*LEARNS, "data.sets=[cartpole/expert, /home/me/steps.csv]"],
            "data.sets: /home/me/steps.csv is a path of this host; name a path in the learner's Pod: below /runs,",
        ),
        (
            ["evaluation={every_env_steps: 9, off_policy: {estimators: [fqe], sets: [/home/me/held.csv]}}"],
            "evaluation.off_policy.sets: /home/me/held.csv is a path of this host",
        ),
        (["algorithm.name=dqn", "recording.name=/home/me/set"], "recording.name: /home/me/set is a path of this host"),
    ],
)
def test_what_cannot_run_there_is_refused(sets, message):
    with pytest.raises(ConfigError) as caught:
        check_config(load(sets=["actors.count=4", *sets]).config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_that_pods_reach_needs_credentials():
    for reached in (TO_STORE, "kubernetes.values.networkPolicy.enabled=false"):
        check_config(load(sets=[STORE, reached]).config)
    (note,) = notes_on_store(load(sets=[STORE, TO_STORE]).config)
    assert note.startswith("kubernetes.values name no credentials of s3://bucket/runs (learner.envFrom, ")
    known = "kubernetes.values.learner.envFrom=[{secretRef: {name: s3}}]"
    for sets in ([STORE, TO_STORE, known], [], ["checkpoint.store=file:///runs/copies"]):
        assert not [*notes_on_store(load(sets=sets).config)]


@pytest.mark.parametrize(
    "sets",
    [
        ["learner.init_from=/runs/old@best", "checkpoint.store=file:///runs/copies"],
        ["learner.init_from=/mine/old", "kubernetes.values.learner={volumeMounts: [{name: m, mountPath: /mine}]}"],
        ["learner.init_from=s3://bucket/runs/old"],
        [
            *LEARNS,
            "data.sets=/data/steps.csv",
            "kubernetes.values.learner={volumeMounts: [{name: d, mountPath: /data}]}",
        ],
    ],
)
def test_paths_in_the_pod_are_taken(sets):
    check_config(load(sets=sets).config)


def test_data_sets_by_name_need_a_folder_in_the_pod():
    named, folder = "data.sets=[/runs/set, cartpole/expert]", "[{name: MINARI_DATASETS_PATH, value: /data}]"
    (note,) = notes_on_data(load(sets=[*LEARNS, named]).config)
    assert note.startswith("data set cartpole/expert is one of MINARI_DATASETS_PATH in the learner's image, or ")
    (note,) = notes_on_data(load(sets=["algorithm.name=dqn", "recording.name=cartpole/all"]).config)
    assert note.startswith("data set cartpole/all is one of MINARI_DATASETS_PATH in")
    for sets in ([named, f"kubernetes.values.learner.env={folder}"], ["data.sets=/runs/set"]):
        assert not [*notes_on_data(load(sets=[*LEARNS, *sets]).config)]


def test_other_users_of_redis_are_named_for_all_roles():
    urls = "redis: {external: {actorUrl: redis://bob@redis, dashboardUrl: redis://eve@redis}}"
    check_config(
        load(sets=["memory.url=redis://ada@redis", f"kubernetes.values={{secret: {{existing: s}}, {urls}}}"]).config
    )


def test_pods_are_counted():
    assert pods_for(6, 3) == 2


@pytest.mark.parametrize(
    ("bounds", "per_pod", "pods"),
    [
        ("{min_count: 20}", 1, (20, 1000)),
        ("{min_count: 3}", 3, (1, 333)),
        ("{min_count: 1500}", 7, (215, 215)),
        ("{min_count: 3, max_count: 9}", 2, (2, 4)),
        ("{min_count: 3, max_count: 4}", 4, (1, 1)),
    ],
)
def test_bounds_are_whole_pods(bounds, per_pod, pods):
    sets = [f"actors.autoscale={bounds}", f"kubernetes.values.actors.perPod={per_pod}"]
    assert pod_bounds(load(sets=sets).config) == pods


@pytest.mark.parametrize(
    ("sets", "limit"),
    [
        (["actors.autoscale={min_count: 3, max_count: 3}"], "actors.autoscale.max_count: 3"),
        (["actors.autoscale.min_count=3", "actors.max_count=3"], "actors.max_count: 3"),
    ],
)
def test_bounds_without_a_whole_pod_are_refused_by_their_names(sets, limit):
    with pytest.raises(ConfigError) as caught:
        pod_bounds(load(sets=[*sets, "kubernetes.values.actors.perPod=2"]).config)
    assert str(caught.value) == (
        "no whole Pod of 2 actors (kubernetes.values.actors.perPod) is within actors.autoscale.min_count: 3 and "
        f"{limit}; change one of them"
    )
