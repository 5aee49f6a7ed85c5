"""Values that the shell completes: presets, algorithms, settings, runs. Nothing here imports a framework."""

import os
from collections.abc import Iterator
from pathlib import Path

MOST = 500
"""Directories of a folder that are looked into for runs."""


def presets(incomplete: str) -> list[str]:
    """Names of presets that begin so."""
    from distrl.config.presets import preset_names

    return _beginning(preset_names(), incomplete)


def algorithms(incomplete: str) -> list[str]:
    """Names of algorithms that begin so."""
    from distrl.config.algorithms import ALGORITHMS

    return _beginning([*ALGORITHMS], incomplete)


def settings(incomplete: str) -> list[str]:
    """Paths of settings that begin so."""
    from distrl.config.explain import known_paths

    return _beginning(known_paths(), incomplete)


def assignments(incomplete: str) -> list[str]:
    """Settings that begin so, with the equals sign that a value follows."""
    from distrl.config.explain import known_paths

    paths = known_paths()
    sections = {path.rpartition(".")[0] for path in paths}
    return _beginning([f"{path}=" for path in paths if path not in sections], incomplete)


def runs(incomplete: str) -> list[str]:
    """Directories of runs that begin so: in the folder that is being typed, else under runs/; the newest first."""
    folder, found = os.path.split(incomplete)
    places = [folder] if folder else [".", "runs"]
    newest = sorted((run for place in places for run in _runs_in(place, found if folder else "")), reverse=True)
    return _beginning([path for _, path in newest], incomplete)


def assignments_and_runs(incomplete: str) -> list[str]:
    """Arguments of `distrl set`: assignments, and the run."""
    return [*assignments(incomplete), *runs(incomplete)]


def runs_and_files(incomplete: str) -> list[str]:
    """Runs and YAML files of the folder that is being typed."""
    folder = Path(incomplete).parent if os.sep in incomplete else Path()
    try:
        files = sorted(str(path) for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    except OSError:
        files = []
    return [*runs(incomplete), *_beginning(files, incomplete)]


def _runs_in(folder: str, beginning: str) -> Iterator[tuple[float, str]]:
    """(time of the launch, path) of each run right under a folder."""
    try:
        names = sorted((name for name in os.listdir(folder) if name.startswith(beginning)), reverse=True)
    except OSError:
        return
    for name in names[:MOST]:
        path = name if folder == "." else os.path.join(folder, name)
        try:
            yield os.stat(os.path.join(path, "run.json")).st_mtime, path
        except OSError:
            continue


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
