import pytest

from distrl.apps.jobs.kubernetes_state import STOPPED, event_words, lacking, may_have_begun, state_of, stopped_words
from distrl.apps.jobs.target import JobState

JOB = {"metadata": {"name": "pong-learner-1", "creationTimestamp": "2026-11-25T10:01:00Z"}}
IMAGES = "; set kubernetes.values.images, and submit it again"
STOPPED_EARLY = "stopped between two starts of its learner, or before the first"
STOPPED_JOB = {"metadata": {**JOB["metadata"], "annotations": {STOPPED: "true"}}}


def with_condition(kind, **more):
    return {**JOB, "status": {"conditions": [{"type": kind, "status": "True", **more}]}}


def pod(phase, made="1", **status):
    return {
        "metadata": {"name": f"pod-{made}", "creationTimestamp": f"2026-11-25T10:0{made}:00Z"},
        "status": {"phase": phase, **status},
    }


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
        (
            JOB,
            [pod("Pending", containerStatuses=PULLS)],
            JobState("waiting", f"ErrImagePull: denied by registry{IMAGES}"),
        ),
        (JOB, [pod("Running")], JobState("running")),
        (JOB, [pod("Running", "2"), pod("Failed", "1")], JobState("running")),
        (JOB, [pod("Pending", "2"), pod("Failed", "1")], JobState("waiting", "to go on: warning about pod-2")),
        (JOB, [pod("Pending", "3")], JobState("waiting", "to begin or to go on: warning about pod-3")),
        (
            STOPPED_JOB,
            [pod("Failed", containerStatuses=OUT_OF_MEMORY)],
            JobState("gone", "it was stopped between two starts after exit code 137; what it has saved stays"),
        ),
        (
            STOPPED_JOB,
            [],
            JobState("gone", f"it was {STOPPED_EARLY}; what it has saved stays"),
        ),
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
        (
            with_condition("Failed", reason="BackoffLimitExceeded", message="asked"),
            [pod("Failed", containerStatuses=container(terminated={"exitCode": 130, "reason": "Error"}))],
            JobState("interrupted", "BackoffLimitExceeded: asked", 130),
        ),
    ],
)
def test_the_state_follows_from_job_and_pods(job, pods, expected):
    assert state_of(job, pods, lambda name: f"warning about {name}") == expected


def test_pods_that_do_not_start_are_named_with_the_reason_and_what_to_do():
    unplaced = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
    exceeded = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    actors = {"metadata": {"name": "pong-actors"}, "status": {"conditions": [exceeded]}}
    pods = [pod("Running", "1"), pod("Pending", "2"), *(pod("Pending", made, conditions=unplaced) for made in "34")]
    less = "take fewer actors (distrl scale), or lower the requests in kubernetes.values and submit it again"
    assert lacking(pods, [actors]) == (
        f"pod-3 and 1 more: Unschedulable: 0/3 nodes; add nodes, {less}; "
        f"pong-actors: FailedCreate: exceeded quota; have the quota raised, {less}"
    )
    assert lacking(pods[:2], [{**actors, "status": {}}]) == ""


@pytest.mark.parametrize(
    ("job", "pods", "begun"),
    [
        (JOB, [], False),
        (JOB, [pod("Pending")], False),
        (JOB, [pod("Pending", containerStatuses=PULLS)], False),
        (JOB, [pod("Pending", containerStatuses=container(running={}))], True),
        (JOB, [pod("Failed", containerStatuses=OUT_OF_MEMORY)], True),
        (JOB, [pod("Running")], True),
        (JOB, [pod("Pending", "3")], True),  # perhaps one before it was evicted, and nothing of it is left
        ({**JOB, "status": {"failed": 1}}, [pod("Pending")], True),
        (STOPPED_JOB, [], True),  # its Pods may be gone
    ],
)
def test_a_learner_that_has_started_at_some_time_may_have_begun(job, pods, begun):
    assert may_have_begun(job, pods) is begun


def test_a_stop_is_between_two_starts_where_that_is_certain():
    assert stopped_words(JOB, [pod("Pending", "3")]) == STOPPED_EARLY
    certain = "stopped between two starts of its learner"
    assert stopped_words(JOB, [pod("Failed", containerStatuses=OUT_OF_MEMORY)]) == certain


def test_the_newest_event_counts():
    events = [
        {"lastTimestamp": "2026-11-25T10:00:00Z", "reason": "FailedMount", "message": "no claim"},
        {"eventTime": "2026-11-25T11:00:00Z", "reason": "FailedScheduling", "message": "no node"},
    ]
    assert event_words(events) == "FailedScheduling: no node"
    assert event_words([]) == ""
