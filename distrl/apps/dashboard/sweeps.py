"""Sweeps, searches and populations below the folder of runs, and the state of each."""

from pathlib import Path
from typing import Any, NamedTuple

from distrl.apps.dashboard.files import NotThereError, id_of, own_file, shown
from distrl.apps.dashboard.index import Index, IndexedRun
from distrl.config.secrets import masked_text
from distrl.errors import ConfigError, one_line
from distrl.files import read_small
from distrl.metrics.snapshot import amount
from distrl.runs.directories import readable
from distrl.runs.summary import end_of
from distrl.runs.sweeps import FILES, MOST_BYTES, SweepFiles, sweep_of

Json = dict[str, Any]


class FoundSweep(NamedTuple):
    """A sweep and those of its runs that have a directory, by name.

    Attributes:
        sweep: None if its files are damaged.
        problem: Description of the damage; else "".
    """

    id: str
    name: str
    sweep: SweepFiles | None
    entries: tuple[IndexedRun, ...]
    problem: str = ""


def find_sweeps(index: Index) -> list[FoundSweep]:
    """Return every sweep that has begun a run, by name."""
    found = [_opened(index, folder, entries) for folder, entries in _folders(index).items()]
    return sorted([one for one in found if one is not None], key=lambda one: one.name)


def find_sweep(index: Index, wanted: str) -> FoundSweep:
    """Return the sweep with an id."""
    if (found := _sweep(index, wanted)) is None:
        index.seek(wanted)
        found = _sweep(index, wanted)
    if found is None:
        raise NotThereError("no sweep has that id; it may have been removed")
    return found


def _sweep(index: Index, wanted: str) -> FoundSweep | None:
    found = (_opened(index, folder, of) for folder, of in _folders(index).items() if _id(index, folder) == wanted)
    return next(found, None)


def sweeps_of(index: Index, entries: list[IndexedRun]) -> list[Json]:
    """Return the sweeps that have some of these runs: {id, name, runs}."""
    parents = {index.directory(entry).parent for entry in entries}
    found = [_opened(index, folder, of) for folder, of in _folders(index).items() if folder in parents]
    return [{"id": one.id, "name": one.name, "runs": len(one.entries)} for one in found if one is not None]


def described(found: FoundSweep) -> Json:
    """Return the state of a sweep: its kind, what varies, and how many runs are done, failed, running or left."""
    sweep = found.sweep
    counts = dict.fromkeys(("done", "failed", "running", "interrupted"), 0)
    for entry in found.entries:
        counts[_state(entry)] += 1
    here = {entry.path.rpartition("/")[2] for entry in found.entries}
    without = [one for one in sweep.runs if one.run not in here and one.state == "failed"] if sweep else []
    counts["failed"] += len(without)
    planned = sweep.planned if sweep else None
    return {
        "id": found.id,
        "name": found.name,
        "kind": sweep.kind if sweep else "sweep",
        "problem": found.problem,
        "varied": list(sweep.varied) if sweep else [],
        "minutes": sweep.minutes if sweep else None,
        "planned": planned,
        "counts": counts,
        "left": None if planned is None else max(planned - sum(counts.values()), 0),
        "failures": [{"run": one.run, "error": _shown(one.error or "no error is known")} for one in without[:50]],
        "lessons": [lesson.model_dump() for lesson in sweep.lessons[-500:]] if sweep else [],
    }


def _shown(error: str) -> str:
    """Return an error of a user's code without secrets and unprintable characters."""
    return shown(masked_text(error))[:500]


def _state(entry: IndexedRun) -> str:
    if entry.state == "running":
        return "running"
    if entry.state != "ended":
        return "failed" if entry.state == "damaged" else "interrupted"
    end = end_of(amount(entry.numbers, "exit_code"), str(entry.numbers.get("stop_reason")), entry.numbers.get("error"))
    return end if end in ("failed", "interrupted") else "done"


def _folders(index: Index) -> dict[Path, list[IndexedRun]]:
    """Return folder -> the runs directly in it, by name."""
    found: dict[Path, list[IndexedRun]] = {}
    for entry in sorted(index.entries(), key=lambda entry: entry.path):
        if entry.path:  # the folder of runs may be a run itself; nothing above it is read
            found.setdefault(index.directory(entry).parent, []).append(entry)
    return found


def _id(index: Index, folder: Path) -> str:
    return id_of("" if folder == index.root else folder.relative_to(index.root).as_posix())


def _opened(index: Index, folder: Path, entries: list[IndexedRun]) -> FoundSweep | None:
    if not folder.is_relative_to(index.root):
        return None
    paths = {name: path for name in FILES if (path := own_file(folder, name)) is not None}
    name = readable(folder.relative_to(index.root).as_posix() if folder != index.root else folder.resolve().name)
    try:
        sweep = sweep_of({name: read_small(path, MOST_BYTES[name]) for name, path in paths.items()})
    except (ConfigError, OSError) as error:
        problem = readable(one_line(str(error).replace(f"{folder.resolve()}/", "")))[:500]
        return FoundSweep(_id(index, folder), name, None, tuple(entries), problem)
    return None if sweep is None else FoundSweep(_id(index, folder), name, sweep, tuple(entries))
