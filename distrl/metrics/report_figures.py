"""The curves of a report: small drawings in the page's own colours, with captions, and words for who sees none."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from distrl.metrics.curves import Curve, curve, thinned
from distrl.metrics.page import element, inline_svg
from distrl.metrics.palettes import Palette
from distrl.metrics.pictures import MEANINGS, small_picture
from distrl.metrics.plots import Group
from distrl.metrics.table import Table

# Colours that nothing else has: each becomes a variable of the page, which light and dark give a value.
PALETTE = Palette("#0a0001", "#0a0002", "#0a0003", "#0a0004", ("#0a0010", "#0a0011"))
VARIABLES = {
    "#0a0002": "var(--ink)",
    "#0a0003": "var(--dim)",
    "#0a0004": "var(--grid)",
    "#0a0010": "var(--line-0)",
    "#0a0011": "var(--line-1)",
}
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


def figures(table: Table) -> Iterator[Element]:
    """One for each of `FIGURES` that has a number."""
    for caption, names, from_zero in FIGURES:
        figure = _figure(table, caption, names, from_zero)
        if figure is not None:
            yield figure


def _figure(table: Table, caption: str, names: Sequence[str], from_zero: bool) -> Element | None:
    curves = {name: curve(table, name) for name in names if name in table}
    curves = {name: thinned(points, MOST_POINTS) for name, points in curves.items() if len(points.x)}
    if not curves:
        return None
    groups = [Group(name, (points,), None) for name, points in curves.items()]
    svg = small_picture(groups, "steps", PALETTE, from_zero=from_zero)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    label = "; ".join(f"{MEANINGS.get(name, name)}: {_told(points)}" for name, points in curves.items())
    keys: list[Element] = []
    for place, name in enumerate(curves):
        swatch = element("span", kind="swatch", style=f"background: var(--line-{place})")
        keys.append(element("small", " ", swatch, f"{name} ", kind="dim"))
    return element("figure", element("figcaption", caption, *keys), inline_svg(svg, label))


def _told(points: Curve) -> str:
    return f"from {points.y[0]:,.4g} to {points.y[-1]:,.4g} over {points.x[-1]:,.0f} environment steps"
