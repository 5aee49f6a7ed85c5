"""Head: from features to named outputs, and the loss of these outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import keras

from distrl.config.heads import HeadSection
from distrl.config.layers import Activation
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.family import MASKED, Tensor
from distrl.networks.heads.losses import Regression, huber, squared_error
from distrl.networks.parts.initializers import HIDDEN_GAIN
from distrl.networks.parts.layers import dense
from distrl.types import BoxSpec, DiscreteSpec, EnvSpec

Targets: TypeAlias = Mapping[str, Any] | Tensor
"""Targets of a head's loss: a bare tensor if there is one, by name otherwise. Constants to the gradient."""

POLICY_GAIN = 0.01
VALUE_GAIN = 1.0

Parameters = TypeVar("Parameters", bound=HeadSection)
Action = TypeVar("Action", DiscreteSpec, BoxSpec)


@dataclass(eq=False, repr=False)
class Head(ABC, Generic[Parameters]):
    """One head of one network copy. `build` is called once; `loss` and `fetches` are pure functions of its outputs.

    Attributes:
        network: The configuration of the network that the head belongs to.
        name: First part of the outputs' names, `<name>` or `<name>/<part>`, and of the layers', `<name>_head…`; unique
            within the network.
        seed: The network's seed; equal seeds and names give bit-equal weights.
        scalars: Numbers in the loss, by name, that training adjusts without gradients.
        output_name: `name` of a single head of this class if it differs from its kind.
        takes_action: The network must have the input "action" beside the observations.
    """

    output_name: ClassVar[str | None] = None
    takes_action: ClassVar[bool] = False

    parameters: Parameters
    spec: EnvSpec
    network: NetworkParameters
    _: KW_ONLY
    name: str
    seed: int
    scalars: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Prepare the head for the environment; raise ConfigError if it cannot serve the environment's actions."""

    @abstractmethod
    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Make the head's layers and apply them.

        Args:
            features: Keras tensor float32 [batch, features].
            inputs: The network's raw inputs by observation name, categories one-hot; Keras tensors [batch, ...].

        Returns:
            Output name -> Keras tensor float32 [batch, ...].
        """

    def actions(self) -> dict[str, FamilySpec]:
        """Return how each action is taken by the head's outputs; empty for a head that does not act."""
        return {}

    @abstractmethod
    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        """Return the loss of each sample, before the head's weight and importance weights.

        Args:
            outputs: The tensors that `build` named, [batch, ...]; those of other heads are ignored.
            targets: See the head's class; no gradient flows into them.

        Returns:
            float32 [batch].

        Raises:
            ValueError: A target is missing or unknown.
        """

    def fetches(self, outputs: Mapping[str, Tensor], targets: Targets) -> dict[str, Tensor]:
        """Return scalar metrics beside the loss, such as the entropy; for the arguments see `loss`."""
        del outputs, targets
        return {}

    def _dense(
        self,
        units: int,
        part: str = "",
        *,
        gain: float = HIDDEN_GAIN,
        activation: Activation = "none",
        learns: bool = True,
    ) -> Any:
        """Return a layer of the head, called ``<name>_head`` or ``<name>_head_<part>``."""
        name = f"{self.name}_head_{part}" if part else f"{self.name}_head"
        layer = dense(
            units,
            activation,
            name=name,
            seed=self.seed,
            gain=gain,
            kind=self.parameters.dense_layer,
            initial=self.network.begins,
        )
        layer.trainable = learns
        return layer

    def _hidden(self, features: Any, part: str = "hidden", *, learns: bool = True) -> Any:
        """Apply the head's own hidden layers, called ``<name>_head_<part>_<index>``."""
        for index, units in enumerate(self.parameters.units):
            layer = self._dense(units, f"{part}_{index}", activation=self.parameters.activation, learns=learns)
            features = layer(features)
        return features

    @property
    def _regression(self) -> Regression:
        return huber if self.network.replace_mse_with_huber_loss else squared_error


def named_targets(targets: Targets, *required: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return targets by name as constants to the gradient.

    Raises:
        ValueError: `targets` is a bare tensor, or a name is missing or unknown.
    """
    if not isinstance(targets, Mapping):
        raise ValueError(f"targets must be given by name: {', '.join(required)}")
    if missing := [name for name in required if name not in targets]:
        raise ValueError(f"target {missing[0]!r} is missing; needed are {', '.join(required)}")
    if unknown := [name for name in targets if name not in (*required, *optional)]:
        raise ValueError(f"unknown target {unknown[0]!r}; there are {', '.join((*required, *optional))}")
    return {name: _constant(value) for name, value in targets.items()}


def bare_target(targets: Targets, prediction: Tensor) -> Tensor:
    """Return the only target of a head as a constant to the gradient; see `fitted`.

    Raises:
        ValueError: Targets are given by name, or the shape differs from the prediction's.
    """
    if isinstance(targets, Mapping):
        raise ValueError(f"the target must be one tensor, not a mapping of {', '.join(targets)}")
    return fitted(_constant(targets), prediction)


def fitted(target: Tensor, prediction: Tensor) -> Tensor:
    """Return a target in its prediction's shape; Coach's [batch, 1] becomes [batch].

    Otherwise a column and a row would be broadcast: every target against every prediction.

    Raises:
        ValueError: The shapes differ.
    """
    given, wanted = tuple(target.shape), tuple(prediction.shape)
    if len(given) == len(wanted) + 1 and given[-1] == 1:
        target, given = keras.ops.squeeze(target, axis=-1), given[:-1]
    known = zip(given, wanted, strict=False)
    if len(given) != len(wanted) or any(None not in pair and pair[0] != pair[1] for pair in known):
        raise ValueError(f"a target of shape {list(target.shape)} does not fit the head's output {list(wanted)}")
    return target


def _constant(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _constant(entry) for name, entry in value.items()}
    return keras.ops.stop_gradient(keras.ops.convert_to_tensor(value))


def masked_logits(logits: Any, mask: Any) -> Any:
    """Lower logits [batch, P] by `MASKED` where a mask [batch, P], of any dtype, is 0."""
    # through float32, because ONNX Runtime cannot compare all dtypes of masks
    allowed = keras.ops.not_equal(keras.ops.cast(mask, "float32"), 0.0)
    return logits - MASKED * (1.0 - keras.ops.cast(allowed, "float32"))


def single_action(spec: EnvSpec, head: str, kind: type[Action]) -> Action:
    """Return the environment's one action; raise ConfigError unless there is one, of this kind."""
    wanted = "discrete" if kind is DiscreteSpec else "continuous"
    if len(spec.actions) != 1:
        names = ", ".join(spec.actions)
        raise ConfigError(f"head {head}: needs one {wanted} action; {spec.id} has {len(spec.actions)}: {names}")
    action = next(iter(spec.actions.values()))
    if not isinstance(action, kind):
        raise ConfigError(f"head {head}: needs a {wanted} action; {spec.id} has one of kind {action.kind}")
    return action
