"""`distrl report`: one run as one HTML page, made from its directory."""

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from distrl.apps.reports.curves import Band, Curve, curve, thinned
from distrl.apps.reports.page import LINES, element, inline_svg, table, whole_page
from distrl.apps.reports.pictures import X_LABELS, small_picture
from distrl.apps.reports.plots import Palette, PlotGroup
from distrl.config.off_policy import ESTIMATORS
from distrl.config.settings import Settings, read_settings
from distrl.errors import ConfigError
from distrl.files import read_end, read_small
from distrl.metrics.phrases import NO_EPISODE, count_words, known, return_words, waiting_words
from distrl.metrics.snapshot import DISCOUNTED, X_AXES, estimate_columns, is_other_return, meaning_of
from distrl.runs.directories import Manifest, Run
from distrl.runs.listing import ListedRun, entry
from distrl.runs.metrics_csv import Table, read_table
from distrl.runs.recorded_data import usual_axis
from distrl.runs.summary import conservation, duration, outcome

_TONES = {"solved": " good", "failed": " bad"}
MOST_EVENTS = 500
MOST_EVENT_BYTES, MOST_DESCRIPTION_BYTES = 2**20, 2**24


@dataclass(frozen=True)
class RunMaterial:
    """The files of a run, read."""

    run: Run
    entry: ListedRun
    table: Table
    settings: Settings
    manifest: Manifest | None
    environment: dict[str, Any]
    events: tuple[str, ...]


def report(run: Run) -> bytes:
    """Return the page as HTML."""
    found = _material(run)
    if not any(map(len, found.table.values())):
        raise ConfigError(f"{run.path} has no numbers yet; wait for its first updates")
    sections = [*_header(found), *_figures(found), *_accounting(found), *_configuration(found)]
    sections += [*_environment(found), *_machine(found), *_reproduction(found), *_events(found)]
    sections += _whole_configuration(found)
    return whole_page(f"{found.entry.name} · distrl", element("main", *sections))


def _material(run: Run) -> RunMaterial:
    log = run.path / "logs" / "events.log"
    events = read_end(log, MOST_EVENT_BYTES).decode(errors="replace").splitlines() if log.is_file() else []
    return RunMaterial(
        run=run,
        entry=entry(run, run.path.resolve().name),
        table=read_table(run.path / "metrics.csv"),
        settings=read_settings(run.path / "config.yaml"),
        manifest=Manifest.read(run.path / "manifest.json"),
        environment=_described_environment(run.path / "policy" / "description.json"),
        events=tuple(events),
    )


def _described_environment(path: Path) -> dict[str, Any]:
    """Read the environment's description in the exported policy; empty before the first export."""
    if not path.is_file():
        return {}
    try:
        described = json.loads(read_small(path, MOST_DESCRIPTION_BYTES))["environment"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: {error}") from error
    return described if isinstance(described, dict) else {}


def _header(found: RunMaterial) -> Iterator[Element]:
    one, summary, over = found.entry, found.run.summary, usual_axis(found.settings)
    yield element("h1", one.name)
    facts = [f"{one.algorithm or found.settings['algorithm.name'].text}", one.env or "", f"seed {one.seed}"]
    if one.started is not None:
        facts.append(time.strftime("%Y-%m-%d %H:%M", time.localtime(one.started)))
    yield element("p", " · ".join(filter(None, facts)), kind="dim")
    if summary is None:
        yield element("p", f"{one.outcome}, as of the last row of its metrics", kind="verdict")
    else:
        yield element("p", outcome(summary), kind="verdict" + _TONES.get(summary.end, ""))
        if summary.error is not None:
            yield element("p", summary.error, kind="bad")
    yield element(
        "div",
        *(element("div", element("b", value), name, kind="tile") for name, value in _tiles(one, over)),
        kind="tiles",
    )


def _tiles(one: ListedRun, over: str) -> list[tuple[str, str]]:
    steps = "environment steps" if over == "steps" else "recorded steps used"
    tiles = [
        ("return, last 100 episodes", known(one.mean_return_100, return_words, NO_EPISODE)),
        ("best return", known(one.best_mean_return_100, return_words)),
        (steps, known(one.env_steps, count_words)),
        ("steps/s", known(one.env_steps_per_s, count_words)),
        ("updates", known(one.updates, count_words)),
        ("wall time", known(one.wall_s, duration)),
    ]
    if one.time_to_first_update_s is not None:
        tiles.append(("to the first update", duration(one.time_to_first_update_s)))
    if one.peak_rss_mb is not None:
        tiles.append(("peak memory, all roles", f"{one.peak_rss_mb:,.0f} MB"))
    return tiles


def _figures(found: RunMaterial) -> Iterator[Element]:
    yield element("h2", "Curves")
    yield element("div", *figures(found.table, usual_axis(found.settings)), kind="figures")


def _accounting(found: RunMaterial) -> Iterator[Element]:
    summary = found.run.summary
    if summary is None:
        return
    yield element("h2", "Where every unroll went")
    yield element("p", conservation(summary))
    lag = summary.policy_lag
    rows = [("bottleneck", summary.bottleneck), ("restarts of roles", f"{summary.restarts:,}")]
    if waits := waiting_words(summary.learner_idle_share, summary.actors_blocked_share):
        rows.append(("waiting", waits))
    if lag.mean is not None and lag.p95 is not None and lag.max is not None:
        rows.append(("policy lag, updates", f"{lag.mean:.1f} mean, {lag.p95:,.0f} p95, {lag.max:,.0f} max"))
    rows += [(f"peak memory, {role}", f"{mb:,.0f} MB") for role, mb in summary.peak_rss_mb.items()]
    yield table((), rows)


def _configuration(found: RunMaterial) -> Iterator[Element]:
    given = [(path, each.text, each.origin) for path, each in found.settings.items() if each.origin != "default"]
    yield element("h2", "What was set")
    yield table(("setting", "value", "origin"), given)


def _whole_configuration(found: RunMaterial) -> Iterator[Element]:
    yield element("h2", "The whole configuration")
    rows = [(path, each.text, each.origin) for path, each in found.settings.items()]
    yield table(("setting", "value", "origin"), rows, [origin == "default" for _, _, origin in rows])


def _environment(found: RunMaterial) -> Iterator[Element]:
    if not found.environment:
        return
    yield element("h2", "Environment")
    rows = []
    for name, value in found.environment.items():
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            facts = inner.items() if isinstance(inner, dict) else [("", inner)]
            told = ", ".join(f"{fact} {_plain(each)}".strip() for fact, each in facts if each is not None)
            if told:
                rows.append((f"{name}: {key}" if key else name, told))
    yield table((), rows)


def _machine(found: RunMaterial) -> Iterator[Element]:
    yield element("h2", "Machine and versions")
    told = found.manifest
    if told is None:
        yield element("p", "The run left no manifest.json, as runs of older versions did not.", kind="dim")
        return
    yield table((), machine_rows(told))


def machine_rows(told: Manifest) -> list[tuple[str, str]]:
    """Return what a manifest tells of machine and versions: name and value."""
    return [
        ("host", told.host),
        ("processor", f"{told.cores} cores of {told.cpu}"),
        ("memory", known(told.memory_bytes, lambda size: f"{size / 1e9:,.1f} GB")),
        ("GPU", ", ".join(told.gpus) or "none"),
        ("system", told.system),
        ("Python", told.python),
        ("distrl", told.distrl + (f", commit {told.distrl_commit}" if told.distrl_commit else "")),
        ("packages", ", ".join(f"{name} {version}" for name, version in told.packages.items())),
    ]


def _reproduction(found: RunMaterial) -> Iterator[Element]:
    path, told = found.run.path, found.manifest
    yield element("h2", "How to reproduce")
    if told is not None:
        code = f"a checkout of distrl at {told.distrl_commit}" if told.distrl_commit else f"distrl {told.distrl}"
        here = f", own code at {told.commit}" if told.commit not in (None, told.distrl_commit) else ""
        yield element("p", f"With {code}{here}, in {told.directory}; it was started by")
        yield element("pre", shlex.join(told.command))
        yield element("p", "and the configuration as it was settled then is started again by")
    again = f"distrl train {shlex.quote(f'{path}/config.yaml')} --run-dir {shlex.quote(f'{path}-again')}"
    yield element("pre", again)
    actors = found.settings.get("actors.count")
    exact = actors is not None and actors.value == 0
    note = "One process without actors repeats itself bit by bit on the same machine and versions."
    many = "Actors beside a learner meet in another order each time: expect the same within what seeds differ."
    yield element("p", note if exact else many, kind="dim")


def _events(found: RunMaterial) -> Iterator[Element]:
    if not found.events:
        return
    yield element("h2", "Events")
    left_out = len(found.events) - MOST_EVENTS
    if left_out > 0:
        yield element("p", f"{left_out:,} earlier ones are in logs/events.log", kind="dim")
    yield element("pre", "\n".join(found.events[-MOST_EVENTS:]))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Colours that nothing else has: each becomes a variable of the page, which light and dark give a value.
PALETTE = Palette("#0a0001", "#0a0002", "#0a0003", "#0a0004", tuple(f"#0a001{place}" for place in range(LINES)))
_VARIABLES = {PALETTE.ink: "ink", PALETTE.dim: "dim", PALETTE.grid: "grid"}
_VARIABLES |= {colour: f"line-{place}" for place, colour in enumerate(PALETTE.lines)}
FIGURES = (
    ("Return", ("mean_return_100", "evaluation_mean_return"), False),
    ("Throughput, steps/s", ("env_steps_per_s",), True),
    ("Policy lag, updates", ("policy_lag_mean", "policy_lag_max"), True),
    ("Fill of the queue", ("queue_fill",), True),
    ("Waiting, share of the time", ("learner_wait_share", "actors_blocked_share"), True),
    ("Loss", ("loss",), False),
    ("Entropy, nats", ("entropy",), False),
    ("Gradient norm before clipping", ("gradient_norm",), True),
)
"""Captions, the metrics below them, two at most, and whether the y axis begins at 0; none without a number."""
MOST_POINTS = 600


def figures(table: Table, over: str = "steps") -> Iterator[Element]:
    """One for each of `FIGURES` that has a number, for returns in `evaluation.other_environments`, and for estimates.

    Args:
        over: The x axis, a key of `X_AXES`.
    """
    others = [name for name in table if is_other_return(name)]
    parts = [tuple(others[begin : begin + LINES]) for begin in range(0, len(others), LINES)]
    of_others = [("Return of evaluations in other environments", names, False) for names in parts]
    estimated = (DISCOUNTED, *(name for one in ESTIMATORS if (name := estimate_columns(one)[0]) in table))
    estimates = ("Discounted return, played and estimated", estimated, False)
    for caption, names, from_zero in (*FIGURES[:1], *of_others, estimates, *FIGURES[1:]):
        figure = _figure(table, caption, names[:LINES], from_zero, over)
        if figure is not None:
            yield figure


def _figure(table: Table, caption: str, names: Sequence[str], from_zero: bool, over: str) -> Element | None:
    curves = {name: curve(table, name, over) for name in names if name in table}
    curves = {name: thinned(points, MOST_POINTS) for name, points in curves.items() if len(points.x)}
    if not curves:
        return None
    groups = [PlotGroup(name, (points,), _interval(table, name, over)) for name, points in curves.items()]
    svg = small_picture(groups, over, PALETTE, from_zero=from_zero)
    label = "; ".join(f"{meaning_of(name)}: {_told(points, over)}" for name, points in curves.items())
    keys = [element("small", " ", key(place, name), kind="dim") for place, name in enumerate(curves)]
    return element("figure", element("figcaption", caption, *keys), drawing(svg, label))


def _interval(table: Table, name: str, over: str) -> Band | None:
    """Return the 95 % interval of an estimate, thinned out; None: the column has none."""
    low, high = f"{name}_low", f"{name}_high"
    if low not in table or high not in table:
        return None
    known = np.flatnonzero(np.isfinite(table[low] + table[high] + table[name] + table[X_AXES[over]]))
    rows = known[np.linspace(0, len(known) - 1, min(len(known), MOST_POINTS)).astype(int)]
    return Band(*(table[column][rows] for column in (X_AXES[over], name, low, high))) if len(rows) else None


def key(place: int, name: str) -> Element:
    """Return the entry of a legend: the colour of the line at a place, and its name."""
    swatch = element("span", kind="swatch", style=f"background: var(--line-{place})")
    return element("span", swatch, f"{name} ", kind="key")


def drawing(svg: str, label: str) -> Element:
    """Make a drawing in the colours of `PALETTE` part of the page, whose colours it gets."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return inline_svg(svg, label)


def _told(points: Curve, over: str) -> str:
    return f"from {points.y[0]:,.4g} to {points.y[-1]:,.4g} over {points.x[-1]:,.0f} {X_LABELS[over]}"
