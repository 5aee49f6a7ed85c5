"""The target `kubernetes` with the real helm and kubectl, against a small API. Tests play scheduler and kubelet."""

import base64
import json
import re
import shutil

import pytest

from distrl import __version__
from distrl.apps.config.configuration import load
from distrl.apps.jobs import kubernetes_commands, kubernetes_jobs, submission
from distrl.apps.jobs.kubernetes_jobs import SECRET_KEYS, KubernetesJobs
from distrl.apps.jobs.record import Job, JobRecord, OpenRecord
from distrl.apps.jobs.submission import submit, withdraw_unfinished
from distrl.apps.jobs.target import NoAnswerError
from distrl.apps.jobs.watching import state_of, watch
from distrl.data_store.opening import open_objects
from distrl.errors import ConfigError
from tests.cluster.test_jobs import RUN_ID, Bed
from tests.faults.kube_tools import programs

pytestmark = [pytest.mark.cluster, pytest.mark.row("S17")]

SETTINGS = ["environment.id=CartPole-v1", "actors.count=2"]
KEDA = "kubernetes.values={autoscaling: {enabled: true, prometheusAddress: 'http://prometheus:9090'}}"


@pytest.fixture
def api(kube_api, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return kube_api


@pytest.fixture
def bed(api, tmp_path):
    return Bed("kubernetes", tmp_path)


def job(tmp_path, *sets, run_id=RUN_ID, **given):
    return Job(run_id, load(sets=[*SETTINGS, *sets]), tmp_path / "runs" / run_id, **given)


def submitted(tmp_path, *sets, **given):
    return submit(job(tmp_path, *sets, **given), KubernetesJobs(), print, print)


def refused(tmp_path, *sets, **given):
    """Return the line with which a job is refused, of which nothing is left."""

    def plan_and_submit():
        KubernetesJobs().plan(job(tmp_path, *sets, **given))
        submitted(tmp_path, *sets, **given)

    with pytest.raises(ConfigError) as caught:
        plan_and_submit()
    (line,) = str(caught.value).splitlines()
    assert not (tmp_path / "runs" / RUN_ID).exists()
    return line


def put_pod(api, component, name, status, *, made="2026-11-25T10:00:00Z", args=()):
    """Have a Pod of the job, as its controller and the kubelet would make it."""
    labels = {"app.kubernetes.io/instance": RUN_ID, "app.kubernetes.io/component": component}
    container = "actors" if component == "actor" else component
    meta = {"name": name, "labels": labels, "creationTimestamp": made}
    spec = {"containers": [{"name": container, "args": [*args]}]}
    return api.put("pods", {"metadata": meta, "spec": spec, "status": status}, "team")


def ended(code, message=""):
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [{"name": "learner", "state": state}]}


def put_dashboard(api):
    """Have the dashboard's Pod ready, with the arguments of the Deployment that helm has sent."""
    args = api.one("deployments", "dashboard")["spec"]["template"]["spec"]["containers"][0]["args"]
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    put_pod(api, "dashboard", "job-dashboard-1", status, args=args)


def test_a_job_is_submitted_with_a_secret_and_waits(api, bed):
    told = bed.submit("--env", "CartPole-v1", "--actors", "2")
    assert (told["run_id"], told["target"], told["address"]) == (RUN_ID, "kubernetes", "lab")
    assert api.one("deployments", "actor")["spec"]["replicas"] == 2
    secret = api.objects["secrets", "team", RUN_ID]["data"]
    assert all(re.fullmatch("[0-9a-f]{64}", base64.b64decode(value).decode()) for value in secret.values())
    assert len({*secret.values()}) == len(SECRET_KEYS)
    makers = [made for (kind, *_), made in api.objects.items() if kind in ("jobs", "deployments", "statefulsets")]
    volumes = [volume for maker in makers for volume in maker["spec"]["template"]["spec"]["volumes"]]
    mounted = [volume["secret"] for volume in volumes if volume.get("secret", {}).get("secretName") == RUN_ID]
    assert {item["key"] for found in mounted for item in found["items"]} == {*SECRET_KEYS} - {"serve-token"}

    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes\nhave room"}
    put_pod(api, "learner", "job-learner-1", {"phase": "Pending", "conditions": [unplaced]})
    status = bed.run("status", RUN_ID)
    assert status.stdout.startswith(
        f"{RUN_ID} on kubernetes waits: Unschedulable: 0/3 nodes have room; add nodes, take"
    )
    early = bed.run("stop", RUN_ID, "--address", "other")
    assert (early.returncode, early.stderr.count("\n")) == (2, 1)
    assert "other" in early.stderr


def test_the_life_of_a_job(api, bed):
    bed.submit("--env", "CartPole-v1", "--actors", "2")
    put_pod(api, "learner", "job-learner-1", {"phase": "Running"})
    put_pod(api, "actor", "job-actors-5d-x1", {"phase": "Running"})
    put_dashboard(api)
    api.logs["job-learner-1"] = [
        "2026-11-25T10:00:01.5Z 2026-11-25 10:00:01 run job in /runs/job",
        "2026-11-25T10:00:03Z updates 7",
    ]
    api.logs["job-actors-5d-x1"] = ["2026-11-25T10:00:02Z actors join"]
    logs = bed.run("logs", RUN_ID, "--json")
    assert logs.returncode == 0, logs.stderr
    lines = [json.loads(line) for line in logs.stdout.splitlines()]
    assert [(line["role"], line["text"]) for line in lines] == [
        ("job", "run job in /runs/job"),
        ("actors x1", "actors join"),
        ("job", "updates 7"),
    ]
    assert [line["at"] - lines[0]["at"] for line in lines] == [0.0, 0.5, 1.5]

    assert bed.run("scale", "6", RUN_ID).returncode == 0
    assert api.one("deployments", "actor")["spec"]["replicas"] == 6
    stopped = bed.run("stop", RUN_ID)
    assert (stopped.returncode, stopped.stdout, stopped.stderr) == (0, "stop requested\n", "")
    url = f"redis://distrl-default-operator@{RUN_ID}-redis:6379"
    assert api.executed == [("job-dashboard-1", ["distrl", "stop", "--redis-url", url, "--run-id", RUN_ID])]
    assert api.one("deployments", "actor")["spec"]["replicas"] == 0
    put_pod(api, "learner", "job-learner-1", ended(0))
    api.one("jobs", "learner")["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert (bed.job["state"], bed.job["exit_code"]) == ("ended", 0)
    after = bed.run("logs", "-f", RUN_ID, "--role", "job")
    assert (after.returncode, after.stdout.count("\n")) == (0, 2)


def test_an_ended_job_is_removed_and_its_claims_stay(api, bed, tmp_path):
    bed.submit("--env", "CartPole-v1", "--actors", "2")
    put_pod(api, "learner", "job-learner-1", ended(0))
    api.one("jobs", "learner")["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    for late in (["scale", "3"], ["stop"]):
        done = bed.run(*late, RUN_ID)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert bed.run("stop", RUN_ID, "--now").stdout == "killed\n"
    claims = {("persistentvolumeclaims", f"{RUN_ID}-{part}") for part in ("redis", "runs")}
    left = {(kind, name) for kind, namespace, name in api.objects if namespace and kind != "pods"}
    assert left == claims
    assert bed.run("stop", RUN_ID, "--now").returncode == 2
    again = ["--yes", "--run-id", RUN_ID, "--run-dir", str(tmp_path / "new"), "--env", "CartPole-v1"]
    taken = bed.run("submit", "--on", "kubernetes", *again)
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert "the run id job is taken: " in taken.stderr


def test_a_run_goes_on_with_its_id_and_its_claim(api, bed, tmp_path):
    bed.submit("--env", "CartPole-v1", "--actors", "2")
    assert bed.run("stop", RUN_ID, "--now").returncode == 0
    shutil.rmtree(tmp_path / "runs" / RUN_ID)
    claim = "kubernetes.values.persistence={existingClaim: job-runs}"
    told = bed.submit("--env", "CartPole-v1", "--actors", "2", "--set", claim)
    assert told["run_dir"] == f"/runs/{RUN_ID}"
    pod = api.one("jobs", "learner")["spec"]["template"]["spec"]
    (runs,) = (volume for volume in pod["volumes"] if volume["name"] == "runs")
    assert runs["persistentVolumeClaim"] == {"claimName": f"{RUN_ID}-runs"}
    arguments = " ".join(pod["containers"][0]["args"])
    assert f"--run-dir /runs/{RUN_ID} --run-id {RUN_ID} --resume auto" in arguments


def test_a_job_waits_fails_and_goes_on_as_kubernetes_says(api, tmp_path):
    target, record = KubernetesJobs(), submitted(tmp_path)
    learner = api.one("jobs", "learner")
    event = {"involvedObject": {"name": learner["metadata"]["name"]}, "type": "Warning"}
    words = {"reason": "FailedCreate", "message": "exceeded quota: team"}
    api.put("events", {"metadata": {"name": "e1"}, **event, **words}, "team")
    assert target.state(record).reason.startswith("FailedCreate: exceeded quota: team; have the quota raised, ")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    status = {"phase": "Pending", "containerStatuses": [{"name": "learner", "state": {"waiting": waiting}}]}
    put_pod(api, "learner", "job-learner-1", status)
    assert target.state(record).reason.startswith("ImagePullBackOff: no such image; set kubernetes.values.images")
    put_pod(api, "learner", "job-learner-1", ended(4, "x\ndistrl: error: no update for 300 s\n"))
    state = target.state(record)
    assert (state.state, state.reason) == ("waiting", "to start again after exit code 4: no update for 300 s")
    put_pod(api, "learner", "job-learner-2", {"phase": "Pending"}, made="2026-11-25T10:05:00Z")
    assert target.state(record).reason == "to go on: its Pod is prepared"
    put_pod(
        api, "learner", "job-learner-2", ended(2, "distrl: error: no such environment"), made="2026-11-25T10:05:00Z"
    )
    learner["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]}
    state = target.state(record)
    assert (state.state, state.exit_code) == ("failed", 2)
    assert state.reason == f"no such environment; distrl stop {RUN_ID} --now removes what is left of its release"
    target.stop(record, now=True)
    assert target.state(record).state == "gone"


def test_a_job_that_has_not_begun_is_removed_by_stop(api, tmp_path):
    target, record = KubernetesJobs(), submitted(tmp_path)
    assert target.stop(record, now=False) == "its release was removed, as it had not begun"
    assert target.state(record).state == "gone"
    assert not api.executed
    with pytest.raises(ConfigError, match="does not run: there is no release"):
        target.stop(record, now=True)


@pytest.mark.long
def test_the_secret_is_deleted_also_when_the_release_is_gone(api, tmp_path):
    target, record = KubernetesJobs(), submitted(tmp_path)
    assert kubernetes_commands.uninstall(kubernetes_commands.ClusterNamespace("lab", "team"), RUN_ID)
    assert api.names("secrets") == [RUN_ID]
    with pytest.raises(ConfigError, match="does not run: there is no release"):
        target.stop(record, now=True)
    assert not api.names("secrets")


def test_a_run_between_two_starts_is_suspended_by_stop(api, tmp_path):
    target, record = KubernetesJobs(), submitted(tmp_path)
    put_pod(api, "learner", "job-learner-1", ended(6, "distrl: error: Redis is away\n"))
    assert target.state(record).state == "waiting"
    left = f"distrl stop {RUN_ID} --now removes what is left of its release"
    told = target.stop(record, now=False)
    assert told == f"stopped between two starts of its learner; its Job is suspended; {left}"
    assert api.one("jobs", "learner")["spec"]["suspend"] is True
    assert api.one("deployments", "actor")["spec"]["replicas"] == 0
    assert api.names("secrets")
    assert api.names("statefulsets")
    state = target.state(record)
    assert (state.state, state.reason.endswith(left)) == ("gone", True)
    assert "after exit code 6" in state.reason
    with pytest.raises(ConfigError, match="does not run: it was stopped between two starts"):
        target.stop(record, now=False)
    target.stop(record, now=True)
    assert not api.names("secrets")


def test_a_data_store_has_the_record_and_the_log_when_the_pods_are_gone(api, tmp_path):
    store = f"file://{tmp_path}/store"
    mounts = f"kubernetes.values.learner={{volumeMounts: [{{name: disk, mountPath: {tmp_path}/store}}]}}"
    record = submitted(tmp_path, f"checkpoint.store={store}", mounts)
    assert record.store == store
    assert JobRecord.read(tmp_path / "store" / RUN_ID) == record
    open_objects(store).put(f"{RUN_ID}/logs/learner.log", b"2026-11-25 10:00:00,000 learner INFO saved\n")
    (line,) = watch(record, tmp_path / "runs" / RUN_ID, follow=False, report=lambda text: None)
    assert (line.role, line.text.split()[-1]) == ("learner", "saved")
    with pytest.raises(ConfigError, match="the run id job is taken: "):
        submitted(tmp_path, f"checkpoint.store={store}", mounts)


@pytest.mark.long
def test_a_run_that_refuses_a_request_is_answered_in_its_words(api, tmp_path):
    target, record = KubernetesJobs(), submitted(tmp_path)
    put_pod(api, "learner", "job-learner-1", {"phase": "Running"})
    with pytest.raises(ConfigError, match="the dashboard's Pod, from which requests are sent, is not ready"):
        target.stop(record, now=False)
    put_dashboard(api)
    api.execute = lambda pod, command: (6, "distrl: error: redis has no run job\n")
    with pytest.raises(ConfigError, match=r"^redis has no run job$"):
        target.stop(record, now=False)
    assert api.one("deployments", "actor")["spec"]["replicas"] == 2


@pytest.mark.long
def test_a_namespace_of_another_redis_is_that_of_every_request(api, tmp_path):
    values = "{secret: {existing: mine}, networkPolicy: {redisTo: [{ipBlock: {cidr: 10.0.0.7/32}}]}}"
    url = "memory.url=rediss://distrl-team-a-learner@redis:6379"
    target = KubernetesJobs()
    record = submitted(tmp_path, url, "memory.namespace=team-a", f"kubernetes.values={values}")
    put_pod(api, "learner", "job-learner-1", {"phase": "Running"})
    put_dashboard(api)
    target.stop(record, now=False)
    ((_, command),) = api.executed
    assert command[3] == "rediss://distrl-team-a-operator@redis:6379?namespace=team-a"
    actors = api.one("deployments", "actor")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "rediss://distrl-team-a-actor@redis:6379?namespace=team-a" in actors


def test_keda_follows_the_run_alone(api, tmp_path):
    target = KubernetesJobs()
    record = submitted(tmp_path, KEDA, "actors.autoscale={min_count: 2, max_count: 9}")
    put_pod(api, "learner", "job-learner-1", {"phase": "Running"})
    put_dashboard(api)
    bounds = api.one("scaledobjects", "actor")["spec"]
    assert (bounds["minReplicaCount"], bounds["maxReplicaCount"]) == (2, 9)
    assert "enabled: true" in api.objects["configmaps", "team", f"{RUN_ID}-job"]["data"]["job.yaml"]
    with pytest.raises(ConfigError, match="KEDA sets the number of actors of job; give it bounds"):
        target.scale(record, 3, force=True)
    target.autoscale(record, 3, None, off=False)
    with pytest.raises(ConfigError, match="for a fixed number N: distrl autoscale --min N --max N job"):
        target.autoscale(record, None, None, off=True)
    target.stop(record, now=False)
    assert [command[1:2] + command[6:] for _, command in api.executed] == [
        ["autoscale", "--min", "3", "--detach"],
        ["stop"],
    ]


def test_without_keda_nothing_follows(api, tmp_path):
    target, record = KubernetesJobs(), submitted(tmp_path, "actors.max_count=4")
    with pytest.raises(ConfigError, match="nothing follows the number of actors that job wants"):
        target.autoscale(record, None, None, off=False)
    with pytest.raises(ConfigError, match=r"actors: 5 is more than this run may have, 4 \(actors.max_count\)"):
        target.scale(record, 5, force=False)


@pytest.mark.parametrize(
    "refuses",
    [
        ("PATCH", "jobs"),
        *(pytest.param(each, marks=pytest.mark.long) for each in (("PATCH", "statefulsets"), ("POST", "secrets"))),
    ],
)
def test_an_installation_that_fails_leaves_nothing(api, tmp_path, refuses):
    api.forbidden.add(refuses)
    with pytest.raises(ConfigError) as caught:
        submitted(tmp_path)
    assert f'{refuses[1]} is forbidden: User "ada"' in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [name for _, namespace, name in api.objects if namespace]
    assert not (tmp_path / "runs" / RUN_ID).exists()


def test_a_job_whose_record_cannot_be_written_leaves_nothing(api, tmp_path, monkeypatch):
    write = JobRecord.write

    def refuse(record, run_dir):
        if record.complete:
            raise OSError(28, "No space left on device")
        write(record, run_dir)

    with monkeypatch.context() as full:
        full.setattr(JobRecord, "write", refuse)
        with pytest.raises(ConfigError, match=r"job.json cannot be written: No space left on device; there is no job"):
            submitted(tmp_path)
    assert not [name for _, namespace, name in api.objects if namespace]
    assert submitted(tmp_path).run_id == RUN_ID


@pytest.mark.parametrize(
    "at", ["install", *(pytest.param(at, marks=pytest.mark.long) for at in ("_make_secret", "complete"))]
)
def test_a_submission_that_was_killed_leaves_a_record_by_which_all_of_it_is_removed(api, tmp_path, monkeypatch, at):
    class KilledError(BaseException):
        pass

    def die(*_, **changes):
        if "complete" in changes or at != "complete":
            raise KilledError
        write(*_, **changes)

    def stay(run_dir):
        raise KilledError

    write = OpenRecord.write
    place = {"install": (kubernetes_commands, at), "complete": (OpenRecord, "write")}.get(at, (kubernetes_jobs, at))
    with monkeypatch.context() as killed:  # nothing is undone
        killed.setattr(*place, die)
        killed.setattr(kubernetes_jobs, "_undo", lambda *_: None)
        killed.setattr(KubernetesJobs, "withdraw", lambda *_: None)
        killed.setattr(submission, "_empty", stay)
        with pytest.raises(KilledError):
            submitted(tmp_path)
    run_dir = tmp_path / "runs" / RUN_ID
    record = JobRecord.read(run_dir)
    assert state_of(record).state == ("waiting" if at == "complete" else "gone")
    assert state_of(record).reason.startswith("the submission of job has not finished; distrl stop removes")
    assert bool([name for _, namespace, name in api.objects if namespace]) is (at != "_make_secret")
    assert withdraw_unfinished(record, run_dir)
    assert not [name for _, namespace, name in api.objects if namespace]
    assert submitted(tmp_path).complete


def test_the_claims_of_a_job_that_has_left_the_cluster_are_kept(api, tmp_path):
    record = submitted(tmp_path).model_copy(update={"complete": False})
    claims = api.names("persistentvolumeclaims")
    for name in api.names("jobs"):
        del api.objects["jobs", "team", name]
    assert state_of(record).state == "gone"
    assert not withdraw_unfinished(record, tmp_path / "runs" / RUN_ID)
    assert JobRecord.read(tmp_path / "runs" / RUN_ID).complete
    assert claims
    assert api.names("persistentvolumeclaims") == claims


def test_a_release_of_another_user_is_left_alone(api, tmp_path, monkeypatch):
    submitted(tmp_path, "kubernetes.values.secret={existing: mine}", "kubernetes.values.persistence.enabled=false")
    for claim in api.names("persistentvolumeclaims"):
        del api.objects["persistentvolumeclaims", "team", claim]
    there = {*api.objects}
    other = Job(RUN_ID, load(sets=SETTINGS), tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "runs" / RUN_ID)  # of the other user's jobs nothing is seen
    with pytest.raises(ConfigError, match="the run id job is taken: a release in namespace team has this name"):
        submit(other, KubernetesJobs(), print, print)
    assert {*api.objects} == there
    monkeypatch.setattr(kubernetes_commands, "is_installed", lambda place, release: False)  # it was made meanwhile
    with pytest.raises(ConfigError, match="has this name"):
        submit(other, KubernetesJobs(), print, print)
    assert {*api.objects} == there


def test_a_job_that_runs_names_the_pods_that_have_no_place(api, bed):
    bed.submit("--env", "CartPole-v1", "--actors", "2")
    put_pod(api, "learner", "job-learner-1", {"phase": "Running"})
    assert bed.run("status", RUN_ID).stdout == f"{RUN_ID} on kubernetes runs\n"
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 Insufficient cpu."}
    put_pod(api, "actor", "job-actors-1", {"phase": "Pending", "conditions": [unplaced]})
    told = f"{RUN_ID} on kubernetes runs: job-actors-1: Unschedulable: 1 Insufficient cpu.; add nodes, take fewer"
    assert bed.run("status", RUN_ID).stdout.startswith(told)


def test_the_plan_counts_the_pods_of_the_release(api, tmp_path):
    plan = KubernetesJobs().plan(job(tmp_path))
    assert {need.role: (need.count, need.cpus) for need in plan.roles} == {
        **{"learner": (1, 1.0), "actor": (2, 1.0), "redis": (1, 0.5), "dashboard": (1, 0.1)}
    }
    assert not api.requests


def test_a_job_that_learns_from_data_has_no_actors(api, tmp_path):
    sets = ("actors.count=0", "algorithm.name=dqn", "data.sets=/runs/recorded-v0")
    plan = KubernetesJobs().plan(job(tmp_path, *sets))
    assert {need.role for need in plan.roles} == {"learner", "redis", "dashboard"}
    target, record = KubernetesJobs(), submitted(tmp_path, *sets)
    put_pod(api, "learner", "job-learner-1", {"phase": "Running"})
    with pytest.raises(
        ConfigError, match=r"^job has no Deployment of actors: it learns from data, or that was deleted$"
    ):
        target.scale(record, 2, force=False)
    put_dashboard(api)
    target.stop(record, now=False)
    ((_, command),) = api.executed
    assert command[1] == "stop"


@pytest.mark.long
def test_the_plan_names_the_images_of_learner_and_actors(api, tmp_path):
    plan = KubernetesJobs().plan(job(tmp_path, "environment.id=ALE/Pong-v5", "kubernetes.values.images.registry=r.io"))
    learner, actor = plan.code.removeprefix("of the images ").split(", ")
    assert actor == f"r.io/distrl/actor-environments:{__version__}"
    assert learner.startswith("r.io/distrl/learner")
    (note,) = KubernetesJobs().plan(job(tmp_path, "environment.id=gym:CartPole-v1")).notes
    assert note.startswith("no image of distrl has the extra gym, which the environment needs; set kubernetes.values.")


def test_the_plan_names_the_claim_of_the_run(api, tmp_path):
    target = KubernetesJobs()
    plan = target.plan(job(tmp_path))
    assert (plan.run_dir, plan.disk) == (f"/runs/{RUN_ID}", f"the claim {RUN_ID}-runs")
    persistence = "kubernetes.values.persistence"
    own = target.plan(job(tmp_path, f"{persistence}={{existingClaim: shared}}"))
    assert own.disk == "the claim shared"
    assert target.plan(job(tmp_path, f"{persistence}.enabled=false")).disk == "its node's disk"


@pytest.mark.long
def test_without_a_claim_nothing_is_lost_that_a_store_has(api, tmp_path):
    def lost(*sets):
        plan = KubernetesJobs().plan(job(tmp_path, "kubernetes.values.persistence.enabled=false", *sets))
        return [line for line in plan.unprotected if "are lost with the learner's Pod" in line]

    assert len(lost()) == 1
    reached = "kubernetes.values.networkPolicy.extraEgress=[{ports: [{port: 443}]}]"
    assert not lost("checkpoint.store=s3://bucket/runs", reached)


def test_the_plan_names_secrets_that_a_config_map_would_show(api, tmp_path):
    def told(*sets):
        return [line for line in KubernetesJobs().plan(job(tmp_path, *sets)).unprotected if "ConfigMap" in line]

    url = "memory.url=rediss://distrl-team-learner@redis:6379"
    values = "{secret: {existing: mine}, networkPolicy: {redisTo: [{ipBlock: {cidr: 10.0.0.7/32}}]}}"
    assert not told(url, "memory.namespace=team", f"kubernetes.values={values}")
    assert not told("kubernetes.values.learner.env=[{name: API_TOKEN, value: s3cret}]")
    assert len(told("environment.kwargs={api_key: s3cret}")) == 1


def test_a_dry_run_needs_no_cluster(api, bed, tmp_path):
    dry = ["submit", "--on", "kubernetes", "--dry-run", "--env", "CartPole-v1"]
    with_cluster = bed.run(*dry)
    facts = bed.run(*dry, "--json").stdout
    assert json.loads(facts)["notes"] == []
    assert json.loads(facts)["run_dir"] == f"/runs/{json.loads(facts)['run_id']}"
    assert "note" not in with_cluster.stderr
    api.close()
    without = bed.run(*dry)
    assert (without.returncode, without.stdout) == (0, with_cluster.stdout)
    assert bed.run(*dry, "--json").stdout == facts
    with pytest.raises(NoAnswerError):
        submitted(tmp_path)
    (tmp_path / "kubeconfig").write_text("{}")
    nowhere = bed.run(*dry)
    assert (nowhere.returncode, "kind: Job" in nowhere.stdout) == (0, True)


def test_what_the_cluster_lacks_is_one_line(api, tmp_path, monkeypatch):
    for own in ((), ("kubernetes.values.secret={existing: mine}",)):
        line = refused(tmp_path, "kubernetes.namespace=lost", *own)
        assert line.endswith('namespaces "lost" not found; make it, or set kubernetes.namespace')
    for run_id in ("Pong", "a" * 54):
        assert refused(tmp_path, run_id=run_id).startswith(f"helm refuses the run id {run_id} or kubernetes.values: ")
    assert "'2048' does not match pattern" in refused(tmp_path, run_id="2048")
    assert "kubectl knows no context 'mars'" in refused(tmp_path, address="mars")
    line = refused(tmp_path, "kubernetes.values={actors: {perPods: 2}}")
    assert line.startswith(f"helm refuses the run id {RUN_ID} or kubernetes.values: ")
    assert "'/actors': additional properties 'perPods' not allowed" in line
    line = refused(tmp_path, "kubernetes.values.autoscaling.enabled=true")
    assert "kubernetes.values: autoscaling.enabled needs autoscaling.prometheusAddress" in line
    assert "sigterm_exit_code is set by the chart: leave it" in refused(tmp_path, "launch.sigterm_exit_code=7")
    assert "debug" not in line
    api.close()
    assert "127.0.0.1" in (line := refused(tmp_path))
    assert line.startswith("kubectl at context lab: ")
    for program, there in (("kubectl", "helm"), ("helm", "kubectl")):
        folder = tmp_path / there
        folder.mkdir()
        (folder / there).symlink_to(programs() / there)
        with monkeypatch.context() as lacking:
            lacking.setenv("PATH", str(folder))
            line = refused(tmp_path)
        assert line == f"--on kubernetes needs {program}, which is not on PATH; install it on this host"
    (tmp_path / "kubeconfig").write_text("{}")
    assert "kubectl has no current context" in refused(tmp_path)
