"""The network's parameters, under Coach's names (`NetworkParameters`) where users know them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from distrl.config.section import Section

Activation = Literal["relu", "tanh", "elu", "selu", "gelu", "silu", "leaky_relu", "none"]


class EmbedderParameters(Section):
    """One input's embedder: flatten, scale, then dense layers."""

    units: tuple[int, ...] = ()
    activation: Activation = "tanh"
    input_rescaling: float = Field(1.0, gt=0.0)
    """The raw observation is divided by this (255 for bytes)."""


class MiddlewareParameters(Section):
    """Dense layers between the merged embeddings and the heads."""

    units: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"


class NetworkParameters(Section):
    """Structure and optimizer of one network."""

    input_embedders_parameters: dict[str, EmbedderParameters] = Field(default_factory=dict)
    """By observation name; an observation that is not named gets the default embedder."""
    middleware_parameters: MiddlewareParameters = MiddlewareParameters()
    optimizer_type: Literal["Adam", "RMSProp", "SGD"] = "Adam"
    learning_rate: float = Field(0.00025, gt=0.0)
    learning_rate_decay_rate: float = Field(0.0, ge=0.0, lt=1.0)
    """Exponential staircase: learning_rate * rate ** floor(update / learning_rate_decay_steps). 0: constant."""
    learning_rate_decay_steps: int = Field(0, ge=0)
    optimizer_epsilon: float = Field(1e-4, gt=0.0)
    adam_optimizer_beta1: float = Field(0.9, ge=0.0, lt=1.0)
    adam_optimizer_beta2: float = Field(0.99, ge=0.0, lt=1.0)
    rms_prop_optimizer_decay: float = Field(0.9, ge=0.0, lt=1.0)
    clip_gradients: float | None = Field(None, gt=0.0)
    gradients_clipping_method: Literal["ClipByGlobalNorm", "ClipByNorm", "ClipByValue"] = "ClipByGlobalNorm"

    @model_validator(mode="after")
    def _decay_is_whole(self) -> Self:
        if (self.learning_rate_decay_rate > 0) != (self.learning_rate_decay_steps > 0):
            raise ValueError("learning_rate_decay_rate and learning_rate_decay_steps must be set together")
        return self
