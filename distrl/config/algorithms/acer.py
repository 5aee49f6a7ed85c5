"""Parameters of ACER."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms.section import AlgorithmContext, AlgorithmSection, LearnsFrom
from distrl.config.heads import ChoiceSection
from distrl.config.replay import ReplayParameters, SequenceParameters


class AcerReplayParameters(ReplayParameters):
    """The replay memory with ACER's defaults: whole unrolls, each of which is seen about once and in four replays."""

    samples_per_insert: float | None = Field(5.0, gt=0.0)
    item: SequenceParameters = SequenceParameters()


class AcerParameters(AlgorithmSection):
    """ACER (Wang et al. 2017, arXiv:1611.01224): an actor-critic that learns from replayed unrolls of one choice.

    Use it for an actor-critic in few environment steps, also with memory.
    """

    implementation: ClassVar[str] = "distrl.algorithms.acer:Acer"
    batch_size: ClassVar[int] = 16
    learns_from: ClassVar[LearnsFrom] = "own policy"
    unroll_extras: ClassVar[tuple[str, ...]] = ("choice_probabilities",)

    name: Literal["acer"] = "acer"
    trace_lambda: float = Field(1.0, ge=0.0, le=1.0)
    """Retrace: factor of the trace coefficients min(1, rho); below 1, returns bootstrap earlier."""
    importance_weight_truncation: float = Field(10.0, gt=0.0)
    """c: importance weights of the policy gradient are truncated to this; the bias correction makes up for the rest."""
    trust_region_delta: float | None = Field(1.0, gt=0.0)
    """delta: bound on how fast one step may leave the average policy (linearised KL); null: no trust region."""
    average_policy_rate: float = Field(0.01, gt=0.0, le=1.0)
    """With every update: average = rate * policy + (1 - rate) * average."""
    entropy_weight: float = Field(0.001, ge=0.0)
    """Weight of the policy's entropy, which the loss rewards."""
    q_loss_weight: float = Field(0.5, ge=0.0)
    """Weight of the loss of the action values beside the policy's."""
    replay: AcerReplayParameters = AcerReplayParameters()
    """The replay memory."""

    @property
    def masked_head(self) -> str | None:
        return "acer_policy"

    def check(self, context: AlgorithmContext) -> None:
        super().check(context)
        for head in context.network.heads_parameters:
            if isinstance(head, ChoiceSection) and head.action_mask is not None:
                raise ValueError(
                    f"network.heads_parameters: {head.kind}: action_mask: the policy of acer chooses; name the mask in "
                    "the head acer_policy"
                )

    @model_validator(mode="after")
    def _samples_sequences_alike(self) -> Self:
        sampler, steps = self.replay.sampler.kind, self.replay.item.n_step
        if sampler != "uniform":
            raise ValueError(f"replay.sampler.kind: {sampler}; acer samples all sequences alike; leave it out")
        if steps > 1:
            raise ValueError(
                f"replay.item.n_step: {steps}; acer's returns use all steps of a sequence; leave it out, "
                "or set trace_lambda"
            )
        return self
