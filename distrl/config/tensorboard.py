"""TensorBoardConfig: contents of a run's event files and how often they are written."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from distrl.config.section import Section

Label = Literal[
    "total-loss",
    "losses",
    "regularization",
    "variables",
    "inputs",
    "states",
    "actions",
    "rewards",
    "gradients",
    "gradients_scalar",
    "gradients_histogram",
    "relu",
    "activations",
    "configuration",
    "print_configuration",
]
_OF_LOSS: tuple[Label, ...] = (
    "losses",
    "regularization",
    "gradients",
    "gradients_scalar",
    "gradients_histogram",
)
OF_ROWS: tuple[Label, ...] = ("losses", "regularization", "inputs", "states", "actions", "rewards", "activations")
"""Labels that need unrolls, which gradient actors keep."""


class TensorBoardConfig(Section):
    """TensorBoard event files of a run. They hold all numbers except losses and relu layers; `labels` add more."""

    labels: tuple[Label, ...] = ("total-loss", "relu", "configuration")
    """total-loss: the loss. losses: it, and without regularization. regularization: its terms. variables: histograms of
    all weights. states, actions, rewards: histograms of a batch's; inputs: all three. gradients_scalar: mean and
    variance of every weight's gradient; gradients_histogram: histograms of them; gradients: both. relu: shares of zeros
    in outputs of relu layers. activations: histograms of outputs of layers with an activation. configuration: every
    value as text, and `meta`. print_configuration: the same on standard output, before training begins."""
    directory: str | None = Field(None, min_length=1)
    """Folder of the files, relative to the run's directory; null: tensorboard/. Each run needs its own."""
    every_s: float | None = Field(None, gt=0.0)
    """Seconds between two points of a curve; null: about one."""
    every_env_steps: int | None = Field(None, ge=1)
    """The same in environment steps, in place of seconds."""
    histograms_every_s: float = Field(30.0, gt=0.0)
    """Seconds between two writes of what only `labels` request: histograms, gradients, terms of the loss. They take the
    learner's time. In deterministic mode every snapshot, by updates, writes them."""
    tags: str | None = None
    """A regular expression: only numbers and histograms with a matching tag are written; null: all."""
    meta: dict[str, JsonValue] = Field(default_factory=dict)
    """Further facts to show beside the configuration; lists of equally long lists become tables."""

    def has(self, *labels: Label) -> bool:
        """Whether one of these labels is set."""
        return not set(labels).isdisjoint(self.labels)

    @property
    def differentiates(self) -> tuple[Label, ...]:
        """The labels that need the loss and its gradients."""
        return tuple(label for label in self.labels if label in _OF_LOSS)

    @property
    def looks(self) -> bool:
        """Whether a label needs histograms from the learner."""
        return self.has(*_OF_LOSS, *OF_ROWS, "variables")

    def folder(self, run_dir: Path) -> Path:
        """Return the folder of a run's event files."""
        return run_dir / Path(self.directory or "tensorboard").expanduser()

    def wants(self, tag: str) -> bool:
        """Whether `tags` matches a tag."""
        return self.tags is None or re.search(self.tags, tag) is not None

    def check(self, paths: Iterable[str], *, deterministic: bool) -> None:
        """Refuse names in `meta` that are settings, and an interval that deterministic mode does not use.

        Args:
            paths: Dotted paths of all settings of the run.
        """
        if deterministic and self.is_changed("histograms_every_s"):
            raise ValueError(
                f"tensorboard.histograms_every_s: {self.histograms_every_s:g} has no use with actors.count: 0, where "
                "every snapshot writes histograms; leave it out"
            )
        for path in paths if self.meta else ():
            for name in self.meta:
                if name in (path, path.rpartition(".")[2]):
                    raise ValueError(f"tensorboard.meta: {name} is the name of a setting, {path}; take another one")

    def check_gradient_actors(self, algorithm: str) -> None:
        """Refuse labels that need unrolls, which gradient actors keep to themselves."""
        of_rows = [label for label in self.labels if label in OF_ROWS]
        if of_rows:
            raise ValueError(
                f"tensorboard.labels: {of_rows[0]} is of unrolls; actors of algorithm {algorithm} ship gradients"
            )

    @field_validator("tags")
    @classmethod
    def _compiles(cls, tags: str | None) -> str | None:
        try:
            re.compile(tags or "")
        except re.error as error:
            raise ValueError(f"{tags!r} is no regular expression: {error}") from error
        return tags

    @field_validator("directory")
    @classmethod
    def _is_somewhere(cls, directory: str | None) -> str | None:
        try:
            Path(directory or "").expanduser()
        except RuntimeError as error:  # ~ and an unknown user
            raise ValueError(f"{directory!r}: {error}") from error
        return directory

    @field_validator("meta", mode="before")
    @classmethod
    def _plain(cls, meta: Any) -> Any:
        """Arrays and tuples are lists, as they are when they are read back."""
        return _lists(meta)

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if self.every_s is not None and self.every_env_steps is not None:
            raise ValueError("every_s and every_env_steps contradict each other; set one of them")
        if not self.looks and self.is_changed("histograms_every_s"):
            raise ValueError("histograms_every_s is of no use: no label needs histograms; leave it out")
        if self.meta and not self.has("configuration", "print_configuration"):
            raise ValueError("meta is written with the label configuration or print_configuration; add one of them")
        return self


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value
