"""The frameworks agree: the mathematics' own tests on each of Keras' backends, and the same training on two."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import distrl
from tests.algorithms.ten_updates import train

HERE, NETWORKS = Path(__file__).parent, Path(__file__).parents[1] / "networks"
NEEDS = {"jax": ("jax",), "numpy": ("jax", "scipy")}  # Keras' NumPy backend imports both
SUITES = {
    "returns": [HERE / "maths" / f"test_{name}.py" for name in ("returns", "losses", "critic_losses", "td_targets")],
    "estimates": [
        HERE / "maths" / f"test_{name}.py"
        for name in ("rewards", "monte_carlo", "trust_region", "curiosity", "offline")
    ],
    "distributions": [NETWORKS / "test_actions_discrete.py", NETWORKS / "test_actions_continuous.py"],
    "heads": [NETWORKS / "heads" / "test_losses.py"],
    "samples": [NETWORKS / "test_actions_sampling.py"],
    "surrogates": [HERE / f"test_{name}.py" for name in ("ppo", "appo", "epochs_minibatches")],
    "steps": [
        NETWORKS / "framework" / "test_backend.py",
        NETWORKS / "test_steps.py",
        HERE / "test_sac.py",
        HERE / "test_discrete_sac.py",
        HERE / "test_td3.py",
        HERE / "test_ddpg.py",
        HERE / "test_tqc.py",
        HERE / "test_naf.py",
        HERE / "test_crossq.py",
        NETWORKS / "parts" / "test_own_layers_renorm.py",
        HERE / "test_fixed_numbers.py",
        HERE / "test_epochs.py",
        HERE / "test_trpo.py",
        HERE / "test_acer.py",
        *(HERE / f"test_{name}.py" for name in ("imitation", "advantage_weighted", "cql", "discrete_bcq", "dqfd")),
        HERE / "test_selection_frozen.py",
        NETWORKS / "test_freezing.py",
    ],
    "curiosity": [HERE / "test_curiosity.py"],
}
RUN_ON = [
    pytest.param("jax", ("returns", "distributions"), id="jax", marks=pytest.mark.long),
    pytest.param(
        "jax", ("estimates", "heads", "surrogates", "samples", "steps"), id="jax-compiled", marks=pytest.mark.long
    ),
    pytest.param("jax", ("curiosity",), id="jax-curiosity", marks=pytest.mark.long),
    # Which has no gradients.
    pytest.param(
        "numpy", ("returns", "estimates", "distributions", "samples", "surrogates"), id="numpy", marks=pytest.mark.long
    ),
]

RUNS = {
    "mlp": {
        "input_embedders_parameters": {"observation": {"scheme": [16], "normalize": True}},
        "middleware_parameters": {"scheme": [16], "activation": "tanh"},
    },
    "lstm": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 8}, "optimizer_type": "RMSProp"},
    "conv": {
        "input_embedders_parameters": {
            "observation": {"scheme": [{"kind": "conv2d", "filters": 4, "kernel_size": 3, "strides": 2}]}
        },
        "middleware_parameters": {"scheme": [16], "batchnorm": True},
    },
}


def run(command, backend, timeout=280):
    return subprocess.run(
        [sys.executable, *command],
        cwd=HERE.parents[1],
        env=os.environ
        | {
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            # Nearly all of the time is compilation.
            "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false",
            "PYTHONPATH": str(Path(distrl.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def skip_without(*modules):
    missing = [module for module in modules if find_spec(module) is None]
    if missing and "CI" not in os.environ:
        pytest.skip(f"{' and '.join(missing)} cannot be imported")
    assert not missing, f"CI is set, but {' and '.join(missing)} cannot be imported"


def test_every_file_of_a_suite_exists():
    assert [path for suite in SUITES.values() for path in suite if not path.exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "suites"), RUN_ON)
def test_the_mathematics(backend, suites):
    skip_without(*NEEDS[backend])
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    result = run([*command, *(str(path) for suite in suites for path in SUITES[suite])], backend)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", *(pytest.param(name, marks=pytest.mark.long) for name in ("lstm", "conv"))])
def test_ten_updates_end_in_the_same_weights(name, tmp_path):
    """The same network, weights and batches on TensorFlow and then on JAX."""
    skip_without("jax")
    train(tmp_path, name, RUNS[name], "tensorflow")
    done = run(["-m", "tests.algorithms.ten_updates", str(tmp_path), name, json.dumps(RUNS[name]), "jax"], "jax")
    assert done.returncode == 0, done.stderr
    initial, one, other = (
        dict(np.load(tmp_path / f"{name}-{when}.npz", allow_pickle=False)) for when in ("initial", "tensorflow", "jax")
    )
    assert one.keys() == other.keys()
    learned = {path for path in one if path.startswith(("online|", "optimizer|")) and one[path].dtype == np.float32}
    assert len(learned) > 10
    for path in learned:
        np.testing.assert_allclose(other[path], one[path], rtol=1e-4, atol=1e-4, err_msg=path)
    # They went a hundred times as far as they may be apart.
    weights = [path for path in learned if path.startswith("online|")]
    assert max(np.abs(one[path] - initial[path]).max() for path in weights) > 1e-2
    # Counts of updates and statistics of observations are equal.
    for path in one.keys() - learned:
        if "seed_generator" not in path:
            np.testing.assert_allclose(other[path], one[path], rtol=1e-6, err_msg=path)
    told, told_too = (json.loads((tmp_path / f"{name}-{when}.json").read_text()) for when in ("tensorflow", "jax"))
    assert [list(metrics) for metrics in told] == [list(metrics) for metrics in told_too]
    for metrics, metrics_too in zip(told, told_too, strict=True):
        assert metrics_too == pytest.approx(metrics, rel=1e-3, abs=1e-4)
