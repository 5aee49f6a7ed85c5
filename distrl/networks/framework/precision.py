"""The meaning of `network.compute_dtype: auto`: the data type in which the learner's device computes faster."""

import logging
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from keras import ops
from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from distrl.errors import ConfigError, one_line
from distrl.files import read_small
from distrl.networks.framework.backend import (
    NAME,
    VERSION,
    accelerator,
    compiled,
    cpu_dtype,
    on_accelerator,
    value_and_gradients,
)
from distrl.networks.framework.cache import cache_directory, write_cached
from distrl.types import Array

logger = logging.getLogger(__name__)
FASTER = 0.9
"""bfloat16 has to take less than this share of float32's time, as it rounds more."""
CALLS = 5
FRAMES = 512
STEPS = 10
"""Steps of one call, beside which its copies of arrays to the device take little time."""
LAYERS = (((8, 8, 4, 32), 4), ((4, 4, 32, 64), 2), ((3, 3, 64, 64), 1))
"""Kernel and stride of the Nature CNN's convolutions (Mnih et al. 2015)."""


class Precision(NamedTuple):
    """A data type, "float32" or "bfloat16", and why it is the one."""

    dtype: str
    why: str


class Times(BaseModel):
    """Seconds of one step of the Nature CNN on a device in each data type."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    float32: PositiveFloat
    bfloat16: PositiveFloat


def fastest() -> Precision:
    """Return the data type that `auto` stands for in this process.

    On a CPU the framework says it. On any other device both are measured once, and the times are kept in the cache by
    the device and the framework's version.
    """
    device = accelerator()
    if device is None:
        return Precision(cpu_dtype(), "faster on this CPU")
    times = _measured_once(device)
    dtype = "bfloat16" if times.bfloat16 < FASTER * times.float32 else "float32"
    took = ", ".join(f"{1000.0 * took_s:.2f} ms in {name}" for name, took_s in times)
    return Precision(dtype, f"on {device} a step of the Nature CNN takes {took}")


@cache
def _measured_once(device: str) -> Times:
    name = re.sub(r"[^\w.-]+", "-", f"{NAME}-{VERSION}-{device}")
    path = cache_directory("precision") / f"{name}.json"
    if (kept := _kept(path)) is not None:
        return kept
    times = Times(float32=step_s("float32"), bfloat16=step_s("bfloat16"))
    write_cached(path, times.model_dump_json().encode(), "the fastest data type", "measures it")
    return times


def _kept(path: Path) -> Times | None:
    try:
        return Times.model_validate_json(read_small(path))
    except FileNotFoundError:
        return None
    except (OSError, ConfigError, ValidationError) as error:
        logger.warning("%s is not usable, and data types are measured again: %s", path, one_line(error))
        return None


def step_s(dtype: str, frames: int = FRAMES, clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure a step of the Nature CNN, forward and backward, with float32 weights, as networks compute it.

    Args:
        frames: Size of the batch.

    Returns:
        Median over calls after the first, which compiles, in seconds per step.
    """
    random = np.random.default_rng(0)
    shapes = [*(shape for shape, _ in LAYERS), (3136, 512)]
    weights = [random.normal(0.0, 0.05, shape).astype(np.float32) for shape in shapes]
    frame = random.integers(0, 256, (84, 84, 4), dtype=np.uint8)
    steps = compiled(lambda image, before: _steps(image, before, dtype, frames))

    def call_s() -> float:
        began = clock()
        np.asarray(steps(frame, weights))  # waits for the result
        return clock() - began

    with on_accelerator():
        call_s()
        return median(call_s() for _ in range(CALLS)) / STEPS


def _steps(frame: Any, weights: list[Array], dtype: str, frames: int) -> Any:
    """Return a number that depends on all of `STEPS` steps of gradient descent."""
    images = ops.tile(frame[None], (frames, 1, 1, 1))

    def loss(values: list[Any]) -> Any:
        features = ops.cast(images, dtype) / 255.0
        for kernel, (_, stride) in zip(values, LAYERS, strict=False):
            kernel = ops.cast(kernel, dtype)
            features = ops.relu(ops.conv(features, kernel, stride, "valid", data_format="channels_last"))
        features = ops.matmul(ops.reshape(features, (frames, -1)), ops.cast(values[-1], dtype))
        return ops.mean(ops.square(ops.cast(features, "float32")))

    def step(_: Any, values: list[Any]) -> list[Any]:
        _, gradients = value_and_gradients(loss, values)
        return [value - 1e-3 * gradient for value, gradient in zip(values, gradients, strict=True)]

    return sum(ops.sum(value) for value in ops.fori_loop(0, STEPS, step, list(weights)))
