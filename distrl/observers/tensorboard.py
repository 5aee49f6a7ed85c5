"""TensorBoard's event files: the numbers of snapshots, and the configuration as text."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from distrl.config.document import flat, scalar
from distrl.config.secrets import masked
from distrl.config.settings import Settings
from distrl.config.tensorboard import Label
from distrl.errors import ConfigError, one_line
from distrl.metrics.event_file import EventFile
from distrl.metrics.snapshot import REPORTED_ONCE, Snapshot, tag_of
from distrl.observers.observer import ObservedRun, Observer
from distrl.runs.summary import Summary

LABELS: Mapping[str, tuple[Label, ...]] = {"loss/loss": ("total-loss", "losses"), "network/relu_zeros": ("relu",)}
"""First part of tags -> labels of which one must be set; other numbers are always written."""


class TensorBoard(Observer):
    """Writes the numbers of snapshots over environment steps, as selected by `tensorboard` of the configuration."""

    writes = "TensorBoard's files"

    def __init__(self, run: ObservedRun, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parameters = run.config.tensorboard
        self._step: int | None = None  # of the newest point
        self._at = 0.0  # by the clock
        folder = self._parameters.folder(run.run_dir)
        try:
            self._file = EventFile(folder)
        except OSError as error:
            raise ConfigError(
                f"TensorBoard's files cannot be written to {folder} ({error.strerror}); set tensorboard.directory"
            ) from error

    def begin(self, settings: Settings) -> None:
        """Write the settings, and `tensorboard.meta` without secrets, if `tensorboard.labels` ask for them."""
        if not self._parameters.has("configuration"):
            return
        self._file.text("configuration", settings_text(settings))
        if self._parameters.meta:
            self._file.text("meta", meta_text(masked("tensorboard.meta", self._parameters.meta)))

    def snapshot(self, snapshot: Snapshot) -> None:
        """Write one point per number if a point is due, without texts and unknown values."""
        step = int(snapshot.get("env_steps") or 0)
        if not self._due(step, last=snapshot.get("stop_reason") is not None):
            return
        self._step, self._at = step, self._clock()
        for name in snapshot.keys() - REPORTED_ONCE - {"env_steps"}:
            value = snapshot[name]
            if isinstance(value, int | float) and self._wants(tag_of(name)):
                self._file.scalar(tag_of(name), value, step)
        self._file.flush()

    def end(self, summary: Summary | None) -> None:
        self._file.close()

    def _due(self, step: int, *, last: bool) -> bool:
        every_steps, every_s = self._parameters.every_env_steps, self._parameters.every_s
        if every_steps is None and every_s is None:
            return True
        if last:
            return step != self._step
        if every_steps is not None:
            return step // every_steps > (self._step or 0) // every_steps
        assert every_s is not None  # one of them is set
        return self._step is None or self._clock() - self._at >= every_s

    def _wants(self, tag: str) -> bool:
        labels = next((labels for first, labels in LABELS.items() if tag.startswith(first)), None)
        return self._parameters.wants(tag) and (labels is None or self._parameters.has(*labels))


def settings_text(settings: Settings) -> str:
    """Return a table of every value with its path and origin."""
    rows = [[path, setting.text, setting.origin] for path, setting in settings.items()]
    return _table(["setting", "value", "from"], rows)


def meta_text(meta: Mapping[str, Any]) -> str:
    """Return nested data, each name with its value.

    Lists of equally long lists become tables, other lists one line; names of nested mappings are joined by dots.
    """
    return "\n\n".join(f"**{_table_cell('.'.join(name))}**{_value(value)}" for name, value in flat(meta))


def _value(value: Any) -> str:
    if isinstance(value, list) and value and _are_rows(value):
        return f"\n\n{_table([str(index) for index in range(len(value[0]))], value)}"
    return f": {_table_cell(value)}"


def _are_rows(value: list[Any]) -> bool:
    rows = all(
        isinstance(row, list) and row and not any(isinstance(cell, list | dict) for cell in row) for row in value
    )
    return rows and len({len(row) for row in value}) == 1


def _table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_table_cell, line))} |" for line in lines)


def _table_cell(value: Any) -> str:
    """Return one line without cell separators."""
    text = value if isinstance(value, str) else scalar(value)
    return one_line(text).replace("|", "\\|")
