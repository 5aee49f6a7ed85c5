"""`distrl.load_run`: a run's directory as a Python object."""

from dataclasses import dataclass
from pathlib import Path

from distrl.apps.config.configuration import load
from distrl.config.presets import nearest
from distrl.config.run import RunConfig
from distrl.errors import ConfigError, require
from distrl.metrics.snapshot import X_AXES
from distrl.runs.directories import open_run
from distrl.runs.metrics_csv import Table, read_table
from distrl.runs.summary import Summary


@dataclass(frozen=True)
class Picture:
    """A PNG that notebooks show."""

    png: bytes

    def _repr_png_(self) -> bytes:
        """Called by IPython, for the output of a cell."""
        return self.png

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_bytes(self.png)


@dataclass(frozen=True)
class LoadedRun:
    """A run as read from its directory.

    Attributes:
        summary: None while the run lasts, and for one that is gone without a summary.
        metrics: Column of metrics.csv -> float64 [rows], NaN for unknown values; empty before the first row.
    """

    path: Path
    config: RunConfig
    summary: Summary | None
    metrics: Table

    def plot(self, metric: str = "mean_return_100", over: str = "steps") -> Picture:
        """Draw a metric over environment steps, updates, episodes or time, as `distrl plot` does.

        Raises:
            ConfigError: The run has no number of such a metric, or there is no such axis.
            MissingExtraError: Matplotlib is not installed.
        """
        require("matplotlib", "matplotlib", "plot")
        # Imported here: most uses of a run need no pictures.
        from distrl.apps.reports import pictures, plots

        if over not in X_AXES:
            raise ConfigError(f"over {over!r}: {nearest(over, [*X_AXES])}")
        name = self.path.resolve().name
        sources = {name: [plots.PlottedRun(name, self.path, self.metrics)]}
        options = plots.CurveOptions(over)
        return Picture(pictures.picture([plots.panel(sources, metric, None, options)], "png", options))


def load_run(path: Path) -> LoadedRun:
    """Read the run in a directory, live or finished.

    Raises:
        ConfigError: There is none, one of its files is damaged, or its configuration is of another version of distrl.
    """
    found = open_run(path)
    config = load(file=path / "config.yaml").config
    metrics = path / "metrics.csv"
    return LoadedRun(path, config, found.summary, read_table(metrics) if metrics.exists() else {})
