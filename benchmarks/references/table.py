"""The table of a report of comparisons; docs/comparisons.py makes a page of it."""

from collections.abc import Mapping, Sequence
from typing import Any


def block(report: Mapping[str, Any]) -> str:
    """Return the part of the page that a report makes: where it comes from, agreements, differences."""
    figures = report["figures"]
    agreements = [figure for figure in figures if figure["allowed"] is not None]
    differences = [figure for figure in figures if figure["allowed"] is None]
    parts = [origin(report), agreement_table(agreements)]
    if differences:
        parts += ["Where conventions differ, and by how much that showed:", difference_table(differences)]
    return "\n\n".join(parts)


def origin(report: Mapping[str, Any]) -> str:
    """Return the line that names command, date, commit, machine and versions."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return (
        f"`{report['command']}` on {report['date']}, commit {report['commit']}, {report['machine']}: "
        f"{len(report['figures'])} comparisons in {report['wall_s']:.0f} s, with {versions}."
    )


def agreement_table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with the largest error of each comparison."""
    heads = ["", "Compared", "With", "Largest error", "Of", "Allowed", "Set to the same convention"]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    before = None
    for figure in figures:
        group = "" if figure["group"] == before else figure["group"]
        before = figure["group"]
        numbers = [number(figure["error"]), number(figure["of"]), number(figure["allowed"])]
        lines.append(_line([group, figure["what"], figure["reference"], *numbers, figure["note"]]))
    return "\n".join(lines)


def difference_table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the differences that conventions make."""
    heads = ["", "Compared", "With", "Difference", "Of", "Because"]
    lines = [_line(heads), "|---" * len(heads) + "|"]
    for figure in figures:
        numbers = [number(figure["error"]), number(figure["of"])]
        lines.append(_line([figure["group"], figure["what"], figure["reference"], *numbers, figure["note"]]))
    return "\n".join(lines)


def number(value: float) -> str:
    """Return two significant digits: 0, 3.1e-07 as '3.1e-7', 0.012, 18."""
    if value == 0.0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{float(f'{value:.2g}'):,g}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
