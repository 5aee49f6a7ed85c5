"""One cell: record or train by the command line, evaluate, and return its entry of the report.

OUT/data/                      the recorded sets, in Minari's format
OUT/runs/<cell>/               the run's directory; an interrupted one begins again, but a SAC that ended early stays
"""

import csv
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measurement
from benchmarks.offline.cells import RETURNS, Cell, task
from benchmarks.offline.settings import (
    ALGORITHMS,
    FURTHER_STEPS,
    MEDIUM,
    OFFLINE,
    ONLINE,
    RECORDED,
    ROWS,
    SQUASHED,
    UPDATES,
)
from benchmarks.speed import Entry, stamp
from benchmarks.table import evaluation_seed
from distrl.data.minari_sets import MinariEpisodes, path_of
from distrl.errors import EXIT_INTERRUPTED, EXIT_OK

EPISODES = 20
"""Greedy episodes behind a score."""
SAC_SEED = 1
SPARE = 1.3
"""Episodes are recorded for so many times `ROWS`, by the length of greedy ones: those of a policy that draws its
actions are shorter."""

Parts = Sequence[Mapping[str, Any]]
"""Names of data sets, each with the number of its first episodes that count."""


def measure(cell: Cell, out: Path, entries: Mapping[str, Entry]) -> Entry:
    """Measure a cell.

    Args:
        entries: Finished cells by name, among them the recordings that this one needs.

    Raises:
        FailedError: A training or an evaluation failed.
    """
    os.environ["MINARI_DATASETS_PATH"] = str(out / "data")
    entry = {"name": cell.name, **stamp(), **cell.__dict__}
    began = time.monotonic()
    if cell.kind == "sac":
        found = _sac(cell, out)
    elif cell.kind == "record":
        found = _record(cell, out)
    elif cell.kind == "expert":
        found = _expert(cell, out)
    elif cell.kind == "online":
        found = _online(cell, out, entries)
    else:
        found = _offline(cell, out, entries)
    return entry | {"wall_s": round(time.monotonic() - began, 1)} | found


def _sac(cell: Cell, out: Path) -> Entry:
    """Train SAC until an evaluation is medium, and record all of it."""
    name = f"{task(cell.environment)}/replay"
    until = MEDIUM * RETURNS[cell.environment][1]
    if not _has_ended(_run_dir(cell, out)):
        shutil.rmtree(out / "data" / f"{name}-v0", ignore_errors=True)
        recording = {"recording.name": name, "recording.most_steps": ROWS}
        _train(_run_dir(cell, out), cell, {**RECORDED, **recording, "stop.evaluation_return": until}, SAC_SEED)
    return _trained(_run_dir(cell, out)) | {"parts": [part(name, ROWS)]}


def _expert(cell: Cell, out: Path) -> Entry:
    """Go on with SAC."""
    run_dir, before = _run_dir(cell, out), _run_dir(Cell("sac", cell.environment), out)
    if not _has_ended(run_dir):
        shutil.rmtree(run_dir, ignore_errors=True)
        steps = _summary(before)["env_steps"] + FURTHER_STEPS
        goal = ["--set", "stop.evaluation_return=null", "--set", f"stop.env_steps={steps}"]
        goal += ["--set", "recording.name=null", "--set", "recording.most_steps=1000000"]
        _distrl("train", "--resume", newest_checkpoint(before), "--run-dir", str(run_dir), "--quiet", *goal)
    return _trained(run_dir)


def newest_checkpoint(run_dir: Path) -> str:
    """Return a run's newest checkpoint as RUN@STEP, with which a run in another directory begins."""
    newest = max((run_dir / "checkpoints").glob("ckpt-*"))
    return f"{run_dir}@{int(newest.name.removeprefix('ckpt-'))}"


def _trained(run_dir: Path) -> Entry:
    summary = _summary(run_dir)
    return {
        "wall_s": round(summary["wall_s"], 1),
        "env_steps": summary["env_steps"],
        "curve": evaluations(run_dir / "metrics.csv"),
    }


def evaluations(path: Path) -> list[tuple[int, float]]:
    """Return the evaluations of a run's metrics.csv."""
    found = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["evaluation_mean_return"]:
                found[int(row["evaluation_env_steps"])] = float(row["evaluation_mean_return"])
    return sorted(found.items())


def _record(cell: Cell, out: Path) -> Entry:
    """Record episodes of a policy, or of random actions, for `ROWS` rows."""
    if cell.data == "random":
        subject, play = ["random", "--env", cell.environment], ["--env", cell.environment, "--baseline", "random"]
    else:
        trained = Cell("sac" if cell.data == "medium" else "expert", cell.environment)
        subject = play = [f"{_run_dir(trained, out)}@best"]
    length = _evaluated(play, cell, seed=0)["mean_length_steps"]
    name = f"{task(cell.environment)}/{cell.data}"
    shutil.rmtree(out / "data" / f"{name}-v0", ignore_errors=True)
    count = round(SPARE * ROWS / length)
    _distrl("record", *subject, "--episodes", str(count), "--seed", "1", "--output", name)
    return {"parts": [part(name, ROWS)]}


def part(name: str, rows: int) -> dict[str, Any]:
    """Return the first episodes of a set that have at most so many rows, and their figures."""
    episodes = _opened(name)
    count = int(np.searchsorted(np.cumsum(episodes.lengths), rows, side="right"))
    returns = [float(episode.rewards.sum()) for episode in episodes.read(range(count))]
    used = int(episodes.lengths[:count].sum())
    return {"name": f"{name}-v0", "episodes": count, "rows": used, "mean_return": float(np.mean(returns))}


def _opened(name: str) -> MinariEpisodes:
    path = path_of(name)
    if path is None:
        raise measurement.FailedError(f"no data set {name}")
    return MinariEpisodes(name, path)


def parts_of(cell: Cell, entries: Mapping[str, Entry]) -> list[dict[str, Any]]:
    """Return the sets that a training learns from: of medium-expert two."""
    names = {"medium-expert": ("medium", "expert")}.get(cell.data, (cell.data,))
    made = [
        Cell("sac", cell.environment) if name == "medium-replay" else Cell("record", cell.environment, name)
        for name in names
    ]
    return [entries[each.name]["parts"][0] for each in made]


def _offline(cell: Cell, out: Path, entries: Mapping[str, Entry]) -> Entry:
    """Learn from a set with one of the libraries, and play."""
    assert cell.seed is not None
    parts = parts_of(cell, entries)
    if cell.library == "d3rlpy":
        given = json.dumps({"cell": cell.__dict__, "parts": parts, "episodes": EPISODES})
        found = json.loads(measurement.run(["-m", "benchmarks.offline.peer", given]).splitlines()[-1])
    else:
        run_dir = _run_dir(cell, out)
        _train(run_dir, cell, _offline_settings(cell.algorithm, parts), cell.seed)
        played = _evaluated([str(run_dir)], cell, cell.seed)
        found = {"mean_return": played["mean_return"], "updates_per_s": _summary(run_dir)["updates_per_s"]}
    return {"parts": parts, "updates": UPDATES, "episodes": EPISODES, **found}


def _offline_settings(algorithm: str, parts: Parts) -> dict[str, Any]:
    return {**OFFLINE, "algorithm.name": algorithm, **ALGORITHMS[algorithm].ours, "data.sets": sets_of(parts)}


def sets_of(parts: Parts) -> list[dict[str, Any]]:
    """Return `data.sets`."""
    return [{"name": each["name"], "episodes": each["episodes"]} for each in parts]


def _online(cell: Cell, out: Path, entries: Mapping[str, Entry]) -> Entry:
    """Learn offline with IQL and SAC's policy, then go on with SAC and a share of the data."""
    assert cell.seed is not None
    parts, run_dir = parts_of(cell, entries), _run_dir(cell, out)
    before = run_dir.with_name(f"{run_dir.name}-before")
    if not _has_ended(before):
        _train(before, cell, {**_offline_settings("iql", parts), **SQUASHED}, cell.seed)
    offline = _evaluated([str(before)], cell, cell.seed)["mean_return"]
    settings = {**ONLINE, "data.sets": sets_of(parts)}
    _train(run_dir, cell, settings, cell.seed, "--init-from", str(before))
    return {
        "parts": parts,
        "updates": UPDATES,
        "episodes": EPISODES,
        "offline_return": offline,
        "curve": evaluations(run_dir / "metrics.csv"),
        "mean_return": _evaluated([str(run_dir)], cell, cell.seed)["mean_return"],
    }


def _train(run_dir: Path, cell: Cell, settings: Mapping[str, Any], seed: int, *more: str) -> None:
    shutil.rmtree(run_dir, ignore_errors=True)
    given = [word for path, value in settings.items() for word in ("--set", f"{path}={json.dumps(value)}")]
    where = ["--env", cell.environment, "--seed", str(seed), "--run-dir", str(run_dir), "--quiet"]
    _distrl("train", *where, *more, *given)


def _evaluated(subject: Sequence[str], cell: Cell, seed: int) -> dict[str, Any]:
    episodes = ["--episodes", str(EPISODES), "--seed", str(evaluation_seed(seed)), "--json"]
    found: dict[str, Any] = json.loads(_distrl("evaluate", *subject, *episodes))
    return found


def _distrl(*arguments: str) -> str:
    return measurement.run(["-m", "distrl", *arguments])


def _has_ended(run_dir: Path) -> bool:
    """Whether a training has ended without an error, or was interrupted."""
    return (run_dir / "summary.json").exists() and _summary(run_dir)["exit_code"] in (EXIT_OK, EXIT_INTERRUPTED)


def _summary(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "summary.json").read_text("utf-8"))
    return found


def _run_dir(cell: Cell, out: Path) -> Path:
    return out / "runs" / cell.name
