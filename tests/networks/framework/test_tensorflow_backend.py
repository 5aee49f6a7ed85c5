"""Functions of TensorFlow alone; test_backend.py tests those of both frameworks."""

import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from distrl.errors import ConfigError
from distrl.networks.framework import tensorflow_backend
from distrl.networks.framework.differentiation import Part
from distrl.networks.steps import Step


def run(body):
    code = "from distrl.networks.framework import backend\n" + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)


def test_several_replicas_are_refused_and_jax_named():
    slope = keras.Variable(np.float32(2.0))
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([slope])
    message = "learner.replicas: 2 devices need learner.backend: jax; the TensorFlow learner has one"
    with pytest.raises(ConfigError, match=message):
        Step(lambda batch: (slope.value, {}), [Part([slope], optimizer)], [], replicas=2)


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [
        ("flags : fpu avx512f avx512_bf16 avx512_vnni", "bfloat16"),
        ("flags : fpu avx512f amx_bf16 amx_tile", "bfloat16"),
        ("flags : fpu avx2 avx512f avx512_vnni", "float32"),
        ("flags : avx512_bf16x", "float32"),
        (None, "float32"),
    ],
)
def test_auto_computes_in_bfloat16_where_the_cpu_multiplies_it(monkeypatch, tmp_path, build, flags, dtype):
    cpu = tmp_path / "cpuinfo"
    if flags is not None:
        cpu.write_text(f"processor : 0\n{flags}\nbugs : none\n")
    monkeypatch.setattr(tensorflow_backend, "CPU_FLAGS", cpu)
    network = build(compute_dtype="auto")
    assert network.parameters.compute_dtype == dtype
    assert {layer.compute_dtype for layer in network.model.layers if "middleware" in layer.name} == {dtype}
    assert network.in_float32().parameters.compute_dtype == "float32"
    assert (network.in_float32() is network) == (dtype == "float32")


@pytest.mark.slow
def test_configure_sets_threads_determinism_and_hides_gpus():
    finished = run(
        """
        import tensorflow as tf
        backend.configure(device="cpu", threads=1, deterministic=True, seed=1)
        backend.configure(device="cpu", threads=1, deterministic=True, seed=1)
        print(tf.config.threading.get_intra_op_parallelism_threads(),
              tf.config.threading.get_inter_op_parallelism_threads(), tf.config.get_visible_devices("GPU"))
        first = float(tf.random.uniform(()))
        backend.configure(device="cpu", threads=1, deterministic=True, seed=1)
        assert first == float(tf.random.uniform(()))
        try:
            tf.random.experimental.Generator.from_non_deterministic_state()
        except RuntimeError as error:
            print("deterministic:", "determinism" in str(error))
        backend.configure(device="cpu", threads=2, deterministic=False, seed=1)
        print(tf.config.threading.get_intra_op_parallelism_threads())
        """
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["1 1 []", "deterministic: True", "1"]
    assert "which stay" in finished.stderr


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(tensorflow_backend.tf.config, "list_physical_devices", lambda kind: [])
    with pytest.raises(ConfigError, match=r"^learner\.device: gpu, but TensorFlow sees no GPU"):
        tensorflow_backend.configure(device="gpu", threads=1, deterministic=False, seed=1)
