"""EnvironmentConfig: which environment, how an actor steps several of them, and what is done to what they show."""

from typing import Any, Literal

from pydantic import Field

from distrl.config.section import Section


class EnvironmentConfig(Section):
    """Which environment, and how one actor steps several of them."""

    id: str = "CartPole-v1"
    """A gymnasium id, or package.module:Class."""
    vectorization: Literal["auto", "own", "sync"] = "auto"
    """own: the environment's own vector entry point; sync: gymnasium's SyncVectorEnv; auto: own where there is one."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    step_timeout_s: float = Field(60.0, gt=0.0)
    """An actor whose last environment step is older than this is killed, counted and replaced."""
