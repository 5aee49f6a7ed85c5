import os
import platform

from distrl import machine


def test_the_processor_as_the_kernel_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_PROCESSORS", tmp_path / "cpuinfo")
    assert machine.cpu_model() == platform.machine()
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n")
    assert machine.cpu_model() == "A: B"


def test_graphics_processors_as_their_driver_names_them(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_GPUS", tmp_path)
    assert machine.gpu_models() == ()
    for place, model in enumerate(["NVIDIA H100", "NVIDIA H200"]):
        (tmp_path / f"{place}").mkdir()
        (tmp_path / f"{place}/information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    assert machine.gpu_models() == ("NVIDIA H100", "NVIDIA H200")


def test_cores_and_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2, 5}, raising=False)
    assert machine.cores() == 3
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10}.__getitem__)
    assert machine.memory_bytes() == 40960

    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert machine.allowed_cores() == 3.0
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.allowed_cores() == 1.5
    (tmp_path / "cpu.max").write_text("400000 100000\n")
    assert machine.allowed_cores() == 3.0

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert machine.memory_bytes() is None
