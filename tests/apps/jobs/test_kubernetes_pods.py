"""Pods of manifests; tests/cluster/test_kubernetes_jobs.py has those of the real chart."""

from distrl.apps.jobs.kubernetes_pods import Pods, pods_in, quantity

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
      containers:
        - {image: "l:1", resources: {requests: {cpu: 2}, limits: {cpu: 4, memory: 8Gi, nvidia.com/gpu: "1"}}}
"""


def test_quantities_are_counted():
    texts = ("16", "3920m", "1.5", "2k", 3, "1e3", "?")
    assert [quantity(text) for text in texts] == [16.0, 3.92, 1.5, 2000.0, 3.0, 1000.0, 0.0]


def test_pods_are_those_of_the_manifests_and_the_learner_is_first():
    assert pods_in(MANIFESTS) == [Pods("learner", 1, "l:1", 2.0, 1), Pods("actor", 3, "a:1", 0.25, 0)]
