"""`distrl report SWEEP`: a sweep as one HTML page, and its figures and tables as files for a paper."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from xml.etree.ElementTree import Element

import numpy as np
import yaml

from distrl.apps.config.configuration import load
from distrl.apps.experiments import tables
from distrl.apps.experiments.directory import SweepDirectory, SweepRun, read_file
from distrl.apps.experiments.results import (
    Combination,
    Ranking,
    ReturnScale,
    Wording,
    comparisons,
    each_over_each,
    has_score,
    over_the_best,
)
from distrl.apps.experiments.sweep import Planned, Sweep, every_run, number_of_runs
from distrl.apps.reports.curves import Band
from distrl.apps.reports.intervals import Interval, performance_profile
from distrl.apps.reports.page import LINES, element, table, whole_page
from distrl.apps.reports.pictures import band_picture, interval_picture
from distrl.apps.reports.plots import LIGHT, CurveOptions, PlotGroup, PlottedRun, draw_groups
from distrl.apps.reports.report import PALETTE, drawing, key, machine_rows
from distrl.config.document import parse_mapping
from distrl.config.load import LoadedConfig, dump_given
from distrl.config.secrets import masked
from distrl.errors import ConfigError
from distrl.metrics.phrases import UNKNOWN, count_words, known, return_words
from distrl.runs.directories import Manifest, open_run
from distrl.runs.metrics_csv import read_table
from distrl.runs.summary import duration

MOST_ROWS = 20
"""Most combinations that are compared with the best in a picture."""
MOST_IN_MATRIX = 8
THRESHOLDS = 201
FORMS = ("svg", "pdf")
SCORE = "score \N{GREEK SMALL LETTER TAU}"
EVALUATED, TRAINED = "evaluation_mean_return", "mean_return_100"


@dataclass(frozen=True)
class Figure:
    """A picture of the page, and of a file of its name.

    Attributes:
        draw: Takes form, palette and `in_page`, as `band_picture`.
    """

    name: str
    caption: str
    told: str
    draw: Callable[..., bytes]


@dataclass(frozen=True)
class SweepMaterial:
    """The files of a sweep, read.

    Attributes:
        base: The configuration that all runs share.
        left: Runs that have not begun; None where only time or steps limit them.
        under_way: Names of the runs that a process trains now.
        passed_over: A line for each file that cannot be read.
    """

    place: SweepDirectory
    sweep: Sweep
    base: LoadedConfig
    runs: tuple[SweepRun, ...]
    minutes: float
    left: int | None
    under_way: frozenset[str]
    manifests: tuple[Manifest, ...]
    passed_over: list[str]


class Report:
    """The report of a sweep.

    Args:
        bounds: Environment -> returns that count as 0 and 1; empty: every environment is compared alone.

    Raises:
        ConfigError: No run is done yet, the bounds do not fit, or a file is damaged.
    """

    def __init__(self, place: SweepDirectory, bounds: Mapping[str, ReturnScale]) -> None:
        self._found = _material(place)
        if not any(map(has_score, self._found.runs)):
            raise ConfigError(f"no run in {place.path} is done and has a return; see: distrl runs {place.path}")
        self._bounds = bounds
        base, runs = self._found.base, self._found.runs
        self._wording = Wording(runs, base.origins)
        self._comparisons = comparisons(runs, base.config.environment.id, bounds, base.origins)
        self._figures = [[*self._drawn(one)] for one in self._comparisons]

    def page(self) -> bytes:
        """Return the page as HTML."""
        found = self._found
        sections = [*_header(found, self._comparisons), *_varied(found), *_score(found, self._bounds)]
        for comparison, figures in zip(self._comparisons, self._figures, strict=True):
            sections += self._section(comparison, figures)
        sections += [*_runs(found), *_machine(found), *_reproduction(found, self._bounds)]
        return whole_page(f"{found.place.path.resolve().name} · distrl", element("main", *sections))

    def files(self) -> dict[str, Callable[[], bytes]]:
        """Return the names of the files of figures and tables, with functions that make them."""
        made: dict[str, Callable[[], bytes]] = {}
        for comparison, figures in zip(self._comparisons, self._figures, strict=True):
            end = _ending(comparison, len(self._comparisons))
            made |= {
                f"{figure.name}{end}.{form}": partial(figure.draw, form, LIGHT, in_page=False)
                for figure in figures
                for form in FORMS
            }
            made[f"table{end}.tex"] = partial(tables.latex, comparison, self._wording)
            made[f"table{end}.csv"] = partial(tables.comma_separated, comparison, self._wording)
        return made

    def _section(self, comparison: Ranking, figures: Sequence[Figure]) -> Iterator[Element]:
        title = "All environments, normalised" if comparison.environment is None else comparison.environment
        yield element("h2", f"Results: {title}")
        yield table(*tables.cells(comparison, self._wording), tall=True)
        if not comparison.scored:
            yield element("p", "No run of it is done.", kind="dim")
            return
        shown, left_out = comparison.scored[:LINES], len(comparison.scored) - LINES
        keys = [key(place, one.label) for place, one in enumerate(shown)]
        more = [f"and {left_out} more, which are in the table"] if left_out > 0 else []
        yield element("p", *keys, *more)
        for figure in figures:
            yield element(
                "figure",
                element("figcaption", figure.caption, " ", element("small", figure.told, kind="dim")),
                drawing(figure.draw("svg", PALETTE, in_page=True).decode(), f"{figure.caption}. {figure.told}"),
            )
        if 2 < len(comparison.scored) <= MOST_IN_MATRIX:
            yield from _matrix(comparison)

    def _drawn(self, comparison: Ranking) -> Iterator[Figure]:
        shown = comparison.scored[:LINES]
        if comparison.environment is not None and shown:
            metric, groups = _curves(self._found, shown)
            if groups:
                yield Figure(
                    "curves",
                    "Learning curves",
                    f"{metric}: interquartile mean over seeds and its 95 % interval, "
                    "as far as all runs of a combination went; single runs where they share no steps",
                    partial(band_picture, groups, "environment steps", metric),
                )
        if shown:
            yield Figure(
                "profiles",
                "Performance profiles",
                f"share of runs with a score above {SCORE[-1]}, and its 95 % interval",
                partial(band_picture, _profiles(shown), SCORE, f"share of runs above {SCORE[-1]}"),
            )
        others = over_the_best(comparison)
        if others:
            rows = dict([*others.items()][:MOST_ROWS])
            more = f"; the next {MOST_ROWS} of {len(others)}" if len(others) > len(rows) else ""
            yield Figure(
                "improvement",
                "Probability of improvement",
                f"probability that a run scores more than one of the best combination, {shown[0].label}{more}",
                partial(interval_picture, rows, 0.5, "probability of improvement over the best"),
            )


def _material(place: SweepDirectory) -> SweepMaterial:
    sweep, _ = read_file(place.file, Sweep)
    runs, minutes = place.index(every_run(sweep))
    total = number_of_runs(sweep)
    under_way, manifests, passed_over = set(), [], []
    for planned, outcome in runs:
        try:
            if not outcome.has_ended and open_run(place.run(planned)).state == "running":
                under_way.add(planned.name)
            if outcome.state == "done" and (manifest := Manifest.read(place.run(planned) / "manifest.json")):
                manifests.append(manifest)
        except ConfigError as error:
            passed_over.append(str(error))
    return SweepMaterial(
        place=place,
        sweep=sweep,
        base=load(file=place.base),
        runs=tuple(runs),
        minutes=minutes,
        left=None if total is None else max(total - len(runs), 0),
        under_way=frozenset(under_way),
        manifests=tuple(manifests),
        passed_over=passed_over,
    )


def _curves(found: SweepMaterial, shown: Sequence[Combination]) -> tuple[str, tuple[PlotGroup, ...]]:
    """Return the metric of the learning curves, and the curves; empty where no run has one."""
    sources: dict[str, list[PlottedRun]] = {}
    for one in shown:
        for run in filter(has_score, one.runs):
            path = found.place.run(run.planned)
            try:
                sources.setdefault(one.label, []).append(
                    PlottedRun(run.planned.name, path, read_table(path / "metrics.csv"))
                )
            except ConfigError as error:
                found.passed_over.append(str(error))
    everything = [source.table for group in sources.values() for source in group]
    for metric in (EVALUATED, TRAINED):
        having = [np.isfinite(numbers[metric]).any() for numbers in everything if metric in numbers]
        if having and (all(having) and len(having) == len(everything) if metric == EVALUATED else any(having)):
            groups = draw_groups(sources, metric, CurveOptions(statistic="interval"))
            drawn = {group.label: group for group in groups}
            nothing = np.empty(0)
            empty = Band(nothing, nothing, nothing, nothing)
            # Every combination keeps its place, and so its colour.
            return metric, tuple(drawn.get(one.label, PlotGroup(one.label, (), empty)) for one in shown)
    return "", ()


def _profiles(shown: Sequence[Combination]) -> tuple[PlotGroup, ...]:
    scores = np.concatenate([np.asarray(scores) for one in shown for scores in one.scores])
    margin = 0.03 * (scores.max() - scores.min()) or 0.5
    thresholds = np.linspace(scores.min() - margin, scores.max() + margin, THRESHOLDS)
    return tuple(
        PlotGroup(one.label, (), Band(thresholds, *performance_profile(one.scores, thresholds))) for one in shown
    )


def _header(found: SweepMaterial, compared: Sequence[Ranking]) -> Iterator[Element]:
    states = Counter(run.outcome.state for run in found.runs)
    steps = sum(run.outcome.env_steps for run in found.runs)
    interrupted = states["interrupted"] - len(found.under_way)
    yield element("h1", found.place.path.resolve().name)
    environments = [one.environment for one in compared if one.environment is not None]
    combinations = len({tuple(run.planned.sets) for run in found.runs})
    yield element("p", f"a sweep of {_count(combinations, 'combination')}, on {', '.join(environments)}", kind="dim")
    open_ones = [("failed", states["failed"]), ("under way", len(found.under_way)), ("interrupted", interrupted)]
    told = [f"{_count(states['done'], 'run')} done"] + [f"{number} {word}" for word, number in open_ones if number]
    if found.left:
        told.append(f"{found.left} not begun")
    verdict = "bad" if states["failed"] else "good" if len(told) == 1 else ""
    yield element("p", ", ".join(told), kind=f"verdict {verdict}".strip())
    tiles = [
        ("runs done", count_words(states["done"])),
        ("combinations", count_words(combinations)),
        ("seeds", count_words(len(found.sweep.seeds))),
        ("environment steps", count_words(steps)),
        ("all launches", duration(60.0 * found.minutes)),
    ]
    yield element(
        "div", *(element("div", element("b", value), name, kind="tile") for name, value in tiles), kind="tiles"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _varied(found: SweepMaterial) -> Iterator[Element]:
    yield element("h2", "What varied")
    rows = []
    for path, varied in found.sweep.vary.items():
        if varied.values is not None:
            values = ", ".join(str(masked(path, value)) for value in varied.values)
        else:
            values = f"{varied.low} to {varied.high}{', drawn evenly in the logarithm' if varied.log else ''}"
        when = " and ".join(f"{other} is {masked(other, value)}" for other, value in varied.when.items())
        rows.append((path, f"{values}, when {when}" if when else values))
    rows.append(("seed", ", ".join(map(str, found.sweep.seeds))))
    yield table(("setting", "values"), rows)


def _score(found: SweepMaterial, bounds: Mapping[str, ReturnScale]) -> Iterator[Element]:
    """Tell what a score is, and what the numbers leave out."""
    scored = [run for run in found.runs if has_score(run)]
    evaluated = sum(run.outcome.is_evaluated for run in scored)
    yield element("h2", "Scores")
    if evaluated in (0, len(scored)):
        kind = "its newest evaluation" if evaluated else "its last 100 training episodes; no run was evaluated"
        yield element("p", f"The score of a run is the mean return of {kind}.")
    else:
        yield element(
            "p",
            f"Two kinds of scores: {evaluated} of {len(scored)} runs are scored by the mean return of their newest "
            "evaluation, the others, which were not evaluated, by that of their last 100 training episodes.",
            kind="bad",
        )
    yield element(
        "p",
        "Intervals are 95 % bootstrap intervals over seeds (Agarwal et al. 2021, arXiv:2108.13264). The best "
        "of many combinations is partly the best by chance: train it under new seeds before you report its return.",
    )
    if len(found.sweep.seeds) == 1:
        yield element("p", "One seed each cannot tell how much seeds differ: intervals have no width.", kind="bad")
    if bounds:
        told = "; ".join(f"{name}: {low:g} is 0, {high:g} is 1" for name, (low, high) in bounds.items())
        yield element("p", f"Normalised by the bounds that were given for this report: {told}.")
    unscored = len(found.runs) - len(scored)
    if unscored or found.left:
        yield element(
            "p",
            "Runs that failed, or are not done, have no score: they are in no interval and in no curve.",
            kind="bad",
        )
    for line in found.passed_over:
        yield element("p", f"Passed over: {line}", kind="bad")


def _matrix(comparison: Ranking) -> Iterator[Element]:
    yield element("p", "Probability that a run of the row scores more than one of the column, with its 95 % interval:")
    found = each_over_each(comparison)
    labels = [one.label for one in comparison.scored]
    rows = [
        (row, *(_probability(found[row, column]) if row != column else UNKNOWN for column in labels)) for row in labels
    ]
    yield table(("", *labels), rows, tall=True)


def _probability(found: Interval) -> str:
    return f"{found.centre:.2f} ({found.low:.2f} … {found.high:.2f})"


def _runs(found: SweepMaterial) -> Iterator[Element]:
    failed = [run for run in found.runs if run.outcome.state == "failed"]
    if failed:
        yield element("h2", "Failed runs")
        errors = [(planned.name, _words(planned), outcome.error or UNKNOWN) for planned, outcome in failed]
        yield table(("run", "settings", "error"), errors, tall=True)
    yield element("h2", "All runs")
    heads = ("run", "settings", "state", "score", "of", "steps", "time")
    rows = []
    for planned, outcome in found.runs:
        state = "under way" if planned.name in found.under_way else outcome.state
        kind = "" if outcome.mean_return is None else "evaluation" if outcome.is_evaluated else "training"
        steps = count_words(outcome.env_steps) if outcome.has_ended else found.place.progress(planned)
        numbers = (known(outcome.mean_return, return_words), kind, steps, duration(outcome.wall_s))
        rows.append((planned.name, _words(planned), state, *numbers))
    yield table(heads, rows, [not has_score(run) for run in found.runs], tall=True)


def _words(planned: Planned) -> str:
    """Return the settings and the seed of a run, secrets masked."""
    settings = [f"{path}={masked(path, value)}" for path, value in planned.values.items()]
    return " ".join([*settings, f"seed {planned.seed}"])


def _machine(found: SweepMaterial) -> Iterator[Element]:
    if not found.manifests:
        return
    yield element("h2", "Machine and versions")
    values: dict[str, dict[str, None]] = {}
    for manifest in found.manifests:
        for name, value in machine_rows(manifest):
            values.setdefault(name, {})[value] = None
    if any(len(different) > 1 for different in values.values()):
        yield element("p", "Not all runs had the same.", kind="bad")
    yield table((), [(name, " | ".join(different)) for name, different in values.items()])


def _reproduction(found: SweepMaterial, bounds: Mapping[str, ReturnScale]) -> Iterator[Element]:
    path = found.place.path
    yield element("h2", "How to reproduce")
    yield element("p", "Save this as again.yaml; secrets are masked in it:")
    yield element("pre", sweep_file(found.sweep, found.base))
    yield element("p", "and train the same runs anew, and report them:")
    again = shlex.quote(f"{path}-again")
    yield element("pre", f"distrl sweep again.yaml --dir {again}\ndistrl report {again}")
    yield element("p", "This page was written by", kind="dim")
    normalised = [f"--normalise={name}={low:g}:{high:g}" for name, (low, high) in bounds.items()]
    yield element("pre", shlex.join(["distrl", "report", str(path), *normalised]))


def sweep_file(sweep: Sweep, base: LoadedConfig) -> str:
    """Return the file of a sweep that needs no other file, secrets masked."""
    tree = sweep.model_dump(mode="json", exclude_defaults=True)
    # By sections, as keys such as those of trackers.own hold dots.
    shared = parse_mapping(dump_given(base, masked), "the shared configuration")
    shared.pop("seed", None)
    if "vary" in tree:
        tree["vary"] = {path: masked(path, varied) for path, varied in tree["vary"].items()}
    text: str = yaml.safe_dump({"set": shared} | tree, sort_keys=False, allow_unicode=True)
    return text


def _ending(comparison: Ranking, number: int) -> str:
    """Return the end of the names of files, before the dot."""
    if number == 1:
        return ""
    return "-" + (re.sub(r"[^A-Za-z0-9.]+", "-", comparison.environment) if comparison.environment else "all")
