"""EvaluationConfig: greedy episodes beside the training, and films of them."""

from typing import Self

from pydantic import Field, model_validator

from distrl.config.section import Section


class FilmsConfig(Section):
    """Films of evaluations, in the directory films/ of the run on the evaluator's host. They need the extra `video`."""

    every: int | None = Field(None, ge=1)
    """Film one episode at the first evaluation, and at the first one at or beyond every so many further multiples of
    `every_env_steps`: films/steps-000100000.webm. null: none of these."""
    best: bool = False
    """Film one episode at every evaluation that is better than all before: films/best.webm, which it replaces."""
    keep: int = Field(20, ge=1)
    """Number of newest films of `every` that are kept."""

    @property
    def used(self) -> bool:
        """Whether any film is made."""
        return self.every is not None or self.best

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if self.every is None and self.is_changed("keep"):
            raise ValueError("keep is of no use while every is null; set it, or leave keep out")
        return self


class EvaluationConfig(Section):
    """Greedy episodes during the training, in separate environments, whose steps do not count as training steps.

    They take a core of their own while they last; without one they slow the training down.
    """

    every_env_steps: int | None = Field(None, ge=1)
    """Evaluate the first weights published at or beyond every multiple of so many environment steps. If an evaluation
    takes longer than that, the next one uses the newest weights. Steps that fill a replay memory before the first
    update do not count. null: no evaluations."""
    episodes: int = Field(20, ge=1)
    """Episodes of one evaluation."""
    environments: int = Field(10, ge=1)
    """Environments that play them in parallel, at most `episodes`."""
    last_within_s: float = Field(60.0, ge=0.0, allow_inf_nan=False)
    """How long a training that has reached a condition of `stop` waits for the evaluation of its last weights, unless
    `stop.evaluation_return` was that condition. 0: it does not wait."""
    epsilon: float = Field(0.0, ge=0.0, le=1.0)
    """Probability of a random action at every step, as papers on Atari's games have it (.05, .001); 0: greedy.
    `distrl evaluate` takes it over from the run."""
    films: FilmsConfig = FilmsConfig()

    @property
    def environments_used(self) -> int:
        """Number of environments, at most one for each episode."""
        return min(self.environments, self.episodes)

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if self.every_env_steps is None:
            for name in ("episodes", "environments", "last_within_s", "epsilon", "films"):
                if self.is_changed(name):
                    raise ValueError(f"{name} is of no use while every_env_steps is null; set it, or leave {name} out")
        return self
