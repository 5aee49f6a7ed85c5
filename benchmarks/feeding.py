"""How fast the learner's feed decodes unrolls and joins them to batches, by the number of its threads.

    python -m benchmarks.feeding
    python -m benchmarks.feeding --only pong* --unrolls 16 --threads 1 2 4 8

Unrolls of 32 games x 20 steps of made-up content are decoded and joined as in the learner's loop, into memory that is
used again. `pong` has stacks of four frames of 84 x 84 pixels, which are rebuilt; `pong-singles` leaves that to the
device; `pong-lz4` and `pong-zstd` are compressed; `vector` has 115 numbers. The numbers of threads take turns, one
batch each. A rate is that of the median batch.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, listed, parser, stamp
from distrl.learner.feeding import Joining
from distrl.memory_backend.codec import decode_unroll, encode_unroll
from distrl.memory_backend.compression import Method, compressor
from distrl.memory_backend.layouts import Layouts
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

T, B = 20, 32
BALL = 8
"""Pixels of a square that moves over an otherwise still picture."""


class Case(NamedTuple):
    """Unrolls of a kind, how they are compressed, and whether stacks are rebuilt when they are joined."""

    observation: ArraySpec
    compression: Method = "none"
    rebuilds: bool = True


PICTURE = ArraySpec((84, 84, 4), "uint8", 0, 255, frames=4)
CASES = {
    "pong": Case(PICTURE),
    "pong-singles": Case(PICTURE, rebuilds=False),
    "pong-lz4": Case(PICTURE, "lz4"),
    "pong-zstd": Case(PICTURE, "zstd"),
    "vector": Case(ArraySpec((115,), "float32")),
}


def an_unroll(schema: UnrollSchema, number: int) -> Unroll:
    """Return an unroll in which one episode ends."""
    random = np.random.default_rng(number)
    dtype, shape = schema.observations["observation"]
    if dtype == np.uint8:
        observations = np.full(shape, 87, dtype)
        for row, column in np.ndindex(*shape[:2]):
            top, left = random.integers(0, shape[2] - BALL, 2)
            observations[row, column, top : top + BALL, left : left + BALL] = 236
    else:
        observations = random.standard_normal(shape, np.float32)
    valid = np.ones((T, B), np.bool_)
    valid[T // 2, 0] = False
    return Unroll(
        header=UnrollHeader(0, 1, number, 0, int(valid.sum())),
        observations={"observation": observations},
        actions={"action": random.integers(0, 6, (T, B), np.int32)},
        rewards=np.zeros((T, B), np.float32),
        terminated=~valid,
        truncated=np.zeros((T, B), np.bool_),
        valid=valid,
        behaviour_log_probabilities=np.full((T, B), -1.8, np.float32),
        recurrent_state={},
        episode_returns=np.zeros(1, np.float32),
        episode_lengths_steps=np.ones(1, np.int32),
        episode_discounted_returns=np.zeros(1, np.float32),
        episode_successes=np.full(1, -1, np.int8),
    )


def feed(
    unrolls: Sequence[Unroll],
    schema: UnrollSchema,
    frame_counts: Mapping[str, int],
    threads: int = 1,
    method: Method = "none",
) -> Callable[[], Batch]:
    """Return a function that decodes a batch's unrolls and joins them, as the learner's feed does."""
    compress, layouts = compressor(method), Layouts()
    payloads = [(unroll.header, compress(encode_unroll(unroll))) for unroll in unrolls]
    joining = Joining(len(unrolls), frame_counts, threads)

    def collect() -> Batch:
        joining.begin()
        for header, payload in payloads:
            joining.add(decode_unroll(header, payload, schema, layouts))
        return joining.finish()

    return collect


def frames_per_s(feeds: Sequence[Callable[[], Batch]], frames: int, seconds: float) -> list[float]:
    """Return the rate of each feed's median batch of `frames`; they take turns, and each has `seconds`."""
    spent: list[list[float]] = [[] for _ in feeds]
    held = [deque((collect() for _ in range(3)), maxlen=3) for collect in feeds]  # as long as in a training
    while min(map(sum, spent)) < seconds:
        for collect, times, batches in zip(feeds, spent, held, strict=True):
            began = time.perf_counter()
            batches.append(collect())
            times.append(time.perf_counter() - began)
    return [frames / float(np.median(times)) for times in spent]


def measure(name: str, unrolls: int, threads: Sequence[int], seconds: float) -> Entry:
    """Measure one case.

    Args:
        unrolls: Of 640 frames, in a batch.
        seconds: For each number of threads.
    """
    where, case = stamp(), CASES[name]
    spec = EnvSpec("feeding", {"observation": case.observation}, {"action": DiscreteSpec(6)})
    schema = UnrollSchema.of(spec, T, B, {})
    made = [an_unroll(schema, number) for number in range(unrolls)]
    frame_counts = schema.frames if case.rebuilds else {}
    feeds = [feed(made, schema, frame_counts, count, case.compression) for count in threads]
    batch = feeds[0]()
    return {
        "name": name,
        **where,
        "frames": unrolls * T * B,
        "batch_bytes": sum(rows.nbytes for rows in batch.observations.values()),
        "threads": list(threads),
        "frames_per_s": frames_per_s(feeds, unrolls * T * B, seconds),
    }


def block(report: Mapping[str, Any]) -> str:
    """Return the table."""
    return listed(report, ["Unrolls", "Frames per batch", "Threads: frames/s fed"], _line)


def _line(entry: Entry) -> list[str]:
    rates = [f"{count}: {rate:,.0f}" for count, rate in zip(entry["threads"], entry["frames_per_s"], strict=True)]
    return [entry["name"], f"{entry['frames']:,} ({entry['batch_bytes'] / 1e6:,.0f} MB)", ", ".join(rates)]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    made = parser(__doc__, "feeding", list(CASES))
    made.add_argument("--unrolls", type=int, default=4, help="of 640 frames, in a batch (default: %(default)s)")
    made.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(default: %(default)s)")
    made.add_argument("--seconds", type=float, default=5.0, help="for each figure (default: %(default)s)")
    given = made.parse_args(arguments)
    entries = []
    for name in chosen(list(CASES), given.only):
        entries.append(measure(name, given.unrolls, given.threads, given.seconds))
        say(" · ".join(_line(entries[-1])))
    finish("feeding", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
