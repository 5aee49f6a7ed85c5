"""The network's parameters, under Coach's names (`NetworkParameters`) where users know them."""

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from distrl.config.graph import GraphMiddlewareParameters
from distrl.config.heads import HeadParameters, PolicySection
from distrl.config.layers import EmbedderScheme, LayerDefaults, Scheme
from distrl.config.optimizers import OptimizerParameters


class BlockParameters(LayerDefaults):
    """What embedders and middlewares have in common."""

    scheme: Scheme = "Medium"
    """Empty, Shallow, Medium, Deep, or layers in order: [64, 64], or [{kind: conv2d, filters: 32, …}, …]."""


class EmbedderParameters(LayerDefaults):
    """One input's embedder: normalise, rescale, offset, clip, then the scheme's layers, and flat at the end."""

    kind: Literal["auto", "vector", "image", "tensor", "tokens"] = "auto"
    """auto: tokens for texts, image for [height, width, channels], vector otherwise. A vector is flattened before its
    layers; tokens can also be whole numbers from 0 up to a known bound."""
    scheme: EmbedderScheme = "auto"
    """Also ImpalaResNet, for images. auto: Medium for images, Shallow for those that are too small for it
    (36 x 36 is not), Empty for all else."""
    embedding_width: int = Field(32, ge=1)
    """For tokens: each becomes a vector of this width. 0 is padding, and becomes zeros."""
    pooling: Literal["mean", "none"] = "mean"
    """For tokens: the layers get the mean of those that are not padding, or all, [length, embedding_width]."""
    input_rescaling: float | None = Field(None, gt=0.0)
    """The input is divided by this; null: 255 for images of bytes that are not normalised, 1 for all else."""
    input_offset: float = 0.0
    """Subtracted from the rescaled input."""
    input_clipping: tuple[float, float] | None = None
    """Then cut to these bounds."""
    normalize: bool = False
    """Running mean and deviation of this input, kept by the learner and frozen in every version of the weights."""

    @field_validator("input_clipping")
    @classmethod
    def _bounds_are_in_order(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        if bounds is not None and bounds[0] >= bounds[1]:
            raise ValueError(f"the lower bound {bounds[0]} must be below the upper bound {bounds[1]}")
        return bounds


class FCMiddlewareParameters(BlockParameters):
    """Dense layers between the merged embedding and the heads."""

    kind: Literal["fc"] = "fc"


class LSTMMiddlewareParameters(BlockParameters):
    """The scheme's layers, then one LSTM cell whose state lasts over the episode."""

    kind: Literal["lstm"] = "lstm"
    scheme: Scheme = "Empty"
    """Layers before the cell: Empty, Shallow, Medium, Deep, or layers in order."""
    number_of_lstm_cells: int = Field(256, ge=1)
    """Width of the state."""


class GRUMiddlewareParameters(BlockParameters):
    """The scheme's layers, then one GRU cell whose state lasts over the episode."""

    kind: Literal["gru"] = "gru"
    scheme: Scheme = "Empty"
    """Layers before the cell: Empty, Shallow, Medium, Deep, or layers in order."""
    number_of_gru_cells: int = Field(256, ge=1)
    """Width of the state."""


def _middleware_kind(value: Any) -> Any:
    return value.get("kind", "fc") if isinstance(value, dict) else getattr(value, "kind", None)


MiddlewareParameters = Annotated[
    Annotated[FCMiddlewareParameters, Tag("fc")]
    | Annotated[LSTMMiddlewareParameters, Tag("lstm")]
    | Annotated[GRUMiddlewareParameters, Tag("gru")]
    | Annotated[GraphMiddlewareParameters, Tag("graph")],
    Discriminator(_middleware_kind),
]
"""fc unless `kind` says otherwise."""


class NetworkParameters(OptimizerParameters):
    """Structure and optimizer of one network."""

    input_embedders_parameters: dict[str, EmbedderParameters] = Field(default_factory=dict)
    """By observation name; an observation that is not named gets the default embedder."""
    embedding_merger_type: Literal["Concat", "Sum"] = "Concat"
    """How the embedders' outputs become one vector: one after the other, or their sum."""
    middleware_parameters: MiddlewareParameters = FCMiddlewareParameters()
    """The layers between the embedders and the heads."""
    heads_parameters: tuple[HeadParameters, ...] = ()
    """By kind, in place of what the algorithm would take for its heads."""
    use_separate_networks_per_head: bool = False
    """Every head gets embedders and a middleware of its own."""
    create_target_network: bool = False
    """A copy beside the online one, saved with it, which `update_target_network` alone moves."""
    l2_regularization: float = Field(0.0, ge=0.0)
    """Adds this times half the sum of squares of all trainable weights to the loss."""
    replace_mse_with_huber_loss: bool = False
    """Value losses are Huber's with delta 1."""
    softmax_temperature: float = Field(1.0, gt=0.0)
    """Categorical policies are softmax(x / temperature)."""
    force_cpu: bool = False
    """On the CPU even where there is a GPU."""
    async_training: bool | None = None
    """Gradient actors: apply every gradient as it comes, instead of one of every worker at a time. null: as the
    algorithm's name says, a3c or a2c."""
    shared_optimizer: bool = True
    """Gradient actors: one optimizer for all, instead of one for each."""
    scale_down_gradients_by_number_of_workers_for_sync_training: bool = True
    """Gradient actors that wait for each other: the mean of their gradients, instead of the sum."""
    compute_dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Type of activations while training; weights are float32 in any case. auto: bfloat16 where the learner's CPU has
    instructions that multiply it."""
    wire_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Type of published weights on their way to the actors."""
    model: str | None = Field(None, pattern=r"^[\w.]+:\w+$")
    """package.module:Class, a keras.Model of the user's own in place of embedders and merger: it is called with all
    inputs by name and returns [batch, width], which the middleware takes."""
    model_arguments: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that class."""

    @property
    def has_memory(self) -> bool:
        """Its middleware carries state from step to step."""
        return self.middleware_parameters.kind in ("lstm", "gru")

    @property
    def action_mask(self) -> str | None:
        """The observation that a policy head names as its mask; None where no head names one."""
        heads = (head for head in self.heads_parameters if isinstance(head, PolicySection))
        return next((head.action_mask for head in heads if head.action_mask is not None), None)

    @model_validator(mode="after")
    def _model_stands_alone(self) -> Self:
        if self.middleware_parameters.kind == "graph" and self.embedding_merger_type != "Concat":
            raise ValueError("embedding_merger_type: a graph middleware merges block by block; leave it out")
        if self.model is None:
            if self.model_arguments:
                raise ValueError("model_arguments are of network.model, which is not set")
            return self
        if self.input_embedders_parameters or self.embedding_merger_type != "Concat":
            raise ValueError("network.model takes the place of embedders and merger; leave those out")
        if self.middleware_parameters.kind == "graph":
            raise ValueError("network.model puts out one vector; a graph middleware has no names to take it by")
        return self

    @field_validator("middleware_parameters", mode="before")
    @classmethod
    def _there_is_a_middleware(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("a network needs a middleware; {scheme: Empty} passes the embedding on as it is")
        return value
