"""EvaluationConfig: greedy episodes beside the training, what else they are made of, and films."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from distrl.config.curriculum import EPISODE_RESULTS, RETURN
from distrl.config.data import DataConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.off_policy import OffPolicyConfig
from distrl.config.section import Section
from distrl.errors import ConfigError

if TYPE_CHECKING:
    from distrl.types import EnvSpec

EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$")]
"""A name of `evaluation.other_environments`, which is part of the names of metrics."""


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


class OtherEnvironment(Section):
    """One further environment of evaluations. All that these two do not say is as in `environment`."""

    id: str | None = None
    """As `environment.id`; null: that of `environment`."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment. Without an `id` they are added to `environment.kwargs`, or replace those of
    the same name. With an `id` they are all that it gets."""

    @model_validator(mode="after")
    def _differs(self) -> Self:
        if self.id is None and not self.kwargs:
            raise ValueError("it is the environment of the training; set id or kwargs")
        return self

    def beside(self, environment: EnvironmentConfig) -> EnvironmentConfig:
        """Return it as a whole, for a run in `environment`.

        It is always tried where it is made (no `spec_file`), and its parameters stay as they are (no curriculum).
        """
        kwargs = self.kwargs if self.id is not None else {**environment.kwargs, **self.kwargs}
        fixed = {"id": self.id or environment.id, "kwargs": kwargs, "spec_file": None, "curriculum": {}}
        return environment.model_copy(update=fixed)


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
    max_episode_steps: int | None = Field(27_000, ge=1)
    """Steps after which an episode is cut short and counts as it is, as a policy may never end it: 27,000 are half an
    hour of an Atari game. Results say how many were cut. null: an evaluation waits for the end of every episode.
    `distrl evaluate` takes it over from the run."""
    epsilon: float = Field(0.0, ge=0.0, le=1.0)
    """Probability of a random action at every step, as papers on Atari's games have it (.05, .001); 0: greedy.
    `distrl evaluate` takes it over from the run."""
    best_by: str = RETURN
    """The result by which one evaluation is better than another: the weights of the best are kept, filmed and marked.
    `episode_return`; `success`, the share of episodes that succeeded; or a key of `environment.metrics`, the greater
    the better. An evaluation without the result is never the best. `stop.evaluation_return` is always about returns."""
    other_environments: dict[EnvironmentName, OtherEnvironment] = Field(default_factory=dict)
    """Further environments, by a name of your choice, in which each evaluation plays `episodes`, too. Their observation
    and action spaces must be those of the training. Their means are the columns `evaluation_in_NAME_…`; the best
    weights and `stop.evaluation_return` go by the run's own environment alone."""
    off_policy: OffPolicyConfig = OffPolicyConfig()
    films: FilmsConfig = FilmsConfig()

    @property
    def environments_used(self) -> int:
        """Number of environments, at most one for each episode."""
        return min(self.environments, self.episodes)

    def judged_by(self, metrics: Mapping[str, str]) -> str:
        """Return `best_by`, of a metric with how it is combined: scores are compared only where this is the same.

        Args:
            metrics: `environment.metrics`.
        """
        return f"{self.best_by} ({metrics[self.best_by]})" if self.best_by in metrics else self.best_by

    def check(self, environment: EnvironmentConfig, data: DataConfig) -> None:
        """Refuse a `best_by` that evaluations do not have, and estimates without data."""
        metrics = environment.metrics
        if self.every_env_steps is not None and environment.spaces is not None:
            raise ValueError(
                "evaluation.every_env_steps: nothing can make the environment of environment.spaces; leave it out, and "
                "let episodes of your loop be greedy: act(…, greedy=True)"
            )
        self.off_policy.check(data, environment)
        if self.best_by not in (*metrics, *EPISODE_RESULTS):
            raise ValueError(
                f"evaluation.best_by: {self.best_by!r} is none of {', '.join((*metrics, *EPISODE_RESULTS))}; declare "
                f"it in environment.metrics (for example {self.best_by}: sum)"
            )

    def check_spaces(self, name: str, spec: "EnvSpec", other: "EnvSpec") -> None:
        """Refuse one of `other_environments` whose observations or actions are not those of the training.

        Args:
            spec, other: That of the training's environment, and that of the one of this name.

        Raises:
            ConfigError: It names the environment and the first difference.
        """
        if difference := spec.unlike(other):
            raise ConfigError(
                f"evaluation.other_environments.{name}: {other.id} does not fit the policy: {difference}; both must "
                "have the same observations and actions after environment.preprocessing"
            )

    @field_validator("other_environments")
    @classmethod
    def _have_columns_of_their_own(cls, others: Mapping[str, OtherEnvironment]) -> Mapping[str, OtherEnvironment]:
        for name in others:
            if "info" in name.split("_"):
                raise ValueError(f"{name!r}: info begins the names of metrics in columns; choose another name")
        return others

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if self.every_env_steps is None:
            for name in (
                "episodes",
                "environments",
                "last_within_s",
                "max_episode_steps",
                "epsilon",
                "best_by",
                "other_environments",
                "off_policy",
                "films",
            ):
                if self.is_changed(name):
                    raise ValueError(f"{name} is of no use while every_env_steps is null; set it, or leave {name} out")
        return self
