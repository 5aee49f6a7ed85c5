"""The memory backend beside redis-py: unrolls through it, and the same bytes through a bare loop.

    python -m benchmarks.transport
    python -m benchmarks.transport --only 0.1MB 1MB --rounds 2000 --out runs/transport

Ours is the real code: an unroll is encoded, pushed in the ledger's transaction, taken, decoded and checked, joined into
a batch, and acknowledged. The bare loop only adds the same bytes to a stream (XADD) and reads them in a group
(XREADGROUP); its entries are removed between two rounds, outside the measured time. Both take turns on one Redis, one
round each, in alternating order. The ratio is ours to bare in unrolls per second, the median over all rounds with its
95 % interval. Processor time is that of client and server together.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import redis

from benchmarks.publishing import say
from benchmarks.speed import Entry, around, chosen, finish, goal, listed, parser, stamp
from distrl.apps.reports.intervals import median_interval
from distrl.memory_backend.backend import connect
from distrl.memory_backend.codec import decode_unroll, encode_unroll
from distrl.memory_backend.embedded_redis import EmbeddedRedis
from distrl.memory_backend.joining import stack
from distrl.memory_backend.layouts import Layouts
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.stream import QueueCaps
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

T, B = 32, 64
LEAST_RATIO = 0.7
WARM_UP_ROUNDS = 20
STREAM, GROUP = "bare", "group"


class Case(NamedTuple):
    """The unrolls of a measurement.

    Attributes:
        features: Numbers of one observation, float32; an unroll has T = 32 rows of B = 64 environments.
        at_once: Unrolls of one batch, which are pushed, then taken and acknowledged together.
    """

    features: int
    at_once: int


CASES = {
    "0.1MB": Case(8, 1),
    "0.3MB": Case(32, 1),
    "1MB": Case(115, 1),
    "0.1MB-batch": Case(8, 8),
    "0.3MB-batch": Case(32, 8),
}


class Ours:
    """The actor's and the learner's side of a run."""

    def __init__(self, case: Case, url: str, run_id: str) -> None:
        caps = QueueCaps(entries=1000, bytes=2**30)
        self.actor, self.learner = (
            connect(url, run_id, caps, name=name, give_up_s=10.0) for name in ("actor 0", "learner")
        )
        self.actor.create("{}")
        self.producer = (0, self.actor.registry.register_actor(0))
        self.learner = self.learner.become_learner()
        seen = {"observation": ArraySpec((case.features,), "float32")}
        spec = EnvSpec("transport", observations=seen, actions={"action": DiscreteSpec(2)})
        self.schema = UnrollSchema.of(spec, T, B, {})
        self.layouts = Layouts()
        self.unroll = an_unroll(case.features, self.producer)
        self.payload = encode_unroll(self.unroll)
        self.at_once = case.at_once
        self.sequence = 0

    def round(self) -> None:
        """Move all unrolls of one batch."""
        for _ in range(self.at_once):
            header = dataclasses.replace(self.unroll.header, sequence=self.sequence)
            self.actor.unrolls.push(header, encode_unroll(self.unroll))
            self.sequence += 1
        entries = self.learner.unrolls.take(self.at_once, 1.0)
        taken = [(entry.header, entry.payload) for entry in entries if entry.header]
        stack([decode_unroll(header, payload, self.schema, self.layouts) for header, payload in taken], {})
        self.learner.unrolls.settle(entries, EntryOutcome.TRAINED)

    def close(self) -> None:
        """Remove the run."""
        self.learner.delete()
        self.learner.close()
        self.actor.close()


class Bare:
    """Ordinary use of redis-py, one connection to write and one to read."""

    def __init__(self, payload: bytes, at_once: int, url: str) -> None:
        self.writer, self.reader = (redis.Redis.from_url(url, protocol=2) for _ in range(2))
        self.writer.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        self.payload, self.at_once = payload, at_once

    def round(self) -> None:
        """Move as many entries as `Ours.round`."""
        for _ in range(self.at_once):
            self.writer.xadd(STREAM, {"payload": self.payload})
        ((_, entries),) = self.reader.xreadgroup(GROUP, GROUP, {STREAM: ">"}, count=self.at_once, block=1000)
        assert len(entries) == self.at_once

    def clear(self) -> None:
        """Remove the entries, so that the stream grows no more than ours."""
        self.writer.xtrim(STREAM, maxlen=0, approximate=False)

    def close(self) -> None:
        """Remove the stream."""
        self.writer.delete(STREAM)
        self.writer.close()
        self.reader.close()


def an_unroll(features: int, producer: tuple[int, int]) -> Unroll:
    """Return an unroll in which no episode ends."""
    random = np.random.default_rng(0)
    return Unroll(
        header=UnrollHeader(*producer, 0, 0, T * B),
        observations={"observation": random.standard_normal((T + 1, B, features), np.float32)},
        actions={"action": random.integers(0, 2, (T, B), np.int32)},
        rewards=np.ones((T, B), np.float32),
        terminated=np.zeros((T, B), np.bool_),
        truncated=np.zeros((T, B), np.bool_),
        valid=np.ones((T, B), np.bool_),
        behaviour_log_probabilities=np.full((T, B), -0.7, np.float32),
        recurrent_state={},
        episode_returns=np.zeros(0, np.float32),
        episode_lengths_steps=np.zeros(0, np.int32),
        reward_moments={},
    )


def measure(name: str, rounds: int) -> Entry:
    """Measure one case."""
    case, where = CASES[name], stamp()
    with ExitStack() as cleanup:
        server = cleanup.enter_context(EmbeddedRedis.start(maxmemory_bytes=2**31, max_bulk_bytes=2**28))
        ours = Ours(case, server.url, "transport")
        cleanup.callback(ours.close)
        bare = Bare(ours.payload, case.at_once, server.url)
        cleanup.callback(bare.close)
        server_s = processor_clock(bare.writer.info("server")["process_id"])
        spent: dict[str, list[tuple[float, float]]] = {"ours": [], "bare": []}
        for number in range(WARM_UP_ROUNDS + rounds):
            for side in ("ours", "bare") if number % 2 else ("bare", "ours"):
                spent[side].append(seconds_of((ours if side == "ours" else bare).round, server_s))
            bare.clear()
        assert ours.learner.ledger.counts().trained == ours.sequence
    found = figures(spent["ours"][WARM_UP_ROUNDS:], spent["bare"][WARM_UP_ROUNDS:])
    return {
        "name": name,
        **where,
        "payload_bytes": len(ours.payload),
        "at_once": case.at_once,
        "rounds": rounds,
        **found,
    }


def figures(ours: list[tuple[float, float]], bare: list[tuple[float, float]]) -> dict[str, Any]:
    """Return ratios of successive rounds, given (wall-clock seconds, processor seconds) of each."""
    walls, cpus = ([theirs[index] / mine[index] for mine, theirs in zip(ours, bare, strict=True)] for index in range(2))
    return {
        "ratio": list(median_interval(walls)),
        "cpu_ratio": list(median_interval(cpus)),
        "ours_s": float(np.median([wall for wall, _ in ours])),
        "bare_s": float(np.median([wall for wall, _ in bare])),
    }


def seconds_of(call: Callable[[], object], server_s: Callable[[], float]) -> tuple[float, float]:
    """Return wall-clock seconds of a call, and processor seconds of this process and the server."""
    began, used = time.perf_counter(), time.process_time() + server_s()
    call()
    return time.perf_counter() - began, time.process_time() + server_s() - used


def processor_clock(pid: int) -> Callable[[], float]:
    """Return a clock of the processor seconds of a single-threaded process, with nanosecond resolution."""
    path = Path(f"/proc/{pid}/schedstat")
    return lambda: int(path.read_text().split()[0]) / 1e9


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Unroll", "Unrolls/s, ours to bare [95 %]", "By processor time", "Rounds", "Goal"]
    return listed(report, heads, _line)


def _line(entry: Entry) -> list[str]:
    return [
        f"{entry['payload_bytes']:,} bytes" + (f", {entry['at_once']} at once" if entry["at_once"] > 1 else ""),
        around(entry["ratio"]),
        around(entry["cpu_ratio"]),
        f"{entry['rounds']:,}",
        goal(entry["ratio"][0], least=LEAST_RATIO),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report."""
    made = parser(__doc__, "transport", list(CASES))
    made.add_argument("--rounds", type=int, default=1000, help="of each case (default: %(default)s)")
    given = made.parse_args(arguments)
    entries = []
    for name in chosen(list(CASES), given.only):
        entries.append(measure(name, given.rounds))
        say(f"{name}: ratio {around(entries[-1]['ratio'])}, by processor time {around(entries[-1]['cpu_ratio'])}")
    finish("transport", entries, given, block)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
