import pytest

from distrl.jobs.kubernetes_state import event_words, state_of
from distrl.jobs.target import JobState

JOB = {"metadata": {"name": "pong-learner-1"}}


def with_condition(kind, **more):
    return {**JOB, "status": {"conditions": [{"type": kind, "status": "True", **more}]}}


def pod(phase, made="1", **status):
    return {"metadata": {"name": f"pod-{made}", "creationTimestamp": made}, "status": {"phase": phase, **status}}


def container(**state):
    return [{"name": "learner", "state": state}]


OUT_OF_MEMORY = container(terminated={"exitCode": 137, "reason": "OOMKilled"})
PULLS = container(waiting={"reason": "ErrImagePull", "message": "denied\nby registry"})


@pytest.mark.parametrize(
    ("job", "pods", "expected"),
    [
        (None, [], JobState("gone", "Kubernetes does not know it any more")),
        (JOB, [], JobState("waiting", "warning about pong-learner-1")),
        (JOB, [pod("Pending")], JobState("waiting", "warning about pod-1")),
        (JOB, [pod("Pending", containerStatuses=PULLS)], JobState("waiting", "ErrImagePull: denied by registry")),
        (JOB, [pod("Running")], JobState("running")),
        (JOB, [pod("Running", "2"), pod("Failed", "1")], JobState("running")),
        (JOB, [pod("Pending", "2"), pod("Failed", "1")], JobState("waiting", "to go on: warning about pod-2")),
        (JOB, [pod("Succeeded")], JobState("stopping")),
        (
            JOB,
            [pod("Failed", containerStatuses=OUT_OF_MEMORY)],
            JobState("waiting", "to start again after exit code 137: OOMKilled"),
        ),
        (JOB, [pod("Failed", reason="Evicted")], JobState("waiting", "to start again after Evicted")),
        (with_condition("SuccessCriteriaMet"), [pod("Succeeded")], JobState("stopping")),
        (with_condition("Complete"), [pod("Succeeded")], JobState("ended", "", 0)),
        (
            with_condition("Failed", reason="BackoffLimitExceeded", message="it has failed 7 times"),
            [],
            JobState("failed", "BackoffLimitExceeded: it has failed 7 times"),
        ),
        (
            with_condition("Failed", reason="BackoffLimitExceeded"),
            [pod("Failed", containerStatuses=OUT_OF_MEMORY)],
            JobState("failed", "OOMKilled", 137),
        ),
    ],
)
def test_the_state_follows_from_job_and_pods(job, pods, expected):
    assert state_of(job, pods, lambda name: f"warning about {name}") == expected


def test_the_newest_event_counts():
    events = [
        {"lastTimestamp": "2026-11-25T10:00:00Z", "reason": "FailedMount", "message": "no claim"},
        {"eventTime": "2026-11-25T11:00:00Z", "reason": "FailedScheduling", "message": "no node"},
    ]
    assert event_words(events) == "FailedScheduling: no node"
    assert event_words([]) == ""
