"""Speed of presets end to end, and its share of the limit of the same cores.

    python -m benchmarks.throughput
    python -m benchmarks.throughput --only cartpole-impala --repetitions 3 --seconds 10
    python -m benchmarks.throughput --only cartpole-impala --set learner.backend=jax --out runs/throughput-jax
    python -m benchmarks.throughput --baseline benchmarks/results/throughput.json

Every measurement is one `distrl bench`: the pipeline trains, and then environment, policy and learner are timed alone
on the same cores, which gives the limit. The rate is over the seconds after the first update and a warm-up. Presets
take turns, one measurement each, so that drifts of the machine affect all of them. Existing measurements of the same
configuration and commit are kept. `--only` accepts the name of any preset.

A baseline is an earlier report of this benchmark. Machines differ and drift, so the comparison is of ratios to the
limit, which each side has measured in its own run: the ratio of the two medians with its 95 % interval.
"""

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import FailedError, keep, run
from benchmarks.publishing import say
from benchmarks.speed import Entry, around, chosen, finish, goal, listed, parser, stamp
from distrl.apps.reports.intervals import Interval, median_interval, ratio_of_medians
from distrl.config.load import load
from distrl.config.presets import presets as all_presets
from distrl.runs.summary import duration

PRESETS = ("cartpole-impala", "halfcheetah-appo", "pong-impala")
"""Presets measured by default."""
LEAST = {"cartpole-impala": 0.70, "halfcheetah-appo": 0.85, "pong-impala": 0.85}
"""Goals, as shares of the limit."""
USUAL_S = 30.0
"""Estimated duration of a measurement beyond its seconds: start, warm-up, parts alone."""

Sample = dict[str, Any]
"""One report of `distrl bench`, with `took_s` and the fields of `stamp`."""


def path_of(out: Path, preset: str, repetition: int) -> Path:
    """Return the path of one measurement."""
    return out / "samples" / f"{preset}-{repetition}.json"


def kept(out: Path, preset: str, repetition: int, sets: Sequence[str], seconds: float) -> Sample | None:
    """Return the stored measurement of this configuration, length and commit, or None."""
    path = path_of(out, preset, repetition)
    if not path.exists():
        return None
    sample: Sample = json.loads(path.read_text("utf-8"))
    now = {"commit": stamp()["commit"], "configuration": configuration(preset, sets), "seconds": seconds}
    return sample if all(sample.get(name) == value for name, value in now.items()) else None


def configuration(preset: str, sets: Sequence[str]) -> dict[str, Any]:
    """Return the preset's effective configuration."""
    return load(preset=preset, sets=sets).config.model_dump(mode="json")


def measure(out: Path, preset: str, repetition: int, sets: Sequence[str], seconds: float) -> Sample:
    """Run one `distrl bench` and store its report.

    Raises:
        FailedError: It failed; nothing is stored.
    """
    run_dir = out / "runs" / f"{preset}-{repetition}"
    if run_dir.exists():
        shutil.rmtree(run_dir)
    where, began = stamp(), time.monotonic()
    # Seeds differ, so that the speed does not depend on one network's behaviour.
    options = [argument for value in (f"seed={repetition + 1}", *sets) for argument in ("--set", value)]
    options += ["--seconds", f"{seconds:g}", "--run-dir", str(run_dir), "--json"]
    report = json.loads(run(["-m", "distrl", "bench", "--preset", preset, *options]))
    sample = {**report, **where, "configuration": configuration(preset, sets), "seconds": seconds}
    sample["took_s"] = time.monotonic() - began
    keep(path_of(out, preset, repetition), sample)
    return sample


def measure_all(
    presets: Sequence[str], given: argparse.Namespace, tell: Callable[[str], None]
) -> tuple[dict[str, list[Sample]], list[str]]:
    """Return the missing measurements, all measurements by preset, and the failures."""
    samples: dict[str, list[Sample]] = {preset: [] for preset in presets}
    todo: list[tuple[str, int]] = []
    for repetition in range(given.repetitions):
        for preset in presets:
            sample = kept(given.out, preset, repetition, given.sets, given.seconds)
            if sample is None:
                todo.append((preset, repetition))
            else:
                samples[preset].append(sample)
    failures = []
    for index, (preset, repetition) in enumerate(todo):
        left_s = remaining_s([name for name, _ in todo[index:]], samples, given.seconds)
        tell(f"[{index + 1}/{len(todo)}] {preset} {repetition + 1} … about {duration(left_s)} to go")
        try:
            samples[preset].append(measure(given.out, preset, repetition, given.sets, given.seconds))
        except FailedError as error:
            failures.append(f"{preset} {repetition + 1}: {error}")
            tell(f"  failed: {error}")
        else:
            tell(f"  {words(samples[preset][-1])}")
    return samples, failures


def remaining_s(todo: Sequence[str], samples: Mapping[str, Sequence[Sample]], seconds: float) -> float:
    """Estimate the seconds left from measurements of the same preset, or of all, or from the usual duration."""
    took = {preset: statistics.mean(one["took_s"] for one in found) for preset, found in samples.items() if found}
    usual = statistics.mean(took.values()) if took else seconds + USUAL_S
    return sum(took.get(preset, usual) for preset in todo)


def words(sample: Sample) -> str:
    """Return '251,000 steps/s, 0.61 of the limit, bottleneck learner'."""
    rate, ratio, verdict = sample["env_steps_per_s"], sample["ratio"], sample["verdict"]
    return f"{rate:,.0f} steps/s, {ratio:.2f} of the limit, bottleneck {verdict}"


def entry(preset: str, samples: Sequence[Sample], sets: Sequence[str], baseline: Entry | None) -> Entry:
    """Return the row of one preset: median and interval of every figure and, with a baseline, the ratio to it."""
    newest = samples[-1]
    found: Entry = {
        "name": "+".join([preset, *sets]),
        **{key: newest[key] for key in ("commit", "date", "machine")},
        "load_before": max(sample["load_before"] for sample in samples),
        "cores": newest["cores"],
        "seconds": newest["seconds"],
        "ratios": [sample["ratio"] for sample in samples],
        "verdicts": sorted({sample["verdict"] for sample in samples}),
    }
    for figure in ("env_steps_per_s", "limit_steps_per_s", "ratio", "learner_idle_share", "actors_blocked_share"):
        values = [sample[figure] for sample in samples if sample[figure] is not None]
        found[figure] = list(median_interval(values)) if values else None
    if baseline is not None:
        found["to_baseline"] = list(ratio_of_medians(found["ratios"], baseline["ratios"]))
        found["baseline_commit"] = baseline["commit"]
    return found


def read_baseline(path: Path | None) -> dict[str, Entry]:
    """Return the entries of an earlier report by name; none without a path.

    Raises:
        SystemExit: The file is no report of this benchmark.
    """
    if path is None:
        return {}
    try:
        return {one["name"]: one for one in json.loads(path.read_text("utf-8"))["results"] if one["ratios"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is no report of this benchmark ({type(error).__name__}: {error})") from error


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page."""
    heads = ["Preset", "Steps/s while learning", "Limit", "Of the limit [95 %]", "Goal", "Learner idle"]
    heads += ["Actors blocked", "Bottleneck", "Runs"]
    if not any("to_baseline" in one for one in report["results"]):
        return listed(report, heads, _line)
    return listed(report, [*heads, "To the baseline [95 %]"], lambda one: [*_line(one), _compared(one)])


def _line(one: Entry) -> list[str]:
    least = LEAST.get(one["name"])
    return [
        f"`{one['name']}`",
        f"{one['env_steps_per_s'][0]:,.0f}",
        f"{one['limit_steps_per_s'][0]:,.0f}",
        around(one["ratio"]),
        "–" if least is None else goal(one["ratio"][0], least=least),
        *(_share(one[name]) for name in ("learner_idle_share", "actors_blocked_share")),
        " or ".join(one["verdicts"]),
        f"{len(one['ratios'])} of {one['seconds']:g} s",
    ]


def _share(found: Sequence[float] | None) -> str:
    return "–" if found is None else f"{found[0]:.0%}"


def _compared(one: Entry) -> str:
    """Return the ratio in words, and whether its interval excludes 1."""
    if "to_baseline" not in one:
        return "–"
    found = Interval(*one["to_baseline"])
    told = "faster than" if found.low > 1.0 else "slower than" if found.high < 1.0 else "no different from"
    return f"{around(found)}, {told} {one['baseline_commit']}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and report; return 1 if a measurement failed."""
    made = parser(__doc__, "throughput", PRESETS)
    made.add_argument("--repetitions", type=int, default=5, metavar="N", help="of each preset (default: %(default)s)")
    made.add_argument("--seconds", type=float, default=15.0, help="of each training (default: %(default)s)")
    made.add_argument(
        "--set", action="append", default=[], dest="sets", metavar="PATH=VALUE", help="as of distrl bench"
    )
    made.add_argument("--baseline", type=Path, metavar="FILE", help="an earlier report, to compare with")
    given = made.parse_args(arguments)
    baseline = read_baseline(given.baseline)
    presets = chosen(list(all_presets()), given.only or PRESETS)
    samples, failures = measure_all(presets, given, say)
    entries = [
        entry(preset, found, given.sets, baseline.get("+".join([preset, *given.sets])))
        for preset, found in samples.items()
        if found
    ]
    finish("throughput", entries, given, block)
    for failure in failures:
        say(f"failed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
