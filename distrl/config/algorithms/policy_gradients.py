"""Parameters that all policy gradients share, and those of VPG."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, LearnsFrom

RewardClipping = Literal["clamp_one", "soft_asymmetric"]


class UnrollPolicySection(AlgorithmSection):
    """Fields of algorithms that learn a policy from whole unrolls with single rewards."""

    live: ClassVar[Mapping[str, str]] = {"entropy_weight": "weight of the entropy that the loss rewards"}

    reward_clipping: RewardClipping | None = None
    """After reward_normalization and before reward_scale. clamp_one: cut to +- 1. soft_asymmetric: squashed to +- 5,
    losses to 0.3 of that (Espeholt et al. 2018, for DMLab). null: none."""
    entropy_weight: float = Field(0.01, ge=0.0)
    """Weight of the policy's entropy, which the loss rewards."""

    @property
    def masked_head(self) -> str | None:
        return "policy"


class PolicyGradientSection(UnrollPolicySection):
    """Fields of those whose policy and value are one loss."""

    value_loss_weight: float = Field(0.5, ge=0.0)
    """Weight of the value loss beside the policy's."""


def check_minibatches(
    context: AlgorithmContext,
    minibatches: int,
    items: int,
    items_are: str,
    factors: str,
    setting: str = "minibatches",
) -> None:
    """Refuse minibatches that cannot be made of a batch.

    Args:
        items: Number of `items_are` in a batch.
        factors: Where that number comes from.
        setting: Name of the parameter that asks for them.
    """
    if items % minibatches:
        raise ValueError(
            f"algorithm.{setting}: {minibatches} equal parts cannot be made of the {items} {items_are} of a batch "
            f"({factors}); choose a divisor"
        )
    name = context.parameters.name
    if context.network.optimizer_type == "LBFGS":
        raise ValueError(f"network.optimizer_type: LBFGS needs whole batches; algorithm {name} takes minibatches")
    if items // minibatches % context.replicas:
        raise ValueError(
            f"learner.replicas: {context.replicas} devices cannot share {items // minibatches} {items_are} evenly, a "
            f"minibatch of algorithm {name}"
        )


def items_of_epochs(context: AlgorithmContext) -> tuple[int, str, str]:
    """Return what epochs go through, for `check_minibatches`: the rows of a batch, or with memory its sequences."""
    items, factors = context.sequences_per_batch, "learner.batch_size x actors.environments"
    if context.network.has_memory:
        return items, "sequences", f"{factors}; a network with memory learns from whole sequences"
    return items * context.unroll_length_steps, "rows", f"{factors} x actors.unroll_length_steps"


def check_normalized(context: AlgorithmContext, over: str, minibatches: int) -> None:
    """Refuse advantages that are normalised over a single row, which has no deviation.

    Args:
        over: `algorithm.normalize_advantages`: batch or minibatch.
        minibatches: Minibatches of an epoch.
    """
    rows = context.sequences_per_batch * context.unroll_length_steps
    parts = minibatches if over == "minibatch" else 1
    if rows > parts:
        return
    what = "a batch has" if parts == 1 else f"each of the {parts} minibatches of a batch has"
    remedy = "make the batch larger" if rows == 1 else f"take at most {rows // 2} minibatches"
    raise ValueError(
        f"algorithm.normalize_advantages: {over}; {what} 1 row (learner.batch_size x actors.environments x "
        f"actors.unroll_length_steps is {rows}), which has no deviation; {remedy}, or set it to null"
    )


Rescaler = Literal[
    "total_return",
    "future_return",
    "future_return_normalized_by_episode",
    "future_return_normalized_by_timestep",
    "a_value",
    "td_residual",
    "gae",
]
_OF_A_BASELINE = ("a_value", "td_residual", "gae")


class VpgParameters(PolicyGradientSection):
    """Vanilla policy gradient: REINFORCE (Williams 1992, doi:10.1007/BF00992696), with a baseline or without.

    Use it as the simplest policy gradient: a baseline.
    """

    implementation: ClassVar[str] = "distrl.algorithms.vpg:Vpg"
    learns_from: ClassVar[LearnsFrom] = "own policy"

    name: Literal["vpg"] = "vpg"
    max_staleness_updates: int | None = Field(0, ge=0)
    """0 alone: nothing corrects for actions of an older policy."""
    baseline: Literal["value", "none"] = "value"
    """value: the network's value head is subtracted from returns, and continues them where an unroll ends within an
    episode. none: plain returns up to the end of the episode. If episodes have at most M steps, unrolls must have at
    least M with rescaler: future_return, M + 2 with the others, which use whole episodes; 2 M is better."""
    rescaler: Rescaler | None = None
    """Factor of log pi. null: gae if there is a gae_lambda, else a_value; without a baseline
    future_return_normalized_by_timestep."""
    gae_lambda: float | None = Field(None, ge=0.0, le=1.0)
    """Lambda of generalised advantage estimation; null: the advantage is the return minus the value."""

    @property
    def rescaling(self) -> Rescaler:
        """`rescaler`, or its default."""
        if self.rescaler is not None:
            return self.rescaler
        if self.baseline == "none":
            return "future_return_normalized_by_timestep"
        return "a_value" if self.gae_lambda is None else "gae"

    @model_validator(mode="after")
    def _returns_have_what_they_need(self) -> Self:
        if self.max_staleness_updates != 0:
            raise ValueError(
                f"max_staleness_updates: {self.max_staleness_updates or 'null'} lets actions of older policies in, for "
                "which vpg does not correct; leave it at 0, or take impala"
            )
        if self.baseline == "none":
            self._check_without_baseline()
        elif self.rescaling not in _OF_A_BASELINE:
            raise ValueError(f"rescaler: {self.rescaler} has no baseline; set baseline: none, or rescaler: a_value")
        if self.rescaling == "gae" and self.gae_lambda is None:
            raise ValueError("rescaler: gae needs gae_lambda, for example 0.95")
        if self.rescaling != "gae" and self.gae_lambda is not None:
            raise ValueError(f"gae_lambda: {self.gae_lambda} is of rescaler: gae, not of {self.rescaling}")
        return self

    def _check_without_baseline(self) -> None:
        if self.gae_lambda is not None or self.rescaler == "gae":
            what = "rescaler: gae" if self.gae_lambda is None else f"gae_lambda: {self.gae_lambda}"
            raise ValueError(f"{what} needs a baseline, which is {self.baseline}; set baseline: value, or leave it out")
        if self.rescaler in _OF_A_BASELINE:
            raise ValueError(f"rescaler: {self.rescaler} needs a baseline, which is none; set baseline: value")
        if self.is_changed("value_loss_weight"):
            raise ValueError(
                f"value_loss_weight: {self.value_loss_weight} is of a baseline, which is none; leave it out"
            )
