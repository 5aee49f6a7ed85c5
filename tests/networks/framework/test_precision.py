"""The data type that `network.compute_dtype: auto` stands for: measured once per GPU, known of CPUs."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from distrl.networks.framework import precision
from distrl.networks.framework.backend import NAME, VERSION

JAX_MISSING = find_spec("jax") is None and "CI" not in os.environ
TIMES = {"float32": 0.003, "bfloat16": 0.0015}


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Return a function that pretends a GPU on which steps take so long, and the list of what was measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = []

    def pretend(times):
        def step_s(dtype):
            measured.append(dtype)
            return times[dtype]

        precision._measured_once.cache_clear()
        monkeypatch.setattr(precision, "accelerator", lambda: "NVIDIA H200 / 141 GB")
        monkeypatch.setattr(precision, "step_s", step_s)
        return measured

    yield pretend
    precision._measured_once.cache_clear()


@pytest.mark.parametrize(("bfloat16", "dtype"), [(0.0015, "bfloat16"), (0.0029, "float32"), (0.006, "float32")])
def test_the_faster_one_by_a_tenth_at_least(gpu, bfloat16, dtype):
    gpu({"float32": 0.003, "bfloat16": bfloat16})
    took = f"3.00 ms in float32, {1000 * bfloat16:.2f} ms in bfloat16"
    why = f"on NVIDIA H200 / 141 GB a step of the Nature CNN takes {took}"
    assert precision.fastest() == (dtype, why)


def test_a_device_is_measured_once(gpu, tmp_path):
    measured = gpu(TIMES)
    first = precision.fastest()
    assert (precision.fastest(), measured) == (first, ["float32", "bfloat16"])
    (kept,) = (tmp_path / "distrl/precision").iterdir()
    assert kept.name == f"{NAME}-{VERSION}-NVIDIA-H200-141-GB.json"
    gpu({"float32": 1.0, "bfloat16": 2.0})  # another process finds the file
    assert (precision.fastest(), measured) == (first, ["float32", "bfloat16"])


def test_a_damaged_file_is_measured_again(gpu, tmp_path, caplog):
    measured = gpu(TIMES)
    precision.fastest()
    (kept,) = (tmp_path / "distrl/precision").iterdir()
    kept.write_text('{"float32": 0, "bfloat16": 1}')
    gpu(TIMES)
    assert precision.fastest().dtype == "bfloat16"
    assert measured == ["float32", "bfloat16"] * 2
    assert f"{kept} is not usable, and data types are measured again" in caplog.text


def test_what_cannot_be_kept_is_measured_once_in_this_process(gpu, tmp_path, caplog):
    measured = gpu(TIMES)
    (tmp_path / "distrl").write_text("no folder")
    assert precision.fastest().dtype == precision.fastest().dtype == "bfloat16"
    assert measured == ["float32", "bfloat16"]
    assert "the fastest data type is not cached, so the next start measures it again" in caplog.text


def test_a_cpu_is_not_measured(monkeypatch):
    monkeypatch.setattr(precision, "step_s", pytest.fail)
    monkeypatch.setattr(precision, "cpu_dtype", lambda: "bfloat16")
    assert precision.fastest() == ("bfloat16", "faster on this CPU")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_takes_the_median_of_the_calls_after_the_first(monkeypatch, dtype):
    called = []
    monkeypatch.setattr(precision, "compiled", lambda function: lambda *given: called.append(given) or 0.0)
    times = iter([0.0, 90.0, 0.0, 1.0, 0.0, 3.0, 0.0, 2.0, 0.0, 50.0, 0.0, 2.5])  # begin and end of each call
    assert precision.step_s(dtype, clock=lambda: next(times)) == pytest.approx(2.5 / precision.STEPS)
    assert len(called) == 1 + precision.CALLS


@pytest.mark.long
@pytest.mark.parametrize(
    "framework",
    [pytest.param("jax", marks=pytest.mark.skipif(JAX_MISSING, reason="JAX is not installed")), "tensorflow"],
)
def test_it_measures_a_step_on_this_machine(framework):
    code = (
        "from distrl.networks.framework.precision import step_s\n"
        "print(*(step_s(dtype, frames=2) for dtype in ('float32', 'bfloat16')))"
    )
    flags = "--xla_backend_optimization_level=0"
    environment = {**os.environ, "KERAS_BACKEND": framework, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(float(taken_s) > 0.0 for taken_s in done.stdout.split())
    assert len(done.stdout.split()) == 2
