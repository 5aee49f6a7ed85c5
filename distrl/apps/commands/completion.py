"""Values that the shell completes: presets, algorithms, settings, runs. Nothing here imports a framework."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 500
"""Most directories of a folder that are searched for runs."""


def presets(incomplete: str) -> list[str]:
    """Complete names of presets."""
    from distrl.config.presets import preset_names

    return _beginning(preset_names(), incomplete)


def algorithms(incomplete: str) -> list[str]:
    """Complete names of algorithms."""
    from distrl.config.algorithms import ALGORITHMS

    return _beginning([*ALGORITHMS], incomplete)


def trackers(incomplete: str) -> list[str]:
    """Complete names of trackers."""
    return _beginning(["wandb", "mlflow"], incomplete)


def targets(incomplete: str) -> list[str]:
    """Complete names of targets of jobs."""
    from distrl.apps.jobs.targets import TARGETS

    return _beginning([*TARGETS], incomplete)


def settings(incomplete: str) -> list[str]:
    """Complete paths of settings."""
    from distrl.apps.config.configuration import Configuration
    from distrl.config.explain import known_paths

    return _beginning(known_paths(Configuration), incomplete)


def assignments(incomplete: str) -> list[str]:
    """Complete settings, with an equals sign."""
    from distrl.apps.config.configuration import Configuration
    from distrl.config.explain import known_paths

    paths = known_paths(Configuration)
    sections = {path.rpartition(".")[0] for path in paths}
    return _beginning([f"{path}=" for path in paths if path not in sections], incomplete)


def runs(incomplete: str) -> list[str]:
    """Complete directories of runs in the typed folder, else under runs/; the newest first."""
    return _newest(incomplete, ("run.json", "job.json"))


def runs_and_sweeps(incomplete: str) -> list[str]:
    """Complete directories of runs and of sweeps, likewise."""
    return _newest(incomplete, ("run.json", "job.json", "sweep.json"))


def assignments_and_runs(incomplete: str) -> list[str]:
    """Complete arguments of `distrl set`: assignments, and the run."""
    return [*assignments(incomplete), *runs(incomplete)]


def runs_and_files(incomplete: str) -> list[str]:
    """Complete runs and YAML files of the typed folder."""
    folder = Path(incomplete).parent if os.sep in incomplete else Path()
    try:
        files = sorted(str(path) for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    except OSError:
        files = []
    return [*runs(incomplete), *_beginning(files, incomplete)]


def _newest(incomplete: str, records: Sequence[str]) -> list[str]:
    folder, found = os.path.split(incomplete)
    places = [folder] if folder else [".", "runs"]
    newest = sorted((one for place in places for one in _in(place, found if folder else "", records)), reverse=True)
    return _beginning([path for _, path in newest], incomplete)


def _in(folder: str, beginning: str, records: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield (time of a record, path) of each directory directly under a folder that has one of the records."""
    try:
        names = sorted((name for name in os.listdir(folder) if name.startswith(beginning)), reverse=True)
    except OSError:
        return
    for name in names[:MOST]:
        path = name if folder == "." else os.path.join(folder, name)
        for record in records:
            try:
                yield os.stat(os.path.join(path, record)).st_mtime, path
            except OSError:
                continue
            break


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
