"""LearnerState: the learner's state beside the networks. Checkpoints hold it as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, TypeAdapter, ValidationError

from distrl.config.curriculum import RETURN, MetricRule
from distrl.config.schedules import Progress
from distrl.errors import CheckpointError
from distrl.learner.curriculum import StageEpisodes, begun, results
from distrl.memory_backend.records import Evaluation, Producer

WINDOW_EPISODES = 100
"""Number of episodes in the mean return that is shown and that can stop a run."""

_Count = Annotated[int, Field(ge=0)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Success = Annotated[int, Field(ge=-1, le=1)]
_Setting = bool | int | _Finite | str | None


def _to_pairs(settings: Any) -> Any:
    """Return pairs as lists, for JSON."""
    if not isinstance(settings, dict):
        return settings
    return {path: tuple(pair) if isinstance(pair, list) else pair for path, pair in settings.items()}


def _from_triples(triples: Any) -> Any:
    """[[actor, incarnation, sequence], ...] -> {(actor, incarnation): sequence}; JSON has no tuples as keys."""
    if not isinstance(triples, list):
        return triples
    pairs = [((actor, incarnation), sequence) for actor, incarnation, sequence in triples]
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a producer is named twice")
    return dict(pairs)


def _to_triples(applied: dict[Producer, int]) -> list[list[int]]:
    return [[actor, incarnation, sequence] for (actor, incarnation), sequence in sorted(applied.items())]


@dataclass(kw_only=True)
class LearnerState:
    """Counters and records of one training, over all its launches.

    Attributes:
        run_id: The run.
        launch: Token of the launch of the run to which `applied` and `trained_unrolls` refer.
        updates: Updates of the online network.
        env_steps: Valid environment steps that the intake has seen, stale ones included.
        trained_steps: Valid environment steps that entered an update, or the replay memory.
        episodes: Episodes that ended.
        weights_version: Newest version published.
        best_mean_return_100: Best mean return over a full window of 100 episodes; None before the first such window.
        best_saved_return: Mean return of the best checkpoint.
        evaluation_mean_return: Mean return of the newest evaluation; None before the first.
        evaluation_env_steps: Environment steps behind the weights of that evaluation.
        evaluation_success_rate: Share of that evaluation's episodes that succeeded; None: the environment does not say.
        evaluation_metrics: Key of `environment.metrics` -> its mean over that evaluation's episodes; None: unknown.
        other_evaluations: Column of a result in `evaluation.other_environments`, or of an estimate of
            `evaluation.off_policy` -> that of the newest evaluation.
        other_environments: Name -> sha256 of id and keyword arguments, of the environments that these are of.
        best_evaluation_return: Best mean return of all evaluations.
        best_by: `EvaluationConfig.judged_by`, to which the next two belong.
        best_score: Score of the best evaluation, see `Evaluation.score`.
        best_saved_evaluation: Score of the best evaluation when the best checkpoint by evaluation was written.
        recent_returns: Undiscounted returns of the newest 100 episodes, oldest first.
        recent_lengths_steps: Their lengths in valid steps.
        recent_discounted_returns: Returns of the newest 100 episodes, discounted from their first step on.
        recent_successes: Whether the newest 100 episodes succeeded: 1, 0, or -1 where the environment does not say.
        recent_metrics: Key of `environment.metrics`, in this order -> its values of the newest 100 episodes, None where
            unknown.
        metric_ways: Key of `environment.metrics` -> how the values of an episode's steps became one.
        applied: (actor, incarnation) -> highest sequence that entered an update, or the replay memory. It rolls back
            with the weights.
        trained_unrolls: Number of these unrolls. The ledger counts any excess as rolled back.
        wall_s: Seconds of training, over all launches.
        settings: Path of the configuration -> its configured value and its value while training.
        stages: Key of `environment.curriculum` with a rule by a metric, in this order -> episodes of the present stage.
    """

    run_id: str
    launch: str = ""
    updates: _Count = 0
    env_steps: _Count = 0
    trained_steps: _Count = 0
    episodes: _Count = 0
    weights_version: _Count = 0
    best_mean_return_100: _Finite | None = None
    best_saved_return: _Finite | None = None
    evaluation_mean_return: _Finite | None = None
    evaluation_env_steps: _Count | None = None
    evaluation_success_rate: _Finite | None = None
    evaluation_metrics: dict[str, _Finite | None] = field(default_factory=dict)
    best_evaluation_return: _Finite | None = None
    best_saved_evaluation: _Finite | None = None
    recent_returns: Annotated[list[_Finite], Field(max_length=WINDOW_EPISODES)] = field(default_factory=list)
    recent_lengths_steps: Annotated[list[_Count], Field(max_length=WINDOW_EPISODES)] = field(default_factory=list)
    recent_discounted_returns: Annotated[list[_Finite], Field(max_length=WINDOW_EPISODES)] = field(default_factory=list)
    recent_successes: Annotated[list[_Success], Field(max_length=WINDOW_EPISODES)] = field(default_factory=list)
    recent_metrics: dict[str, Annotated[list[_Finite | None], Field(max_length=WINDOW_EPISODES)]] = field(
        default_factory=dict
    )
    metric_ways: dict[str, str] = field(default_factory=dict)
    applied: Annotated[
        dict[tuple[_Count, _Count], _Count], BeforeValidator(_from_triples), PlainSerializer(_to_triples)
    ] = field(default_factory=dict)
    trained_unrolls: _Count = 0
    wall_s: Annotated[_Finite, Field(ge=0.0)] = 0.0
    settings: Annotated[dict[str, tuple[_Setting, _Setting]], BeforeValidator(_to_pairs)] = field(default_factory=dict)
    other_evaluations: dict[str, _Finite | None] = field(default_factory=dict)
    other_environments: dict[str, str] = field(default_factory=dict)
    stages: dict[str, StageEpisodes] = field(default_factory=dict)
    best_by: str = RETURN
    best_score: _Finite | None = None

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    def begin_metrics(
        self, declared: Mapping[str, str], rules: Mapping[str, MetricRule] = MappingProxyType({})
    ) -> None:
        """Begin with the metrics of `environment.metrics`: values stay of those that are combined as before.

        Args:
            declared: Key -> how the values of an episode's steps become one.
            rules: Rules of the curriculum by a metric, for `stages`.
        """
        kept = {key for key, way in declared.items() if self.metric_ways.get(key, way) == way}
        self.stages = begun(rules, self.stages, changed=declared.keys() - kept)
        self.recent_metrics = {key: self.recent_metrics.get(key, []) if key in kept else [] for key in declared}
        self.evaluation_metrics = {key: self.evaluation_metrics.get(key) if key in kept else None for key in declared}
        self.metric_ways = dict(declared)

    def observe_episodes(
        self,
        returns: Sequence[float],
        lengths_steps: Sequence[int],
        discounted_returns: Sequence[float] = (),
        successes: Sequence[int] = (),
        metrics: Sequence[Sequence[float]] = (),
    ) -> None:
        """Count episodes that ended, in order.

        Args:
            discounted_returns, successes: Of all of them, or none.
            metrics: [E][M + R], in the order of `recent_metrics`, NaN where unknown, then the stages in which the
                episodes began, in the order of `stages`; empty if M + R is 0.

        Raises:
            ValueError: The numbers of values differ.
        """
        ended = [(float(value), int(steps)) for value, steps in zip(returns, lengths_steps, strict=True)]
        for count in map(len, (discounted_returns, successes, metrics)):
            if count not in (0, len(ended)):
                raise ValueError(f"{count} discounted returns, successes or metrics of {len(ended)} episodes")
        self.episodes += len(ended)
        self.recent_returns = [*self.recent_returns, *(value for value, _ in ended)][-WINDOW_EPISODES:]
        self.recent_lengths_steps = [*self.recent_lengths_steps, *(steps for _, steps in ended)][-WINDOW_EPISODES:]
        self.recent_discounted_returns = [*self.recent_discounted_returns, *discounted_returns][-WINDOW_EPISODES:]
        self.recent_successes = [*self.recent_successes, *successes][-WINDOW_EPISODES:]
        if metrics:
            self._observe_metrics(returns, successes, metrics)
        mean = self._full_window_mean
        if mean is not None and (self.best_mean_return_100 is None or mean > self.best_mean_return_100):
            self.best_mean_return_100 = mean

    def _observe_metrics(
        self, returns: Sequence[float], successes: Sequence[int], metrics: Sequence[Sequence[float]]
    ) -> None:
        """Take the metrics of episodes that ended; arguments as of `observe_episodes`."""
        keys = (*self.recent_metrics, *self.stages)  # a key may be in both
        columns = [column for _, column in zip(keys, zip(*metrics, strict=True), strict=True)]
        named = dict(zip(self.recent_metrics, columns, strict=False))
        for key, column in named.items():
            new = [value if math.isfinite(value) else None for value in column]
            self.recent_metrics[key] = [*self.recent_metrics[key], *new][-WINDOW_EPISODES:]
        for episodes, stages in zip(self.stages.values(), columns[len(named) :], strict=True):
            episodes.add(stages, results(episodes.metric, returns, successes, named))

    def begin_evaluations(self, best_by: str) -> None:
        """Begin with `EvaluationConfig.judged_by`; what was the best by another result is forgotten."""
        if self.best_by != best_by:
            self.best_by, self.best_score, self.best_saved_evaluation = best_by, None, None

    def observe_evaluation(self, found: Evaluation) -> bool:
        """Record one evaluation; return whether it is the best so far."""
        self.evaluation_mean_return, self.evaluation_env_steps = found.mean_return, found.env_steps
        self.evaluation_success_rate = found.success_rate
        self.evaluation_metrics = {key: found.metrics.get(key) for key in self.recent_metrics}
        self.best_evaluation_return = better(self.best_evaluation_return, found.mean_return)
        before, self.best_score = self.best_score, better(self.best_score, found.score)
        return self.best_score != before

    @property
    def mean_return_100(self) -> float | None:
        """Mean return of the newest episodes, at most 100; None before the first has ended."""
        if not self.recent_returns:
            return None
        return sum(self.recent_returns) / len(self.recent_returns)

    @property
    def mean_discounted_return_100(self) -> float | None:
        """Mean discounted return of the newest episodes, at most 100; None before the first has ended."""
        found = self.recent_discounted_returns
        return sum(found) / len(found) if found else None

    @property
    def success_rate_100(self) -> float | None:
        """Share of the newest episodes, at most 100, that succeeded, of those of which the environment says it."""
        known = [success for success in self.recent_successes if success >= 0]
        return sum(known) / len(known) if known else None

    def metric_100(self, key: str) -> float | None:
        """Mean of a metric over the newest episodes, at most 100, of those of which it is known."""
        known = [value for value in self.recent_metrics[key] if value is not None]
        return sum(known) / len(known) if known else None

    def full_window_metric(self, key: str) -> float | None:
        """`metric_100` where it is of 100 episodes, and known of each; else None."""
        values = self.recent_metrics[key]
        return None if len(values) < WINDOW_EPISODES or None in values else self.metric_100(key)

    @property
    def unreported_metrics(self) -> list[str]:
        """Keys of `environment.metrics` that none of the newest 100 episodes had."""
        return [
            key
            for key, values in self.recent_metrics.items()
            if len(values) == WINDOW_EPISODES and not any(value is not None for value in values)
        ]

    def take_best(self, *, by_evaluation: bool = False) -> bool:
        """Return whether a checkpoint written now is the best so far; if so, record its return.

        Args:
            by_evaluation: Compare evaluations instead of the mean return of the last episodes.
        """
        if by_evaluation:
            best, saved = self.best_score, self.best_saved_evaluation
            if best is None or (saved is not None and best <= saved):
                return False
            self.best_saved_evaluation = best
            return True
        mean = self._full_window_mean
        if mean is None or (self.best_saved_return is not None and mean <= self.best_saved_return):
            return False
        self.best_saved_return = mean
        return True

    @property
    def progress(self) -> Progress:
        """How far the training has come."""
        return Progress(self.env_steps, self.episodes, self.updates)

    @property
    def _full_window_mean(self) -> float | None:
        # A window that is not yet full does not count: a few lucky first episodes would stay the best for ever.
        return self.mean_return_100 if len(self.recent_returns) == WINDOW_EPISODES else None

    def for_launch(self, run_id: str, launch: str) -> Self:
        """Return this state continued in a launch of a run. In another launch actors and sequences count anew."""
        if (run_id, launch) != (self.run_id, self.launch):
            self.run_id, self.launch = run_id, launch
            self.applied = {}
            self.trained_unrolls = 0
        return self

    def to_meta(self) -> dict[str, Any]:
        """Return the state in JSON's types; `from_meta` inverts it."""
        meta: dict[str, Any] = _STATE.dump_python(self, mode="json")
        return meta

    @staticmethod
    def from_meta(meta: Mapping[str, Any]) -> "LearnerState":
        """Return the state that `to_meta` wrote.

        Raises:
            CheckpointError: A field is unknown, missing, of another type or out of its range.
        """
        if "best_by" not in meta:  # of an earlier version, which judged by returns alone
            meta = {**meta, "best_score": meta.get("best_evaluation_return")}
        # Checkpoints of earlier versions lack these; without a launch, the state continues no launch.
        if missing := {entry.name for entry in fields(LearnerState)} - meta.keys() - _LATER:
            raise CheckpointError(f"the checkpoint's learner state has no {', '.join(sorted(missing))}")
        try:
            # By way of JSON, where strict still takes an object for a dataclass.
            return _STATE.validate_json(json.dumps(dict(meta)))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise CheckpointError(f"the checkpoint's learner state is not valid: {where}: {first['msg']}") from error


def better(one: float | None, other: float | None) -> float | None:
    """Return the greater of those that are known."""
    return max((value for value in (one, other) if value is not None), default=None)


_LATER = {
    *("launch", "stages", "best_by", "best_score", "evaluation_success_rate", "evaluation_metrics"),
    *("other_evaluations", "other_environments"),
    *("recent_discounted_returns", "recent_successes", "recent_metrics", "metric_ways"),
}
_STATE = TypeAdapter(LearnerState)
