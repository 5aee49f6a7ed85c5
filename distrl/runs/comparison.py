"""Runs side by side: differences of their configurations, and their outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from distrl.config.settings import Settings, different, read_settings
from distrl.metrics.phrases import UNKNOWN, count_words, known, return_words
from distrl.runs.directories import Run, short_names
from distrl.runs.listing import Entry, entry
from distrl.runs.summary import duration


class Line(NamedTuple):
    """One quantity of every run."""

    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """At least two runs, and their settings in the same order."""

    entries: tuple[Entry, ...]
    settings: tuple[Settings, ...]

    @property
    def differences(self) -> list[Line]:
        """The settings that differ between the runs."""
        return [
            Line(path, tuple(each[path].text if path in each else UNKNOWN for each in self.settings))
            for path in different(self.settings)
        ]

    @property
    def outcomes(self) -> list[Line]:
        """Outcomes of the runs."""
        return [Line(name, tuple(map(cell, self.entries))) for name, cell in _OUTCOMES]

    def json(self) -> dict[str, Any]:
        """Return plain data; a setting that a run lacks is absent from it."""
        paths = different(self.settings)
        return {
            "runs": [asdict(one) for one in self.entries],
            "differences": [{path: each[path].value for path in paths if path in each} for each in self.settings],
        }


def compare(runs: Sequence[Run]) -> Comparison:
    """Read the runs to compare."""
    names = short_names([run.path for run in runs])
    entries = tuple(entry(run, name) for run, name in zip(runs, names, strict=True))
    return Comparison(entries, tuple(read_settings(run.path / "config.yaml") for run in runs))


def _exit(one: Entry) -> str:
    return one.outcome if one.exit_code in (None, 0) else f"{one.outcome} (exit code {one.exit_code})"


def _lag(one: Entry) -> str:
    if one.policy_lag_mean is None or one.policy_lag_max is None:
        return UNKNOWN
    return f"{one.policy_lag_mean:.1f}, max {one.policy_lag_max:,.0f}"


_OUTCOMES: tuple[tuple[str, Callable[[Entry], str]], ...] = (
    ("end", _exit),
    ("environment", lambda one: one.env or UNKNOWN),
    ("algorithm", lambda one: one.algorithm or UNKNOWN),
    ("return", lambda one: known(one.mean_return_100, return_words)),
    ("best return", lambda one: known(one.best_mean_return_100, return_words)),
    ("steps", lambda one: known(one.env_steps, count_words)),
    ("updates", lambda one: known(one.updates, count_words)),
    ("episodes", lambda one: known(one.episodes, count_words)),
    ("steps/s", lambda one: known(one.env_steps_per_s, count_words)),
    ("wall time", lambda one: known(one.wall_s, duration)),
    ("to first update", lambda one: known(one.time_to_first_update_s, duration)),
    ("policy lag", _lag),
    ("bottleneck", lambda one: one.bottleneck or UNKNOWN),
    ("peak memory", lambda one: known(one.peak_rss_mb, lambda mb: f"{mb:,.0f} MB")),
)
