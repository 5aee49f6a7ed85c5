"""Exports on JAX, in processes of their own: JAX has threads, which a fork of a later test would meet."""

from pathlib import Path

import pytest

from tests.algorithms.test_backends import run, skip_without

HERE, NETWORKS = Path(__file__).parent, Path(__file__).parents[1]
KINDS = f"{HERE / 'test_bundle.py'}::test_every_kind_computes_the_same_under_any_weights"
LAYERS = f"{HERE / 'test_conversion.py'}::test_layers_that_are_said_to_be_exported_compute_the_same"
PARTS = ("layers", "embedders", "embedders_tokens", "middlewares_graph", "trunk")
OPERATIONS = [HERE / f"test_{name}.py" for name in ("jax_conversion", "jax_operations", "onnx_writer")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        pytest.param([*OPERATIONS, KINDS], id="operations and kinds"),
        pytest.param(
            [HERE / "test_bundle.py", NETWORKS / "heads" / "test_head.py"], id="heads", marks=pytest.mark.long
        ),
        pytest.param([LAYERS], id="layers", marks=pytest.mark.long),
        pytest.param([NETWORKS / "parts" / f"test_{name}.py" for name in PARTS], id="parts", marks=pytest.mark.long),
    ],
)
def test_whatever_is_exported_on_tensorflow_is_exported_on_jax(tests):
    """The same tests of networks, heads, layers, memory, normalisation and masks, on Keras' other framework."""
    skip_without("jax")
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "ignore:Explicitly requested dtype"]
    result = run(["-m", "pytest", *options, *map(str, tests)], "jax", timeout=380)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout
