"""Networks whose errors are the novelty of a step: random network distillation, and the intrinsic curiosity module.

They read observations alone and have no memory. Observations are normalised by running statistics and cut to +-5 (Burda
et al. 2019, section 2.4).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from distrl.algorithms.algorithm import Networks
from distrl.algorithms.maths.curiosity import distillation_errors, forward_errors, inverse_losses
from distrl.algorithms.maths.losses import masked_mean
from distrl.config.algorithms import AlgorithmContext, RewardNormalizationParameters
from distrl.config.curiosity import CuriositySection, IcmParameters, RndParameters
from distrl.config.heads import EmbeddingHeadParameters
from distrl.config.network import EmbedderParameters, FCMiddlewareParameters, NetworkParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.framework.differentiation import Part
from distrl.networks.network import Network
from distrl.networks.parts.embedders import vocabulary_of
from distrl.types import (
    Array,
    ArraySpec,
    Batch,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    FloatArray,
    MultiBinarySpec,
    MultiDiscreteSpec,
)

CURIOSITY = "curiosity"
"""The network whose statistics normalise observations and intrinsic rewards."""
BOUND = 5.0
"""Normalised observations are cut to +- this."""
_KEPT = ("kind", "scheme", "embedding_width", "pooling")
"""Settings of the policy's embedders that hold here too."""


class Rows(NamedTuple):
    """The steps of a batch as one row of M = T x N items.

    Attributes:
        observations: Name -> [1, M, ...], o_t; empty if the predictor does not read it.
        next_observations: Name -> [1, M, ...]: o_t+1, or o_t+n of a transition over n steps.
        actions: Name -> [1, M, ...]; empty likewise.
        valid: bool [1, M].
    """

    observations: dict[str, Any]
    next_observations: dict[str, Any]
    actions: dict[str, Any]
    valid: Any


class Predictor(ABC):
    """Networks that predict what steps lead to.

    Attributes:
        networks: By name, `CURIOSITY` among them.
        reads_actions: Whether it needs actions, and the observations before them.
    """

    networks: Networks
    reads_actions: bool

    @abstractmethod
    def errors(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the errors of prediction, in `keras.ops`, which are the intrinsic rewards.

        Returns:
            float32 [1, M], and further losses by name, float32 [1, M] each.
        """

    @abstractmethod
    def loss(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what the networks minimise, a mean over valid steps, and metrics."""

    def rows(self, batch: Batch) -> Rows:
        """Arrange a batch [T, N] for `errors` and `loss`, in NumPy."""
        before, after = ({name: rows[part] for name, rows in batch.observations.items()} for part in (_FIRST, _LAST))
        reads = self.reads_actions
        return Rows(
            _flat(before) if reads else {}, _flat(after), _flat(batch.actions) if reads else {}, _row(batch.valid)
        )

    @property
    def parts(self) -> list[Part]:
        """All networks as parts of a step."""
        return [network.part() for network in self.networks.values()]

    @property
    def variables(self) -> list[Any]:
        """All variables that `errors` reads."""
        return [variable for network in self.networks.values() for variable in network.online.model.variables]


class RandomDistillation(Predictor):
    """RND: a network learns the features that a random one has of the next observation; its weights never change.

    Both have the same structure and different initial weights.
    """

    reads_actions = False

    def __init__(self, context: AlgorithmContext, section: RndParameters, spec: EnvSpec) -> None:
        parameters = _parameters(section, _embedders(context, spec), use_separate_networks_per_head=True)
        head = EmbeddingHeadParameters(embedding_size=section.embedding_size, num_output_head_copies=2)
        network = _network(parameters, section, spec, head, name=CURIOSITY, seed=context.seed)
        self._online: Network = network.online
        self._online.optimized = self._online.trainable_variables_of("embedding_0")
        self.networks = {CURIOSITY: network}

    def errors(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = self._online.unroll(rows.next_observations, {}, rows.valid)
        return distillation_errors(outputs["embedding_0"], outputs["embedding_1"]), {}

    def loss(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        errors, _ = self.errors(rows)
        return masked_mean(errors, rows.valid), {}


class IntrinsicCuriosity(Predictor):
    """ICM: a forward model of features phi, in which an inverse model finds the action that was taken.

        loss = (1 - beta) inverse_loss + beta forward_loss

    (equation 7 without the policy's term; phi learns from both, as in the authors' code).
    """

    reads_actions = True

    def __init__(self, context: AlgorithmContext, section: IcmParameters, spec: EnvSpec) -> None:
        self._beta, self._code = section.beta, ActionCode(spec)
        features = ArraySpec((section.embedding_size,), "float32")
        taken = ArraySpec((self._code.width,), "float32")
        head = EmbeddingHeadParameters(embedding_size=section.embedding_size)
        encoder = _network(
            _parameters(section, _embedders(context, spec)), section, spec, head, name=CURIOSITY, seed=context.seed
        )
        inverse = self._model(context, section, {"before": features, "after": features}, self._code.width, "inverse")
        forward = self._model(context, section, {"before": features, "taken": taken}, section.embedding_size, "forward")
        self._encoder, self._inverse, self._forward = (network.online for network in (encoder, inverse, forward))
        self.networks = {network.name: network for network in (encoder, inverse, forward)}

    def errors(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        def embedded(model: Network, inputs: Mapping[str, Tensor]) -> Tensor:
            return model.unroll(inputs, {}, rows.valid)["embedding"]

        before, after = (embedded(self._encoder, seen) for seen in (rows.observations, rows.next_observations))
        taken = self._code(rows.actions)
        found = embedded(self._inverse, {"before": before, "after": after})
        predicted = embedded(self._forward, {"before": before, "taken": taken})
        return forward_errors(predicted, after), {"inverse_loss": inverse_losses(found, taken, self._code.choices)}

    def loss(self, rows: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        errors, further = self.errors(rows)
        metrics = {"forward_loss": masked_mean(errors, rows.valid)}
        metrics |= {name: masked_mean(losses, rows.valid) for name, losses in further.items()}
        return (1.0 - self._beta) * metrics["inverse_loss"] + self._beta * metrics["forward_loss"], metrics

    @staticmethod
    def _model(
        context: AlgorithmContext, section: IcmParameters, inputs: dict[str, ArraySpec], width: int, name: str
    ) -> Copies:
        """Return a network from features to `width` numbers."""
        spec = EnvSpec(name, inputs, {})
        head = EmbeddingHeadParameters(embedding_size=width)
        name = f"{CURIOSITY}_{name}"
        return _network(_parameters(section, {}), None, spec, head, name=name, seed=context.seed)


class ActionCode:
    """Writes all actions of a step as one vector: choices one-hot, switches as choices of two, then real numbers.

    Real numbers with bounds are cut to them, as the environment does, and scaled to [-1, 1].

    Attributes:
        choices: Number of options of every choice.
        width: Length of the vector.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._actions = spec.actions
        self.choices = tuple(options for action in spec.actions.values() for options in _options(action))
        boxes = {name: action for name, action in spec.actions.items() if isinstance(action, BoxSpec)}
        self._bounds = {name: _bounds(action) for name, action in boxes.items()}
        self.width = sum(self.choices) + sum(action.n for action in boxes.values())

    def __call__(self, actions: Mapping[str, Tensor]) -> Tensor:
        """Return float32 [..., width] of actions [..., *shape] by name."""
        one_hot: list[Tensor] = []
        numbers: list[Tensor] = []
        for name, action in self._actions.items():
            taken = actions[name]
            if isinstance(action, BoxSpec):
                low, high, middle, half_width = self._bounds[name]
                numbers.append((ops.clip(taken, low, high) - middle) / half_width)
            elif isinstance(action, DiscreteSpec):
                one_hot.append(ops.one_hot(taken, action.n, dtype="float32"))
            else:
                one_hot += [
                    ops.one_hot(taken[..., place], options, dtype="float32")
                    for place, options in enumerate(_options(action))
                ]
        return ops.concatenate([*one_hot, *numbers], axis=-1)


def make_predictor(context: AlgorithmContext, section: CuriositySection, spec: EnvSpec) -> Predictor:
    """Build the networks of `algorithm.curiosity`.

    Raises:
        ConfigError: They do not fit the environment's observations.
    """
    if isinstance(section, IcmParameters):
        return IntrinsicCuriosity(context, section, spec)
    assert isinstance(section, RndParameters)  # there are two kinds
    return RandomDistillation(context, section, spec)


def _parameters(
    section: CuriositySection, embedders: dict[str, EmbedderParameters | None], **changed: bool
) -> NetworkParameters:
    return NetworkParameters(
        learning_rate=section.learning_rate,
        adam_optimizer_beta2=0.999,
        optimizer_epsilon=1e-8,
        input_embedders_parameters=embedders,
        middleware_parameters=FCMiddlewareParameters(scheme=section.units),
        **changed,
    )


def _network(
    parameters: NetworkParameters,
    section: CuriositySection | None,
    spec: EnvSpec,
    head: EmbeddingHeadParameters,
    *,
    name: str,
    seed: int,
) -> Copies:
    # This kind divides by a deviation alone and keeps signs; see `Curious`.
    normalization = (
        None if section is None else RewardNormalizationParameters(kind="discounted_return", clip=section.clip)
    )
    return Copies(
        parameters,
        spec,
        [head],
        has_target=False,
        has_global=False,
        name=name,
        seed=seed,
        reward_normalization=normalization,
    )


def _embedders(context: AlgorithmContext, spec: EnvSpec) -> dict[str, EmbedderParameters | None]:
    """Return embedders with the layers of the policy's, which normalise; what the policy does not see is left out."""
    configured = context.network.input_embedders_parameters
    found: dict[str, EmbedderParameters | None] = {}
    for name, array in spec.observations.items():
        given = configured.get(name, EmbedderParameters())
        if given is None:
            found[name] = None
            continue
        kept = {field: getattr(given, field) for field in _KEPT if given.is_changed(field)}
        numbers = {} if vocabulary_of(array, given, name) else {"normalize": True, "input_clipping": (-BOUND, BOUND)}
        found[name] = EmbedderParameters(**kept, **numbers)
    return found


def _options(action: object) -> Sequence[int]:
    if isinstance(action, DiscreteSpec):
        return (action.n,)
    if isinstance(action, MultiDiscreteSpec):
        return action.choices
    return (2,) * action.n if isinstance(action, MultiBinarySpec) else ()


def _bounds(action: BoxSpec) -> tuple[FloatArray, ...]:
    """Return low, high, middle and half width of every number; infinite bounds, 0 and 1 where it has none."""
    low = np.array([-np.inf if bound is None else bound for bound in action.low], np.float64)
    high = np.array([np.inf if bound is None else bound for bound in action.high], np.float64)
    bounded = np.isfinite(low) & np.isfinite(high) & (low < high)
    middle = np.where(bounded, 0.5 * (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0)), 0.0)
    half_width = np.where(bounded, 0.5 * (np.where(bounded, high, 2.0) - np.where(bounded, low, 0.0)), 1.0)
    return tuple(array.astype(np.float32) for array in (low, high, middle, half_width))


_FIRST, _LAST = slice(None, -1), slice(1, None)


def _row(array: Array) -> Array:
    """[T, N, ...] -> [1, T*N, ...]."""
    return array.reshape(1, -1, *array.shape[2:])


def _flat(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: _row(array) for name, array in arrays.items()}
