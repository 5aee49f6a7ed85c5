"""`distrl tune`: search for good settings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.sweep import ParallelOption, new_directory, say, shared_configuration
from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import SweepDirectory, read_file
from distrl.apps.experiments.search import Search
from distrl.config.load import validated
from distrl.errors import EXIT_INTERRUPTED, ConfigError, DistrlError, require


def tune(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="SEARCH.yaml|DIR",
            help="A new search's file, or a search's directory, to go on or to help another worker.",
            autocompletion=completion.runs_and_files,
        ),
    ],
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="The search's directory. [dim]Default: a new one under runs/.[/]"),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Trials of all workers together, in place of the file's.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(metavar="M", help="Most minutes of this launch.")] = None,
    parallel: ParallelOption = 1,
    population: Annotated[
        int | None,
        typer.Option(
            min=2, metavar="N", help="In place of trials: N members that train at once and learn from each other."
        ),
    ] = None,
) -> None:
    """Search for the settings with the greatest mean return, with Optuna. The best configuration is DIR/best.yaml.

    [cyan]distrl tune search.yaml --trials 40 --parallel 2[/]

    [cyan]distrl tune runs/search[/]    go on; or, from another terminal, a second worker

    [cyan]distrl tune search.yaml --population 8[/]    population-based training

    Exit code: 0; 1 if no trial is complete, or every member has failed; 130 after Ctrl-C.
    """
    goes_on = target.is_dir()
    if goes_on and directory is not None and directory.resolve() != target.resolve():
        raise ConfigError(f"{target} is a search's directory, which --dir {directory} contradicts; leave one out")
    place = SweepDirectory(target if goes_on else directory or new_directory(target.stem), "search.yaml")
    if not goes_on and place.exists:
        raise ConfigError(f"{place.path} already holds a search; go on with: distrl tune {place.path}")
    described, shared = read_file(place.file if goes_on else target, Search)
    search = _changed(described, trials, minutes, population)
    base = load(file=place.base) if goes_on else shared_configuration(shared, target)
    if search.population is not None and parallel != 1:
        raise ConfigError(f"--parallel {parallel} has no use with population: all members train at once; leave it out")
    if search.population is None and (place.path / "population.json").exists():
        raise ConfigError(f"{place.path} holds a population, and {place.file} has no section population; restore it")
    if search.population is None:
        require("optuna", "Optuna, which proposes settings,", "tune")
        from distrl.apps.experiments import tuning  # brings Optuna

        tuning.check_search(search, base)
    else:
        from distrl.apps.experiments import evolving  # brings a Redis client

        evolving.check_population(search, base)
    if not goes_on:  # the flag counts for this launch alone
        place.create(search.model_copy(update={"minutes": described.minutes}), base)
    raise typer.Exit(_search(search, place, parallel) if search.population is None else _evolve(search, place))


def _search(search: Search, place: SweepDirectory, parallel: int) -> int:
    """Train trials, print how it goes and the outcome, and return the exit code."""
    from distrl.apps.experiments import tuning

    say(f"search in {place.path}")
    code = tuning.tune(search, place, parallel, say)
    _say_outcome(search, place, code, tuning.outcome_lines(search, place), lambda: tuning.draw_pictures(search, place))
    return code


def _evolve(search: Search, place: SweepDirectory) -> int:
    """Train a population, print how it goes and the outcome, and return the exit code."""
    from distrl.apps.experiments import evolving

    say(f"population in {place.path}")
    code = evolving.evolve(search, place, say)
    _say_outcome(search, place, code, evolving.outcome_lines(place), lambda: _drawn(search, place))
    return code


def _drawn(search: Search, place: SweepDirectory) -> list[Path]:
    require("matplotlib", "matplotlib, which draws the picture of a population,", "plot")
    from distrl.apps.experiments.population_picture import draw_picture  # brings NumPy

    return draw_picture(search, place)


def _say_outcome(
    search: Search, place: SweepDirectory, code: int, lines: Sequence[str], draw: Callable[[], list[Path]]
) -> None:
    for line in lines:
        say(line)
    if (place.path / "best.yaml").exists():
        say(f"train with it: distrl train {place.path / 'best.yaml'}")
    if code == EXIT_INTERRUPTED or search.minutes is not None:
        say(f"go on with: distrl tune {place.path}")
    try:
        if drawn := draw():
            say(f"pictures: {', '.join(map(str, drawn))}")
    except DistrlError as error:
        say(f"no pictures: {error}")


def _changed(search: Search, trials: int | None, minutes: float | None, population: int | None) -> Search:
    """Return the search with what the flags say."""
    tree = search.model_dump(mode="json", exclude_defaults=True)
    changed: dict[str, Any] = {"trials": trials, "minutes": minutes}
    if population is not None:
        changed["population"] = {**tree.get("population", {}), "members": population}
    changed = {name: value for name, value in changed.items() if value is not None}
    return validated(Search, tree | changed, {name: f"flag --{name}" for name in changed})
