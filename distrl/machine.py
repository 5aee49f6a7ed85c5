"""The hardware of this machine."""

import contextlib
import os
import platform
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Files of control groups, version 2; in a container they are its own."""
_GPUS, _PROCESSORS = Path("/proc/driver/nvidia/gpus"), Path("/proc/cpuinfo")


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_limit() -> float | None:
    """Return the processor time that the container may use, in cores; None without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (CONTROL_GROUP / "cpu.max").read_text().split()
        return float(quota) / float(period)  # ValueError: "max"
    return None


def allowed_cores() -> float:
    """Return the number of cores that this process may use within the limit of its container."""
    limit = cpu_limit()
    return float(cores()) if limit is None else min(limit, float(cores()))


def cpu_model() -> str:
    """Name of the processor."""
    named = [line.partition(":")[2].strip() for line in _lines(_PROCESSORS) if line.startswith("model name")]
    return named[0] if named else platform.machine()


def gpu_models() -> tuple[str, ...]:
    """Names of NVIDIA GPUs."""
    files = sorted(_GPUS.glob("*/information"))
    return tuple(line.partition(":")[2].strip() for path in files for line in _lines(path) if line.startswith("Model:"))


def memory_bytes() -> int | None:
    """Total memory; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # a name that this system does not know
        return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # another system, or a container that hides it
        return []
