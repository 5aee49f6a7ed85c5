"""EvaluationConfig: greedy episodes beside the training."""

from typing import Self

from pydantic import Field, model_validator

from distrl.config.section import Section


class EvaluationConfig(Section):
    """Greedy episodes beside the training, in environments of their own, whose steps are none of the training's.

    They take a core of their own while they last; without it they and the training take turns.
    """

    every_env_steps: int | None = Field(None, ge=1)
    """The first weights published at or beyond every multiple of so many environment steps are evaluated; where that
    takes longer than the training to the next multiple, those that are the newest by then. Steps that fill a replay
    memory before the first update do not count. null: none."""
    episodes: int = Field(20, ge=1)
    """Episodes of one evaluation."""
    environments: int = Field(10, ge=1)
    """Environments that play them together, `episodes` at most."""

    @property
    def environments_used(self) -> int:
        """No more than there are episodes."""
        return min(self.environments, self.episodes)

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if self.every_env_steps is None:
            for name in ("episodes", "environments"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is of no use while every_env_steps is null; set it, or leave {name} out")
        return self
