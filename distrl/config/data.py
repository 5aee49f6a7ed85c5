"""DataConfig: recorded episodes that a run learns from, in place of actors or beside them."""

import math
import os
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from distrl.config.algorithms import AlgorithmSection
from distrl.config.environment import EnvironmentConfig
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section

DATA_FILE = "data.json"
"""In a run's directory: the figures of its recorded episodes, as the learner has read them."""
TABLES = (".csv", ".parquet")
"""Ends of the names of tables."""


def absolute(name: str) -> str:
    """Return the name of a data set, absolute if it is a path."""
    is_path = name.startswith((".", "~")) or name.endswith(TABLES)
    return os.path.abspath(os.path.expanduser(name)) if is_path else name


ColumnNames = tuple[Annotated[str, StringConstraints(min_length=1)], ...]


class ColumnsConfig(Section):
    """The columns of a table, CSV or Parquet, with a row for each step, in order of time within an episode."""

    observation: ColumnNames = ("observation_*",)
    """Columns of the observation's numbers, in order; `*` stands for any text, and such columns are taken in the order
    of the table. In Parquet, one column may have lists of all of them."""
    action: ColumnNames | None = None
    """Columns of the action: one for a choice, one for each number of an action that is a vector, or one with lists of
    these. null: `action`, or `action_*` in a table that has no such column."""
    reward: str = "reward"
    episode: str = "episode"
    """A column whose value changes where another episode begins."""
    terminated: str | None = "terminated"
    """A column that is true, or 1, at the step that ended the episode; null: the table has none."""
    truncated: str | None = "truncated"
    """A column that is true, or 1, at a step after which the episode was cut off; null: the table has none."""
    ends: Literal["terminated", "truncated", "limit"] | None = None
    """How the episodes of a table without those two columns end: all of them terminated, or were cut off; limit: those
    were cut off that are as long as the environment's limit of steps."""
    probabilities: str | None = None
    """A column with the probabilities of all choices under the policy that acted, as JSON: [0.2, 0.8]. null: unknown.
    """

    @model_validator(mode="after")
    def _says_how_episodes_end(self) -> Self:
        if (self.terminated is None and self.truncated is None) == (self.ends is None):
            raise ValueError(
                "set terminated or truncated, the columns that say how episodes end; or set both to null, and ends to "
                "terminated, truncated or limit"
            )
        return self


COACH = ColumnsConfig(
    observation=("state_feature_*",),
    episode="episode_id",
    terminated=None,
    truncated=None,
    ends="limit",
    probabilities="all_action_probabilities",
)
"""The columns of Intel RL Coach's tables, which do not say whether an episode terminated or was cut off."""


class DataSetConfig(Section):
    """One data set, or a part of it."""

    name: str = Field(min_length=1)
    """A data set in Minari's folder ($MINARI_DATASETS_PATH, or ~/.minari/datasets); the path of one, with /, . or ~ at
    its beginning; or a table: FILE.csv, FILE.parquet. Paths are of the learner's host; a relative one is made absolute
    where the configuration is loaded."""
    episodes: int | None = Field(None, ge=1)
    """The first so many episodes; null: all."""
    best: float | None = Field(None, gt=0.0, le=1.0)
    """The share of these episodes with the greatest returns: 0.1 are the best tenth. null: all."""
    columns: Literal["coach"] | ColumnsConfig | None = None
    """The columns of a table; coach: those of Intel RL Coach's; null: the default names."""

    @field_validator("name")
    @classmethod
    def _is_absolute(cls, name: str) -> str:
        return absolute(name)

    @property
    def is_table(self) -> bool:
        """Whether it is a CSV or Parquet file."""
        return self.name.endswith(TABLES)

    @property
    def named_columns(self) -> ColumnsConfig:
        """The columns of the table."""
        return COACH if self.columns == "coach" else self.columns or ColumnsConfig()

    @model_validator(mode="after")
    def _columns_are_of_a_table(self) -> Self:
        if self.columns is not None and not self.is_table:
            raise ValueError(f"columns are of a table, FILE.csv or FILE.parquet, not of {self.name}; leave them out")
        return self


def _named(sets: object) -> object:
    """Take a name in place of a section, and of several."""
    if isinstance(sets, str):
        sets = [sets]
    return [{"name": each} if isinstance(each, str) else each for each in sets] if isinstance(sets, list) else sets


DataSets = Annotated[tuple[DataSetConfig, ...], BeforeValidator(_named)]


class DataConfig(Section):
    """Recorded episodes that the run learns from, in place of actors or beside them: by default all are in memory.

    A replay memory takes them in before the first update: its size follows from the data, so `capacity_steps`,
    `min_size_steps`, `samples_per_insert` and `checkpoint` of `algorithm.replay` do not count, nor do more
    `actors.environments` than the data fills. Checkpoints have the priorities of its items. Environment steps of such a
    run are recorded steps that updates have used. With `share` they are the actors', whose steps have a memory of their
    own, with all settings, and all of the data stays in memory.
    """

    sets: DataSets = ()
    """Data sets, one after the other; none: the run learns from its actors alone."""
    share: float | None = Field(None, gt=0.0, lt=1.0)
    """The share p of recorded items in each batch of a run with actors: int(p n / (1 - p)) of them beside n =
    `learner.batch_size` items of the actors'. 0.2 adds 8 to 32. null: nothing acts, and all items are recorded."""
    pretrain_updates: int = Field(0, ge=0)
    """With `share`: updates on recorded items alone, before the first batch that has items of actors."""
    memory_steps: int | None = Field(None, ge=1)
    """Recorded steps in memory at a time, where the data has more. It is then read round after round, in blocks of
    consecutive episodes whose order is drawn anew for each round, and new steps replace the oldest. null: all of them.
    """
    samples_per_insert: float = Field(32.0, gt=0.0)
    """With `memory_steps`: number of times that a step is sampled on average before another one replaces it."""

    @property
    def replaces_actors(self) -> bool:
        """Whether a run learns from it alone."""
        return bool(self.sets) and self.share is None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.memory_steps is None and self.is_changed("samples_per_insert"):
            raise ValueError(f"samples_per_insert: {self.samples_per_insert:g} goes with memory_steps; set that too")
        for name in ("share", "memory_steps"):
            if not self.sets and self.is_changed(name):
                raise ValueError(f"{name}: {getattr(self, name)} is of recorded episodes; set sets")
        if self.share is not None and self.memory_steps is not None:
            raise ValueError(
                f"memory_steps: {self.memory_steps}, but beside actors all of the data stays in memory; leave out "
                "memory_steps or share"
            )
        if self.pretrain_updates and self.share is None:
            raise ValueError(
                f"pretrain_updates: {self.pretrain_updates} come before items of actors, and without share nothing "
                "acts; set share, or stop.updates"
            )
        return self

    def live(self, replay: ReplayParameters | None) -> ReplayParameters | None:
        """Return the settings of the replay memory of actors' steps; None if there is none, as nothing acts."""
        return None if self.replaces_actors else replay

    def items_beside(self, live: int) -> int:
        """Return the number of recorded items in a batch with so many of actors, by `share`; 0 without it.

        int(p n / (1 - p)), the rule of TensorForce's `DQFDAgent`.
        """
        share = Fraction(str(self.share or 0))  # exact: 0.7 x 30 / 0.3 is less than 70 in floating-point numbers
        return int(share * live / (1 - share))

    def check(
        self,
        algorithm: AlgorithmSection,
        environment: EnvironmentConfig,
        *,
        actors: int,
        batch_size: int,
        last_update: int | None,
    ) -> None:
        """Refuse actors without a share, algorithms that learn from their own actions alone, and what no recording has.

        Args:
            batch_size: `RunConfig.batch_size`.
            last_update: `stop.updates`.
        """
        if not self.sets:
            return
        if last_update is not None and last_update < self.pretrain_updates:
            raise ValueError(
                f"data.pretrain_updates: {self.pretrain_updates}, but the run ends after {last_update} updates "
                "(stop.updates) and uses no step of its actors; lower the former"
            )
        if actors and self.share is None:
            raise ValueError(
                f"data: nothing acts in a run that learns from data; set actors.count: 0, not {actors}; or set "
                "data.share, the share of recorded items in the batches of a run with actors"
            )
        if self.share is not None and not self.items_beside(batch_size):
            raise ValueError(
                f"data.share: {self.share:g} beside {batch_size} items of actors (learner.batch_size) is less than one "
                f"recorded item; set at least {math.ceil(10_000 / (batch_size + 1)) / 10_000:g}"
            )
        if algorithm.replay_parameters is None:
            raise ValueError(
                f"data: algorithm {algorithm.name} learns from unrolls of its own policy; choose one with "
                "algorithm.replay, such as bc, iql, td3_bc, cql or dqn"
            )
        if algorithm.learns_from != "anybody":
            raise ValueError(
                f"data: algorithm {algorithm.name} learns from actions whose probabilities it knows, and recordings "
                "seldom have them; choose another one, such as bc, iql or dqn"
            )
        if environment.spec_file is not None:
            raise ValueError(
                f"environment.spec_file: {environment.spec_file}: the learner makes the environment to read the data; "
                "install it there, and leave spec_file out"
            )
