"""The load of a host or container, from the kernel's files and from NVIDIA's library."""

import sys
from types import SimpleNamespace

import pytest

from distrl import machine
from distrl.memory_backend.records import GpuLoad
from distrl.roles import host_load
from distrl.roles.host_load import HostMeter

MEMORY = "MemTotal: 4000 kB\nMemFree: 100 kB\nMemAvailable: 3000 kB\n"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A directory whose files stand for the kernel's, and a function that writes them."""
    for name, place in (("_STAT", "stat"), ("_MEMORY", "meminfo"), ("CONTROL_GROUP", "group")):
        monkeypatch.setattr(host_load, name, tmp_path / place)
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path / "group")
    (tmp_path / "group").mkdir()
    monkeypatch.setattr(machine, "cores", lambda: 8)

    def write(**files):
        for name, text in files.items():
            (tmp_path / name.replace("__", "/").replace("_", ".")).write_text(text)

    write(meminfo=MEMORY)
    return write


def test_processors_are_busy_with_all_but_idle_and_waiting_for_disks(kernel):
    kernel(stat="cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 2\n")
    meter = HostMeter(gpus=False)
    kernel(stat="cpu  130 5 60 840 60 2 2 1 9 9\ncpu0 1 2\n")  # 50 of 100
    load = meter.read()
    assert (load.cores, load.busy_share, load.gpus) == (8.0, 0.5, ())
    assert (load.memory_mb, load.memory_used_mb) == (4.1, 1.0)  # 4,096,000 and 1,024,000 bytes
    assert meter.read().busy_share == 0.0  # no time has passed


def test_a_container_is_measured_by_its_own_limits(kernel, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(host_load, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kernel(group__cpu_max="250000 100000\n", group__cpu_stat="usage_usec 1000000\nuser_usec 5\n")
    limits = {"group__memory_max": "2000000\n", "group__memory_current": "1500000\n"}
    kernel(**limits, group__memory_stat="anon 7\ninactive_file 500000\n")
    meter = HostMeter(gpus=False)
    now[0] = 102.0
    kernel(group__cpu_stat="usage_usec 2000000\nuser_usec 5\n")  # one second of two on 2.5 cores
    load = meter.read()
    assert (load.cores, load.busy_share) == (2.5, 0.2)
    assert (load.memory_mb, load.memory_used_mb) == (2.0, 1.0)


def test_a_container_without_limits_is_its_host(kernel):
    kernel(stat="cpu  0 0 0 0 0 0 0 0\n", group__cpu_max="max 100000\n", group__memory_max="max\n")
    meter = HostMeter(gpus=False)
    kernel(stat="cpu  1 0 0 3 0 0 0 0\n")
    load = meter.read()
    assert (load.cores, load.busy_share, load.memory_mb) == (8.0, 0.25, 4.1)


@pytest.mark.parametrize("files", [{}, {"stat": "cpu  1\n"}, {"stat": "cpu  a\n"}, {"stat": "cpu  1 1 1 1 1 1 1 1\n"}])
def test_another_system_tells_nothing(kernel, files):
    kernel(meminfo="MemTotal: 4000 kB\n", **files)
    assert HostMeter(gpus=False).read() is None


def test_this_system_tells():
    load = HostMeter(gpus=True).read()
    assert 0.0 <= load.busy_share <= 1.0
    assert 0.0 < load.memory_used_mb < load.memory_mb


class Driver:
    """Stands for the module pynvml on a host with two GPUs."""

    class NVMLError(Exception):
        pass

    fails = None

    def __getattr__(self, name):
        def call(*arguments):
            if self.fails == name:
                raise self.NVMLError(name)
            return {
                "nvmlInit": lambda: None,
                "nvmlDeviceGetCount": lambda: 2,
                "nvmlDeviceGetHandleByIndex": lambda number: number,
                "nvmlDeviceGetName": "NVIDIA H{}".format,
                "nvmlDeviceGetMemoryInfo": lambda number: SimpleNamespace(total=80 * 10**9, used=number * 10**9),
                "nvmlDeviceGetUtilizationRates": lambda number: SimpleNamespace(gpu=25 * number),
            }[name](*arguments)

        return call


def test_gpus_are_told_where_there_is_the_library(kernel, monkeypatch):
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    kernel(stat="cpu  0 0 0 0 0 0 0 0\n")
    meter = HostMeter(gpus=True)
    both = (GpuLoad("NVIDIA H0", 0.0, 80_000.0, 0.0), GpuLoad("NVIDIA H1", 0.25, 80_000.0, 1000.0))
    assert meter.read().gpus == both
    assert HostMeter(gpus=False).read().gpus == ()
    driver.fails = "nvmlDeviceGetMemoryInfo"
    assert meter.read().gpus == ()
    driver.fails = "nvmlInit"
    assert HostMeter(gpus=True).read().gpus == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert HostMeter(gpus=True).read().gpus == ()
