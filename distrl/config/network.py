"""The network's parameters, under Coach's names (`NetworkParameters`) where users know them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from distrl.config.heads import ACERPolicyHeadParameters, ChoiceSection, HeadParameters, PolicySection
from distrl.config.layers import MOST_UNITS, EmbedderScheme, Layer, LayerDefaults, Scheme
from distrl.config.optimizers import OptimizerParameters
from distrl.config.section import Section

InitialWeights = Literal["orthogonal", "uniform"]


class BlockParameters(LayerDefaults):
    """Fields of embedders and middlewares."""

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
    embedding_width: int = Field(32, ge=1, le=MOST_UNITS)
    """For tokens: each becomes a vector of this width. 0 is padding, and becomes zeros."""
    pooling: Literal["mean", "none"] = "mean"
    """For tokens: the layers get the mean of those that are not padding, or all, [length, embedding_width]."""
    input_rescaling: float | None = Field(None, gt=0.0)
    """The input is divided by this. null: images of bytes that are not normalised by the upper bound of their space, or
    by 255 without one; all else by 1."""
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
    number_of_lstm_cells: int = Field(256, ge=1, le=MOST_UNITS)
    """Width of the state."""


class GRUMiddlewareParameters(BlockParameters):
    """The scheme's layers, then one GRU cell whose state lasts over the episode."""

    kind: Literal["gru"] = "gru"
    scheme: Scheme = "Empty"
    """Layers before the cell: Empty, Shallow, Medium, Deep, or layers in order."""
    number_of_gru_cells: int = Field(256, ge=1, le=MOST_UNITS)
    """Width of the state."""


OUTPUT = "output"
"""The block whose result is the middleware's."""


class GraphBlock(Section):
    """One node of a graph middleware: its inputs are merged, then come its layers."""

    inputs: tuple[str, ...]
    """Names of observations or of other blocks, merged in the order of the names."""
    merger: Literal["Concat", "Sum"] = "Concat"
    layers: tuple[Layer, ...] = ()


class GraphMiddlewareParameters(LayerDefaults):
    """Blocks that take embeddings of observations and results of other blocks by name; `output` feeds the heads."""

    kind: Literal["graph"] = "graph"
    blocks: dict[Annotated[str, Field(pattern=r"^\w+$")], GraphBlock]
    """Name -> block. They also replace the network's merger."""

    @model_validator(mode="after")
    def _all_leads_to_the_output(self) -> Self:
        if OUTPUT not in self.blocks:
            raise ValueError(
                f"blocks has no {OUTPUT!r}, whose result goes to the heads; there are {_listed(self.blocks)}"
            )
        for name, block in self.blocks.items():
            if not block.inputs:
                raise ValueError(f"blocks.{name}.inputs is empty")
            twice = next((given for given in block.inputs if block.inputs.count(given) > 1), None)
            if twice is not None:
                raise ValueError(f"blocks.{name}.inputs has {twice!r} twice")
        used = set(order(self.blocks))
        if idle := [name for name in self.blocks if name not in used]:
            raise ValueError(f"blocks.{idle[0]} leads to no {OUTPUT!r}")
        return self


def order(blocks: Mapping[str, GraphBlock]) -> list[str]:
    """Return the names of the blocks that `output` needs, each after its inputs; ends with `output`.

    Raises:
        ValueError: The blocks run in a circle; the message names it.
    """
    done: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"blocks run in a circle: {' -> '.join([*path[path.index(name) :], name])}")
        if name in blocks and name not in done:
            for given in blocks[name].inputs:
                visit(given, (*path, name))
            done.append(name)

    visit(OUTPUT, ())
    return done


def _listed(names: Mapping[str, GraphBlock]) -> str:
    return ", ".join(names) if names else "none"


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

    input_embedders_parameters: dict[str, EmbedderParameters | None] = Field(default_factory=dict)
    """Observation name -> embedder; other observations get the default one. null: embedders leave it out."""
    embedding_merger_type: Literal["Concat", "Sum"] = "Concat"
    """How the embedders' outputs become one vector: concatenated, or summed."""
    middleware_parameters: MiddlewareParameters = FCMiddlewareParameters()
    """The layers between the embedders and the heads."""
    heads_parameters: tuple[HeadParameters, ...] = ()
    """Heads by kind; they replace the algorithm's default heads of the same kind."""
    initial_weights: InitialWeights | None = None
    """orthogonal: dense layers and convolutions, those of heads too, begin with orthogonal kernels (gain sqrt(2) in
    hidden layers) and biases of 0. uniform: kernels and biases begin within ±1 / sqrt(inputs), as in PyTorch. null:
    uniform if the middleware has memory, else orthogonal. A `kernel_initializer` replaces its layer's kernel alone.
    Noisy layers, recurrent cells and your own keep theirs."""
    use_separate_networks_per_head: bool = False
    """Give every head its own embedders and middleware."""
    create_target_network: bool = False
    """Keep a second copy, saved with the online one, which only `update_target_network` moves."""
    frozen: tuple[str, ...] = ()
    """Patterns such as main/middleware_*: weights whose names (network/layer/weight) match one keep their values. A
    layer whose weights all match also keeps its moving averages or its statistics of observations."""
    l2_regularization: float = Field(0.0, ge=0.0)
    """Factor of half the sum of squares of all trainable weights, which is added to the loss."""
    replace_mse_with_huber_loss: bool = False
    """Use Huber's loss with delta 1 for values."""
    softmax_temperature: float = Field(1.0, gt=0.0)
    """Categorical policies are softmax(x / temperature)."""
    force_cpu: bool = False
    """Compute on the CPU even where there is a GPU."""
    async_training: bool | None = None
    """Gradient actors: apply every gradient as it arrives (a3c) instead of one of every worker at a time (a2c). null:
    as the algorithm does."""
    shared_optimizer: bool = True
    """Gradient actors: one optimizer for all, instead of one for each."""
    scale_down_gradients_by_number_of_workers_for_sync_training: bool = True
    """Gradient actors in rounds: apply the mean of their gradients instead of the sum."""
    compute_dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Type of activations while training; weights are always float32. auto: bfloat16 where the learner's device is
    faster in it."""
    wire_dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Type of published weights on their way to the actors."""
    model: str | None = Field(None, pattern=r"^[\w.]+:\w+$")
    """package.module:Class, your own keras.Model in place of embedders and merger: it is called with all inputs by name
    and returns [batch, width] for the middleware."""
    model_arguments: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of that class: plain values, {filters: 16, scales: [1, 2]}."""

    @property
    def begins(self) -> InitialWeights:
        """The `initial_weights` in force."""
        return self.initial_weights or ("uniform" if self.has_memory else "orthogonal")

    @property
    def has_memory(self) -> bool:
        """Whether its middleware carries state from step to step."""
        return self.middleware_parameters.kind in ("lstm", "gru")

    @property
    def has_own_layers(self) -> bool:
        """Whether it names a class that distrl knows nothing of: a model, or a custom layer anywhere."""
        return self.model is not None or '"kind":"custom"' in self.model_dump_json()

    @property
    def action_mask(self) -> str | None:
        """The observation that a head names as its mask; None where no head names one."""
        kinds = PolicySection | ACERPolicyHeadParameters | ChoiceSection
        heads = (head for head in self.heads_parameters if isinstance(head, kinds))
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

    def check_gradient_actors(self, algorithm: str, *, ships: str, in_rounds: bool) -> None:
        """Refuse settings of gradient actors where there are none, or where they contradict the algorithm."""
        mean = "scale_down_gradients_by_number_of_workers_for_sync_training"
        if ships == "unrolls":
            for field in ("async_training", "shared_optimizer", mean):
                if self.is_changed(field):
                    raise ValueError(
                        f"network.{field} is of gradient actors; those of algorithm {algorithm} ship unrolls"
                    )
            return
        if self.async_training is not None and self.async_training == in_rounds:
            raise ValueError(f"network.async_training: {self.async_training} contradicts algorithm.name: {algorithm}")
        if not in_rounds and not getattr(self, mean):
            raise ValueError(f"network.{mean} is of workers that wait for each other (a2c), not of {algorithm}")
        if self.optimizer_type == "LBFGS":
            raise ValueError(f"network.optimizer_type: LBFGS needs whole batches; {algorithm} applies single gradients")

    @field_validator("middleware_parameters", mode="before")
    @classmethod
    def _there_is_a_middleware(cls, value: Any) -> Any:
        if value is None:
            raise ValueError("a network needs a middleware; {scheme: Empty} passes the embedding on as it is")
        return value
