"""Containers of distrl's images on hosts of their own, by crun, as strictly as a cluster would run them."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil

from image.build import build, missing_packages, parts, storage
from tests.faults.hosts import Host

RUNTIME = "crun"
MASKED = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug")
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
NO_RIGHTS: dict[str, list[str]] = {
    kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
}


def missing_for_containers() -> str | None:
    """Return the Debian packages that are missing to build and run images, as a reason to skip; or None."""
    missing = missing_packages("buildah", "mmdebstrap", RUNTIME)
    return f"install {' '.join(missing)}: sudo apt-get install {' '.join(missing)}" if missing else None


class Image:
    """An image, built unless it is there, with its files mounted for reading.

    Attributes:
        config: What the image says about itself, in Docker's terms: User, Env, Entrypoint, Healthcheck, Labels …
        root: Its files.
    """

    def __init__(self, target: str) -> None:
        """Build it; raise image.build.ImageError if that fails."""
        self.archive = build(target)
        with parts(self.archive) as (config, _):
            self.config: dict[str, Any] = config["config"]
        self._container = _buildah("from", "--pull-never", f"localhost/distrl/{target}")
        self.root = Path(_buildah("mount", self._container))

    def close(self) -> None:
        _buildah("rm", self._container)


def _buildah(*arguments: str) -> str:
    command = ["buildah", *storage(), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Container:
    """A container that runs on a host: with its network, and its own processes, IPC and mounts.

    Its user and variables are the image's. Its root file system is read-only, it has no capabilities and cannot get new
    rights, and it may write to /tmp, /dev/shm and what `volumes` says. Seccomp is not used: some kernels lack it.

    Attributes:
        process: The runtime, which ends with the container's exit code.
        output: What the container has printed.
        address: Of the host.
    """

    def __init__(
        self, image: Image, host: Host, *command: str, volumes: dict[str, Path], directory: Path, **variables: str
    ) -> None:
        """Start the image's entrypoint with `command`.

        Args:
            volumes: Path in the container -> directory of this machine.
            directory: Takes the container's files and its output.
        """
        self.address = host.address
        self._image, self._name, self._state = image, f"{host.name}-{os.getpid()}", directory / "state"
        bundle = directory / f"{host.name}.bundle"
        bundle.mkdir()
        told = [*image.config["Env"], *(f"{name}={value}" for name, value in variables.items())]
        arguments = [*image.config["Entrypoint"], *command]
        specification = _specification(image, host, arguments, told, volumes)
        (bundle / "config.json").write_text(json.dumps(specification))
        self.output = directory / f"{host.name}.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*self._crun, "run", "--bundle", str(bundle), self._name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"]},
            )

    @property
    def _crun(self) -> list[str]:
        return [RUNTIME, "--cgroup-manager=disabled", "--root", str(self._state)]

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as a probe does, as its user."""
        return subprocess.run([*self._crun, "exec", self._name, *command], capture_output=True, text=True)

    def check_health(self) -> subprocess.CompletedProcess[str]:
        """Run the image's health check."""
        kind, *command = self._image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.execute(*command)

    @property
    def pid(self) -> int:
        """Return the number of the container's first process, in this machine's numbers."""
        state = subprocess.run([*self._crun, "state", self._name], check=True, capture_output=True, text=True).stdout
        return int(json.loads(state)["pid"])

    def signal(self, number: int) -> None:
        """Send a signal to every process of the container."""
        first = psutil.Process(self.pid)
        for process in [first, *first.children(recursive=True)]:
            process.send_signal(number)

    def end(self) -> None:
        """Kill whatever still runs in it."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)  # the kernel kills the others
            self.process.wait()


def _specification(
    image: Image, host: Host, arguments: list[str], variables: list[str], volumes: dict[str, Path]
) -> dict[str, Any]:
    """Return the container's description in OCI's terms."""
    user, group = map(int, image.config["User"].split(":"))
    private = [{"type": kind} for kind in ("pid", "ipc", "mount")]
    return {
        "ociVersion": "1.0.2",
        "hostname": host.name,
        "process": {
            "user": {"uid": user, "gid": group},
            "args": arguments,
            "env": variables,
            "cwd": image.config["WorkingDir"],
            "capabilities": NO_RIGHTS,
            "noNewPrivileges": True,
        },
        "root": {"path": str(image.root), "readonly": True},
        "mounts": [
            _mount("/proc", "proc"),
            _mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
            _mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", "size=65536k"),
            _mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777"),
            {"destination": "/etc/hosts", "source": str(host.names), "type": "bind", "options": ["bind", "ro"]},
            *(
                {"destination": place, "source": str(source), "type": "bind", "options": ["bind", "rw"]}
                for place, source in volumes.items()
            ),
        ],
        "linux": {
            "namespaces": [
                *private,
                {"type": "network", "path": f"/proc/{host.pid}/ns/net"},
                {"type": "uts", "path": f"/proc/{host.pid}/ns/uts"},
            ],
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
        },
    }


def _mount(place: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": place, "type": kind, "source": kind, "options": list(options)}
