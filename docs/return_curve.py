"""Draws mean returns over minutes from the metrics.csv of runs, and prints them as a Markdown table.

python docs/return_curve.py docs/images/halfcheetah.svg "seed 1"=runs/one "seed 2"=runs/two
"""

import csv
import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

MINUTES = (1, 2, 3, 5, 10)
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 44
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728")
LATE_S = 2.0
"""A snapshot of every second may be this much off a full minute on a busy machine."""

Point = tuple[float, float, int]
"""Seconds since the learner began, mean return of the last 100 episodes, environment steps."""


def read(run_dir: Path) -> list[Point]:
    """Every snapshot of a run that had a mean return, in order of time."""
    with (run_dir / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["mean_return_100"]]
    return [(float(row["wall_s"]), float(row["mean_return_100"]), int(row["env_steps"])) for row in rows]


def at(points: Sequence[Point], minute: float) -> Point | None:
    """The newest point by this minute; None if the run had ended, or not begun to return, by then."""
    before = [point for point in points if point[0] <= 60.0 * minute + LATE_S]
    return before[-1] if before and points[-1][0] >= 60.0 * minute - LATE_S else None


def table(curves: dict[str, list[Point]]) -> str:
    """Return and steps of every curve at `MINUTES`."""
    lines = [f"| | {' | '.join(f'{minute} min' for minute in MINUTES)} |", "|---" * (len(MINUTES) + 1) + "|"]
    for name, points in curves.items():
        found = [at(points, minute) for minute in MINUTES]
        cells = ["–" if point is None else f"{point[1]:,.0f} ({point[2]:,} steps)" for point in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def drawing(curves: dict[str, list[Point]]) -> str:
    """The curves as SVG: minutes to the right, return upwards."""
    minutes = max(points[-1][0] for points in curves.values()) / 60.0
    values = [value for points in curves.values() for _, value, _ in points]
    step = _step(max(values) - min(0.0, *values))
    low, high = step * math.floor(min(0.0, *values) / step), step * math.ceil(max(values) / step)
    high = max(high, low + step)  # where all are 0

    def x(minute: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * minute / minutes

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for value in range(round(low), round(high) + 1, round(step)):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#dddddd"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,}</text>')
    for minute in range(math.floor(minutes) + 1):
        parts.append(f'<text x="{x(minute):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{minute}</text>')
    parts.append(f'<text x="{x(minutes / 2):.1f}" y="{HEIGHT - 8}" text-anchor="middle">minutes</text>')
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{x(seconds / 60.0):.1f},{y(value):.1f}" for seconds, value, _ in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{LEFT + 12}" y="{TOP + 16 + 16 * index}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _step(span: float) -> float:
    """Between two lines: 1, 2 or 5 times a power of ten, for four to nine of them."""
    power = 10.0 ** math.floor(math.log10(max(span, 10.0) / 4.0))
    return max(factor * power for factor in (1.0, 2.0, 5.0) if factor * power <= max(span, 10.0) / 4.0)


def main(arguments: Sequence[str]) -> None:
    """Writes the drawing to the first argument; the others are NAME=RUN_DIR."""
    path, *named = arguments
    pairs = [argument.rpartition("=") for argument in named]
    curves = {name: read(Path(run_dir)) for name, _, run_dir in pairs}
    Path(path).write_text(drawing(curves), encoding="utf-8")
    print(table(curves))


if __name__ == "__main__":
    main(sys.argv[1:])
