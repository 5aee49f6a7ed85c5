"""A machine with a GPU in eight minutes: how soon a learner on JAX starts, how fast it trains, how busy the GPU is.

    python -m benchmarks.gpu                                  # a GPU, or the CPU where there is none
    python -m benchmarks.gpu --only 'cartpole-*' --seconds 10
    python -m benchmarks.gpu --sets actors.environments=64

Every row is measured in a process of its own with a limit of time, and printed as it is measured. A row that fails is
printed in one line, and the next one begins. All ends within `--minutes`: a row for which too little is left is left
out. So are rows whose cache one that failed was to fill, and, where there is no GPU, rows that say nothing without it.

A training is "cold" if the folder of distrl's caches is empty. Rows of that name empty it, and end with their first
update. The others find what rows before them have compiled, or say that they found nothing. Rates are of the seconds
after the first update. Every core but two has an actor. The GPU is asked twice a second how busy it is.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.measurement import FailedError, run
from benchmarks.provenance import ROOT
from benchmarks.publishing import say
from benchmarks.speed import Entry, chosen, finish, goal, listed, parser, share, stamp
from distrl.roles.host_load import HostMeter

PAGE = ROOT / "docs" / "gpu.md"
BATCH = ("learner.batch_size=4", "memory.queue_bytes=67108864")
ON_CPU = "learner.device=cpu"
SHARED = "actors.inference=host"
RESNET = (
    "network.input_embedders_parameters.observation.scheme=ImpalaResNet",
    "network.middleware_parameters.scheme=Empty",
)


class Goal(NamedTuple):
    """The value that a figure of a row is to reach."""

    figure: str
    least: float | None = None
    most: float | None = None


class Training(NamedTuple):
    """A training by a preset.

    Attributes:
        cache: Name of the folder of caches, which rows with the same programs share.
        cold: It begins with an empty cache and ends with its first update.
        seconds: How long it trains, start included; None: as `--seconds` says.
        actors: Most actors; None: one for every core but two.
    """

    what: str
    cache: str
    preset: str
    sets: Sequence[str] = ()
    cold: bool = False
    seconds: float | None = None
    actors: int | None = None
    goals: Sequence[Goal] = ()
    gpu_only: bool = False


class Alone(NamedTuple):
    """The learner alone: a case of `benchmarks.accelerator`."""

    what: str
    case: str
    unrolls: int
    goals: Sequence[Goal] = ()
    gpu_only: bool = True


class Feeding(NamedTuple):
    """The host's threads that feed the learner: `benchmarks.feeding`."""

    what: str
    goals: Sequence[Goal] = ()
    gpu_only: bool = False


SOON = Goal("first_update_s", most=10)
CARTPOLE = ("cartpole", "cartpole-impala", BATCH)
PONG = ("pong", "pong-impala", BATCH)
ROWS: Mapping[str, Training | Alone | Feeding] = {
    "cartpole-cold": Training(
        "CartPole, IMPALA, empty cache", *CARTPOLE, cold=True, goals=[Goal("first_update_s", most=15)]
    ),
    "cartpole-warm": Training("the same, from the cache", *CARTPOLE, goals=[SOON]),
    "pong-cold": Training("Pong, IMPALA, empty cache", *PONG, cold=True, goals=[Goal("first_update_s", most=25)]),
    "pong-warm": Training(
        "the same, from the cache", "pong", "pong-impala", (*BATCH, "actors.inference=own"), seconds=35.0, goals=[SOON]
    ),
    "pong-host": Training(
        "the same, shared inference",
        *("pong", "pong-impala", (*BATCH, SHARED)),
        seconds=35.0,
        goals=[Goal("env_steps_per_s", least=25_000)],
    ),
    "alone-nature-float32": Alone("learner alone, Nature CNN, float32", "nature-float32", 16),
    "alone-nature-bfloat16": Alone("learner alone, Nature CNN, bfloat16", "nature-bfloat16", 16),
    "feeding": Feeding("the host's threads feed a learner", [Goal("fed_frames_per_s", least=200_000)]),
    "pong-resnet": Training(
        "Pong, IMPALA's ResNet, shared inference",
        *("pong-resnet", "pong-impala", (*BATCH, *RESNET, SHARED)),
        seconds=60.0,
        goals=[Goal("gpu_busy_share", least=0.4)],
        gpu_only=True,
    ),
    "cartpole-6-actors": Training("CartPole, IMPALA, fewer actors", *CARTPOLE, seconds=15.0, actors=6),
    "cartpole-cpu": Training(
        "CartPole, IMPALA, learner on the CPU", "cartpole-cpu", "cartpole-impala", (*BATCH, ON_CPU)
    ),
    "alone-resnet-bfloat16": Alone("learner alone, IMPALA's ResNet, bfloat16", "resnet-bfloat16", 4),
    "halfcheetah-cpu": Training(
        "HalfCheetah, APPO, learner on the CPU", "halfcheetah-cpu", "halfcheetah-appo", (ON_CPU,), seconds=43.0
    ),
}
SPARE_CORES = 2
SAMPLE_EVERY_S = 0.5
END_S = 25.0
"""Longest time that a training may take to end after its limit."""
LEAST_S = 20.0
"""A row is left out where less is left."""
MOST_S = 120.0
"""Limit of a row, beyond the seconds that it trains."""
PROBE = (
    "import json, jax; seen = jax.devices();"
    "print(json.dumps([jax.__version__, jax.default_backend(), [device.device_kind for device in seen]]))"
)
_NVIDIA = Path("/proc/driver/nvidia/version")


class Machine(NamedTuple):
    """The devices that JAX finds here.

    Attributes:
        devices: "one NVIDIA H200, driver 580.65.06, JAX 0.11.2", or "no GPU, JAX 0.11.2".
    """

    has_gpu: bool
    devices: str


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


def find_machine() -> Machine:
    """Return what JAX finds, in a process of its own: this one must not take the GPU's memory.

    Raises:
        FailedError: There is no JAX, it does not start, or it leaves a GPU of NVIDIA's unused.
    """
    try:
        found = run(["-c", PROBE], limit_s=MOST_S)
    except FailedError as error:
        advice = "pip install 'distrl[jax-cuda]', or distrl[jax] without a GPU"
        raise FailedError(f"JAX does not start: {error}: {advice}") from None
    version, platform, kinds = json.loads(found.splitlines()[-1])
    # "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun …"
    words = _NVIDIA.read_text("utf-8").partition("\n")[0].split() if _NVIDIA.exists() else []
    driver = next((word for word in words if word.replace(".", "").isdigit()), "unknown")
    if platform != "gpu":
        if words and os.environ.get("JAX_PLATFORMS") != "cpu":
            advice = "install distrl[jax-cuda] or a newer driver, or set JAX_PLATFORMS=cpu"
            raise FailedError(f"JAX {version} does not use the GPU with driver {driver}: {advice}")
        return Machine(False, f"no GPU, JAX {version}")
    count = {1: "one"}.get(len(kinds), str(len(kinds)))
    return Machine(True, f"{count} {kinds[0]}, driver {driver}, JAX {version}")


def missing(name: str, machine: Machine, failed: Sequence[str] = ()) -> str | None:
    """Return why a row cannot be measured here, after these rows failed, or None."""
    row = ROWS[name]
    if isinstance(row, Training) and (filling := f"{row.cache}-cold") in failed:
        return f"{filling} failed"
    if row.gpu_only and not machine.has_gpu:
        return "no GPU"
    return None


def measure(name: str, seconds: float, sets: Sequence[str], out: Path, limit_s: float) -> dict[str, Any]:
    """Return the figures of one row.

    Args:
        seconds, sets: Of trainings.
        limit_s: After which a row's process is ended.

    Raises:
        FailedError: It failed, or took longer.
    """
    row = ROWS[name]
    if isinstance(row, Training):
        return _train(name, row, seconds, sets, out, limit_s)
    if isinstance(row, Alone):
        module, options = "accelerator", ["--only", row.case, "--unrolls", str(row.unrolls), "--seconds", "1"]
    else:
        module, options = "feeding", ["--only", "pong", "--threads", "1", "2", "4", "--seconds", "2"]
    run(["-m", f"benchmarks.{module}", *options, "--out", str(out / name)], limit_s=min(limit_s, MOST_S))
    report = json.loads((out / name / f"{module}.json").read_text("utf-8"))
    if isinstance(row, Feeding):
        return {"fed_frames_per_s": max(report["results"][0]["frames_per_s"])}
    return _alone(report["results"][0])


def _alone(found: Entry) -> dict[str, Any]:
    """Return the rates of a learner alone."""
    frames, update_s = found["frames_per_update"], found["update_s"]
    return {
        "frames_per_s": frames / update_s,
        "flops_per_s": found["flops_per_update"] / update_s,
        "peak_flops_per_s": found["peak_flops_per_s"],
        "decoded_frames_per_s": frames / found["feed_s"],
        "copied_frames_per_s": frames / found["copy_s"],
    }


def _train(name: str, row: Training, seconds: float, sets: Sequence[str], out: Path, limit_s: float) -> dict[str, Any]:
    caches, run_dir = (out / "caches" / row.cache).resolve(), out / "runs" / name
    if row.cold:
        shutil.rmtree(caches, ignore_errors=True)
    shutil.rmtree(run_dir, ignore_errors=True)
    cold = not any(caches.rglob("*-cache"))
    actors = max(1, min(row.actors or 10**6, len(os.sched_getaffinity(0)) - SPARE_CORES))
    takes_s = min(row.seconds or seconds, limit_s - LEAST_S / 2)
    end = "stop.updates=1" if row.cold else f"stop.minutes={takes_s / 60.0:g}"
    ends = ("stop.mean_return=null", "stop.env_steps=null", end)
    given = ("learner.backend=jax", f"actors.count={actors}", *ends, *row.sets, *sets)
    options = [word for value in given for word in ("--set", value)]
    command = ["-m", "distrl", "train", "--preset", row.preset, "--run-dir", str(run_dir), "--quiet", *options]
    with GpuWatch() as gpu:
        run(command, limit_s=min(limit_s, takes_s + MOST_S), variables={"XDG_CACHE_HOME": str(caches)})
    path = run_dir / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    first_update_s = summary["time_to_first_update_s"]
    if first_update_s is None:
        raise FailedError(f"it ended before its first update; see {run_dir / 'logs'}")
    began = path.stat().st_mtime - summary["wall_s"] + first_update_s
    trained = [(busy, used) for at, busy, used in gpu.samples if began <= at <= path.stat().st_mtime]
    return {
        "actors": actors,
        "sets": list(sets),
        "first_update_s": round(first_update_s, 1),
        "cold": cold,
        "programs": len([*caches.rglob("*-cache")]),
        **({} if row.cold else _rates(summary, trained)),
    }


def _rates(summary: Mapping[str, Any], trained: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return what is known of the seconds after the first update, the GPU's share and MB among them."""
    taken = ("env_steps_per_s", "updates", "learner_idle_share", "actors_blocked_share", "mean_return_100", "wall_s")
    return {
        **{name: summary[name] for name in taken},
        "gpu_busy_share": mean(busy for busy, _ in trained) if trained else None,
        "gpu_used_mb": max((used for _, used in trained), default=None),
    }


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    by_name = {entry["name"]: entry for entry in report["results"]}
    ordered = {**report, "results": [by_name[name] for name in ROWS if name in by_name]}

    def line(entry: Entry) -> list[str]:
        return [*_line(entry), "; ".join(_goals(entry, by_name)) or "–"]

    return listed(ordered, ["Row", "Measured", "Goal"], line)


def _line(entry: Entry) -> list[str]:
    what = [ROWS[entry["name"]].what, *entry.get("sets", ())]
    if "actors" in entry:
        what.append(f"{entry['actors']} {'actor' if entry['actors'] == 1 else 'actors'}")
    found = [text(entry) for figures, text in TEXTS.items() if all(entry.get(name) is not None for name in figures)]
    return [f"`{entry['name']}`: {', '.join(what)}", "; ".join(found)]


TEXTS: Mapping[Sequence[str], Callable[[Entry], str]] = {
    ("first_update_s",): lambda entry: (
        f"first update after {entry['first_update_s']:.1f} s{' with an empty cache' if _began_cold(entry) else ''}"
    ),
    ("env_steps_per_s",): lambda entry: f"{entry['env_steps_per_s']:,.0f} steps/s",
    ("learner_idle_share",): lambda entry: f"learner idle {share(entry['learner_idle_share'])}",
    ("actors_blocked_share",): lambda entry: f"actors blocked {share(entry['actors_blocked_share'])}",
    ("gpu_busy_share",): lambda entry: f"GPU {share(entry['gpu_busy_share'])} busy",
    ("gpu_used_mb",): lambda entry: f"{entry['gpu_used_mb']:,.0f} MB of the GPU",
    ("mean_return_100", "wall_s"): lambda entry: (
        f"return {entry['mean_return_100']:,.0f} after {entry['wall_s']:.0f} s"
    ),
    ("frames_per_s",): lambda entry: f"{entry['frames_per_s']:,.0f} frames/s",
    ("flops_per_s", "peak_flops_per_s"): lambda entry: (
        f"{entry['flops_per_s'] / 1e12:.3g} of {entry['peak_flops_per_s'] / 1e12:.3g} TFLOP/s"
    ),
    ("decoded_frames_per_s",): lambda entry: f"one thread decodes {entry['decoded_frames_per_s']:,.0f}/s",
    ("copied_frames_per_s",): lambda entry: f"copies {entry['copied_frames_per_s']:,.0f}/s",
    ("fed_frames_per_s",): lambda entry: f"{entry['fed_frames_per_s']:,.0f} frames/s",
}
"""Figures of an entry -> their words, which are left out where one of the figures is unknown."""


def _began_cold(entry: Entry) -> bool:
    """Return whether a row that was to find compiled programs found none, as it was chosen alone."""
    row = ROWS[entry["name"]]
    return isinstance(row, Training) and not row.cold and entry.get("cold", False)


def _goals(entry: Entry, by_name: Mapping[str, Entry]) -> list[str]:
    found = [
        goal(entry[figure], least, most)
        for figure, least, most in ROWS[entry["name"]].goals
        if entry.get(figure) is not None and not (figure == "first_update_s" and _began_cold(entry))
    ]
    slower = by_name.get("alone-nature-float32")
    if entry["name"] == "alone-nature-bfloat16" and slower is not None:
        found.append(f"above float32, {'met' if entry['frames_per_s'] > slower['frames_per_s'] else '**missed**'}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a row failed, 2 if JAX or the GPU cannot be used as asked."""
    made = parser(__doc__, "gpu", [*ROWS], PAGE)
    made.add_argument(
        "--seconds", type=float, default=20.0, help="of most trainings, start included (default: %(default)s)"
    )
    made.add_argument("--minutes", type=float, default=8.0, help="in which all ends (default: %(default)s)")
    made.add_argument("--sets", nargs="+", default=[], metavar="PATH=VALUE", help="settings of every training")
    given = made.parse_args(arguments)
    began = time.monotonic()
    failed: list[str] = []
    entries: list[Entry] = []
    try:
        machine = find_machine()
    except FailedError as error:
        say(str(error))
        return 2
    if given.publish and not machine.has_gpu:
        say(f"--publish: there is no GPU, and {PAGE.name} keeps the table of the last one; leave it out")
        return 2
    here = f"{stamp()['machine']}, {machine.devices}"
    say(f"{here}: {given.minutes:g} minutes at most")
    for number, name in enumerate(names := chosen([*ROWS], given.only), 1):
        left_s = began + given.minutes * 60.0 - time.monotonic() - END_S
        reason = missing(name, machine, failed) or ("no time is left" if left_s < LEAST_S else None)
        if reason is not None:
            say(f"[{number}/{len(names)}] left out: {name}: {reason}")
            continue
        say(f"[{number}/{len(names)}] {name}: {ROWS[name].what} …")
        entry = {"name": name, **stamp(), "machine": here}
        try:
            entries.append(entry | measure(name, given.seconds, given.sets, given.out, left_s))
            say(f"  {_line(entries[-1])[-1]}")
        except (FailedError, OSError, ValueError, LookupError) as error:  # such as a summary that is not there
            failed.append(name)
            say(f"  failed: {error}")
    if entries:
        finish("gpu", entries, given, block, PAGE)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
