"""How a job is doing, by its Job and Pods as the Kubernetes API has them."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from distrl.apps.jobs.kubernetes_commands import Object
from distrl.apps.jobs.target import JobState
from distrl.errors import one_line

LEARNER = "learner"
"""Name of the learner's component and container."""
_ERROR = "distrl: error: "
_HARMLESS = ("PodInitializing", "ContainerCreating")
"""Reasons of a container that waits which say nothing; the events may."""
_LESS = "take fewer actors (distrl scale), or lower the requests in kubernetes.values and submit it again"
_IMAGE = "set kubernetes.values.images, and submit it again"
_REMEDIES = {
    "Unschedulable": f"add nodes, {_LESS}",
    "FailedCreate": f"have the quota raised, {_LESS}",
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "InvalidImageName"), _IMAGE),
}
"""Reason of Kubernetes for what does not start -> remedy."""
STOPPED = "distrl/stopped"
"""Annotation of a learner's Job that `distrl stop` has suspended between two starts, or where it may have begun."""
_LATE_S = 60.0
"""Seconds after the making of a Job from which on its Pod may stand in for one that was evicted, which is deleted and
counted nowhere. It may also be the first: a quota can hold that back for longer."""


def state_of(job: Object | None, pods: Sequence[Object], warning: Callable[[str], str]) -> JobState:
    """Return the state of a job.

    Args:
        job: The learner's Job; None if there is none.
        pods: The learner's Pods.
        warning: Takes the name of an object, and returns its last event that is a warning, or "".
    """
    if job is None:
        return JobState("gone", "Kubernetes does not know it any more")
    pods = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    conditions = {each["type"]: each for each in _status(job).get("conditions", ()) if each["status"] == "True"}
    if "Complete" in conditions:
        return JobState.of_code(0, "")
    if "Failed" in conditions:
        code, told = _end(pods[-1]) if pods else (None, "")
        return JobState.of_code(code, told or _words(conditions["Failed"]))
    if "SuccessCriteriaMet" in conditions or "FailureTarget" in conditions:
        return JobState("stopping")
    if STOPPED in job["metadata"].get("annotations", {}):
        code = _end(pods[-1])[0] if pods else None
        told = stopped_words(job, pods) if code is None else f"stopped between two starts after exit code {code}"
        return JobState("gone", f"it was {told}; what it has saved stays")
    if not pods:
        return JobState("waiting", warning(job["metadata"]["name"]) or "it has no Pod yet")
    newest = pods[-1]
    phase = _status(newest).get("phase")
    if phase == "Running":
        return JobState("running")
    if phase == "Succeeded":
        return JobState("stopping")
    if phase == "Failed":
        code, told = _end(newest)
        how = f"exit code {code}" if code is not None else _words(_status(newest)) or "the loss of its Pod"
        return JobState("waiting", f"to start again after {how}{f': {told}' if told else ''}")
    again = "to go on: " if _has_begun(job, pods) else "to begin or to go on: " if may_have_begun(job, pods) else ""
    return JobState("waiting", f"{again}{_why(newest) or warning(newest['metadata']['name']) or 'its Pod is prepared'}")


def lacking(pods: Sequence[Object], deployments: Sequence[Object]) -> str:
    """Return which Pods beside the learner's do not start, and why; "" if all do or are about to."""
    why: dict[str, list[str]] = {}
    for pod in pods:
        if _status(pod).get("phase") == "Pending" and (reason := _why(pod)):
            why.setdefault(reason, []).append(pod["metadata"]["name"])
    for found in deployments:
        for each in _status(found).get("conditions", ()):
            if each["type"] == "ReplicaFailure" and each["status"] == "True":
                why.setdefault(_words(each), []).append(found["metadata"]["name"])
    more = {reason: f" and {len(names) - 1} more" if len(names) > 1 else "" for reason, names in why.items()}
    return "; ".join(f"{names[0]}{more[reason]}: {reason}" for reason, names in why.items())


def may_have_begun(job: Object, pods: Sequence[Object]) -> bool:
    """Whether a learner of the Job has started at some time, or may have, in a Pod that is gone."""
    stopped = STOPPED in job["metadata"].get("annotations", {})
    return stopped or _has_begun(job, pods) or any(_seconds(pod) - _seconds(job) > _LATE_S for pod in pods)


def stopped_words(job: Object, pods: Sequence[Object]) -> str:
    """Return in words when a Job that may have begun was stopped, while no learner ran."""
    return f"stopped between two starts of its learner{'' if _has_begun(job, pods) else ', or before the first'}"


def _has_begun(job: Object, pods: Sequence[Object]) -> bool:
    """Whether it is certain that a learner of the Job has started at some time."""
    counts = _status(job)
    if any(counts.get(name) for name in ("failed", "succeeded", "ready")) or len(pods) > 1:
        return True
    return any(map(_has_started, pods))


def _has_started(pod: Object) -> bool:
    learners = [each for each in _status(pod).get("containerStatuses", ()) if each["name"] == LEARNER]
    waits = _status(pod).get("phase", "Pending") == "Pending"
    return not waits or any("waiting" not in each.get("state", {"waiting": {}}) for each in learners)


def _seconds(item: Object) -> float:
    return datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()


def _why(pod: Object) -> str:
    """Return why a Pod does not run yet; "" where its own state does not say."""
    for container in _containers(pod):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason", _HARMLESS[0]) not in _HARMLESS:
            return _words(waiting)
    unplaced = (each for each in _status(pod).get("conditions", ()) if each["type"] == "PodScheduled")
    return next((_words(each) for each in unplaced if each["status"] == "False"), "")


def _end(pod: Object) -> tuple[int | None, str]:
    """Return exit code and error of the learner in a Pod that has ended."""
    for container in _containers(pod):
        if container["name"] == LEARNER and (ended := container.get("state", {}).get("terminated")) is not None:
            lines = str(ended.get("message", "")).splitlines()
            errors = [line.partition(_ERROR)[2] for line in lines if _ERROR in line]
            reason = "" if ended.get("reason") in (None, "Error", "Completed") else str(ended["reason"])
            return int(ended["exitCode"]), errors[-1] if errors else reason
    return None, ""


def _containers(pod: Object) -> Iterator[Object]:
    yield from _status(pod).get("initContainerStatuses", ())
    yield from _status(pod).get("containerStatuses", ())


def _status(item: Object) -> dict[str, Any]:
    return dict(item.get("status", {}))


def _words(cause: Object) -> str:
    """Return reason and message of a condition, a state or an event in one line, and what to do."""
    told = ": ".join(one_line(cause[key]) for key in ("reason", "message") if cause.get(key))
    return "; ".join(filter(None, (told, _REMEDIES.get(cause.get("reason", "")))))


def event_words(events: Sequence[Object]) -> str:
    """Return the newest of some events in words; "" if there is none."""
    newest = max(events, key=_time, default=None)
    return "" if newest is None else _words(newest)


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
