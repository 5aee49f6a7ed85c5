"""`distrl doctor`, findings about this machine: packages, cores, memory, GPU, limits of the system, disk."""

import os
import platform
import re
import resource
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from packaging.requirements import Requirement

from distrl import machine
from distrl.apps.doctor.findings import Finding
from distrl.errors import how_to_install
from distrl.learner.replay_set_up import available_bytes

GB = 1e9
LEAST_CORES = 2
LEAST_MEMORY = 2.0 * GB
"""Free memory of the smallest training: a learner of 0.7 GB and actors of 0.07 GB each."""
LEAST_DESCRIPTORS = 1024
LEAST_SHARED_MEMORY = 1.0 * GB
LEAST_DISK, NO_DISK = 5.0 * GB, 0.2 * GB
KEY_PACKAGES = ("numpy", "tensorflow", "tensorflow-cpu", "jax", "onnxruntime", "gymnasium", "redis", "ray")
_CGROUP = Path("/sys/fs/cgroup")
_SHARED_MEMORY = Path("/dev/shm")


def examine_machine(runs: Path) -> Iterator[Finding]:
    """Yield all findings about this machine; the folder of runs need not exist yet."""
    try:
        requires = metadata("distrl").get_all("Requires-Dist") or []
    except PackageNotFoundError:  # on PYTHONPATH alone
        yield Finding("warning", "packages", "distrl is not installed: what it needs is not known", how_to_install())
    else:
        yield from packages(requires)
        yield extras(requires)
    looks: Sequence[Callable[[], Finding]] = (cores, memory, gpu, shared_memory, descriptors, loopback)
    for look in looks:
        yield look()
    yield disk(runs)


def packages(requires: Sequence[str]) -> Iterator[Finding]:
    """Yield a line about the key packages, and one for each package of an untested version."""
    told = [f"Python {platform.python_version()}"]
    for name in KEY_PACKAGES:
        if (found := installed(name)) is not None:
            told.append(f"{name} {found}")
    yield Finding("ok", "packages", ", ".join(told))
    seen = set()
    for requirement, extra in _applying(requires):
        found = installed(requirement.name)
        if requirement.name in seen or (found is None and extra):
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        if found is None:
            yield Finding("error", requirement.name, "is not installed", f"pip install '{wanted}'")
        elif not requirement.specifier.contains(found, prereleases=True):
            seen.add(requirement.name)
            outside = f"{found} is not among the versions that distrl is tested with, {requirement.specifier}"
            yield Finding("warning" if extra else "error", requirement.name, outside, f"pip install '{wanted}'")


def extras(requires: Sequence[str]) -> Finding:
    """List distrl's extras that are installed completely, with the extras of other packages that they need."""
    names = _extras(requires)
    there = [name for name in names if all(_is_there(one, requires) for one in _of_extra(requires, name))]
    missing = [name for name in names if name not in there]
    if not {"cpu", "gpu", "jax"} & set(there):
        what = "neither cpu nor gpu nor jax: this machine can run actors, but no learner"
        return Finding("warning", "extras", what, how_to_install("cpu"))
    return Finding("ok", "extras", ", ".join(there) + (f"; not installed: {', '.join(missing)}" if missing else ""))


def installed(name: str) -> str | None:
    """Return the package's version; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _is_there(requirement: Requirement, requires: Sequence[str]) -> bool:
    """Return whether a package and all that its named extras need, distrl's own too, are installed."""
    if requirement.name == "distrl":
        inside = requires
    elif installed(requirement.name) is None:
        return False
    else:
        inside = _requirements_of(requirement.name) if requirement.extras else []
    return all(_is_there(one, requires) for extra in requirement.extras for one in _of_extra(inside, extra))


def _of_extra(requires: Sequence[str], extra: str) -> Iterator[Requirement]:
    """Yield the requirements that an extra adds on this Python and system; "": those without any."""
    for requirement in map(Requirement, requires):
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if always == (not extra) and (marker is None or marker.evaluate({"extra": extra})):
            yield requirement


def _requirements_of(name: str) -> Sequence[str]:
    try:
        return metadata(name).get_all("Requires-Dist") or []
    except PackageNotFoundError:
        return []


def _extras(requires: Sequence[str]) -> list[str]:
    """Return the names of distrl's extras for users."""
    markers = [str(Requirement(text).marker) for text in requires]
    return sorted({extra for marker in markers for extra in re.findall(r'extra == "([^"]+)"', marker)} - {"dev"})


def _applying(requires: Sequence[str]) -> Iterator[tuple[Requirement, str]]:
    """Yield (requirement, extra that adds it, "" for none) on this Python and system, without distrl itself."""
    for extra in ("", *_extras(requires)):
        for requirement in _of_extra(requires, extra):
            if requirement.name != "distrl":
                yield requirement, extra


def cores() -> Finding:
    """Check the cores that this process and its container may use."""
    count = machine.cores()
    quota, period = [*_words(_CGROUP / "cpu.max"), "max", "max"][:2]
    usable = min(count, int(quota) / int(period)) if quota.isdigit() and period.isdigit() else count
    told = f"{count}" + (f", of which the container may use {usable:g}" if usable < count else "")
    if usable < LEAST_CORES:
        return Finding("warning", "cores", told, "the learner and the actors take turns; expect half the speed or less")
    return Finding("ok", "cores", told)


def memory() -> Finding:
    """Check free memory of this machine, or of its container."""
    free = available_bytes()
    if free is None:
        return Finding("ok", "memory", "not known on this system")
    if free < LEAST_MEMORY:
        advice = "a learner takes about 0.7 GB and each actor 0.07 GB; end something else, or use fewer actors"
        return Finding("warning", "memory", f"{free / GB:.1f} GB free", advice)
    return Finding("ok", "memory", f"{free / GB:.1f} GB free")


def gpu() -> Finding:
    """Name NVIDIA GPUs, and check whether the installed TensorFlow can use them."""
    models = machine.gpu_models()
    if not models:
        return Finding("ok", "GPU", "none; the learner computes on the processor")
    if installed("tensorflow") is None:
        told = f"{', '.join(models)}, which the installed TensorFlow is not built for"
        return Finding("warning", "GPU", told, how_to_install("gpu"))
    return Finding("ok", "GPU", ", ".join(models))


def shared_memory() -> Finding:
    """Check shared memory, where Ray keeps the objects of its processes."""
    if not _SHARED_MEMORY.is_dir():
        return Finding("ok", "shared memory", "none on this system")
    free = shutil.disk_usage(_SHARED_MEMORY).free
    told = f"{free / GB:.1f} GB free in {_SHARED_MEMORY}"
    if installed("ray") is not None and free < LEAST_SHARED_MEMORY:
        return Finding(
            "warning", "shared memory", told, "Ray wants more: docker run --shm-size=2g, or launcher process"
        )
    return Finding("ok", "shared memory", told)


def descriptors() -> Finding:
    """Check the limit of open files and sockets of one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = f"{'no limit' if soft == resource.RLIM_INFINITY else f'{soft:,}'} per process"
    if soft != resource.RLIM_INFINITY and soft < LEAST_DESCRIPTORS:
        more = hard if hard != resource.RLIM_INFINITY else 65536
        return Finding("warning", "file descriptors", told, f"ulimit -n {more}")
    return Finding("ok", "file descriptors", told)


def loopback() -> Finding:
    """Check that a program can listen on the loopback address, as Ray and environment servers do."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return Finding("ok", "ports", "127.0.0.1 can be listened on")
    except OSError as error:
        why = f"127.0.0.1 cannot be listened on: {error.strerror}"
        return Finding("warning", "ports", why, "launcher ray and distrl serve-env will not work here")


def disk(runs: Path) -> Finding:
    """Check the free disk space for checkpoints."""
    there = next(path for path in (runs, *runs.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    told = f"{free / GB:.1f} GB free at {runs.absolute()}"
    if not os.access(there, os.W_OK):
        return Finding("error", "disk", f"{there.absolute()} cannot be written to", "name another place: --run-dir DIR")
    if free < LEAST_DISK:
        advice = "remove old runs, name another place with --run-dir, or lower checkpoint.keep"
        return Finding("error" if free < NO_DISK else "warning", "disk", told, advice)
    return Finding("ok", "disk", told)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []
