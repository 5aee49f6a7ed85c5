"""Trainings with the settings of another library, beside the scores that it has published."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.converted import Sets
from benchmarks.measurement import Result
from benchmarks.publishing import measure_and_report, parser
from benchmarks.report import heading, number, read_report, seed_cells, table
from benchmarks.table import Row


@dataclass(frozen=True)
class Entry:
    """One training of another library, with its settings.

    Attributes:
        task: Id of the environment here; there it may be of an earlier version.
        algorithm: Its name in the table.
        steps: Environment steps of the training.
        score: Their published mean return and its standard deviation.
        settings: Theirs in distrl's terms.
    """

    task: str
    algorithm: str
    steps: int
    score: tuple[float, float]
    settings: Sets

    @property
    def name(self) -> str:
        """Return 'ppo-cartpole' for CartPole-v1, 'dqn-breakout' for MinAtar/Breakout-v1."""
        return f"{self.algorithm}-{self.task.rpartition('/')[2].rpartition('-')[0]}".lower()

    @property
    def row(self) -> Row:
        """Return what is to be measured."""
        given = {"environment.id": self.task, "actors.count": 0, **self.settings}
        sets = tuple(f"{path}={json.dumps(value)}" for path, value in given.items())
        return Row(self.name, None, self.task, self.algorithm, None, self.steps, sets=sets)


@dataclass(frozen=True)
class Scores:
    """A library's published scores.

    Attributes:
        name: Of the module, the report and the part of docs/results.md.
        head: Of the column with their scores, in Markdown.
        entries: Each with a name of its own.
    """

    name: str
    head: str
    entries: tuple[Entry, ...]

    def block(self, report: Path) -> str:
        """Return the part of `docs/results.md`."""
        tree, rows, by_row = read_report(report)
        if not tree["results"]:
            return heading(tree, by_row)
        return f"{heading(tree, by_row)}\n\n{self._table(rows, by_row, tree['seeds'])}"

    def _table(self, rows: Sequence[Row], by_row: Mapping[str, Sequence[Result]], seeds: Sequence[int]) -> str:
        theirs = {entry.name: entry for entry in self.entries}
        heads = ["Task", "Algorithm", "Steps", *(f"Seed {seed}" for seed in seeds)]
        heads += ["Interquartile mean", self.head]
        lines = []
        for row in rows:
            published = " ± ".join(number(value) for value in theirs[row.name].score)
            ours = seed_cells(by_row[row.name], seeds)
            lines.append([row.task, row.algorithm, f"{row.env_steps:,}", *ours, published])
        return table(heads, lines)

    def main(self, what: str, arguments: list[str] | None) -> int:
        """Measure and report.

        Args:
            what: One line for `--help`.
        """
        given = parser(what, self.name).parse_args(arguments)
        return measure_and_report(self.name, [entry.row for entry in self.entries], given, self.block)
