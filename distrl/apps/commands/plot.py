"""`distrl plot` and `distrl report`: curves and pages of runs and sweeps, from their directories."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from distrl.apps.commands import completion
from distrl.apps.commands.printing import echo
from distrl.apps.commands.runs import waiting, warn
from distrl.config.presets import nearest
from distrl.data_store.atomic import put_file
from distrl.errors import ConfigError, require
from distrl.files import check_place
from distrl.metrics.snapshot import X_AXES
from distrl.runs.directories import find_runs, open_run

if TYPE_CHECKING:
    from distrl.apps.experiments.results import ReturnScale
    from distrl.apps.reports.curves import Statistic

FORMS = {".png": "png", ".svg": "svg"}

RunsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="Directories of runs, or folders of them.", autocompletion=completion.runs),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


def plot(
    runs: RunsArgument,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png|.svg", help="[dim]Default: NAME.png here, by the first RUN's name.[/]"),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A column of metrics.csv; repeatable. [dim]Default: mean_return_100.[/]"),
    ] = None,
    second: Annotated[str | None, typer.Option(metavar="NAME", help="Column for a second y axis, dashed.")] = None,
    over: Annotated[str, typer.Option(metavar="|".join(X_AXES), help="The x axis.")] = "steps",
    smooth: Annotated[int, typer.Option(min=1, metavar="N", help="Mean of the last N values of each run.")] = 1,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="PATH|folder", help="Runs with an equal value of a configuration key are one band."),
    ] = None,
    statistic: Annotated[
        str,
        typer.Option(
            metavar="mean|iqm|interval|median",
            help="Statistic of bands: mean ± deviation; interquartile mean and quartiles, or 95 % interval; median.",
        ),
    ] = "mean",
    dark: Annotated[bool, typer.Option("--dark", help="For dark pages.")] = False,
    force: ForceOption = False,
) -> None:
    """Draw the curves of runs into a PNG or SVG file.

    [cyan]distrl plot runs/first[/]

    [cyan]distrl plot runs/first --metric mean_return_100 --second entropy --over time[/]

    [cyan]distrl plot sweep --group-by network.learning_rate --statistic iqm --smooth 5 --output sweep.svg[/]
    """
    path = output or Path(f"{runs[0].resolve().name}.png")
    form = _form(path)
    _check_choice("--over", over, [*X_AXES])
    _check_choice("--statistic", statistic, ["mean", "iqm", "interval", "median"])
    metrics = metric or ["mean_return_100"]
    if second is not None and len(metrics) > 1:
        raise ConfigError(f"--second {second} goes with one --metric, and there are {len(metrics)}")
    check_output(path, force)
    require("matplotlib", "matplotlib", "plot")
    with waiting("still reading runs …"):
        from distrl.apps.reports import pictures, plots

        options = plots.CurveOptions(over, smooth, cast("Statistic", statistic))
        sources = plots.read_sources([run.path for run in find_runs(runs, warn)], warn)
        groups = plots.group_sources(sources, group_by)
        panels = [plots.panel(groups, name, second, options) for name in metrics]
    with waiting("still drawing …"):
        palette = plots.DARK if dark else plots.LIGHT
        drawn = pictures.picture(panels, form, options, group_by or "", palette)
    write_output(path, drawn)
    count = f"{len(sources)} {'run' if len(sources) == 1 else 'runs'}"
    in_groups = f" in {len(groups)} {'group' if len(groups) == 1 else 'groups'}" if group_by else ""
    echo(f"{path}: {', '.join(metrics)} of {count}{in_groups}, {len(drawn) / 1000:,.0f} kB")


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|SWEEP",
            help="A run's directory, or a sweep's; both may be training.",
            autocompletion=completion.runs_and_sweeps,
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="[dim]Default: NAME.html here, by the directory's name.[/]")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write a sweep's figures (SVG, PDF) and tables (LaTeX, CSV) there."),
    ] = None,
    normalise: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENV=LOW:HIGH",
            help="Returns that count as 0 and 1, to compare a sweep over all its environments; one for each.",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write a report of a run or a sweep as one HTML file.

    It has no script and fetches nothing; passwords are masked.

    [cyan]distrl report runs/first --output report.html[/]

    [cyan]distrl report runs/rates --figures paper/rates[/]

    [cyan]distrl report runs/both --normalise CartPole-v1=0:500 --normalise Acrobot-v1=-500:-100[/]
    """
    path = output or Path(f"{run.resolve().name}.html")
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--output {path} must end with .html, as the report is a web page; --figures makes PDFs")
    check_output(path, force)
    require("matplotlib", "matplotlib", "plot")
    if (run / "sweep.yaml").is_file():
        _report_sweep(run, path, figures, normalise or (), force)
        return
    if given := "--figures" if figures is not None else "--normalise" if normalise else None:
        raise ConfigError(f"{given} is for sweeps, and {run} is none; leave it out")
    if (run / "search.yaml").is_file():
        raise ConfigError(f"{run} is a search, which draws its own pictures; name a sweep, or a run such as {run}/0001")
    found = open_run(run)
    with waiting("still drawing …"):
        from distrl.apps.reports.report import report as write_report

        page = write_report(found)
    write_output(path, page)
    echo(f"{path}: {len(page) / 1000:,.0f} kB")


def _report_sweep(sweep: Path, path: Path, figures: Path | None, normalise: Sequence[str], force: bool) -> None:
    with waiting("still reading runs and drawing …"):
        from distrl.apps.experiments.directory import SweepDirectory
        from distrl.apps.experiments.report import Report

        made = Report(SweepDirectory(sweep), dict(map(_bounds, normalise)))
        files = {} if figures is None else {figures / name: make for name, make in made.files().items()}
        for file in files:
            check_place(file, "--figures", force=force)
        page = made.page()
        drawn = {file: make() for file, make in files.items()}
    if figures is not None:
        try:
            figures.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{figures} cannot be made: {error.strerror}; choose another --figures") from error
    for file, content in {**drawn, path: page}.items():
        write_output(file, content, "--output" if file == path else "--figures")
    echo(f"{path}: {len(page) / 1000:,.0f} kB")
    if figures is not None:
        echo(f"{figures}: {', '.join(file.name for file in files)}")


def _bounds(text: str) -> "tuple[str, ReturnScale]":
    from distrl.apps.experiments.results import ReturnScale

    environment, _, interval = text.rpartition("=")
    try:
        low, high = map(float, interval.split(":"))
    except ValueError:
        low, high = math.nan, math.nan
    if not environment or not low < high or math.isinf(high - low):
        raise ConfigError(f"--normalise {text}: write ENV=LOW:HIGH, with LOW less than HIGH")
    return environment, ReturnScale(low, high)


def check_output(path: Path, force: bool) -> None:
    """Refuse an output that exists and must not be replaced, or whose folder does not exist."""
    check_place(path, "--output", force=force)
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}")


def write_output(path: Path, content: bytes, option: str = "--output") -> None:
    """Write a file for the user, or raise ConfigError."""
    try:
        put_file(path, content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another {option}") from error


def _form(path: Path) -> str:
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise ConfigError(f"--output {path} must end with .png or .svg")
    return form


def _check_choice(option: str, value: str, choices: list[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{option} {value!r}: {nearest(value, choices)}")
