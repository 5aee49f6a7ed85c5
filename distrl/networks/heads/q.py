"""Heads with one value per choice: Q and dueling Q."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import keras

from distrl.config.heads import DuelingQHeadParameters, HeadSection, QHeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.family import Tensor, slices
from distrl.networks.actions.values import values_specs
from distrl.networks.heads.head import VALUE_GAIN, Head, Targets, bare_target, fitted, named_targets, single_choice
from distrl.networks.heads.losses import at_choice
from distrl.networks.parts.layers import dueling
from distrl.types import EnvSpec

Parameters = TypeVar("Parameters", bound=HeadSection)


class ChoiceHead(Head[Parameters]):
    """What heads with values of choices have in common, whether these are numbers or distributions.

    For one discrete action with A choices, outputs `<name>/q`: float32 [batch, A], the value of every choice, and
    `<name>/softmax`: float32 [batch, A], softmax(q / softmax_temperature), the Boltzmann policy over them. For choices
    that are made at once, where the head is branching, `<name>/q` of one action and `<name>/q/<action>` of several,
    float32 [batch, A_1 + A_2 + …] each: see `networks/actions/values.py`. There is no softmax of those, and a
    softmax_temperature is refused.

    Attributes:
        branching: The head can value choices that are made at once.
        choices: A; of all that are made at once together.
        action_values: Action -> where its values are.
    """

    branching: ClassVar[bool] = False

    def __init__(
        self, parameters: Parameters, spec: EnvSpec, network: NetworkParameters, *, name: str, seed: int
    ) -> None:
        super().__init__(parameters, spec, network, name=name, seed=seed)
        if not self.branching:
            single_choice(spec, name)
        self.action_values = values_specs(spec.actions, name)
        if network.softmax_temperature != 1.0 and not self._has_one_choice:
            raise ConfigError(
                f"head {name}: softmax_temperature: {network.softmax_temperature:g} is of one discrete action, which "
                f"{spec.id} has not; leave it out, or set a temperature with exploration.kind: boltzmann"
            )
        self.choices = sum(values.parameters_size for values in self.action_values.values())

    def actions(self) -> dict[str, FamilySpec]:
        return dict(self.action_values)

    @property
    def _has_one_choice(self) -> bool:
        return [spec.kind for spec in self.action_values.values()] == ["values"]

    def _value_outputs(self, q: Any) -> dict[str, Any]:
        """From the values of all choices in turn, [batch, A]."""
        values = list(self.action_values.values())
        if self._has_one_choice:
            softmax = keras.ops.softmax(q / self._network.softmax_temperature, axis=-1)
            return {f"{self.name}/q": q, f"{self.name}/softmax": softmax}
        parts = slices([of_action.parameters_size for of_action in values])
        return {of_action.output: q[:, part] for of_action, part in zip(values, parts, strict=True)}

    def _streams(self, features: Any, width: int) -> Any:
        """State value and advantages of `width` numbers each, out of hidden layers of their own, joined.

        Of choices that are made at once, each joins its own advantages with the one state value.

        Returns:
            Keras tensor float32 [batch, A, width].
        """
        value = self._dense(width, "value", gain=VALUE_GAIN)(self._hidden(features, "value_hidden"))
        advantages = self._dense(self.choices * width, "advantage", gain=VALUE_GAIN)(
            self._hidden(features, "advantage_hidden")
        )
        advantages = keras.ops.reshape(advantages, (-1, self.choices, width))  # [batch, A*width] -> [batch, A, width]
        value = keras.ops.expand_dims(value, 1)
        sizes = [size for spec in self.action_values.values() for size in spec.sizes]
        branches = [dueling(value, advantages[:, part], axis=1) for part in slices(sizes)]
        return branches[0] if len(branches) == 1 else keras.ops.concatenate(branches, axis=1)


class ScalarQHead(ChoiceHead[Parameters]):
    """What Q heads have in common whose values are numbers.

    The loss is half the squared error, or Huber's, summed over the choices that have a target.

    Targets: {"actions": int32 [batch], "targets": float32 [batch]}, what the chosen ones should be; or, as Coach has
    it, float32 [batch, A], what each should be: a choice whose target is its own value has no gradient. Choices that
    are made at once take only the latter, of all of them in turn.
    """

    branching: ClassVar[bool] = True

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        values = [outputs[of_action.output] for of_action in self.action_values.values()]
        q = values[0] if len(values) == 1 else keras.ops.concatenate(values, axis=-1)
        if not isinstance(targets, Mapping):
            return keras.ops.sum(self._regression(bare_target(targets, q) - q), axis=-1)
        if not self._has_one_choice:
            raise ValueError(f"head {self.name}: choices that are made at once take targets [batch, {self.choices}]")
        given = named_targets(targets, "actions", "targets")
        chosen = at_choice(q, given["actions"])
        return self._regression(fitted(given["targets"], chosen) - chosen)


class QHead(ScalarQHead[QHeadParameters]):
    """One value per choice (Mnih et al. 2015); of choices that are made at once, of each (Tavakoli et al. 2018)."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._value_outputs(self._dense(self.choices, gain=VALUE_GAIN)(self._hidden(features)))


class DuelingQHead(ScalarQHead[DuelingQHeadParameters]):
    """State value plus advantages (Wang et al. 2016); no output of its own beside the values."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._value_outputs(
            keras.ops.squeeze(self._streams(features, 1), axis=-1)
        )  # [batch, A, 1] -> [batch, A]
