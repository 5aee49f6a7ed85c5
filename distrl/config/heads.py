"""Heads as configuration: the outputs of a network, each with its loss."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from distrl.config.layers import MOST_UNITS, Activation, Count, DenseKind
from distrl.config.section import Section


class HeadSection(Section):
    """Fields of every head."""

    loss_weight: float = Field(1.0, ge=0.0)
    """Factor of this head's loss in the total."""
    rescale_gradient_from_head_by_factor: float = Field(1.0, ge=0.0)
    """Factor of the gradient that this head sends into the layers shared with other heads; its output is unchanged."""
    num_output_head_copies: int = Field(1, ge=1)
    """Heads of this kind side by side; with more than one, outputs are named <head>_0, <head>_1, …"""
    units: tuple[Count, ...] = ()
    """Widths of the head's own hidden layers."""
    activation: Activation = "relu"
    """Activation of these hidden layers."""
    dense_layer: DenseKind = "dense"
    """Kind of the head's layers, the last ones included."""

    loss_settings: ClassVar[tuple[str, ...]] = ()
    """Fields that only the head's own loss reads."""

    @model_validator(mode="after")
    def _activation_has_layers(self) -> Self:
        if self.activation != "relu" and not self.units:
            raise ValueError(f"activation: {self.activation} is of hidden layers, and units is empty")
        return self

    @property
    def changed_loss_settings(self) -> list[str]:
        """The loss settings that are not at their default."""
        return [name for name in self.loss_settings if self.is_changed(name)]


class PolicySection(HeadSection):
    """Fields of heads with one distribution per action."""

    loss_settings: ClassVar[tuple[str, ...]] = ("beta_entropy",)

    distribution: Literal["auto", "gaussian", "bounded_gaussian", "squashed_gaussian", "beta"] = "auto"
    """Distribution of continuous actions. bounded_gaussian: a Gaussian whose mean tanh keeps within the bounds. auto:
    gaussian, of iql bounded_gaussian. Choices and switches have theirs."""
    log_sigma: Literal["auto", "state_independent", "state_dependent"] = "auto"
    """Source of the log deviation of Gaussians. auto: state_independent, one weight per dimension;
    state_dependent for squashed_gaussian."""
    initial_log_sigma: float = 0.0
    """Log deviation of Gaussians at the first update; where it depends on the state, on average over states. Of
    bounded_gaussian the unit is half the distance between the bounds."""
    action_mask: str | None = None
    """Name of an observation [A] that is 0 where a choice is not allowed."""
    beta_entropy: float = Field(0.0, ge=0.0)
    """Factor of the entropy that the loss rewards."""

    @model_validator(mode="after")
    def _sigma_belongs_to_a_gaussian(self) -> Self:
        if self.distribution == "beta" and (self.log_sigma != "auto" or self.initial_log_sigma != 0.0):
            raise ValueError("log_sigma and initial_log_sigma are a Gaussian's; a beta distribution has neither")
        return self


class PolicyHeadParameters(PolicySection):
    """One distribution per action; the loss is the policy gradient's."""

    kind: Literal["policy"] = "policy"


class PPOHeadParameters(PolicySection):
    """The policy head with PPO's loss: clipped likelihood ratio, KL penalty, both, or neither."""

    loss_settings: ClassVar[tuple[str, ...]] = ("beta_entropy", "clip_range", "initial_kl_coefficient")

    kind: Literal["ppo"] = "ppo"
    clip_range: float | None = Field(0.2, gt=0.0)
    """The likelihood ratio is clipped at this distance from 1; null: not clipped."""
    initial_kl_coefficient: float | None = Field(None, ge=0.0)
    """Factor of KL(old || new) in the loss, which training then adjusts; null: no penalty."""


class ACERPolicyHeadParameters(HeadSection):
    """A policy over one choice, learned off-policy from replay."""

    loss_settings: ClassVar[tuple[str, ...]] = ("beta_entropy", "importance_weight_truncation", "trust_region_delta")

    kind: Literal["acer_policy"] = "acer_policy"
    importance_weight_truncation: float = Field(10.0, gt=0.0)
    """Importance weights are truncated to this; the bias correction makes up for the rest."""
    trust_region_delta: float | None = Field(1.0, gt=0.0)
    """Bound on how fast one step may leave the average policy (linearised KL); null: no trust region."""
    action_mask: str | None = None
    """Name of an observation [A] that is 0 where a choice is not allowed."""
    beta_entropy: float = Field(0.0, ge=0.0)
    """Factor of the entropy that the loss rewards."""


class ValueHeadParameters(HeadSection):
    """State value."""

    loss_settings: ClassVar[tuple[str, ...]] = ("clip_range",)

    kind: Literal["value"] = "value"
    clip_range: float | None = Field(None, gt=0.0)
    """Clip the value this far around the old one and take the larger of both losses, as PPO does; null: do not."""


class ChoiceSection(HeadSection):
    """Fields of heads with values of choices."""

    action_mask: str | None = None
    """Name of an observation [A] that is 0 where a choice is not allowed."""


class QHeadParameters(ChoiceSection):
    """One value per choice."""

    kind: Literal["q"] = "q"


class DuelingQHeadParameters(ChoiceSection):
    """One value per choice: state value plus advantages, each from a stream of its own."""

    kind: Literal["dueling_q"] = "dueling_q"
    units: tuple[Count, ...] = (512,)
    """Widths of hidden layers of each of the two streams."""


class EnsembleQHeadParameters(ChoiceSection):
    """Values of every choice by each member of an ensemble, whose layers are their own from the trunk on."""

    kind: Literal["ensemble_q"] = "ensemble_q"
    members: int = Field(10, ge=2)
    """Number of members."""
    decides: Literal["vote", "mean"] = "vote"
    """Choice without exploration. vote: the one that most members value highest; mean: the one of greatest mean."""
    prior_scale: float = Field(0.0, ge=0.0)
    """Factor of a random function that each member adds to its values and that never learns; 0: none."""

    @model_validator(mode="after")
    def _priors_have_no_noise(self) -> Self:
        if self.prior_scale > 0.0 and self.dense_layer == "noisy_dense":
            raise ValueError("prior_scale adds functions that never change, and dense_layer is noisy_dense; use dense")
        return self


class ConstrainedQHeadParameters(ChoiceSection):
    """One value per choice, and an imitation of recorded choices, which forbids unlikely ones (discrete BCQ)."""

    kind: Literal["constrained_q"] = "constrained_q"
    threshold: float = Field(0.3, ge=0.0, lt=1.0)
    """Choices are taken if their probability in the imitation is above so much of the greatest one. 0: all are; near 1:
    only the likeliest."""


class AtomsSection(ChoiceSection):
    """Fields of heads that learn the distribution of returns on fixed atoms."""

    atoms: int = Field(51, ge=2, le=MOST_UNITS)
    """Evenly spaced from v_min to v_max."""
    v_min: float = -10.0
    """Smallest return that is represented."""
    v_max: float = 10.0
    """Largest return that is represented."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min must be below v_max, not {self.v_min} and {self.v_max}")
        return self


class CategoricalQHeadParameters(AtomsSection):
    """The distribution of returns of every choice on fixed atoms (C51)."""

    kind: Literal["categorical_q"] = "categorical_q"


class RainbowQHeadParameters(AtomsSection):
    """Categorical and dueling at once (Rainbow)."""

    kind: Literal["rainbow_q"] = "rainbow_q"
    units: tuple[Count, ...] = (512,)
    """Widths of hidden layers of each of the two streams."""


class QuantileQHeadParameters(ChoiceSection):
    """The distribution of returns of every choice by its quantiles (QR-DQN)."""

    loss_settings: ClassVar[tuple[str, ...]] = ("huber_kappa",)

    kind: Literal["quantile_q"] = "quantile_q"
    quantiles: int = Field(200, ge=1, le=MOST_UNITS)
    """Number of quantiles, at the midpoints of as many equal parts of [0, 1]."""
    huber_kappa: float = Field(1.0, gt=0.0)
    """Errors up to this are squared, larger ones linear."""


class NAFHeadParameters(HeadSection):
    """Continuous Q-learning: the value falls off quadratically around the best action."""

    kind: Literal["naf"] = "naf"


class QValueHeadParameters(HeadSection):
    """Value of a state and an action; the network has the action as an input beside the observations (DDPG)."""

    kind: Literal["q_value"] = "q_value"


class QuantileQValueHeadParameters(HeadSection):
    """The distribution of returns of a state and an action by its quantiles (TQC)."""

    loss_settings: ClassVar[tuple[str, ...]] = ("huber_kappa",)

    kind: Literal["quantile_q_value"] = "quantile_q_value"
    quantiles: int = Field(25, ge=1, le=MOST_UNITS)
    """Number of quantiles, at the midpoints of as many equal parts of [0, 1]."""
    huber_kappa: float = Field(1.0, gt=0.0)
    """Errors up to this are squared, larger ones linear."""


class TwinQHeadParameters(HeadSection):
    """Two independent values of a state and an action, and the smaller of both (TD3, SAC)."""

    kind: Literal["twin_q"] = "twin_q"
    units: tuple[Count, ...] = (256, 256)
    """Widths of hidden layers of each of the two streams."""


class DeterministicPolicyHeadParameters(HeadSection):
    """One action per state, within the bounds (DDPG, TD3)."""

    kind: Literal["deterministic_policy"] = "deterministic_policy"
    batchnorm: bool = False
    """Batch normalisation before the tanh."""


class ClassificationHeadParameters(HeadSection):
    """A softmax over the choices, learned from labels (behavioural cloning)."""

    kind: Literal["classification"] = "classification"


class EmbeddingHeadParameters(HeadSection):
    """A vector of features, learned from vectors; what curiosity is made of."""

    kind: Literal["embedding"] = "embedding"
    embedding_size: int = Field(64, ge=1, le=MOST_UNITS)
    """Width of the vector."""


HeadParameters = Annotated[
    PolicyHeadParameters
    | PPOHeadParameters
    | ACERPolicyHeadParameters
    | ValueHeadParameters
    | QHeadParameters
    | DuelingQHeadParameters
    | EnsembleQHeadParameters
    | ConstrainedQHeadParameters
    | CategoricalQHeadParameters
    | RainbowQHeadParameters
    | QuantileQHeadParameters
    | NAFHeadParameters
    | QValueHeadParameters
    | QuantileQValueHeadParameters
    | TwinQHeadParameters
    | DeterministicPolicyHeadParameters
    | ClassificationHeadParameters
    | EmbeddingHeadParameters,
    Field(discriminator="kind"),
]
