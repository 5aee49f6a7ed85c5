"""`distrl sweep`: many runs that differ in settings and seeds; also `distrl train --seeds`."""

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.help import takes
from distrl.apps.commands.printing import echo
from distrl.apps.commands.run_tables import aligned
from distrl.apps.commands.sweep_jobs import JobOptions, runs_as_jobs
from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import SweepDirectory, SweepRun, read_file
from distrl.apps.experiments.running import check_runs, run_sweep
from distrl.apps.experiments.sweep import RECORDS_ALONE, Sweep, every_run, number_of_runs, planned_runs
from distrl.config.load import LoadedConfig, validated
from distrl.errors import ConfigError
from distrl.metrics.phrases import return_words

if TYPE_CHECKING:
    from distrl.apps.experiments.runs_here import ConcurrentRuns
    from distrl.apps.reports.intervals import Interval

ParallelOption = Annotated[
    int,
    typer.Option("--parallel", min=1, metavar="N", help="Runs at the same time; they share the cores."),
]
SHOWN = 20
"""Most combinations in the table at the end, and most runs of --dry-run."""


@takes(JobOptions)
def sweep(
    jobs: JobOptions,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="SWEEP.yaml|DIR",
            help="A new sweep's file, or a sweep's directory, to go on.",
            autocompletion=completion.runs_and_files,
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="The sweep's own directory. [dim]Default: a new one under runs/.[/]"),
    ] = None,
    parallel: ParallelOption = 1,
    runs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Most runs, in place of budget.runs.")] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Most minutes of all launches, in place of budget.minutes.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also train the runs that failed.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs, check their configurations, and with --on show the plan.")
    ] = False,
) -> None:
    """Train many runs that differ in settings and seeds. Ctrl-C stops them in order; distrl sweep DIR continues.

    [cyan]distrl sweep learning_rates.yaml --parallel 2[/]

    [cyan]distrl sweep runs/learning_rates[/]

    [cyan]distrl sweep learning_rates.yaml --on slurm --parallel 8[/] Ctrl-C leaves the jobs alone.

    Exit code: 0, also if runs are left because the budget is spent; 1 if runs have failed; 130 after Ctrl-C.
    """
    changed = {name: value for name, value in (("runs", runs), ("minutes", minutes)) if value is not None}
    goes_on = target.is_dir()
    if goes_on and directory is not None and directory.resolve() != target.resolve():
        raise ConfigError(f"{target} is a sweep's directory, which --dir {directory} contradicts; leave one out")
    place = SweepDirectory(target if goes_on else directory or new_directory(target.stem))
    if not goes_on and place.exists:
        raise ConfigError(f"{place.path} already holds a sweep; go on with: distrl sweep {place.path}")
    described, shared = read_file(place.file if goes_on else target, Sweep)
    described = _with_budget(described, changed)
    base = load(file=place.base) if goes_on else shared_configuration(shared, target)
    check_runs(described, base)
    elsewhere = runs_as_jobs(jobs, place, described, base, parallel, dry=dry_run)
    if dry_run:
        say(_listed(described, place))
        return
    if not goes_on:
        place.create(described, base)
    raise typer.Exit(_train(described, place, parallel, again=again, elsewhere=elsewhere))


def train_seeds(
    loaded: LoadedConfig, seeds: str | None, parallel: int, run_dir: Path | None, others: Mapping[str, Any]
) -> int:
    """Train one configuration under several seeds, as a sweep in `run_dir`; return the exit code.

    Args:
        others: Options of `distrl train` that are for one run -> their value, or None.

    Raises:
        ConfigError: `seeds` names none, another option contradicts it, or the directory holds something else.
    """
    if seeds is None:
        raise ConfigError(f"--parallel {parallel} is for several runs; add --seeds")
    if excluded := [name for name, value in others.items() if value is not None]:
        raise ConfigError(f"--seeds {seeds} begins several new runs, and {excluded[0]} is for one; leave one out")
    described = validated(Sweep, {"seeds": seeds}, {"seeds": "flag --seeds"})
    place = SweepDirectory(run_dir or new_directory(f"seeds-{loaded.config.environment.id.replace('/', '-')}"))
    if place.exists:
        raise ConfigError(f"{place.path} already holds a sweep; go on with: distrl sweep {place.path}")
    place.create(described, loaded)
    return _train(described, place, parallel)


def _train(
    described: Sweep,
    place: SweepDirectory,
    parallel: int,
    *,
    again: bool = False,
    elsewhere: "ConcurrentRuns | None" = None,
) -> int:
    """Train the runs, print how it goes and the outcome, and return the exit code."""
    say(f"sweep in {place.path}")
    ending = run_sweep(described, place, parallel, say, again=again, elsewhere=elsewhere)
    say(standings(ending.runs))
    if ending.left:
        left = "1 run is left" if ending.left == 1 else f"{ending.left} runs are left"
        at_once = f" --parallel {parallel}" if parallel > 1 else ""
        say(f"{left}; go on with: distrl sweep {place.path}{at_once}")
    say(f"all runs: {place.path}/sweep.json; distrl report {place.path}; distrl compare {place.path}")
    return ending.exit_code


def _with_budget(described: Sweep, changed: Mapping[str, Any]) -> Sweep:
    """Return the sweep with another budget."""
    budget = {**described.budget.model_dump(), **changed}
    tree = described.model_dump(mode="json") | {"budget": budget}
    return validated(Sweep, tree, {f"budget.{name}": f"flag --{name}" for name in changed})


def standings(runs: Sequence[SweepRun]) -> str:
    """Return the combinations by the interquartile means of their seeds' returns, the best first."""
    from distrl.apps.reports.intervals import interval  # brings NumPy

    returns: dict[tuple[str, ...], list[float]] = {}
    failed: Counter[tuple[str, ...]] = Counter()
    names = {tuple(planned.sets): planned.combination or "every seed" for planned, _ in runs}
    for planned, outcome in runs:
        of_combination = returns.setdefault(tuple(planned.sets), [])
        failed[tuple(planned.sets)] += outcome.state == "failed"
        if outcome.state == "done" and outcome.mean_return is not None:
            of_combination.append(outcome.mean_return)
    found = {each: interval(values) if values else None for each, values in returns.items()}
    best = sorted(found, key=lambda each: -math.inf if (one := found[each]) is None else one.centre, reverse=True)
    rows = [_row(names[each], returns[each], found[each], failed[each]) for each in best[:SHOWN]]
    rest = f"\n… and {len(best) - SHOWN} more combinations" if len(best) > SHOWN else ""
    heads = ("settings", "runs", "mean return", "95 % interval", "least", "greatest", "failed")
    return aligned([heads, *rows]) + rest


def _row(name: str, returns: Sequence[float], found: "Interval | None", failed: int) -> tuple[str, ...]:
    if found is None:
        return (name, "0", *["–"] * 4, str(failed) if failed else "")
    least, greatest, centre, low, high = map(return_words, (min(returns), max(returns), *found))
    between = f"{low} … {high}" if len(returns) > 1 else "–"
    return (name, str(len(returns)), centre, between, least, greatest, str(failed) if failed else "")


def shared_configuration(shared: dict[str, Any], target: Path) -> LoadedConfig:
    """Return the configuration that all runs share; a file that it names lies beside the sweep's."""
    sets = shared.get("set") or {}
    if not isinstance(sets, dict):
        raise ConfigError(f"set (from file {target}) must be a mapping of dotted paths to values, not {sets!r}")
    if "seed" in sets:
        raise ConfigError(f"set (from file {target}) has a seed, and every run has its own; leave it out")
    file = shared.get("config")
    path = target.parent / str(file) if file is not None else None
    loaded = load(shared.get("preset"), path, [f"{key}={json.dumps(value)}" for key, value in sets.items()])
    if (name := loaded.config.recording.name) is not None:
        raise ConfigError(f"recording.name: {name} (from file {target}): {RECORDS_ALONE}")
    return loaded


def new_directory(stem: str) -> Path:
    """Return the path of a new directory under runs/."""
    return Path("runs") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _listed(described: Sweep, place: SweepDirectory) -> str:
    """Return the first runs, with their states where the sweep goes on."""
    states = {planned.name: outcome.state for planned, outcome in place.index(every_run(described))[0]}
    runs = islice(planned_runs(described), SHOWN)
    rows = [(each.name, each.words, states.get(each.name, "waiting")) for each in runs]
    total = number_of_runs(described)
    rest = "… until the budget is spent" if total is None else f"{total} runs"
    return f"{aligned([('run', 'settings', 'state'), *rows])}\n{rest}"


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    echo(text)
    sys.stdout.flush()
