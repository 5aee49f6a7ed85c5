"""Histograms of a run's TensorBoard files, as lists of tags and heat maps over steps."""

from pathlib import Path
from typing import Any

from distrl.apps.dashboard.event_files import heat_map, read_histograms, tags
from distrl.apps.dashboard.files import NotThereError, own_file

COLUMNS, ROWS = 160, 48
MOST_FILES, MOST_TAGS = 64, 500
FOLDER = "tensorboard"
"""The usual `tensorboard.directory`; another one may be outside of the run's directory."""
Json = dict[str, Any]


def tags_of(run_dir: Path) -> Json:
    """Return the tags of all histograms, and whether the files were read to their ends."""
    found, complete = tags(_files(run_dir))
    return {"tags": found[:MOST_TAGS], "complete": complete and len(found) <= MOST_TAGS}


def heat_map_of(run_dir: Path, tag: str) -> Json:
    """Return one tag's histograms over environment steps: steps [C], edges [R + 1], shares [C][R]."""
    found, complete = read_histograms(_files(run_dir), tag)
    if not found:
        raise NotThereError(f"the run has no histogram of {tag!r}")
    shown = heat_map(found, COLUMNS, ROWS)
    shares = [[round(float(share), 5) for share in column] for column in shown.shares]
    edges = [float(f"{edge:.6g}") for edge in shown.edges]
    return {
        "tag": tag,
        "count": len(found),
        "complete": complete,
        "steps": shown.steps,
        "edges": edges,
        "shares": shares,
    }


def _files(run_dir: Path) -> list[Path]:
    """Return the run's own event files, the oldest first."""
    there = [*(run_dir / FOLDER).glob("events.out.tfevents.*"), *(run_dir / FOLDER).glob("*/events.out.tfevents.*")]
    own = [own_file(run_dir, *path.relative_to(run_dir).parts) for path in sorted(there)[:MOST_FILES]]
    return sorted(filter(None, own), key=lambda path: path.stat().st_mtime)
