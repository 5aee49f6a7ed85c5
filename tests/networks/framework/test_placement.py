"""Stacks of frames that the device rebuilds are those of the host; a batch that was copied ahead is the same batch."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given, settings

from distrl import frames
from distrl.networks.framework import backend
from distrl.networks.framework.placement import LEAST_BYTES, Placement, placement
from distrl.types import Batch
from tests.test_frames import CASES, play

ON_JAX = keras.backend.backend() == "jax"


def a_batch(pictures, valid, **observations):
    zeros = np.zeros(valid.shape, np.float32)
    return Batch(
        observations={"picture": pictures, **observations},
        actions={},
        rewards=zeros,
        terminated=~valid,
        truncated=~valid,
        valid=valid,
        behaviour_log_probabilities=zeros,
        recurrent_state={},
    )


@given(CASES)
@settings(max_examples=20)  # the first of each shape takes long
def test_stacks_of_the_device_are_those_of_the_host(case):
    if case["dtype"] == "int64":  # which JAX does not have
        case = case | {"dtype": "int32"}
    rows, valid, _ = play(case)
    expected = frames.rebuilt(rows, valid, case["frames"])
    placed = Placement(np.copy, lambda function: function, {"picture": case["frames"]})(a_batch(rows, valid))
    np.testing.assert_array_equal(np.asarray(placed.observations["picture"]), expected, strict=True)


def test_a_device_that_shares_the_hosts_memory_gets_no_copies():
    assert placement(1, {}, ()) is None


if not ON_JAX:

    @pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
    def test_on_jax():
        devices = {
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        }
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
            "-k",
            "copied_ahead or no_copies or not_come_back",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, __file__],
            cwd=Path(__file__).parents[3],
            env={**os.environ, **devices},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "7 passed" in done.stdout

else:
    import jax

    from distrl.networks.framework.differentiation import Part
    from distrl.networks.steps import Step

    N, COUNT = 4, 3

    @pytest.fixture
    def copy_ahead(monkeypatch):
        """As with GPUs."""
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        return backend.copy_ahead

    def batches():
        """Return a batch of single frames, and the same one with stacks."""
        random = np.random.default_rng(1)
        pictures = random.integers(0, 256, (5 + COUNT, N, 6, 6, 1)).astype(np.uint8)
        valid = random.random((5, N)) < 0.7
        large = random.random((6, N, LEAST_BYTES // 24)).astype(np.float32)
        of_singles = a_batch(pictures, valid, large=large, small=large[..., :2])
        stacks = {**of_singles.observations, "picture": frames.rebuilt(pictures, valid, COUNT)}
        return of_singles, of_singles._replace(observations=stacks)

    @pytest.mark.parametrize("replicas", [1, 2])
    def test_what_is_copied_ahead_is_large_and_on_the_devices_that_share_it(copy_ahead, replicas):
        of_singles, expected = batches()
        placed = Placement(*copy_ahead(replicas), {"picture": COUNT})(of_singles)
        for name, rows in expected.observations.items():
            np.testing.assert_array_equal(placed.observations[name], rows, strict=True)
        assert placed.observations["small"] is of_singles.observations["small"]
        for name in ("picture", "large"):
            shards = placed.observations[name].addressable_shards
            assert [shard.data.shape[1] for shard in shards] == [N // replicas] * replicas

    @pytest.mark.parametrize("dtype", ["int64", "float64"])
    def test_numbers_of_64_bits_are_copied_ahead_as_the_update_sees_them(copy_ahead, dtype):
        rows = np.arange(2 * N * LEAST_BYTES // 64).reshape(2, N, -1).astype(dtype)
        placed = Placement(*copy_ahead(2), {})(a_batch(rows, np.ones((1, N), np.bool_)))
        np.testing.assert_array_equal(
            placed.observations["picture"], rows.astype(dtype.replace("64", "32")), strict=True
        )

    def test_what_is_normalised_does_not_come_back_from_the_devices(copy_ahead):
        _, of_stacks = batches()
        placement = Placement(*copy_ahead(2), {"picture": COUNT, "other": 2}, {"picture", "large"})
        assert placement.frames_on_host == {"picture": COUNT}
        placed = placement(
            of_stacks._replace(observations=of_stacks.observations | {"other": np.zeros((7, N, 2, 2), np.uint8)})
        )
        for name in ("picture", "large"):
            assert placed.observations[name] is of_stacks.observations[name]
        assert isinstance(placed.observations["other"], jax.Array)

    def test_an_update_of_what_was_copied_ahead_is_the_same_update(copy_ahead):
        of_singles, expected = batches()
        weights = []
        for batch in (expected, Placement(*copy_ahead(2), {"picture": COUNT})(of_singles)):
            weight = keras.Variable(np.float32(0.5))
            optimizer = keras.optimizers.SGD(0.1)
            optimizer.build([weight])

            def loss(data, weight=weight):
                seen = keras.ops.cast(data.observations["picture"], "float32")
                return keras.ops.mean((weight * seen - 1.0) ** 2) + weight * data.observations["large"].mean(), {}

            step = Step(loss, [Part([weight], optimizer)], [], replicas=2)
            assert step(batch)["finite"]
            weights.append(float(weight.value))
        assert weights[0] == weights[1] != 0.5
