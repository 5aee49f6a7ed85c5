"""The learner alone: updates of image networks, beside the device's peak and the rate at which the host feeds it.

    python -m benchmarks.accelerator                                  # one unroll per update: for a CPU
    python -m benchmarks.accelerator --unrolls 16 --seconds 10        # for a GPU, with distrl's extra gpu
    python -m benchmarks.accelerator --only nature-* --backend tensorflow

The Nature CNN (Mnih et al. 2015) and IMPALA's deep ResNet (Espeholt et al. 2018) learn from real Pong unrolls of 32
games x 20 steps by IMPALA's whole update: V-trace, gradients, Adam. An update starts from arrays of the host, so it
includes their copy to the device. Operations are counted from the layers: two for each multiplication of a forward
pass, and twice as many again for the gradients, except those of the pixels. The peak is the rate of one product of two
large square matrices on the device in the same dtype, as the framework multiplies by default: float32 on many GPUs by
their TF32 units. The feed is the rate at which one host thread decodes and joins batches, and at which it copies them
to the device; beside it, the rate of one that has several threads to write (`benchmarks.feeding`).
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.feeding import feed
from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, listed, parser, stamp
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.config.load import load
from distrl.environments.vector import VectorEnvironment
from distrl.launch.bench import learning, record, seconds_per_call
from distrl.memory_backend.joining import stack
from distrl.roles.framework import select_framework
from distrl.types import Batch, Weights
from distrl.unroll_schema import UnrollSchema

PRESET = "pong-impala"
PEAK_SIZE = {"cpu": 2048, "gpu": 16384}
"""Rows and columns of the matrices whose product measures the peak."""


FEEDING_THREADS = (2, 4, 8)


class Case(NamedTuple):
    """A network in a dtype: its embedder and middleware, as in a configuration."""

    embedder: str
    middleware: str
    dtype: str


CASES = {
    f"{name}-{dtype}": Case(*network, dtype)
    for name, network in {"nature": ("Medium", "Medium"), "resnet": ("ImpalaResNet", "Empty")}.items()
    for dtype in ("float32", "bfloat16")
}


def configuration(case: Case, backend: str, unrolls: int) -> RunConfig:
    """Return the preset's configuration with the case's network and this many unrolls per update."""
    sets = (
        f"network.input_embedders_parameters.observation.scheme={case.embedder}",
        f"network.middleware_parameters.scheme={case.middleware}",
        f"network.compute_dtype={case.dtype}",
        f"learner.backend={backend}",
        f"learner.batch_size={unrolls}",
        f"memory.queue_bytes={2**24 * unrolls}",
        "algorithm.minibatches=1",
    )
    return load(preset=PRESET, sets=sets).config


def measure(name: str, backend: str, unrolls: int, seconds: float) -> Entry:
    """Measure one case."""
    where, config = stamp(), configuration(CASES[name], backend, unrolls)
    select_framework(backend)
    # These imports load the framework.
    from distrl.algorithms import make_algorithm
    from distrl.networks.framework import backend as numeric_backend
    from distrl.networks.policy.bundle import export_bundle

    numeric_backend.configure(
        device=config.device, threads=len(os.sched_getaffinity(0)), deterministic=False, seed=config.seed
    )
    environment = VectorEnvironment(config.environment, config.actors.environments)
    try:
        algorithm = make_algorithm(config)
        networks = algorithm.build(environment.spec)
        policy = Policy(export_bundle(networks["main"].online))
        policy.set_weights(Weights(1, networks["main"].online.policy_weights()))
        random = np.random.default_rng(config.seed)
        recorded = [record(config, environment, policy, random) for _ in range(unrolls)]
        frames = environment.spec.frames
        update_s = seconds_per_call(learning(algorithm, networks, frames, recorded), seconds)
        flops = (
            operations(networks["main"].online.model) * config.actors.unroll_length_steps * config.sequences_per_batch
        )
        schema = UnrollSchema.of(environment.spec, *_shape(config), {})
        batch_bytes = sum(array.nbytes for array in _arrays(stack(recorded, frames)))
        return {
            "name": ", ".join([name, backend, device_name(backend)]),
            **where,
            "frames_per_update": config.actors.unroll_length_steps * config.sequences_per_batch,
            "update_s": update_s,
            "flops_per_update": flops,
            "peak_flops_per_s": peak(backend, CASES[name].dtype, seconds),
            "batch_bytes": batch_bytes,
            "feed_s": seconds_per_call(feed(recorded, schema, frames), seconds),
            "threads_feed_s": {
                count: seconds_per_call(feed(recorded, schema, frames, count), seconds) for count in FEEDING_THREADS
            },
            "copy_s": seconds_per_call(_copying(backend, stack(recorded, frames)), seconds),
        }
    finally:
        environment.close()


def _shape(config: RunConfig) -> tuple[int, int]:
    return config.actors.unroll_length_steps, config.actors.environments


def operations(model: Any) -> int:
    """Return the floating-point operations of one row's forward and backward pass, two per multiplication-addition.

    The first layer with weights has no gradient of its input, the pixels.
    """
    kernels = [(layer.kernel.shape, layer.output.shape[1:-1]) for layer in model.layers if hasattr(layer, "kernel")]
    products = [math.prod(kernel) * math.prod(places) for kernel, places in kernels]
    return 2 * (3 * sum(products) - products[0])


def peak(backend: str, dtype: str, seconds: float) -> float:
    """Return the operations per second of one matrix product on the device."""
    run, platform = _product(backend, dtype)
    size = PEAK_SIZE["cpu" if platform == "cpu" else "gpu"]
    return 2.0 * size**3 / seconds_per_call(run(size), seconds)


def _product(backend: str, dtype: str) -> tuple[Callable[[int], Callable[[], object]], str]:
    if backend == "jax":
        import jax
        import jax.numpy as jnp

        product = jax.jit(jnp.matmul)

        def by_jax(size: int) -> Callable[[], object]:
            left, right = (jax.random.normal(jax.random.key(seed), (size, size), dtype) for seed in (0, 1))
            return lambda: product(left, right).block_until_ready()

        return by_jax, jax.default_backend()
    import tensorflow as tf

    def by_tensorflow(size: int) -> Callable[[], object]:
        left, right = (tf.cast(tf.random.stateless_normal((size, size), (seed, 0)), dtype) for seed in (0, 1))
        return lambda: tf.linalg.matmul(left, right)[0, 0].numpy()

    return by_tensorflow, "gpu" if tf.config.list_physical_devices("GPU") else "cpu"


def device_name(backend: str) -> str:
    """Return the framework's name of the device."""
    if backend == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    return str(tf.config.experimental.get_device_details(found[0])["device_name"]) if found else "cpu"


def _copying(backend: str, batch: Batch) -> Callable[[], object]:
    """Return a function that copies a batch to the device and waits for the end."""
    arrays = _arrays(batch)
    if backend == "jax":
        import jax

        return lambda: jax.block_until_ready(jax.device_put(arrays))
    import tensorflow as tf

    def copy() -> None:
        for tensor in [tf.identity(array) for array in arrays]:
            if tensor.shape.num_elements():
                tf.reshape(tensor, [-1])[0].numpy()

    return copy


def _arrays(batch: Batch) -> list[np.ndarray]:
    """Return all arrays of a batch."""
    values = [field.values() if isinstance(field, Mapping) else [field] for field in batch]
    return [value for of_field in values for value in of_field if isinstance(value, np.ndarray)]


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Network", "Frames per update", "Updates/s", "Frames/s", "TFLOP/s of the peak"]
    return listed(report, [*heads, "Frames/s fed", "By 2, 4, 8 threads", "Frames/s copied"], _line)


def _line(entry: Entry) -> list[str]:
    frames, done = entry["frames_per_update"], entry["flops_per_update"] / entry["update_s"]
    return [
        entry["name"],
        f"{frames:,}",
        f"{1.0 / entry['update_s']:,.2f}",
        f"{frames / entry['update_s']:,.0f}",
        f"{done / 1e12:.3g} of {entry['peak_flops_per_s'] / 1e12:.3g} ({done / entry['peak_flops_per_s']:.0%})",
        f"{frames / entry['feed_s']:,.0f}",
        ", ".join(f"{frames / taken_s:,.0f}" for taken_s in entry.get("threads_feed_s", {}).values()) or "–",
        f"{frames / entry['copy_s']:,.0f} ({entry['batch_bytes'] / entry['copy_s'] / 1e9:.1f} GB/s)",
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    made = parser(__doc__, "accelerator", list(CASES))
    made.add_argument("--backend", choices=["jax", "tensorflow"], default="jax", help="(default: %(default)s)")
    made.add_argument("--unrolls", type=int, default=1, help="of 640 frames, in a batch (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=3.0, help="for each figure (default: %(default)s)")
    given = made.parse_args(arguments)
    names, entries = chosen(list(CASES), given.only), []
    for number, name in enumerate(names, 1):
        began = time.monotonic()
        entries.append(measure(name, given.backend, given.unrolls, given.seconds))
        frames = entries[-1]["frames_per_update"] / entries[-1]["update_s"]
        say(f"[{number}/{len(names)}] {name}: {frames:,.0f} frames/s, in {time.monotonic() - began:.0f} s")
    finish("accelerator", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
