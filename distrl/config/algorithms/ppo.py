"""Parameters of PPO and APPO."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.policy_gradients import (
    PolicyGradientSection,
    check_minibatches,
    check_normalized,
    items_of_epochs,
)
from distrl.config.algorithms.section import AlgorithmContext
from distrl.config.section import Section


class KlPenaltyParameters(Section):
    """KL(old || new) in the loss, by a coefficient that follows a target (Schulman et al. 2017, section 4)."""

    initial_coefficient: float = Field(1.0, gt=0.0)
    target: float = Field(0.01, gt=0.0)
    """Mean KL in nats after an update. Beyond 1.3 of it the coefficient is multiplied by 1.5, below 0.7 divided; it
    stays within 10^4 times, and 10^-4 times, the initial one."""


class ProximalSection(PolicyGradientSection):
    """Parameters of PPO and APPO."""

    batch_size: ClassVar[int] = 2

    gae_lambda: float = Field(0.95, ge=0.0, le=1.0)
    """Lambda of generalised advantage estimation."""
    clip_range: float | None = Field(0.2, gt=0.0, lt=1.0)
    """The likelihood ratio earns nothing further than this from 1; null: not clipped."""
    kl_penalty: KlPenaltyParameters | None = None
    """{} for the usual one; null: none."""
    stop_at_kl: float | None = Field(None, gt=0.0)
    """The update ends before a minibatch whose mean KL(old || new) is larger; null: never early."""
    epochs: int = Field(10, ge=1)
    """Passes of an update through its batch."""
    minibatches: int = Field(16, ge=1)
    """Equal parts of an epoch, one optimizer step each: of all rows of the batch, or of its sequences where the network
    has memory."""
    normalize_advantages: Literal["batch", "minibatch"] | None = "minibatch"
    """Normalise advantages to mean 0 and deviation 1 over a batch or a minibatch; null: do not. Where it has one valid
    row alone, that advantage stays as it is."""
    value_clip_range: float | None = Field(None, gt=0.0)
    """Clip the value this far around the old one and take the larger of both losses; null: do not."""
    value_target_mix: float = Field(1.0, gt=0.0, le=1.0)
    """Value targets are old + this * (new - old)."""
    entropy_weight: float = Field(0.0, ge=0.0)

    @property
    def masked_head(self) -> str | None:
        return "ppo"

    @property
    def steps_per_batch(self) -> int:
        """Optimizer steps that one batch makes, unless it is left early."""
        return self.epochs * self.minibatches

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        if self.steps_per_batch > 1:
            check_minibatches(context, self.minibatches, *items_of_epochs(context))
        if self.normalize_advantages is not None:
            check_normalized(context, self.normalize_advantages, self.minibatches)

    @model_validator(mode="after")
    def _steps_have_what_holds_them(self) -> Self:
        steps = self.steps_per_batch
        if self.clip_range is None and self.kl_penalty is None and steps > 1:
            raise ValueError(
                f"clip_range and kl_penalty are both null, so nothing holds the policy over the {steps} steps on one "
                "batch; set one of them"
            )
        for name in ("kl_penalty", "stop_at_kl", "value_clip_range"):
            if steps == 1 and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is of several steps on one batch, and epochs x minibatches is 1; leave it out"
                )
        return self


class PpoParameters(ProximalSection):
    """PPO (Schulman et al. 2017, arXiv:1707.06347): several epochs on every batch, near the policy that acted.

    Use it for environments that cost more than an update; a safe first choice.
    """

    implementation: ClassVar[str] = "distrl.algorithms.ppo:Ppo"

    name: Literal["ppo"] = "ppo"
    max_staleness_updates: int | None = Field(0, ge=0)


class AppoParameters(ProximalSection):
    """Asynchronous PPO (Petrenko et al. 2020, arXiv:2006.11751): actors go on while the learner learns.

    Use it as `ppo`, with slow or uneven actors.
    """

    implementation: ClassVar[str] = "distrl.algorithms.appo:Appo"

    name: Literal["appo"] = "appo"
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    correction: Literal["vtrace", "none"] = "vtrace"
    """Correction of targets and advantages for the age of unrolls. none: generalised advantages without one."""
    rho_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of V-trace's importance weight in the temporal difference. null: none."""
    c_bar: float | None = Field(1.0, gt=0.0)
    """Truncation of its trace coefficients."""

    @model_validator(mode="after")
    def _bars_are_of_vtrace(self) -> Self:
        if self.correction == "none" and (given := {"rho_bar", "c_bar"} & self.model_fields_set):
            raise ValueError(f"{min(given)} is of correction: vtrace, not of correction: none; leave it out")
        return self
