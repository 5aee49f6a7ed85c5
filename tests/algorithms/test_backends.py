"""Returns and losses give the same numbers on Keras' other backends: their tests, run again in a process of each."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEEDS = {"jax": ("jax",), "numpy": ("jax", "scipy")}  # Keras' NumPy backend imports both


@pytest.mark.slow
@pytest.mark.parametrize("backend", NEEDS)
def test_returns_and_losses(backend):
    missing = [module for module in NEEDS[backend] if find_spec(module) is None]
    if missing and "CI" not in os.environ:
        pytest.skip(f"Keras' {backend} backend needs {' and '.join(missing)}")
    assert not missing, f"CI is set, but {' and '.join(missing)} cannot be imported"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib"]
    result = subprocess.run(
        [*command, str(HERE / "test_returns.py"), str(HERE / "test_losses.py")],
        cwd=HERE.parents[1],
        env=os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout
