"""The kubelet in the small itself, by hand-made Pods: what it would hide if it were wrong."""

import base64
import re

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

STRICT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
OWNER = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}


def template(script, *, container=(), **spec):
    one = {"name": "main", "image": "any", "command": ["sh", "-c", script], **dict(container)}
    labels = {"app.kubernetes.io/component": "any"}
    return {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [one], **spec}}


def job(name, script, *, job=(), **pod):
    return {"kind": "Job", "metadata": {"name": name}, "spec": {"template": template(script, **pod), **dict(job)}}


def deployment(name, script, *, replicas=1, **pod):
    spec = {"replicas": replicas, "selector": {}, "template": template(script, restartPolicy="Always", **pod)}
    return {"kind": "Deployment", "metadata": {"name": name}, "spec": spec}


CLAIM = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "claim", "annotations": {"helm.sh/resource-policy": "keep"}},
    "spec": {"accessModes": ["ReadWriteOncePod"]},
}
CLAIMED = {
    "securityContext": OWNER,
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}],
    "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
}
POLICY = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [2]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
}


def test_a_pod_has_the_rights_and_the_files_that_it_is_given_and_no_others(cluster):
    secret = {name: base64.b64encode(name.encode()).decode() for name in ("seen", "hidden")}
    script = "id; hostname; touch /x; touch /tmp/y && echo can write; cd /s; stat -L -c '%a %u:%g' *; cat *; cat /c/k; "
    script += "grep -E 'Cap|NoNewPrivs' /proc/self/status; echo $A $B $C; touch other"
    mounts = {"tmp": "/tmp", "secret": "/s", "config": "/c"}
    container = {
        "securityContext": STRICT,
        "volumeMounts": [{"name": name, "mountPath": place} for name, place in mounts.items()],
        "env": [
            {"name": "A", "value": "a"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "hidden"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "c"}}],
    }
    files = {"secretName": "s", "defaultMode": 0o440, "items": [{"key": "seen", "path": "seen"}]}
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "secret", "secret": files},
        {"name": "config", "configMap": {"name": "c"}},
    ]
    cluster.upgrade(
        [
            {"kind": "Secret", "metadata": {"name": "s"}, "data": secret},
            {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v\n", "C": "c"}},
            job("rights", script, container=container, volumes=volumes, securityContext=OWNER, job={"backoffLimit": 0}),
        ]
    )
    found = cluster.controller("Job", "rights")
    assert found.wait() == "Failed: BackoffLimitExceeded"
    lines = found.pod.log.splitlines()
    assert lines[:2] == ["uid=10001 gid=10001 groups=10001", "rights-0"]
    assert "touch: cannot touch '/x': Read-only file system" in lines
    assert "touch: cannot touch 'other': Read-only file system" in lines
    assert {"can write", "440 0:10001", "seenv", "a hidden c", "NoNewPrivs:\t1"} <= {*lines}
    assert {line.split()[1] for line in lines if line.startswith("Cap")} == {"0" * 16}


def test_what_it_does_not_know_is_an_error_and_not_ignored(cluster):
    with pytest.raises(ValueError, match="does not know hostNetwork"):
        cluster.start("odd", template("true", hostNetwork=True))
    with pytest.raises(ValueError, match="does not know tty"):
        cluster.start("odd", template("true", container={"tty": True}))
    volumes = [{"name": "gone", "configMap": {"name": "absent"}}]
    with pytest.raises(KeyError, match="absent"):
        cluster.start("lost", template("true", volumes=volumes))


@pytest.mark.parametrize(
    ("second", "phase", "main"), [("echo 2 >> /d/x", "Succeeded", "1\n2\n"), ("exit 3", "Failed", "")]
)
def test_init_containers_run_one_after_the_other_and_a_failure_ends_the_pod(cluster, second, phase, main):
    mounts = {"volumeMounts": [{"name": "d", "mountPath": "/d"}]}
    first = {"name": "first", "image": "any", "command": ["sh", "-c", "sleep 1; echo 1 >> /d/x"], **mounts}
    init = [first, {**first, "name": "second", "command": ["sh", "-c", second]}]
    volumes = [{"name": "d", "emptyDir": {}}]
    pod = cluster.start("init", template("cat /d/x", container=mounts, initContainers=init, volumes=volumes))
    cluster.wait_for(pod)
    assert (pod.phase, pod.log) == (phase, main)


def test_a_pod_finds_the_pods_of_a_headless_service_and_its_own_fields(cluster):
    spec = {"clusterIP": "None", "selector": {"app.kubernetes.io/component": "any"}, "ports": []}
    cluster.upgrade([{"kind": "Service", "metadata": {"name": "web"}, "spec": spec}])
    cluster.start("target", template("sleep 60"))
    (target,) = cluster.running()
    fields = {"NAME": "metadata.name", "SPACE": "metadata.namespace", "IP": "status.podIP"}
    fields["LABEL"] = "metadata.labels['app.kubernetes.io/component']"
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    script = "getent ahostsv4 web.team-a.svc.cluster.local; echo $NAME $SPACE $IP $LABEL"
    pod = cluster.start("asks", template(script, container={"env": env}))
    cluster.wait_for(pod)
    lines = [line.split() for line in pod.log.splitlines()]
    assert {line[0] for line in lines[:-1]} == {target.host.address}
    assert lines[-1] == ["asks", "team-a", pod.address, "any"]


def test_a_job_starts_again_as_its_policies_say(cluster):
    count = "n=$(cat /data/$0 2>/dev/null || echo 0); echo $((n + 1)) > /data/$0; "
    claim = {**CLAIM, "spec": {"accessModes": ["ReadWriteOnce"]}}

    def counting(name, script, **policies):
        found = job(name, "", job={"backoffLimit": 2, "podFailurePolicy": POLICY, **policies}, **CLAIMED)
        found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1  # sleep ignores SIGTERM
        found["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", count + script, name]
        return found

    cluster.upgrade(
        [
            claim,
            counting("third-time", "exit $((n < 2))"),
            counting("hopeless", "exit 7"),
            counting("wrong", "exit 2"),
            counting("drained", "test $n -gt 3 || exec sleep 1000", backoffLimit=0),
        ]
    )
    drained = cluster.controller("Job", "drained")
    for n in range(1, 5):
        wait_until(lambda n=n: len(drained.pods) == n and drained.pod.ready, "it runs")
        cluster.evict(drained.pod)
    expected = {
        "third-time": "Complete",
        "hopeless": "Failed: BackoffLimitExceeded",
        "wrong": "Failed: PodFailurePolicy",
    }
    for name, state in {**expected, "drained": "Complete"}.items():
        assert cluster.controller("Job", name).wait() == state
    counts = {path.name: int(path.read_text()) for path in cluster.claim("claim").iterdir()}
    assert counts == {"third-time": 3, "hopeless": 3, "wrong": 1, "drained": 5}


def test_a_container_that_fails_its_liveness_probe_is_ended_in_order_and_started_again(cluster):
    probe = {"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 5, "failureThreshold": 2}
    tmp = {"volumes": [{"name": "tmp", "emptyDir": {}}]}
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    container = {"livenessProbe": probe, "volumeMounts": mounts}
    heeds = "touch /tmp/alive; trap 'echo asked; exit 9' TERM; while :; do sleep .1; done"
    ignores = "touch /tmp/alive; trap '' TERM; while :; do sleep .1; done"
    cluster.upgrade(
        [
            deployment("heeds", heeds, container=container, **tmp, terminationGracePeriodSeconds=30),
            deployment("ignores", ignores, container=container, **tmp, terminationGracePeriodSeconds=3),
        ]
    )
    (heeding,), (ignoring,) = (cluster.controller("Deployment", name).pods for name in ("heeds", "ignores"))
    for pod in (heeding, ignoring):
        main = pod.container("main")
        wait_until(lambda main=main: main.probed["livenessProbe", True], "it is probed")
        for n in range(1, 3):
            wait_until(lambda main=main: main.running, "it runs")
            main.execute("rm", "/tmp/alive")
            wait_until(lambda main=main, n=n: len(main.exits) == n, "it has ended")
            wait_until(lambda main=main, n=n: len(main.waits_s) == n, "it will start again")
        assert main.waits_s == [0.0, 10.0]
    assert heeding.container("main").exits == [9, 9]
    assert "asked" in heeding.log
    assert ignoring.container("main").exits == [137, 137]
    assert any("ignores-00000: main outlives its grace period of 3 s" in event for event in cluster.events)


def test_a_service_leads_to_the_ready_pods_alone(cluster):
    server = "python3 -m http.server 8000 --directory /tmp 2>&1"
    container = {
        "ports": [{"name": "web", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "web"}, "periodSeconds": 2, "failureThreshold": 1},
        "livenessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 2, "failureThreshold": 1000},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {"selector": {"app.kubernetes.io/component": "any"}, "ports": [{"port": 80, "targetPort": "web"}]}
    ask = "import urllib.request; print(urllib.request.urlopen('http://web/ready', timeout=5).status)"
    cluster.upgrade(
        [
            {"kind": "Service", "metadata": {"name": "web"}, "spec": spec},
            deployment("web", server, container=container, volumes=[{"name": "tmp", "emptyDir": {}}]),
        ]
    )
    (web,) = cluster.controller("Deployment", "web").pods
    main = web.container("main")
    wait_until(lambda: main.probed["livenessProbe", True] and main.probed["readinessProbe", False], "it is probed")
    code, said = main.execute("python3", "-c", ask)
    assert (code, web.ready) == (1, False)
    assert "Connection refused" in said
    assert main.execute("touch", "/tmp/ready")[0] == 0
    wait_until(lambda: web.ready, "it is ready")
    assert main.execute("python3", "-c", ask) == (0, "200\n")


def test_an_upgrade_replaces_what_has_changed_and_removes_what_is_gone(cluster):
    cluster.upgrade(
        [CLAIM, job("first", "sleep 1000", **CLAIMED), deployment("d", "echo 1; exec sleep 1000", replicas=2)]
    )
    first, old = cluster.controller("Job", "first"), [*cluster.controller("Deployment", "d").pods]
    wait_until(lambda: first.pods and first.pod.ready and all(pod.ready for pod in old), "all run")
    with pytest.raises(AssertionError, match="first: field is immutable"):
        cluster.upgrade([CLAIM, job("first", "sleep 999", **CLAIMED)])

    second = job("second", "echo mine > /data/x", **CLAIMED)
    for each in (first.pod, *old):
        each.grace_s = 1.0  # sleep ignores SIGTERM
    cluster.upgrade([second, deployment("d", "echo 2; exec sleep 1000", replicas=1)])
    assert cluster.controller("Job", "second").wait() == "Complete"
    events = "\n".join(cluster.events)
    assert re.search(r"first-0: Failed\n(.*\n)*.*second-0: starts", events), events  # the claim is for one Pod
    (pod,) = cluster.controller("Deployment", "d").pods
    wait_until(lambda: pod.log == "2\n", "it runs the new template")
    assert not {each.name for each in old} & {each.name for each in cluster.pods("any")}
    assert (cluster.claim("claim") / "x").read_text() == "mine\n"
    assert ("PersistentVolumeClaim", "claim") in cluster.objects
