"""`distrl.load_run`: a run's directory in Python."""

from dataclasses import dataclass
from pathlib import Path

from distrl.config.load import load
from distrl.config.run import RunConfig
from distrl.metrics.runs import open_run
from distrl.metrics.summary import Summary
from distrl.metrics.table import Table, read_table


@dataclass(frozen=True)
class LoadedRun:
    """A run as its directory told when it was loaded.

    Attributes:
        summary: None while the run goes on, and for one that is gone without it.
        metrics: Column of metrics.csv -> float64 [rows], NaN where nothing was known; empty before the first row.
    """

    path: Path
    config: RunConfig
    summary: Summary | None
    metrics: Table


def load_run(path: Path) -> LoadedRun:
    """The run in a directory, live or finished.

    Raises:
        ConfigError: There is none, one of its files is damaged, or today's distrl does not know its configuration.
    """
    found = open_run(path)
    config = load(file=path / "config.yaml").config
    metrics = path / "metrics.csv"
    return LoadedRun(path, config, found.summary, read_table(metrics) if metrics.exists() else Table({}, {}))
