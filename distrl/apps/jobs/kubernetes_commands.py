"""Kubernetes by two programs: helm for releases of the chart, kubectl for everything else. They know how to log in.

kubectl is mostly a client of single requests (`--raw`), which needs no discovery of the API and has one error each.
"""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from distrl.apps.jobs.target import NoAnswerError
from distrl.errors import ConfigError

QUERY_LIMIT_S = 9.0
CHANGE_LIMIT_S = 120.0
INSTANCE = "app.kubernetes.io/instance"
"""Label of all objects of a release: its name."""
COMPONENT = "app.kubernetes.io/component"
CHART = Path(__file__).parents[2] / "chart"
_LOGGED = re.compile(r"[EWIF]\d{4} |level=|Use --debug ")
_LABEL = re.compile(r"^(?:Error: |error: |INSTALLATION FAILED: |execution error at \([^)]*\): )+")
_IN_USE = re.compile(r"cannot re-?use a name that is still in use")
_ANSWERED = re.compile(r"Error from server|\(Unauthorized\)")
_NO_RELEASE = "release: not found"
_NO_NAMESPACE = re.compile(r'namespaces "[^"]*" not found$')
_NOT_FOUND = "(NotFound)"

Object = dict[str, Any]


@dataclass(frozen=True)
class ClusterNamespace:
    """A namespace of a cluster, which a context of the user's kubeconfig reaches; "": none does."""

    context: str
    name: str


def namespace_of(context: str | None, name: str | None) -> ClusterNamespace:
    """Return a namespace, by default that of the context; and the context, by default the current one.

    Raises:
        ConfigError: There is no such context.
    """
    chosen = [f"--context={context}"] if context else []
    done = _run("kubectl", "config", "view", "--minify", "--output=json", *chosen)
    if done.returncode and context is None:
        raise ConfigError("kubectl has no current context; name one of `kubectl config get-contexts` by --address")
    if done.returncode:
        raise ConfigError(f"kubectl knows no context {context!r}; `kubectl config get-contexts` lists them")
    found = json.loads(done.stdout)["contexts"][0]
    return ClusterNamespace(found["name"], name or found["context"].get("namespace") or "default")


def read(place: ClusterNamespace, path: str, **query: str) -> Object | None:
    """Return what the API has at a path; None if there is no such object.

    Raises:
        NoAnswerError: The API does not answer.
        ConfigError: It refuses.
    """
    target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
    done = _kubectl(place, "get", f"--raw={target}", f"--request-timeout={QUERY_LIMIT_S - 1:g}s")
    if done.returncode and _NOT_FOUND in done.stderr:
        return None
    error = ConfigError if _ANSWERED.search(done.stderr) else NoAnswerError
    _require_success(done, f"kubectl at context {place.context}", error)
    found: Object = json.loads(done.stdout)
    return found


def listed(place: ClusterNamespace, group: str, kind: str, **query: str) -> list[Object]:
    """Return the objects of a kind in a namespace.

    Args:
        group: Path of the API group, such as "apis/batch/v1".
        query: Such as labelSelector.
    """
    found = read(place, f"/{group}/namespaces/{place.name}/{kind}", **query)
    return [] if found is None else list(found["items"])


def of_release(release: str, component: str | None = None) -> str:
    """Return the selector of a release's objects, or of those of one component."""
    return f"{INSTANCE}={release}" + (f",{COMPONENT}={component}" if component else "")


def create(place: ClusterNamespace, path: str, content: Object) -> bool:
    """Create an object; return False if there is one of this name.

    Raises:
        ConfigError: The API does not answer or refuses.
    """
    done = _kubectl(place, "create", f"--raw={path}", "--filename=-", text=json.dumps(content), changes=True)
    if done.returncode and "(AlreadyExists)" in done.stderr:
        return False
    _require_success(done, "kubectl create")
    return True


def delete(place: ClusterNamespace, path: str) -> None:
    """Delete an object, if it is there."""
    done = _kubectl(place, "delete", f"--raw={path}", changes=True)
    if done.returncode and _NOT_FOUND not in done.stderr:
        _require_success(done, "kubectl delete")


def scale(place: ClusterNamespace, deployment: str, replicas: int) -> None:
    """Set the number of Pods of a Deployment."""
    words = ("scale", "deployment", deployment, f"--replicas={replicas}")
    _require_success(_kubectl(place, *words, changes=True), "kubectl scale")


def change(place: ClusterNamespace, kind: str, name: str, content: Object) -> None:
    """Merge fields into an object."""
    words = ("patch", kind, name, "--type=merge", f"--patch={json.dumps(content)}")
    _require_success(_kubectl(place, *words, changes=True), "kubectl patch")


def execute(place: ClusterNamespace, pod: str, container: str, command: Sequence[str]) -> None:
    """Run a command in a Pod.

    Raises:
        ConfigError: It fails, with its last line; or the Pod cannot be reached.
    """
    done = _kubectl(place, "exec", pod, f"--container={container}", "--", *command, changes=True)
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if not line.startswith("command terminated")]
        raise ConfigError(told[-1].removeprefix("distrl: error: ") if told else _words(done))


def log_of(place: ClusterNamespace, selector: str, since: str | None) -> str:
    """Return the lines of the Pods that a selector names, each with its Pod and time.

    Args:
        since: Time of the oldest line, as RFC 3339; None: all.
    """
    words = ["logs", f"--selector={selector}", "--prefix", "--timestamps", "--tail=-1", "--ignore-errors"]
    words += ["--max-log-requests=1000", *([f"--since-time={since}"] if since else [])]
    done = _kubectl(place, *words, changes=True)
    _require_success(done, "kubectl logs")
    return done.stdout


def rendered(place: ClusterNamespace, release: str, values: Mapping[str, Any]) -> str:
    """Return the chart's manifests with these values; the cluster is not asked.

    Raises:
        ConfigError: helm refuses the name of the release, or the chart a value.
    """
    done = _helm(place, "template", release, str(CHART.resolve()), "--values=-", text=json.dumps(values))
    _require_success(done, f"helm refuses the run id {release} or kubernetes.values")
    return done.stdout


def is_installed(place: ClusterNamespace, release: str) -> bool:
    """Whether there is a release of this name, also one whose installation has failed."""
    done = _helm(place, "status", release)
    if done.returncode and _NO_RELEASE in done.stderr:
        return False
    _require_success(done, "helm status")
    return True


def install(place: ClusterNamespace, release: str, values: Mapping[str, Any]) -> bool:
    """Install the chart; return False if there is a release of this name. What is made before an error is left.

    Raises:
        ConfigError: helm fails.
    """
    words = ("install", release, str(CHART.resolve()), "--values=-", "--hide-notes")
    done = _helm(place, *words, text=json.dumps(values))
    if done.returncode and _IN_USE.search(done.stderr):
        return False
    _require_success(done, "helm install")
    return True


def uninstall(place: ClusterNamespace, release: str) -> bool:
    """Remove a release; return False if there is none of this name. What the chart keeps (claims) stays."""
    done = _helm(place, "uninstall", release)
    if done.returncode and _NO_RELEASE in done.stderr:
        return False
    _require_success(done, "helm uninstall")
    return True


def _kubectl(
    place: ClusterNamespace, *words: str, text: str | None = None, changes: bool = False
) -> "subprocess.CompletedProcess[str]":
    where = (f"--context={place.context}", f"--namespace={place.name}")
    first, *rest = words  # before a `--` that ends the options
    return _run("kubectl", first, *where, *rest, text=text, limit_s=CHANGE_LIMIT_S if changes else QUERY_LIMIT_S)


def _helm(place: ClusterNamespace, *words: str, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    where = (*([f"--kube-context={place.context}"] if place.context else []), f"--namespace={place.name}")
    return _run("helm", *words, *where, text=text, limit_s=CHANGE_LIMIT_S)


def _run(
    program: str, *words: str, text: str | None = None, limit_s: float = QUERY_LIMIT_S
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [program, *words],
            input=text or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            start_new_session=True,  # Ctrl-C is for distrl, which ends in order
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{program} {words[0]} has had no answer of Kubernetes for {limit_s:g} s") from error
    except FileNotFoundError as error:
        raise ConfigError(f"--on kubernetes needs {program}, which is not on PATH; install it on this host") from error
    except OSError as error:
        raise ConfigError(f"{program} cannot be run: {error.strerror}") from error


def _require_success(
    done: "subprocess.CompletedProcess[str]", what: str, error: type[ConfigError] = ConfigError
) -> None:
    if done.returncode:
        raise error(f"{what}: {_words(done)}")


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the errors of a program in one line, without those that it logs on the way."""
    lines = [line.strip() for line in done.stderr.splitlines()]
    kept = [line for line in lines if line and not _LOGGED.match(line)]
    text = "; ".join(_LABEL.sub("", line) for line in kept)
    if _NO_NAMESPACE.search(text):
        text = f"{text}; make it, or set kubernetes.namespace"
    return text[:500] or f"it has ended with {done.returncode}"
