"""TrackersConfig: where else the numbers of a run go."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, field_validator, model_validator

from distrl.config.secrets import split_password
from distrl.config.section import Section
from distrl.errors import ConfigError

ClassPath = Annotated[str, StringConstraints(pattern=r"^[\w.]+:\w+$")]
WandbName = Annotated[str, StringConstraints(pattern=r"^[^/\\#?%:]{1,128}$")]
"""W&B refuses these characters in names of projects."""


class WandbParameters(Section):
    """Weights & Biases. The key of your account comes from `wandb login` or from the variable WANDB_API_KEY."""

    project: WandbName = "distrl"
    entity: str | None = Field(None, min_length=1)
    """User or team that owns the project; null: the account's default."""
    name: str | None = Field(None, min_length=1, max_length=128)
    """Name of the run there; null: that of the run's directory."""
    group: str | None = Field(None, min_length=1, max_length=128)
    """Runs of one group are shown together, such as those of a sweep."""
    tags: tuple[Annotated[str, StringConstraints(min_length=1, max_length=64)], ...] = ()
    mode: Literal["online", "offline"] | None = None
    """offline: write to the run's directory alone, for `wandb sync` to upload later. null: as the variable WANDB_MODE
    says, otherwise online."""


class MlflowParameters(Section):
    """MLflow."""

    tracking_uri: str | None = Field(None, min_length=1)
    """A server, http://host:5000, or a database, sqlite:////home/me/mlflow.db; without a password. null: as the
    variable MLFLOW_TRACKING_URI says, otherwise mlflow.db in the working directory."""
    experiment: str = Field("distrl", min_length=1, max_length=500)
    name: str | None = Field(None, min_length=1, max_length=250)
    """Name of the run there; null: that of the run's directory."""

    @field_validator("tracking_uri")
    @classmethod
    def _no_password(cls, uri: str | None) -> str | None:
        # Its ConfigError passes through pydantic, whose own error would show the value.
        if uri is not None and split_password(uri)[1] is not None:
            raise ConfigError(
                "trackers.mlflow.tracking_uri holds a password, which others could read; leave it out, and put the "
                "URI into the environment variable MLFLOW_TRACKING_URI"
            )
        return uri


class TrackersConfig(Section):
    """Trackers: services and classes of your own that get every row of metrics.csv while the run trains.

    A section that is there turns its tracker on, as `--track` does.
    """

    wandb: WandbParameters | None = None
    mlflow: MlflowParameters | None = None
    own: dict[ClassPath, dict[str, JsonValue]] = Field(default_factory=dict)
    """package.module:Class -> the arguments of its constructor. docs/runs.md has the three methods."""
    give_up_s: float = Field(30.0, gt=0.0)
    """How long the end of a training waits for trackers."""

    @property
    def used(self) -> bool:
        """Whether there is a tracker."""
        return bool(self.wandb or self.mlflow or self.own)

    @property
    def end_s(self) -> int:
        """Longest time that the end of a training waits for trackers that do not answer."""
        return math.ceil(self.give_up_s) if self.used else 0

    @model_validator(mode="after")
    def _waits_for_one(self) -> Self:
        if self.is_changed("give_up_s") and not self.used:
            raise ValueError("give_up_s has no use without a tracker, such as wandb: {}")
        return self


def section_of(name: str) -> tuple[str, ...]:
    """Return the path of the section that turns on a tracker.

    Args:
        name: As --track takes it.

    Raises:
        ConfigError: It is neither a tracker of distrl nor a class.
    """
    if name in ("wandb", "mlflow"):
        return "trackers", name
    if ":" not in name:
        raise ConfigError(f"--track {name}: there are wandb, mlflow, and classes of your own as package.module:Class")
    return "trackers", "own", name
