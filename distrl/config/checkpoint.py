"""CheckpointConfig: when checkpoints are saved, how many are kept, and which data store gets copies."""

import math

from pydantic import Field, field_validator

from distrl.config.section import Section
from distrl.config.stores import checked_store_url


class CheckpointConfig(Section):
    """When to save and how much to keep."""

    every_s: float | None = Field(60.0, gt=0.0)
    """Seconds from one checkpoint to the next; null: not by time. With actors.count: 0 never by time, so that a run is
    repeatable."""
    every_updates: int | None = Field(None, ge=1)
    """Updates from one checkpoint to the next; null: not by updates. With actors.count: 0, null means after 100
    unrolls, or after more where these have fewer than 25,000 steps."""
    keep: int = Field(5, ge=1)
    """Number of newest checkpoints kept, in addition to the best one, by the newest evaluation or, without
    `evaluation`, by the mean return of the last 100 episodes."""
    store: str | None = None
    """Data store that gets a copy of every checkpoint, of the policy and of the run's files, in a folder named by the
    run's id: s3://bucket/path, gs://bucket/path, az://container/path, or file:///path for a disk that hosts share.
    Credentials come from the environment, as usual for that store (docs/cluster.md); null: none."""
    store_give_up_s: float = Field(60.0, gt=0.0)
    """How long the end of a training waits for the store to take its last checkpoint, before it ends with code 6."""

    @property
    def end_s(self) -> int:
        """Longest time that the end of a training waits for a store that does not answer: learner, then parent."""
        return 0 if self.store is None else 2 * math.ceil(self.store_give_up_s)

    @field_validator("store")
    @classmethod
    def _is_store(cls, url: str | None) -> str | None:
        return None if url is None else checked_store_url(url, "checkpoint.store")

    def check(self, stall_timeout_s: float) -> None:
        """Refuse settings that the run would not use, and an end that the supervisor would take for a stall.

        Args:
            stall_timeout_s: `learner.stall_timeout_s`.
        """
        if self.store is None and self.is_changed("store_give_up_s"):
            raise ValueError("checkpoint.store_give_up_s has no use without checkpoint.store")
        if self.store is not None and self.store_give_up_s >= stall_timeout_s:
            raise ValueError(
                f"checkpoint.store_give_up_s: {self.store_give_up_s:g} must be less than learner.stall_timeout_s: "
                f"{stall_timeout_s:g}, after which the run has stalled"
            )
