"""RecordingConfig: a data set of what the actors of a training do."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from distrl.config.algorithms import AlgorithmSection
from distrl.config.data import absolute
from distrl.config.environment import EnvironmentConfig
from distrl.config.section import Section


class RecordingConfig(Section):
    """Recording of every unroll that the learner takes, in a process beside the training.

    Episodes that have ended are recorded; those of which an unroll is missing are left out. A recording that falls
    behind leaves unrolls out, and one that fails ends with a line. A learner that is started again begins it anew,
    unless the data set is complete.
    """

    name: str | None = Field(None, min_length=1)
    """The new data set on the learner's host: its name in Minari's folder, the path of one, with /, . or ~ at its
    beginning, or FILE.csv, FILE.parquet. null: nothing is recorded."""
    most_steps: int = Field(1_000_000, ge=1)
    """Environment steps after which the recording is complete; later ones are not recorded."""

    @field_validator("name")
    @classmethod
    def _is_absolute(cls, name: str | None) -> str | None:
        return None if name is None else absolute(name)

    @model_validator(mode="after")
    def _is_of_a_recording(self) -> Self:
        if self.name is None and self.is_changed("most_steps"):
            raise ValueError(
                f"most_steps: {self.most_steps} are of a recording; set name (--record NAME), or leave it out"
            )
        return self

    def check(self, algorithm: AlgorithmSection, environment: EnvironmentConfig, *, learns_from_data: bool) -> None:
        """Refuse a run whose learner takes no unrolls, or whose host has no environment."""
        if self.name is None:
            return
        if learns_from_data:
            raise ValueError("recording: nothing acts in a run that learns from data; leave recording.name out")
        if algorithm.ships == "gradients":
            raise ValueError(f"recording: actors of {algorithm.name} ship gradients; choose another algorithm")
        if environment.spec_file is not None:
            raise ValueError(
                f"environment.spec_file: {environment.spec_file}: the learner makes the environment to record its "
                "spaces; install it there, and leave spec_file out"
            )
