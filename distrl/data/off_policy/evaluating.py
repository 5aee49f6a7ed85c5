"""Estimates for one policy of a run and one data set: reads, fits what the estimators need, and calculates."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from distrl.actors.evaluator import Episode as Played
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.config.data import DataConfig
from distrl.config.off_policy import ESTIMATORS, WEIGHTED
from distrl.data.episodes import DataError, Episodes, Spaces
from distrl.data.off_policy import estimators
from distrl.data.off_policy.estimators import Logged, Terms
from distrl.data.off_policy.fitted_q import Steps, values
from distrl.data.off_policy.models import Inputs
from distrl.data.off_policy.reading import Noted, Recorded, Showing
from distrl.data.off_policy.target import Choices, Target
from distrl.data.opening import all_opened
from distrl.data.playing import spaces_of
from distrl.learner.policy_files import read_policy
from distrl.memory_backend.records import Estimate

LEAST_EPISODES = 2
"""Effective episodes of which `wis` has an interval. Of fewer, each resample has about the return of one episode: the
width would be 0, as if that were certain, where the others have no weight."""


@dataclass(frozen=True)
class Wanted:
    """The estimates that are to be made, and how.

    Attributes:
        estimators: Among `ESTIMATORS`.
        discount: None: the algorithm's.
        epsilon: Probability of a random action at every step; None: `evaluation.epsilon` of the run.
        greedy: Of the policy's best actions, not of those that it draws.
        fits_behaviour: Fit the policy that acted, in place of recorded probabilities.
        needs_all: Whether an estimate that cannot be calculated is an error.
    """

    estimators: Sequence[str] = ESTIMATORS
    discount: float | None = None
    epsilon: float | None = None
    greedy: bool = False
    fits_behaviour: bool = False
    interval: bool = False
    seed: int = 0
    needs_all: bool = True


class OffPolicy:
    """The evaluation of a run's policy, with its present weights, from recorded episodes.

    Args:
        spaces: Those of `environment` of the run.

    Attributes:
        discount: γ.
        target: The policy.
        episodes: Number of recorded episodes.

    Raises:
        ConfigError, DataError: Policy and data do not fit each other, or an estimator cannot be calculated from them.
    """

    def __init__(self, policy: Policy, config: RunConfig, episodes: Episodes, spaces: Spaces, wanted: Wanted) -> None:
        self._wanted = wanted
        self.discount = config.algorithm.discount if wanted.discount is None else wanted.discount
        epsilon = config.evaluation.epsilon if wanted.epsilon is None else wanted.epsilon
        self.target = Target(policy, epsilon, config.network.action_mask, greedy=wanted.greedy)
        self._weighted = ", ".join(name for name in wanted.estimators if name in WEIGHTED)
        if self._weighted and not self.target.has_probabilities:
            raise DataError(f"{self._weighted}: the policy has one action for each observation; choose dm, fqe")
        self._noted = Noted(episodes)
        self.episodes = len(self._noted.lengths)
        if wanted.interval and self.episodes == 1:
            raise DataError(f"{self._noted.name} has one episode, and an interval needs two")
        categories = (array.categories is not None for array in policy.spec.observations.values())
        self._is_table = Choices.of(policy.spec.actions) is not None and all(categories)
        self._seeds = np.random.SeedSequence(wanted.seed, spawn_key=(8,)).spawn(4)
        mask, expands, rng = self.target.mask, not self._is_table, np.random.default_rng(self._seeds[0])
        self._showing = Showing(policy, config.environment, self._noted, spaces, mask, expands=expands, rng=rng)

    def play(self) -> Iterator[Played]:
        """Show the data to the policy; yield each episode when it ends.

        Raises:
            DataError: An episode is none of the environment, or lacks probabilities that an estimator needs.
        """
        for played in self._showing.play():
            if self._weighted and not (self._noted.knows_behaviour or self._wanted.fits_behaviour):
                lacks = f"{self._noted.name} lacks the probabilities of its actions"
                raise DataError(f"{self._weighted}: {lacks}; add --behaviour bc")
            yield played

    @property
    def recorded(self) -> Recorded:
        """Rewards and ends of the data, once everything has been played."""
        return self._noted.recorded

    @property
    def behaviour(self) -> str:
        """Where the probabilities of the recorded actions come from, in words."""
        if self._wanted.fits_behaviour:
            return "fitted to the actions"
        return "recorded" if self._noted.knows_behaviour else "unknown"

    def mean_return(self, discount: float) -> float:
        """Return the mean discounted return of the recorded episodes."""
        rewards, lengths, _, _ = self.recorded
        steps = np.arange(len(rewards)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return float(rewards @ discount**steps / len(lengths))

    def estimates(self) -> Iterator[Estimate]:
        """Yield the estimates one after the other, once everything has been played.

        Raises:
            DataError: One cannot be calculated from this data, and all are needed.
        """
        wanted, (rewards, lengths, terminated, log_behaviour) = self._wanted, self.recorded
        discounts = np.full(len(rewards), self.discount)
        discounts[np.cumsum(lengths)[terminated] - 1] = 0.0
        steps = Steps(rewards, discounts, np.repeat(np.arange(len(lengths)), lengths), lengths)
        models, folds = (np.random.default_rng(seed) for seed in self._seeds[1:3])
        inputs = Inputs(self.target, self._showing.shown(), steps.before, models, is_table=self._is_table)
        log_ratios = np.zeros(len(rewards))
        if self._weighted:
            if log_behaviour is None or wanted.fits_behaviour:
                log_behaviour = inputs.log_behaviour()
            log_ratios = inputs.log_target() - log_behaviour
        logged = Logged(steps.padded(rewards), steps.padded(log_ratios), lengths, self.discount)
        model, halves = cache(inputs.model), folds.permutation(len(lengths)) % 2
        whole = cache(lambda: values(model(), steps, np.zeros_like(halves)))
        crossed = cache(lambda: values(model(), steps, halves))
        make: dict[str, Callable[[], Terms]] = {
            "ips": lambda: estimators.ips(logged),
            "wis": lambda: estimators.wis(logged),
            "dm": lambda: estimators.direct(crossed()),
            "dr": lambda: estimators.dr(logged, crossed()),
            "sdr": lambda: estimators.sdr(logged, crossed()),
            "fqe": lambda: estimators.direct(whole()),
        }
        effective = estimators.effective_episodes(logged)
        for name in wanted.estimators:
            try:
                if name in ("ips", "wis") and not effective:
                    raise DataError("the policy would have acted in none of the episodes as it was recorded")
                with np.errstate(over="ignore", invalid="ignore"):
                    terms = make[name]()
                    value = estimators.value(terms)
                    one_decides = name == "wis" and effective < LEAST_EPISODES
                    low, high = (None, None) if one_decides else self._interval(terms)
                if not all(bound is None or np.isfinite(bound) for bound in (value, low, high)):
                    raise DataError("the weights of episodes exceed all numbers; choose wis, dm, fqe")
            except DataError as error:
                if wanted.needs_all:
                    raise DataError(f"{name}: {error}") from error
                yield Estimate(name, problem=str(error))
                continue
            yield Estimate(name, value, low, high, effective if name in WEIGHTED else None)

    def _interval(self, terms: Terms) -> tuple[float | None, float | None]:
        """Return the interval, if one is wanted; all are of the same draws of episodes."""
        if not self._wanted.interval:
            return None, None
        return estimators.interval(terms, np.random.default_rng(self._seeds[3]))


def of_run(
    run_dir: Path, checkpoint: str, config: RunConfig, data: DataConfig, wanted: Wanted
) -> tuple[OffPolicy, int | None]:
    """Return the evaluation of a saved policy, and the environment steps of its training; None: unknown.

    Args:
        checkpoint: As `read_policy` takes it.

    Raises:
        ConfigError, DataError: There is no such policy or data; or see `OffPolicy`.
    """
    saved, spaces = read_policy(run_dir, checkpoint), spaces_of(config.environment)
    policy = Policy(saved.bundle)
    policy.set_weights(saved.weights)
    episodes = all_opened(data, config.environment.id, spaces)
    return OffPolicy(policy, config, episodes, spaces, wanted), saved.env_steps
