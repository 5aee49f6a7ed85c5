"""data.json: the figures of the recorded episodes that a run learns from, as `data/summary.py` makes them."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from distrl.config.settings import Settings
from distrl.errors import ConfigError
from distrl.files import read_model


class Histogram(BaseModel):
    """Counts of values between edges, of which there is one more."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    counts: list[int]
    edges: list[float]


class RecordedData(BaseModel):
    """One or several data sets together.

    Attributes:
        length_steps, returns: min, quarter, median, three_quarters, max, mean and std over episodes.
        actions: For each number of the action: choice -> share, or these figures of its values.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    name: str
    environment: str | None
    observation_space: str | None
    action_space: str | None
    episodes: int
    steps: int
    length_steps: dict[str, float]
    returns: dict[str, float] = Field(alias="return")
    return_histogram: Histogram
    terminated: int
    truncated: int
    steps_with_missing_values: int
    episodes_with_behaviour_probabilities: int
    actions: list[dict[str, float]]


def has_data(settings: Settings) -> bool:
    """Return whether a run learns from recorded episodes."""
    return "data.sets" in settings and bool(settings["data.sets"].value)


def usual_axis(settings: Settings) -> Literal["steps", "updates"]:
    """Return the x axis by which curves of a run are drawn at first: updates, where no environment steps are made.

    Environment steps of a run that learns from data alone are recorded steps that updates have used.
    """
    share = settings["data.share"].value if "data.share" in settings else None
    return "updates" if has_data(settings) and share is None else "steps"


def read_data(path: Path) -> RecordedData | None:
    """Return the figures; None of a file that the learner cannot have written."""
    try:
        return read_model(RecordedData, path)
    except ConfigError:
        return None
