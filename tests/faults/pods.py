"""Pods as a kubelet runs them: containers by crun, with volumes, probes and restarts, in namespaces of their own.

Every field of a Pod is either followed or listed here as one that means nothing on this one machine; an unknown one
is an error. Seccomp is not used: some kernels lack it.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from tests.faults.hosts import Host
from tests.faults.volumes import Volume
from tests.waiting import lasts

Object = Mapping[str, Any]
RUNTIME = "crun"
MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug")
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
TICK_S = 0.05
FIRST_BACK_OFF_S, MOST_BACK_OFF_S, CALM_S = 10.0, 300.0, 600.0
"""Wait before a container's second restart, which doubles with each; the most; a run of this length begins anew."""
MEANINGLESS = {"serviceAccountName", "enableServiceLinks", "imagePullSecrets", "nodeSelector", "tolerations"}
MEANINGLESS |= {"affinity", "priorityClassName", "topologySpreadConstraints"}
FOLLOWED = {
    "initContainers",
    "containers",
    "volumes",
    "securityContext",
    "restartPolicy",
    "terminationGracePeriodSeconds",
}
FOLLOWED |= {"activeDeadlineSeconds", "automountServiceAccountToken"}
OF_CONTAINERS = {"name", "image", "command", "args", "env", "envFrom", "ports", "securityContext", "volumeMounts"}
OF_CONTAINERS |= {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "imagePullPolicy", "resources"}
OF_CONTAINERS |= {"terminationMessagePolicy"}
OF_PROBES = {"exec", "httpGet", "initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"}
_numbers = count()
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
USUAL_RIGHTS = ["CAP_CHOWN", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_NET_BIND_SERVICE"]


@dataclass(frozen=True)
class Files:
    """The files of an image, and what it says about itself.

    Attributes:
        root: Folder that becomes the root of a container.
        shared: Folders and files of this machine that are there, too, for reading: place -> source.
    """

    root: Path
    entrypoint: tuple[str, ...]
    env: Mapping[str, str]
    directory: str = "/"
    user: tuple[int, int] = (0, 0)
    shared: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Placed:
    """The things that a Pod gets from its cluster: a network, volumes, the values behind `valueFrom`, and images.

    Attributes:
        speed: Periods of probes and back-offs are divided by it. Time-outs, deadlines and grace periods are not.
    """

    host: Host
    volumes: Mapping[str, Volume]
    files: Mapping[str, Files]
    variables: Mapping[str, Mapping[str, str]]
    directory: Path
    hosts_file: Path
    speed: float


class Container:
    """A container of a Pod, started again as the Pod's policy says.

    Attributes:
        exits: Exit codes, in order; a signal is 128 and its number.
        waits_s: Back-offs before restarts, as written.
        probed: (probe, passed) -> count.
        ready: Whether requests may come.
    """

    def __init__(self, pod: "Pod", spec: Object, placed: Placed, policy: str) -> None:
        _known(spec, OF_CONTAINERS)
        self.name: str = spec["name"]
        self.pod, self.spec, self._placed, self._policy = pod, spec, placed, policy
        self.exits: list[int] = []
        self.waits_s: list[float] = []
        self.probed: Counter[tuple[str, bool]] = Counter()
        self.ready = self.running = False
        self.output = placed.directory / f"{self.name}.out"
        self._files = placed.files[spec["image"]]
        self._process: subprocess.Popen[bytes] | None = None
        self._bundle = placed.directory / f"{self.name}.bundle"
        self._bundle.mkdir()
        self._id = f"{pod.name}.{self.name}"

    @property
    def log(self) -> str:
        """Everything that it has written."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def run(self) -> None:
        """Run it until it is not to be started again."""
        back_off_s = 0.0
        while not self.pod.ending.is_set():
            began = time.monotonic()
            code = self._run_once()
            self.exits.append(code)
            if self._policy == "Never" or (self._policy == "OnFailure" and code == 0):
                return
            if time.monotonic() - began > CALM_S / self._placed.speed:
                back_off_s = 0.0
            self.waits_s.append(back_off_s)
            self.pod.ending.wait(back_off_s / self._placed.speed)
            back_off_s = min(back_off_s * 2 or FIRST_BACK_OFF_S, MOST_BACK_OFF_S)

    def execute(self, *command: str, timeout_s: float = 60.0) -> tuple[int, str]:
        """Run a command in the container, as its user; return exit code and output; -1: the time was over."""
        process = self._bundle / f"exec.{next(_numbers)}.json"  # crun's own options would make it root
        process.write_text(json.dumps({**self._specification()["process"], "args": command}))
        there = self._crun("exec", "--process", str(process), self._id)
        with subprocess.Popen(there, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as done:
            try:
                output = done.communicate(timeout=timeout_s)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(done.pid, signal.SIGKILL)
                return -1, f"no answer within {timeout_s:g} s"
            finally:
                process.unlink()
        return done.returncode, output

    def signal(self, number: int) -> None:
        """Send a signal to every process of the container."""
        for process in self.processes():
            process.send_signal(number)

    def processes(self) -> list[psutil.Process]:
        """Return its processes, the first one first."""
        assert self._process is not None
        below = psutil.Process(self._process.pid).children(recursive=True)
        return [process for process in below if process.name() != RUNTIME]

    def _run_once(self) -> int:
        (self._bundle / "config.json").write_text(json.dumps(self._specification()))
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._crun("run", "--bundle", str(self._bundle), self._id),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        while self._process.poll() is None and self._state() != "running":
            lasts(TICK_S)
        self.running = True
        probes = Probing(self, self._placed.speed)
        while (code := self._process.poll()) is None:
            if self.pod.ending.is_set():
                code = self._terminate()
                break
            if (why := probes.look()) is not None:
                self.pod.report(f"{self.name} is killed: {why}")
                code = self._terminate()
                break
            lasts(TICK_S)
        self.running = False
        self.set_ready(False)
        self.pod.report(f"{self.name} has ended with {code}")
        return code

    def set_ready(self, ready: bool) -> None:
        if ready != self.ready:
            self.ready = ready
            self.pod.report(f"{self.name} is {'ready' if ready else 'not ready'}")
            self.pod.changed()

    def _terminate(self) -> int:
        """End it as a kubelet does: preStop, SIGTERM, and SIGKILL at the end of the grace period."""
        assert self._process is not None
        deadline = time.monotonic() + self.pod.grace_s
        if (handler := self.spec.get("lifecycle", {}).get("preStop")) is not None:
            _known(handler, {"exec"})
            self.execute(*handler["exec"]["command"], timeout_s=self.pod.grace_s)
        self._output_of("kill", self._id, "TERM")
        try:
            return self._process.wait(max(deadline - time.monotonic(), 2.0))
        except subprocess.TimeoutExpired:
            self.pod.report(f"{self.name} outlives its grace period of {self.pod.grace_s:g} s")
            self._output_of("kill", self._id, "KILL")
            return self._process.wait()

    def _state(self) -> str:
        state = self._output_of("state", self._id)
        return str(json.loads(state)["status"]) if state else "absent"

    def _crun(self, *arguments: str) -> list[str]:
        state = str(self._placed.directory / "state")
        return self._placed.host.enter(RUNTIME, "--cgroup-manager=disabled", "--root", state, *arguments)

    def _output_of(self, *arguments: str) -> str:
        return subprocess.run(self._crun(*arguments), capture_output=True, text=True).stdout

    def _variables(self) -> dict[str, str]:
        told = dict(self._files.env) | {"HOSTNAME": self.pod.name} | self._placed.variables["cluster"]
        for source in self.spec.get("envFrom", ()):
            told |= self._placed.variables[_key_of(source)]
        for variable in self.spec.get("env", ()):
            _known(variable, {"name", "value", "valueFrom"})
            if "valueFrom" in variable:
                told[variable["name"]] = self._value_from(variable["valueFrom"])
            else:
                told[variable["name"]] = variable.get("value", "")
        return told

    def _value_from(self, source: Object) -> str:
        if "fieldRef" in source:
            return self._placed.variables["fields"][source["fieldRef"]["fieldPath"]]
        (reference,) = source.values()
        return self._placed.variables[_key_of(source)][reference["key"]]

    def _specification(self) -> Object:
        """Return the container's description in OCI's terms."""
        context = {**self.pod.security_context, **self.spec.get("securityContext", {})}
        _known(
            context,
            {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "seccompProfile"}
            | {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "privileged", "capabilities"},
        )
        user, group = context.get("runAsUser", self._files.user[0]), context.get("runAsGroup", self._files.user[1])
        assert user or not context.get("runAsNonRoot"), f"{self._id} runs as root"
        assert not context.get("privileged"), f"{self._id} is privileged"
        variables = self._variables()
        command = self.spec.get("command", self._files.entrypoint)
        arguments = [_expanded(word, variables) for word in (*command, *self.spec.get("args", ()))]
        rights = [] if "ALL" in context.get("capabilities", {}).get("drop", ()) else USUAL_RIGHTS
        return {
            "ociVersion": "1.0.2",
            "hostname": self.pod.name,
            "process": {
                "user": {
                    "uid": user,
                    "gid": group,
                    "additionalGids": [context["fsGroup"]] if "fsGroup" in context else [],
                },
                "args": arguments,
                "env": [f"{name}={value}" for name, value in variables.items()],
                "cwd": self._files.directory,
                "capabilities": {kind: rights if not user else [] for kind in ("effective", "permitted", "ambient")}
                | {"bounding": rights, "inheritable": []},
                "noNewPrivileges": not context.get("allowPrivilegeEscalation", True),
            },
            "root": {"path": str(self._files.root), "readonly": bool(context.get("readOnlyRootFilesystem"))},
            "mounts": [*self._mounts()],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "mount", "uts")],
                "maskedPaths": list(MASKED),
                "readonlyPaths": list(READ_ONLY),
            },
        }

    def _mounts(self) -> Iterator[Object]:
        yield _mount("/proc", "proc")
        yield _mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k")
        yield _mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", "size=65536k")
        yield _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro")
        for place, source in (*self._files.shared, ("/etc/hosts", str(self._placed.hosts_file))):
            yield _bind(place, source, is_read_only=True)
        mounts = [*self.spec.get("volumeMounts", ())]
        if "token" in self._placed.volumes:
            mounts.append({"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"})
        for mount in mounts:
            _known(mount, {"name", "mountPath", "readOnly"})
            volume = self._placed.volumes[mount["name"]]
            yield _bind(mount["mountPath"], str(volume.path), is_read_only=volume.is_read_only or mount.get("readOnly"))


class Probing:
    """The probes of one start of a container: when they are due, and what follows from them."""

    def __init__(self, container: Container, speed: float) -> None:
        self._container, self._speed, self._began = container, speed, time.monotonic()
        self._probes = {name: container.spec[name] for name in PROBES if name in container.spec}
        for probe in self._probes.values():
            _known(probe, OF_PROBES)
        self._failures: Counter[str] = Counter()
        self._due = {name: self._first_due(probe) for name, probe in self._probes.items()}
        self._started = "startupProbe" not in self._probes

    def _first_due(self, probe: Object) -> float:
        return time.monotonic() + probe.get("initialDelaySeconds", 0) / self._speed

    def look(self) -> str | None:
        """Run the probes that are due; return why the container must end, or None."""
        if self._started and "readinessProbe" not in self._probes:
            self._container.set_ready(True)
        for name, probe in self._probes.items():
            if (name == "startupProbe") == self._started or time.monotonic() < self._due[name]:
                continue
            passed, said = self._try(probe)
            self._due[name] = time.monotonic() + probe.get("periodSeconds", 10) / self._speed
            self._container.probed[name, passed] += 1
            self._failures[name] = 0 if passed else self._failures[name] + 1
            is_final = self._failures[name] >= probe.get("failureThreshold", 3)
            if not passed and (self._failures[name] == 1 or is_final):
                self._container.pod.report(f"{self._container.name}: {name} fails: {said.strip()}")
            if name == "startupProbe":
                self._started = passed
            elif name == "readinessProbe" and (passed or is_final):
                self._container.set_ready(passed)
            if is_final and name != "readinessProbe":
                return f"{name} has failed {self._failures[name]} times: {said.strip()}"
        return None

    def _try(self, probe: Object) -> tuple[bool, str]:
        timeout_s = probe.get("timeoutSeconds", 1)
        if "exec" in probe:
            code, said = self._container.execute(*probe["exec"]["command"], timeout_s=timeout_s)
            return code == 0, said
        _known(probe["httpGet"], {"path", "port"})
        port = probe["httpGet"]["port"]
        number = port if isinstance(port, int) else self._container.pod.ports[port]
        connection = http.client.HTTPConnection(self._container.pod.address, number, timeout=timeout_s)
        try:
            connection.request("GET", probe["httpGet"]["path"])
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return False, str(error)
        finally:
            connection.close()
        return 200 <= status < 400, f"status {status}"


class Pod:
    """A Pod; `run` runs its containers until they have ended for good.

    Attributes:
        phase: Pending, Running, Succeeded or Failed.
        disrupted: Whether its end is not its own fault, as at an eviction.
    """

    def __init__(self, name: str, spec: Object, placed: Placed, report: Any, changed: Any) -> None:
        _known(spec, FOLLOWED | MEANINGLESS)
        self.name, self.address = name, placed.host.address
        policy = spec.get("restartPolicy", "Always")
        self.grace_s = float(spec.get("terminationGracePeriodSeconds", 30))
        self.security_context: Object = spec.get("securityContext", {})
        self.phase, self.disrupted = "Pending", False
        self.ending = threading.Event()
        self._report, self.changed = report, changed
        self._deadline_s: float | None = spec.get("activeDeadlineSeconds")
        until_done = "Never" if policy == "Never" else "OnFailure"
        self.init_containers = [Container(self, each, placed, until_done) for each in spec.get("initContainers", ())]
        self.containers = [Container(self, each, placed, policy) for each in spec["containers"]]
        self.ports = {
            port["name"]: port["containerPort"] for each in spec["containers"] for port in each.get("ports", ())
        }

    @property
    def ready(self) -> bool:
        return all(container.ready for container in self.containers)

    @property
    def log(self) -> str:
        """The output of its containers."""
        return "".join(container.log for container in self.containers)

    def container(self, name: str) -> Container:
        return next(container for container in self.containers if container.name == name)

    def report(self, text: str) -> None:
        self._report(f"{self.name}: {text}")

    def run(self) -> None:
        """Run it to its end: its init containers one after the other, then the others together."""
        began = time.monotonic()
        self.phase = "Running"
        for containers in (*([each] for each in self.init_containers), self.containers):
            self._run_together(containers, began)
            if any(container.exits[-1:] != [0] for container in containers):
                self.phase = "Failed"
                return
        self.phase = "Succeeded"

    def _run_together(self, containers: Sequence[Container], began: float) -> None:
        threads = [threading.Thread(target=container.run, daemon=True) for container in containers]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if self._deadline_s is not None and time.monotonic() - began > self._deadline_s:
                self.report(f"it has run for {self._deadline_s} s: DeadlineExceeded")
                self.ending.set()
                self.disrupted = False
            threads[0].join(TICK_S)
            lasts(TICK_S)


def _known(found: Object, names: Sequence[str] | set[str]) -> None:
    if unknown := found.keys() - {*names}:
        raise ValueError(f"this kubelet does not know {', '.join(sorted(unknown))}")


def _key_of(source: Object) -> str:
    """Return kind and name of the object behind valueFrom or envFrom."""
    ((kind, reference),) = source.items()
    return f"{'Secret' if kind.startswith('secret') else 'ConfigMap'} {reference['name']}"


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), word)


def _mount(place: str, kind: str, *options: str) -> Object:
    return {"destination": place, "type": kind, "source": kind, "options": list(options)}


def _bind(place: str, source: str, *, is_read_only: bool | None) -> Object:
    options = ["rbind", "nosuid", "nodev", "ro" if is_read_only else "rw"]
    return {"destination": place, "type": "bind", "source": source, "options": options}
