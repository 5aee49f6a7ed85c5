"""OffPolicyConfig: estimates of the return from recorded episodes, at every evaluation."""

from typing import Literal, Self, get_args

from pydantic import model_validator

from distrl.config.data import DataConfig, DataSets
from distrl.config.environment import EnvironmentConfig
from distrl.config.section import Section

Estimator = Literal["ips", "wis", "dm", "dr", "sdr", "fqe"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
WEIGHTED: tuple[Estimator, ...] = ("ips", "wis", "dr", "sdr")
"""Estimators that need the probabilities of the recorded actions, under both policies."""


class OffPolicyConfig(Section):
    """Estimates of the discounted return of greedy actions from recorded episodes, with 95 % intervals.

    Each evaluation reads the data and fits models anew before it has a result: `episodes` of a set bounds the time.
    """

    estimators: tuple[Estimator, ...] = ()
    """Those of `distrl evaluate --data --greedy`: `fqe`, `dm`; for choices also `wis`, `ips`, `dr`, `sdr`, which need
    probabilities of recorded actions. Their columns are `evaluation_off_policy_NAME`, with `_low` and `_high`. none:
    nothing is estimated."""
    sets: DataSets = ()
    """As `data.sets`, on the evaluator's host; none: those of `data.sets`."""
    behaviour: Literal["bc"] | None = None
    """bc: fit the policy that acted, where its probabilities are not recorded, or not to be used."""

    def data(self, own: DataConfig) -> DataConfig:
        """Return the recorded episodes; `own` is `data` of the run."""
        return DataConfig(sets=self.sets or own.sets)

    @property
    def weighted(self) -> tuple[Estimator, ...]:
        """The estimators that need probabilities of actions."""
        return tuple(name for name in self.estimators if name in WEIGHTED)

    def check(self, own: DataConfig, environment: EnvironmentConfig) -> None:
        """Refuse estimators without data, and a host without the environment; `own` is `data` of the run."""
        if not self.estimators:
            return
        if not self.data(own).sets:
            raise ValueError(
                "evaluation.off_policy.sets: there are no recorded episodes; name some there, or data.sets"
            )
        if environment.spec_file is not None:
            raise ValueError(
                f"environment.spec_file: {environment.spec_file}: evaluation.off_policy makes the environment to read "
                "the data; install it here, and leave spec_file out"
            )

    @model_validator(mode="after")
    def _is_used(self) -> Self:
        if twice := [name for name in set(self.estimators) if self.estimators.count(name) > 1]:
            raise ValueError(f"estimators: {twice[0]} is named twice; name it once")
        for name in ("sets", "behaviour"):
            if not self.estimators and self.is_changed(name):
                raise ValueError(f"{name} is of no use without estimators; set those, such as [fqe], or leave it out")
        return self
