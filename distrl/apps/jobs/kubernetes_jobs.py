"""The target `kubernetes`: a release of the Helm chart, whose learner is a Job and whose actors are a Deployment.

The Pods have the run's directory and its Redis. Nothing of the cluster but its API has to be reached from here.
"""

import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace

from distrl.apps.config.kubernetes import at
from distrl.apps.jobs import kubernetes_commands as kubernetes
from distrl.apps.jobs.kubernetes_checks import pods_for
from distrl.apps.jobs.kubernetes_commands import COMPONENT, INSTANCE, ClusterNamespace, Object, of_release
from distrl.apps.jobs.kubernetes_log import PodLogs
from distrl.apps.jobs.kubernetes_plan import plan_of
from distrl.apps.jobs.kubernetes_state import (
    LEARNER,
    STOPPED,
    event_words,
    lacking,
    may_have_begun,
    state_of,
    stopped_words,
)
from distrl.apps.jobs.kubernetes_values import Release, release_of, run_dir_of
from distrl.apps.jobs.record import Job, JobRecord, OpenRecord
from distrl.apps.jobs.target import OVER, JobState, LogLine, Plan, Report, State
from distrl.errors import ConfigError, DistrlError
from distrl.roles.plan import ACTORS_ON_CLUSTER

ACTOR, DASHBOARD = "actor", "dashboard"
SECRET_KEYS = (
    *("run-key", "dashboard-token", "dashboard-read-only-token", "serve-token"),
    *(f"redis-{role}-password" for role in ("learner", "actor", "operator")),
)
"""Keys of the Secret that distrl makes for a job, each 64 hexadecimal digits."""
_NAMESPACE, _SECRET, _PER_POD, _MOST, _FOLLOWS = "namespace", "secret", "actors_per_pod", "most_actors", "keda"
_CLAIMS = "earlier_claims"
_BATCH, _APPS, _CORE = "apis/batch/v1", "apis/apps/v1", "api/v1"


class KubernetesJobs:
    """Jobs on Kubernetes. The address is a context of the user's kubeconfig."""

    name = "kubernetes"
    starts_actors = False  # KEDA follows the run, and no command
    logs: tuple[str, ...] | None = ("job", "actor", "actors")

    def plan(self, job: Job) -> Plan:
        """Return the plan: values and manifests."""
        return plan_of(job)

    def submit(self, job: Job, record: OpenRecord, report: Report) -> None:
        """Make a Secret, and install the release."""
        release = release_of(job)
        place, config = release.place, job.config
        claims = _claims(place, job.run_id)
        _check_claims(job, release, claims)
        taken = _taken(job.run_id, f"a release in namespace {place.name} has this name")
        if kubernetes.is_installed(place, job.run_id):
            raise taken
        handles = {
            _NAMESPACE: place.name,
            _PER_POD: str(config.kubernetes.per_pod),
            _MOST: str(config.actors.max_count or ACTORS_ON_CLUSTER),
            _SECRET: release.secret or "",
            _CLAIMS: " ".join(claims),
            _FOLLOWS: "yes" if at(config.kubernetes.values, "autoscaling.enabled") else "no",
        }
        record.write(address=place.context, run_dir=run_dir_of(job.run_id), handles=handles)
        _make_secret(job, release)
        try:
            installed = kubernetes.install(place, job.run_id, release.values)
        except BaseException as error:
            _undo(place, job.run_id, release.secret, claims, error)
            raise
        if not installed:  # another one was, meanwhile
            _delete_secret(place, release.secret)
            raise taken
        report(f"release {job.run_id} in namespace {place.name} at context {place.context}")

    def withdraw(self, record: JobRecord) -> None:
        """Remove the release, with its claims."""
        before = record.handle(_CLAIMS).split()
        _remove(_place(record), record.run_id, record.handle(_SECRET), before)

    def state(self, record: JobRecord) -> JobState:
        """Return the state by the learner's Job and its Pods, and why others of a job that runs do not start."""
        found = self._state_of_learner(record)
        if found.state != "running":
            return found
        place, chosen = _place(record), {"labelSelector": of_release(record.run_id)}
        pods = kubernetes.listed(place, _CORE, "pods", **chosen)
        return replace(found, reason=lacking(pods, kubernetes.listed(place, _APPS, "deployments", **chosen)))

    def _state_of_learner(self, record: JobRecord) -> JobState:
        place, (job, pods) = _place(record), _learner(record)

        def warning(name: str) -> str:
            chosen = f"involvedObject.name={name},type=Warning"
            return event_words(kubernetes.listed(place, _CORE, "events", fieldSelector=chosen))

        found = replace(state_of(job, pods, warning), may_have_begun=_may_have_begun(record, job, pods))
        if job is None or found.state not in OVER:
            return found
        return replace(found, reason="; ".join(part for part in (found.reason, _left(record)) if part))

    def log(self, record: JobRecord, *, follow: bool) -> Iterator[LogLine] | None:
        """Return the lines that the Pods of learner and actors have printed."""
        place, release = _place(record), of_release(record.run_id)
        selector = f"{release},{COMPONENT} in ({LEARNER},{ACTOR})"
        if not kubernetes.listed(place, _CORE, "pods", labelSelector=selector):
            return None
        logs = PodLogs(lambda since: kubernetes.log_of(place, selector, since))
        return logs.lines(lambda: not follow or self._is_over(record))

    def scale(self, record: JobRecord, actors: int, *, force: bool) -> None:
        """Set the number of Pods of the actors' Deployment."""
        self._require_not_over(record)
        most = int(record.handle(_MOST))
        if record.handle(_FOLLOWS) == "yes":
            raise ConfigError(
                f"KEDA sets the number of actors of {record.run_id}; give it bounds: distrl autoscale --min {actors} "
                f"--max {actors} {record.run_id}"
            )
        if actors > most and not force:
            raise ConfigError(
                f"actors: {actors} is more than this run may have, {most} (actors.max_count); if you mean it: distrl "
                f"scale {actors} --force"
            )
        pods = pods_for(actors, int(record.handle(_PER_POD)))
        if not self._set_pods(record, pods):
            raise ConfigError(f"{record.run_id} has no Deployment of actors: it learns from data, or that was deleted")

    def autoscale(self, record: JobRecord, least: int | None, most: int | None, *, off: bool) -> None:
        """Send the bounds to the run; KEDA follows its number."""
        self._require_not_over(record)
        if record.handle(_FOLLOWS) != "yes":
            raise ConfigError(
                f"nothing follows the number of actors that {record.run_id} wants: submit it with kubernetes.values: "
                "{autoscaling: {enabled: true, prometheusAddress: URL}}, which needs KEDA"
            )
        if off:
            raise ConfigError(
                f"KEDA follows {record.run_id} as long as its release is there; for a fixed number N: distrl autoscale "
                f"--min N --max N {record.run_id}"
            )
        bounds = {"--min": least, "--max": most}
        words = [word for name, count in bounds.items() if count is not None for word in (name, str(count))]
        self._request(record, "autoscale", *words, "--detach")

    def stop(self, record: JobRecord, *, now: bool) -> str | None:
        """Request the end of the run, and end the actors; before it has begun, and with `now`, remove the release.

        Between two starts of the learner there is no run to request it of: its Job is suspended.
        """
        waits = not now and self._require_not_over(record) == "waiting"
        job, pods = _learner(record) if waits else (None, [])
        if now or (waits and (job is None or not may_have_begun(job, pods))):
            removed = kubernetes.uninstall(_place(record), record.run_id)
            _delete_secret(_place(record), record.handle(_SECRET))  # also after a `helm uninstall` by hand
            if not removed:
                raise ConfigError(f"{record.run_id} does not run: there is no release of this name")
            return None if now else "its release was removed, as it had not begun"
        if job is not None:
            suspended = {"metadata": {"annotations": {STOPPED: "true"}}, "spec": {"suspend": True}}
            kubernetes.change(_place(record), "jobs", job["metadata"]["name"], suspended)
        else:
            self._request(record, "stop")
        if record.handle(_FOLLOWS) != "yes":
            self._set_pods(record, 0)
        return None if job is None else f"{stopped_words(job, pods)}; its Job is suspended; {_left(record)}"

    def _request(self, record: JobRecord, request: str, *words: str) -> None:
        """Send a request to the run from the dashboard's Pod, which may: the learner's Redis user may not."""
        place, selector = _place(record), of_release(record.run_id, DASHBOARD)
        pods = kubernetes.listed(place, _CORE, "pods", labelSelector=selector)
        ready = [pod for pod in pods if _is_ready(pod)]
        if not ready:
            raise ConfigError(
                f"{record.run_id}: the dashboard's Pod, from which requests are sent, is not ready; repeat the "
                f"command, or end the job: distrl stop {record.run_id} --now"
            )
        arguments = ready[0]["spec"]["containers"][0]["args"]
        url = arguments[arguments.index("--redis-url") + 1]
        command = ["distrl", request, "--redis-url", url, "--run-id", record.run_id, *words]
        kubernetes.execute(place, ready[0]["metadata"]["name"], DASHBOARD, command)

    def _set_pods(self, record: JobRecord, replicas: int) -> bool:
        """Set the number of the actors' Pods; return False if there is no Deployment of them."""
        place, selector = _place(record), of_release(record.run_id, ACTOR)
        found = kubernetes.listed(place, _APPS, "deployments", labelSelector=selector)
        for deployment in found:
            kubernetes.scale(place, deployment["metadata"]["name"], replicas)
        return bool(found)

    def _require_not_over(self, record: JobRecord) -> State:
        """Return the state.

        Raises:
            ConfigError: The job has ended.
        """
        state = self._state_of_learner(record)
        if state.state in OVER:
            raise ConfigError(f"{record.run_id} does not run: {state.reason}")
        return state.state

    def _is_over(self, record: JobRecord) -> bool:
        """Whether the job has ended; while the API does not answer, it has not."""
        try:
            return self._state_of_learner(record).state in OVER
        except DistrlError:
            return False


def _learner(record: JobRecord) -> tuple[Object | None, list[Object]]:
    """Return the learner's Job, None if there is none, and its Pods."""
    place, selector = _place(record), of_release(record.run_id, LEARNER)
    jobs = kubernetes.listed(place, _BATCH, "jobs", labelSelector=selector)
    return max(jobs, key=_made_at, default=None), kubernetes.listed(place, _CORE, "pods", labelSelector=selector)


def _may_have_begun(record: JobRecord, job: Object | None, pods: Sequence[Object]) -> bool:
    """Whether a learner may have begun; without a Job, which its cluster removes after its end, if it has claims."""
    if job is not None:
        return may_have_begun(job, pods)
    return not {*_claims(_place(record), record.run_id)} <= {*record.handle(_CLAIMS).split()}


def _left(record: JobRecord) -> str:
    return f"distrl stop {record.run_id} --now removes what is left of its release"


def _place(record: JobRecord) -> ClusterNamespace:
    if record.address is None:
        raise ConfigError(f"the record of {record.run_id} is damaged: it has no address")
    return ClusterNamespace(record.address, record.handle(_NAMESPACE))


def _claims(place: ClusterNamespace, run_id: str) -> list[str]:
    """Return the names of the claims of releases of this name, which outlive them."""
    found = kubernetes.listed(place, _CORE, "persistentvolumeclaims", labelSelector=of_release(run_id))
    return [claim["metadata"]["name"] for claim in found]


def _check_claims(job: Job, release: Release, claims: list[str]) -> None:
    """Raise ConfigError if a claim holds the directory of an earlier run of this id that the job does not name."""
    if claims and at(release.values, "persistence.existingClaim") not in claims:
        raise _taken(job.run_id, f"its files are in the claim {claims[0]} of namespace {release.place.name}")


def _make_secret(job: Job, release: Release) -> None:
    if release.secret is None:
        return
    labels = {"app.kubernetes.io/name": "distrl", INSTANCE: job.run_id}
    data = {key: b64encode(secrets.token_hex(32).encode()).decode() for key in SECRET_KEYS}
    content: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": release.secret, "labels": labels},
        "type": "Opaque",
        "data": data,
    }
    if not kubernetes.create(release.place, _secrets(release.place), content):
        raise _taken(job.run_id, f"the Secret {release.secret} of namespace {release.place.name} exists")


def _undo(
    place: ClusterNamespace, run_id: str, secret: str | None, claims: Sequence[str], error: BaseException
) -> None:
    """Remove what an installation has made before it failed.

    Args:
        claims: Those that were there before.

    Raises:
        ConfigError: That fails, too; the message has both errors.
    """
    try:
        _remove(place, run_id, secret, claims)
    except ConfigError as left:
        raise ConfigError(f"{error}; its parts may be left (helm uninstall {run_id}): {left}") from error


def _remove(place: ClusterNamespace, run_id: str, secret: str | None, claims: Sequence[str]) -> None:
    """Remove a release, its Secret and its claims but those that were there before."""
    kubernetes.uninstall(place, run_id)
    for claim in _claims(place, run_id):
        if claim not in claims:
            kubernetes.delete(place, f"/{_CORE}/namespaces/{place.name}/persistentvolumeclaims/{claim}")
    _delete_secret(place, secret)


def _delete_secret(place: ClusterNamespace, name: str | None) -> None:
    """Delete the Secret that distrl has made; none if there is no name."""
    if name:
        kubernetes.delete(place, f"{_secrets(place)}/{name}")


def _secrets(place: ClusterNamespace) -> str:
    return f"/{_CORE}/namespaces/{place.name}/secrets"


def _taken(run_id: str, why: str) -> ConfigError:
    return ConfigError(f"the run id {run_id} is taken: {why}; choose another --run-id")


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _made_at(item: Object) -> str:
    return str(item["metadata"].get("creationTimestamp", ""))
