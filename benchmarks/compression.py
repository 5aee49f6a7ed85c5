"""Compression of messages: bytes, processor time, and the speed of a network below which it shortens their way.

    python -m benchmarks.compression
    python -m benchmarks.compression --only pong cartpole --repetitions 5

A message is a real one of a preset with untrained weights: an unroll, 16 unrolls after the reset, as environments begin
alike; a version of the weights; the gradient of an unroll. Times are the processor time of one thread that compresses
or decompresses the whole message, the least of the repetitions. The time on the wire is computed: bytes by the speed
of the network, without latency. Compression pays where compressing, sending and decompressing one after the other takes
less time than sending the message as it is: below the speed of the last column.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, listed, parser, stamp
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.config.load import load
from distrl.environments.vector import VectorEnvironment
from distrl.launch.bench import record
from distrl.memory_backend.codec import encode_unroll, encode_weights
from distrl.memory_backend.compression import Method, compressor, decompressed
from distrl.memory_backend.gradient_codec import encode_contribution
from distrl.roles.framework import select_framework
from distrl.types import Weights

METHODS: tuple[Method, ...] = ("zstd", "lz4")
EARLIER_UNROLLS = 15
NETWORKS = {"1 Gbit/s": 1e9 / 8, "10 Gbit/s": 1e10 / 8}
"""Name -> bytes per second."""


class Case(NamedTuple):
    """One kind of message.

    Attributes:
        what: Name in the table.
        sets: Changes to the preset.
        message: "unroll", "weights" or "gradient".
    """

    what: str
    preset: str
    sets: tuple[str, ...] = ()
    message: str = "unroll"


CASES = {
    "pong": Case("frames of Pong", "pong-impala"),
    "riverraid": Case("frames of River Raid", "pong-impala", ("environment.id=ALE/Riverraid-v5",)),
    "cartpole": Case("CartPole", "cartpole-impala"),
    "halfcheetah": Case("HalfCheetah", "halfcheetah-appo"),
    "weights": Case("weights of Pong's network", "pong-impala", message="weights"),
    "gradient": Case("a gradient of CartPole's network", "cartpole-a3c", message="gradient"),
}


def message(case: Case) -> tuple[bytes, int]:
    """Return the encoded message, and the environment steps that it stands for; 0 for weights."""
    config: RunConfig = load(preset=case.preset, sets=case.sets).config
    select_framework(config.learner.backend)
    # These imports load the framework.
    from distrl.actors.gradient_actor import make_shipper
    from distrl.algorithms import make_algorithm
    from distrl.networks.policy.bundle import export_bundle

    environment = VectorEnvironment(config.environment, config.actors.environments)
    try:
        network = make_algorithm(config).build(environment.spec)["main"].online
        weights = Weights(1, network.policy_weights())
        if case.message == "weights":
            return encode_weights(weights), 0
        policy = Policy(export_bundle(network))
        policy.set_weights(weights)
        random = np.random.default_rng(config.seed)
        unroll = record(config, environment, policy, random, earlier_unrolls=EARLIER_UNROLLS)
        if case.message == "unroll":
            return encode_unroll(unroll), unroll.header.env_steps
        return encode_contribution(make_shipper(config, environment.spec).contribution(unroll)), unroll.header.env_steps
    finally:
        environment.close()


def measure(name: str, repetitions: int) -> Entry:
    """Measure one case with every method."""
    where, case = stamp(), CASES[name]
    payload, steps = message(case)
    methods = {method: figures(payload, method, repetitions) for method in METHODS}
    return {"name": name, **where, "what": case.what, "bytes": len(payload), "steps": steps, "methods": methods}


def figures(payload: bytes, method: Method, repetitions: int) -> dict[str, float]:
    """Return bytes, and processor seconds of compressing and decompressing."""
    compress = compressor(method)
    sent = compress(payload)
    if decompressed(sent, len(payload)) != payload:
        raise RuntimeError(f"{method} did not give back what it was given")
    return {
        "bytes": len(sent),
        "compress_s": processor_seconds(lambda: compress(payload), repetitions),
        "decompress_s": processor_seconds(lambda: decompressed(sent, len(payload)), repetitions),
    }


def processor_seconds(call: Callable[[], object], repetitions: int) -> float:
    """Return the least processor seconds of this process in one call."""
    least = float("inf")
    for _ in range(repetitions):
        began = time.process_time()
        call()
        least = min(least, time.process_time() - began)
    return least


def break_even(entry: Entry, method: str) -> float:
    """Return the speed of a network, in bytes per second, at which compressed and plain messages take the same time."""
    found = entry["methods"][method]
    return cast(float, (entry["bytes"] - found["bytes"]) / (found["compress_s"] + found["decompress_s"]))


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page: a line for each message as it is, then one for each method."""
    heads = ["Message", "Sent as", "Bytes", "Bytes per step", "Compress", "Decompress"]
    heads += [f"All, at {network}" for network in NETWORKS] + ["Pays below"]
    lines = [{**entry, "method": method} for entry in report["results"] for method in ("none", *entry["methods"])]
    return listed({**report, "results": lines}, heads, _line)


def _line(entry: Entry) -> list[str]:
    method, steps = entry["method"], entry["steps"]
    plain = {"bytes": entry["bytes"], "compress_s": 0.0, "decompress_s": 0.0}
    found = entry["methods"].get(method, plain)
    cpu_s = found["compress_s"] + found["decompress_s"]
    return [
        f"{entry['what']}, {entry['bytes']:,} bytes" if method == "none" else "",
        f"`{method}`",
        f"{found['bytes'] / entry['bytes']:.1%}",
        f"{found['bytes'] / steps:,.1f}" if steps else "–",
        *(_time(found[key], steps) if method != "none" else "–" for key in ("compress_s", "decompress_s")),
        *(_time(cpu_s + found["bytes"] / speed, steps) for speed in NETWORKS.values()),
        "–" if method == "none" else _speed(break_even(entry, method)),
    ]


def _time(seconds: float, steps: int) -> str:
    return f"{1e6 * seconds / steps:.3g} µs" if steps else f"{1e3 * seconds:.3g} ms"


def _speed(bytes_per_s: float) -> str:
    return f"{8 * bytes_per_s / 1e9:.2g} Gbit/s" if bytes_per_s > 0 else "never"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    made = parser(__doc__, "compression", list(CASES))
    made.add_argument("--repetitions", type=int, default=50, help="of each call (default: %(default)s)")
    given = made.parse_args(arguments)
    entries = []
    for name in chosen(list(CASES), given.only):
        entries.append(measure(name, given.repetitions))
        for method in METHODS:
            say(f"{name}, {method}: pays below {_speed(break_even(entries[-1], method))}")
    finish("compression", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
