"""Directories of sweeps as their launches leave them, without a training."""

import shutil
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import RunResult, SweepDirectory, SweepRun
from distrl.apps.experiments.sweep import Planned, Sweep, planned_runs
from distrl.runs.summary import Summary
from tests.run_folders import ENDED, make_run

End = Mapping[str, Any] | str | None
"""Facts of a run's summary that differ from `ENDED`; the error of a run without a summary; None: it has not ended."""


def metrics(final: float, name: str, steps: int = 3000, points: int = 4) -> str:
    """A file metrics.csv of a run whose returns rise to `final`."""
    lines = [f"{at},{steps * at // points},{at},{final * at / points}" for at in range(1, points + 1)]
    return "\n".join([f"updates,env_steps,wall_s,{name}", *lines, ""])


def make_sweep(
    folder: Path, ends: Callable[[Planned], End], sets: tuple[str, ...] = (), runs: int | None = None, **described: Any
) -> SweepDirectory:
    """A sweep's directory.

    Args:
        ends: Takes a run and returns how it ended.
        sets: Of the configuration that all runs share.
        runs: Runs that have begun; None: all.
        described: Keys of sweep.yaml.
    """
    sweep = Sweep.model_validate(described)
    place = SweepDirectory(folder)
    place.create(sweep, load(sets=("environment.id=CartPole-v1", *sets)))
    model = make_run(folder / "logs" / "model", manifest={})
    index = []
    for planned in islice(planned_runs(sweep), runs):
        end = ends(planned)
        outcome = RunResult("failed", error=end) if isinstance(end, str) else RunResult("running")
        index.append(SweepRun(planned, outcome))
        if isinstance(end, str):
            continue
        shutil.copytree(model, place.run(planned))
        summary = place.run(planned) / "summary.json"
        facts = {**ENDED, "seed": planned.seed, "stop_reason": "env_steps", **(end or {})}
        name = "evaluation_mean_return" if "evaluation_mean_return" in facts else "mean_return_100"
        (place.run(planned) / "metrics.csv").write_text(metrics(facts[name] or 0.0, name))
        if end is None:
            summary.unlink()
        else:
            Summary.model_validate(facts).write(summary)
    shutil.rmtree(folder / "logs" / "model")
    place.write_index(index, minutes=2.5)
    return place
