"""EnvironmentConfig: the environment, how an actor steps several of them, and their preprocessing."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from distrl.config.atari import AtariParameters
from distrl.config.curriculum import CurriculumRule, MetricRule, ParameterValue, check_rule, is_parameter, value_at
from distrl.config.preprocessing import PreprocessingStep
from distrl.config.remote_environment import GivenSpaces
from distrl.config.schedules import Progress
from distrl.config.section import Section
from distrl.errors import ConfigError

Vectorization = Literal["auto", "own", "sync", "async", "mujoco", "envpool", "ale"]
Aggregation = Literal["sum", "mean", "last", "max", "min"]
"""How the values of an episode's steps become one number."""
INFO_KEY = r"^[A-Za-z0-9_][A-Za-z0-9_/ -]*$"
InfoKey = Annotated[str, StringConstraints(pattern=INFO_KEY)]
"""A key of `info` that can be a metric; a dot would be a path of the configuration."""


def info_word(key: str) -> str:
    """Return the part of a metric's name that stands for a key of `info`: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", key)


class TextParameters(Section):
    """How text observations become tokens: words, split at white space, are hashed into numbers."""

    length_tokens: int = Field(16, ge=1)
    """Tokens of one text: further words are cut off, and a shorter text is padded with 0."""
    vocabulary: int = Field(1024, ge=3)
    """How many different tokens there are: 0 is padding, and every word has one of 1 … vocabulary - 1."""


class EnvironmentConfig(Section):
    """The environment, and how one actor steps several of them."""

    id: str = "CartPole-v1"
    """A gymnasium id; package.module:Class; gym: and the id of an environment of the old gym; or the address of a
    remote environment, tcp://host:port."""
    vectorization: Vectorization = "auto"
    """own: the environment's own vector entry point; sync: gymnasium's SyncVectorEnv, one after the other in the
    actor's process; async: gymnasium's AsyncVectorEnv, each in a process of its own; mujoco: gymnasium's HalfCheetah,
    Hopper, Swimmer and Walker2d (-v5), the physics of all in one call; envpool: EnvPool's environment of that id, in
    C++ threads; ale: the Arcade Learning Environment's vector, for `atari`; auto: mujoco or own where there is one,
    else sync."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment; with envpool also EnvPool's own options, such as num_threads."""
    action_repeat: int = Field(1, ge=1)
    """Steps of the environment for each action: rewards are added, and an episode's end ends the repetition. Steps of
    the run are decisions; atari.frame_skip does the same for games."""
    metrics: dict[InfoKey, Aggregation] = Field(default_factory=dict)
    """Numbers in the environment's `info` that become metrics: key -> how the values of an episode's steps become one.
    Their means over the last 100 episodes are the columns `info_KEY_100`."""
    curriculum: dict[str, CurriculumRule] = Field(default_factory=dict)
    """Keyword arguments that change while the run trains: key of `kwargs` -> its rule. Every episode keeps the value
    with which it began. The present values are the columns `curriculum_KEY`, where they are numbers."""
    atari: AtariParameters | None = None
    """Protocol of a game of the Arcade Learning Environment. null: as gymnasium registers it."""
    preprocessing: tuple[PreprocessingStep, ...] = ()
    """Steps between the environment and the policy, in order; each is {step: NAME, …}."""
    image_channels: Literal["auto", "first", "last"] = "auto"
    """Where observations of three axes have their channels; first: they are moved to the end, where networks take them,
    before all steps of `preprocessing`; auto: first where the first axis is the smallest and the last is longer than 4,
    unless a step moves their axes."""
    text: TextParameters = TextParameters()
    """How text observations become tokens."""
    devices: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9,/:-]*$")] | None = None
    """CUDA_VISIBLE_DEVICES of the processes that step environments: of the trial, `env check`, actors and the
    evaluator. "": no GPU. null: as set where distrl starts."""
    spec_file: str | None = None
    """File with the environment's spec, which `distrl env check --json` prints, for a host that has no environment and
    starts no actors (`launch.start_actors: false`); null: the environment is tried before the launch."""
    spaces: GivenSpaces | None = None
    """Spaces of an environment that your code steps, with `distrl.Agent`, which sets this: nothing makes the
    environment. null: `id` names one that distrl makes."""
    step_timeout_s: float = Field(60.0, gt=0.0, allow_inf_nan=False)
    """An actor whose last environment step is older than this is killed, counted and replaced. Importing and making the
    environment may take longer: up to half of `learner.stall_timeout_s`."""

    @field_validator("metrics")
    @classmethod
    def _have_columns_of_their_own(cls, metrics: Mapping[str, Aggregation]) -> Mapping[str, Aggregation]:
        keys: dict[str, str] = {}
        for key in metrics:
            if (other := keys.setdefault(info_word(key), key)) != key:
                raise ValueError(
                    f"{other!r} and {key!r} would share the column info_{info_word(key)}_100; leave one out"
                )
        return metrics

    @model_validator(mode="after")
    def _can_follow_the_curriculum(self) -> Self:
        columns: dict[str, str] = {}
        for name, rule in self.curriculum.items():
            check_rule(name, rule, self.kwargs, self.metrics)
            if (other := columns.setdefault(info_word(name), name)) != name:
                raise ValueError(f"curriculum: {other!r} and {name!r} would share a column; rename one of them")
        if self.curriculum and self.vectorization not in ("auto", "sync", "async"):
            raise ValueError(
                f"curriculum: vectorization: {self.vectorization} cannot change environments between episodes; "
                "use sync or async"
            )
        return self

    def refuse_given_spaces(self) -> None:
        """Raise ConfigError if nothing can make the environment, because code outside of distrl steps it."""
        if self.spaces is not None:
            raise ConfigError(
                f"environment {self.id}: your own code steps it (environment.spaces): use distrl.Agent (docs/agents.md)"
            )

    @model_validator(mode="after")
    def _can_repeat_actions(self) -> Self:
        if self.action_repeat > 1 and (self.vectorization not in ("auto", "sync", "async") or self.atari is not None):
            other = "atari has frame_skip" if self.atari is not None else f"vectorization: {self.vectorization} cannot"
            raise ValueError(f"action_repeat: {self.action_repeat}, but {other}; use sync or async, or leave it out")
        if self.action_repeat > 1 and (self.id.startswith(("tcp://", "tcp-listen://")) or self.spaces is not None):
            raise ValueError(
                f"action_repeat: {self.action_repeat}, but other code steps {self.id}; repeat actions there"
            )
        return self

    @property
    def metric_rules(self) -> dict[str, MetricRule]:
        """Name -> rule of the keyword arguments that change by a metric."""
        return {name: rule for name, rule in self.curriculum.items() if isinstance(rule, MetricRule)}

    @property
    def metric_columns(self) -> int:
        """Numbers of each episode in unrolls: the metrics, and the stage of each of `metric_rules`."""
        return len(self.metrics) + len(self.metric_rules)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of processes that step it, where they differ from what the user has set."""
        return {} if self.devices is None else {"CUDA_VISIBLE_DEVICES": self.devices}

    def parameters_at(self, progress: Progress) -> dict[str, ParameterValue]:
        """Return the keyword arguments that can change, with the values in force.

        Args:
            progress: How far the training is, for schedules.
        """
        return {
            name: value if name not in self.curriculum else value_at(self.curriculum[name], value, progress)
            for name, value in self.kwargs.items()
            if is_parameter(value)
        }
