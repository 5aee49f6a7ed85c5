"""The load of this host or container: processors, memory and NVIDIA GPUs, for heartbeats."""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from distrl.machine import CONTROL_GROUP, allowed_cores, cpu_limit
from distrl.memory_backend.records import GpuLoad, HostLoad

_STAT, _MEMORY = Path("/proc/stat"), Path("/proc/meminfo")
MB = 1e6


class HostMeter:
    """Measures the load between two calls.

    Args:
        gpus: Whether to ask NVIDIA's driver, for which `distrl[gpu]` has the library.
    """

    def __init__(self, *, gpus: bool) -> None:
        self._gpus = _gpu_reader() if gpus else tuple
        self._cores = allowed_cores()
        self._before = self._processor_times()

    def read(self) -> HostLoad | None:
        """Return the load since the last call; None on systems without Linux' files about it."""
        memory = _memory_bytes()
        if self._before is None or memory is None:
            return None
        before, now = self._before, self._processor_times() or self._before
        self._before = now
        busy, whole = (new - old for new, old in zip(now, before, strict=True))
        return HostLoad(
            cores=self._cores,
            busy_share=round(min(max(busy / whole, 0.0), 1.0), 3) if whole > 0.0 else 0.0,
            memory_mb=round(memory[0] / MB, 1),
            memory_used_mb=round(memory[1] / MB, 1),
            gpus=self._gpus(),
        )

    def _processor_times(self) -> tuple[float, float] | None:
        """Return the time that all processors were busy and the time that there was, in one unit; None if unknown."""
        if cpu_limit() is not None and (used := _numbers(CONTROL_GROUP / "cpu.stat").get("usage_usec")) is not None:
            return used / 1e6, time.monotonic() * self._cores
        try:
            with _STAT.open() as file:
                times = [float(text) for text in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return None
        # user, nice, system, idle, iowait, irq, softirq, steal: idle and waiting for disks are not busy.
        return (sum(times) - times[3] - times[4], sum(times)) if len(times) == 8 else None


def _memory_bytes() -> tuple[float, float] | None:
    """Return all memory and what is used of it, without what the kernel can give back; None if unknown."""
    told = _numbers(_MEMORY, 1024.0)
    if not told.keys() >= {"MemTotal:", "MemAvailable:"}:
        return None
    total = told["MemTotal:"]
    with contextlib.suppress(OSError, ValueError):
        limit = float((CONTROL_GROUP / "memory.max").read_text())  # ValueError: "max"
        used = float((CONTROL_GROUP / "memory.current").read_text())
        if limit < total:
            return limit, max(used - _numbers(CONTROL_GROUP / "memory.stat").get("inactive_file", 0.0), 0.0)
    return total, total - told["MemAvailable:"]


def _numbers(path: Path, unit: float = 1.0) -> Mapping[str, float]:
    """Return name -> number of a file with a pair a line; empty if it cannot be read."""
    try:
        pairs = [line.split()[:2] for line in path.read_text().splitlines()]
        return {name: float(number) * unit for name, number in pairs}
    except (OSError, ValueError):  # another system or another version of the kernel
        return {}


def _gpu_reader() -> Callable[[], tuple[GpuLoad, ...]]:
    """Return a function that reads the load of all GPUs; without library, driver or GPU it returns none."""
    try:
        import pynvml as nvml  # of the extra gpu, and 20 ms: where there is no GPU nothing needs it
    except ImportError:
        return tuple
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
        names = [str(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    except nvml.NVMLError:  # no driver
        return tuple

    def read() -> tuple[GpuLoad, ...]:
        try:
            return tuple(_load_of(nvml, handle, name) for handle, name in zip(handles, names, strict=True))
        except nvml.NVMLError:  # such as a GPU that has been taken away
            return ()

    return read


def _load_of(nvml: object, handle: object, name: str) -> GpuLoad:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)  # type: ignore[attr-defined]
    busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu  # type: ignore[attr-defined]
    return GpuLoad(name, busy / 100, round(memory.total / MB, 1), round(memory.used / MB, 1))
