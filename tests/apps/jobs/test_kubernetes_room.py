"""Room for Pods; tests/cluster/test_kubernetes_jobs.py has those of the real chart."""

import pytest

from distrl.apps.jobs.kubernetes_room import GPU, PodNode, Pods, pods_in, quantity, room_words, shortage

GIB = 2.0**30
NODE, VOLUMES = "node.kubernetes.io", "attachable-volumes-aws-ebs"
MANIFESTS = """
kind: Job
metadata: {name: hook, annotations: {helm.sh/hook: pre-install}}
---
kind: Deployment
metadata: {name: actors, labels: {app.kubernetes.io/component: actor}}
spec:
  template:
    spec:
      containers:
        - {image: "a:1", resources: {requests: {cpu: 250m, memory: 1Gi}, limits: {cpu: 1}}}
---
kind: ScaledObject
metadata: {name: actors}
spec: {scaleTargetRef: {name: actors}, minReplicaCount: 3}
---
kind: Job
metadata: {name: l, labels: {app.kubernetes.io/component: learner}}
spec:
  template:
    spec:
      nodeSelector: {pool: gpu}
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
        - {image: "l:1", resources: {requests: {cpu: 2}, limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: "1"}}}
"""


def pods(component="learner", count=1, selector=None, tolerations=(), **requests):
    return Pods(component, count, "i", {**requests, "pods": 1.0}, selector or {}, tolerations)


def node(labels=None, taints=(), **has):
    return PodNode({"pods": 110.0, **has}, labels or {}, taints)


def test_quantities_are_counted():
    texts = ("16", "3920m", "1.5", "2k", "12Ki", "4Gi", 3, "1e3", "?")
    assert [quantity(text) for text in texts] == [16.0, 3.92, 1.5, 2000.0, 12288.0, 4 * GIB, 3.0, 1000.0, 0.0]


def test_pods_are_those_of_the_manifests_and_the_learner_is_first():
    learner, actors = pods_in(MANIFESTS)
    assert (learner.component, learner.image, learner.selector) == ("learner", "l:1", {"pool": "gpu"})
    assert learner.requests == {"cpu": 2.0, "memory": 8 * GIB, GPU: 1.0, "pods": 1.0}
    assert (actors.count, actors.requests) == (3, {"cpu": 0.25, "memory": GIB, "pods": 1.0})


@pytest.mark.parametrize(
    ("needs", "nodes", "short"),
    [
        ([pods(cpu=2.0)], [node(cpu=2.0)], None),
        ([pods(cpu=1.0), pods("actor", 30, cpu=0.25)], [node(cpu=16.0)], None),
        (
            [pods(cpu=64.0)],
            [node(cpu=16.0), node(cpu=8.0)],
            "requests 64 CPU; of 2 nodes, its node selector and tolerations allow 2, the largest with 16",
        ),
        (
            [pods("actor", 2, cpu=3.0)],
            [node(cpu=4.0)],
            "requests 3 CPU, and there are 2; of 1 node, its node selector and",
        ),
        ([pods(cpu=1.0, memory=64 * GIB)], [node(cpu=4.0, memory=32 * GIB)], "requests 1 CPU, 64 GiB; of 1 node"),
        (
            [pods(cpu=3.0), pods("actor", 2, cpu=1.0)],
            [node(cpu=4.0)],
            "all Pods request 5 CPU (learner 1 × (3 CPU), actor 2 × (1 CPU)); 1 node with 4 CPU may run them",
        ),
        ([pods("actor", 3, cpu=0.1)], [node(cpu=4.0, pods=2.0)], "with room for 2"),
        (
            [pods(cpu=1.0, selector={"pool": "a"})],
            [node({"pool": "b"}, cpu=4.0)],
            "node selector and tolerations allow 0",
        ),
        ([pods(cpu=1.0, selector={"pool": "a"})], [node({"pool": "a"}, cpu=4.0)], None),
        ([pods(cpu=1.0)], [node(taints=[{"key": "k", "effect": "NoSchedule"}], cpu=4.0)], "tolerations allow 0"),
        ([pods(cpu=1.0)], [node(taints=[{"key": "k", "effect": "PreferNoSchedule"}], cpu=4.0)], None),
        ([pods(cpu=1.0)], [node(taints=[{"key": f"{NODE}/not-ready", "effect": "NoExecute"}], cpu=4.0)], None),
        ([pods(cpu=1.0)], [node(taints=[{"key": f"{NODE}/memory-pressure", "effect": "NoSchedule"}], cpu=4.0)], None),
        (
            [pods(cpu=1.0)],
            [node(taints=[{"key": f"{NODE}/unschedulable", "effect": "NoSchedule"}], cpu=4.0)],
            "tolerations allow 0",
        ),
        (
            [pods(cpu=9.0, **{"example.com/nic": 1.0})],
            [node(cpu=4.0, **{VOLUMES: 39.0, "example.com/nic": 2.0})],
            "the largest with 4 CPU, 2 example.com/nic",
        ),
    ],
)
def test_what_can_never_run_is_said_with_numbers(needs, nodes, short):
    found = shortage(needs, nodes)
    assert found == short if short is None else short in found


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "pool", "operator": "Exists"}, True),
        ({"key": "pool", "value": "spot"}, True),
        ({"key": "pool", "value": "spot", "effect": "NoSchedule"}, True),
        ({"key": "pool", "value": "spot", "effect": "NoExecute"}, False),
        ({"key": "pool", "value": "other"}, False),
        ({"key": "gpu", "operator": "Exists"}, False),
    ],
)
def test_taints_keep_away_what_does_not_tolerate_them(toleration, tolerated):
    there = node(taints=[{"key": "pool", "value": "spot", "effect": "NoSchedule"}], cpu=4.0)
    assert there.takes(pods(tolerations=[toleration])) is tolerated


def test_room_is_that_of_nodes_on_which_pods_may_run():
    nodes = [node({"pool": "a"}, cpu=3.9, memory=8 * GIB, **{VOLUMES: 39.0}), node(cpu=4.0)]
    assert room_words([pods(cpu=1.0, selector={"pool": "a"})], nodes) == "3.9 CPU, 8 GiB on 1 node"
