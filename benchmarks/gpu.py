"""A machine with a GPU in eight minutes: how soon JAX's learner starts, how fast it trains, and how busy the GPU is.

    python -m benchmarks.gpu                                  # a GPU, or the CPU where there is none
    python -m benchmarks.gpu --only 'cartpole-*' --seconds 10
    python -m benchmarks.gpu --sets learner.device=cpu

Each training is started twice: with an empty cache of compiled programs, up to its first update ("cold"), and once
more ("warm"). Rates are of the seconds after the first update. Every core but two has an actor. The GPU is asked twice
a second how busy it is.
`benchmarks.accelerator --unrolls 16` has the learner alone, with every figure of the same machine. A row is printed as
it is measured; one that fails is printed, too, and the next one begins. A row that would begin after `--minutes` is
left out.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.measurement import FailedError, run
from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, listed, parser, share, stamp
from distrl.roles.host_load import HostMeter

RESNET = (
    "network.input_embedders_parameters.observation.scheme=ImpalaResNet",
    "network.middleware_parameters.scheme=Empty",
)
TRAININGS: Mapping[str, tuple[str, Sequence[str]]] = {
    "cartpole": ("cartpole-impala", ("learner.batch_size=4", "memory.queue_bytes=67108864")),
    "pong": ("pong-impala", ("learner.batch_size=4", "memory.queue_bytes=67108864")),
    "pong-resnet": ("pong-impala", ("learner.batch_size=4", "memory.queue_bytes=67108864", *RESNET)),
}
"""Name -> preset and settings."""
ROWS = [f"{name}-{cache}" for name in TRAININGS for cache in ("cold", "warm")]
SAMPLE_EVERY_S = 0.5
SPARE_CORES = 2
KEEPS_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
"""What the learner sets for its own cache of compiled programs."""


class GpuWatch:
    """Samples the load of the first GPU in a thread while it is entered."""

    def __init__(self) -> None:
        self._meter, self._ended = HostMeter(gpus=True), threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.samples: list[tuple[float, float, float]] = []

    def __enter__(self) -> "GpuWatch":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY_S):
            load = self._meter.read()
            for gpu in load.gpus[:1] if load else ():
                self.samples.append((time.time(), gpu.busy_share, gpu.memory_used_mb))


def measure(row: str, seconds: float, sets: Sequence[str], out: Path) -> Entry:
    """Measure one row.

    Raises:
        FailedError: The training failed, or ended before its first update.
    """
    name, _, cache = row.rpartition("-")
    preset, own = TRAININGS[name]
    compiled, run_dir = out / "compiled" / name, out / "runs" / row
    if cache == "cold":
        shutil.rmtree(compiled, ignore_errors=True)
    shutil.rmtree(run_dir, ignore_errors=True)
    actors = max(1, len(os.sched_getaffinity(0)) - SPARE_CORES)
    end = "stop.updates=1" if cache == "cold" else f"stop.minutes={seconds / 60.0:g}"
    ends = ("stop.mean_return=null", "stop.env_steps=null", end)
    given = ("learner.backend=jax", f"actors.count={actors}", *ends, *own, *sets)
    options = [word for value in given for word in ("--set", value)]
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(compiled.resolve()), **KEEPS_ALL}
    where = stamp()
    with GpuWatch() as gpu:
        run(["-m", "distrl", "train", "--preset", preset, "--run-dir", str(run_dir), "--quiet", *options])
    path = run_dir / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    first_update_s = summary["time_to_first_update_s"]
    if first_update_s is None:
        raise FailedError(f"{row}: it ended before its first update")
    began = path.stat().st_mtime - summary["wall_s"] + first_update_s
    trained = [(busy, used) for at, busy, used in gpu.samples if began <= at <= path.stat().st_mtime]
    return {
        "name": row,
        **where,
        "actors": actors,
        "sets": list(sets),
        "first_update_s": round(first_update_s, 1),
        "programs": len([*compiled.glob("*-cache")]),
        **({} if cache == "cold" else _rates(summary, trained)),
    }


def _rates(summary: Mapping[str, Any], trained: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return what is known of the seconds after the first update, the GPU's share and MB among them."""
    taken = ("env_steps_per_s", "updates", "learner_idle_share", "actors_blocked_share", "mean_return_100")
    return {
        **{name: summary[name] for name in taken},
        "gpu_busy_share": mean(busy for busy, _ in trained) if trained else None,
        "gpu_used_mb": max((used for _, used in trained), default=None),
    }


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = [
        "Training",
        "Actors",
        "First update",
        "Steps/s",
        "Learner idle",
        "Actors blocked",
        "GPU busy",
        "GPU memory",
    ]
    return listed(report, [*heads, "Programs"], _line)


def _line(entry: Entry) -> list[str]:
    used, rate = entry.get("gpu_used_mb"), entry.get("env_steps_per_s")
    return [
        ", ".join([entry["name"], *entry["sets"]]),
        str(entry["actors"]),
        f"{entry['first_update_s']:.1f} s",
        "–" if rate is None else f"{rate:,.0f}",
        *(share(entry.get(name)) for name in ("learner_idle_share", "actors_blocked_share", "gpu_busy_share")),
        "–" if used is None else f"{used:,.0f} MB",
        str(entry["programs"]),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a row failed."""
    made = parser(__doc__, "gpu", ROWS)
    made.add_argument("--seconds", type=float, default=30.0, help="of each warm training (default: %(default)s)")
    made.add_argument("--minutes", type=float, default=8.0, help="in which a row may begin (default: %(default)s)")
    made.add_argument("--sets", nargs="+", default=[], metavar="PATH=VALUE", help="settings of every training")
    given = made.parse_args(arguments)
    entries: list[Entry] = []
    began, failed = time.monotonic(), False
    for row in chosen(ROWS, given.only):
        if time.monotonic() - began > given.minutes * 60.0:
            say(f"left out for want of time: {row}")
            continue
        try:
            entries.append(measure(row, given.seconds, given.sets, given.out))
            say(f"{time.monotonic() - began:.0f} s: {' · '.join(_line(entries[-1]))}")
        except (FailedError, OSError, ValueError) as error:  # such as a summary that is not there
            failed = True
            say(f"failed: {row}: {error}")
    if entries:
        finish("gpu", entries, given, block)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
