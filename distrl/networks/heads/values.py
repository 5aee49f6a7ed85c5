"""Heads of values: of a state, of every choice as a number, and of every choice as a distribution of returns."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from keras import ops

from distrl.config.action_masks import check_mask
from distrl.config.heads import (
    AtomsSection,
    CategoricalQHeadParameters,
    ChoiceSection,
    ConstrainedQHeadParameters,
    DuelingQHeadParameters,
    EnsembleQHeadParameters,
    QHeadParameters,
    QuantileQHeadParameters,
    RainbowQHeadParameters,
    ValueHeadParameters,
)
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.ensemble import EnsembleSpec
from distrl.networks.actions.family import MASKED, Tensor, slices
from distrl.networks.actions.values import values_specs
from distrl.networks.heads.head import (
    POLICY_GAIN,
    VALUE_GAIN,
    Head,
    Targets,
    bare_target,
    fitted,
    named_targets,
    single_action,
)
from distrl.networks.heads.losses import at_choice, categorical_cross_entropy, clipped_regression, quantile_regression
from distrl.networks.parts.layers import dueling, with_gradient
from distrl.types import DiscreteSpec, MultiBinarySpec

Parameters = TypeVar("Parameters", bound=ChoiceSection)
Atoms = TypeVar("Atoms", bound=AtomsSection)


class ValueHead(Head[ValueHeadParameters]):
    """State value. Output `<name>`: float32 [batch].

    The loss is half the squared error, or Huber's, which agrees with it near 0. With `clip_range` it is the larger loss
    of the value and of the value clipped around the old one.

    Targets: float32 [batch]; with `clip_range` {"targets": float32 [batch], "old_values": float32 [batch]}.
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        column = self._dense(1, gain=VALUE_GAIN)(self._hidden(features))
        return {self.name: ops.squeeze(column, axis=-1)}  # [batch, 1] -> [batch]

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        values, clip_range = outputs[self.name], self.parameters.clip_range
        if clip_range is None:
            return self._regression(bare_target(targets, values) - values)
        given = named_targets(targets, "targets", "old_values")
        old, targets = fitted(given["old_values"], values), fitted(given["targets"], values)
        return clipped_regression(values, old, targets, clip_range, self._regression)


class ChoiceHead(Head[Parameters]):
    """Parent of heads with values of choices, as numbers or as distributions.

    For one discrete action with A choices, outputs `<name>/q`: float32 [batch, A], the value of every choice, and
    `<name>/softmax`: float32 [batch, A], softmax(q / softmax_temperature), the Boltzmann policy over them. A branching
    head values several choices at once: `<name>/q` for one action and `<name>/q/<action>` for several, float32
    [batch, A_1 + A_2 + …] each (see `networks/actions/values.py`), without softmax; a softmax_temperature is refused.
    Values of choices that `action_mask` forbids are lowered by `MASKED`, unless it forbids all of them.

    Attributes:
        branching: The head can value several choices at once.
        choices: A, or the sum of all A_i.
        action_values: Action -> specification of its values.
    """

    branching: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.branching:
            single_action(self.spec, self.name, DiscreteSpec)
        mask = self.parameters.action_mask
        if mask is not None:
            check_mask(mask, self.spec)
        self.action_values = values_specs(self.spec.actions, self.name, masked=mask is not None)
        if self.network.softmax_temperature != 1.0 and not self._has_one_choice:
            raise ConfigError(
                f"head {self.name}: softmax_temperature: {self.network.softmax_temperature:g} needs one discrete "
                f"action, which {self.spec.id} does not have; leave it out, or set a temperature with "
                "exploration.kind: boltzmann"
            )
        self.choices = sum(values.parameters_size for values in self.action_values.values())

    def actions(self) -> dict[str, FamilySpec]:
        return dict(self.action_values)

    @property
    def _has_one_choice(self) -> bool:
        return [values.is_one_choice for values in self.action_values.values()] == [True]

    def _value_outputs(self, q: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Name the values of all choices, [batch, A], as outputs."""
        if self.parameters.action_mask is not None:
            q = q - MASKED * (1.0 - self._allowed(inputs[self.parameters.action_mask]))
        values = list(self.action_values.values())
        if self._has_one_choice:
            softmax = ops.softmax(q / self.network.softmax_temperature, axis=-1)
            return {f"{self.name}/q": q, f"{self.name}/softmax": softmax}
        parts = slices([of_action.parameters_size for of_action in values])
        return {of_action.output: q[:, part] for of_action, part in zip(values, parts, strict=True)}

    def _allowed(self, mask: Any) -> Any:
        """Return 1 for allowed choices, and for all of a decision that allows none: float32 [batch, A]."""
        (action,), (of_action,) = self.spec.actions.values(), self.action_values.values()  # as `check_mask` says
        # Through float32, because ONNX Runtime cannot compare all dtypes of masks.
        allowed = ops.cast(ops.not_equal(ops.cast(mask, "float32"), 0.0), "float32")
        if isinstance(action, MultiBinarySpec):  # off is always allowed: [batch, n] -> [batch, 2 n]
            allowed = ops.reshape(ops.stack([ops.ones_like(allowed), allowed], axis=-1), (-1, self.choices))
        parts = [allowed[:, part] for part in slices(of_action.sizes)]
        parts = [part + 1.0 - ops.max(part, axis=-1, keepdims=True) for part in parts]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)

    def _streams(self, features: Any, width: int) -> Any:
        """Join a state value and advantages of `width` numbers each, from hidden layers of their own.

        With several choices at once, the advantages of each are joined with the one state value.

        Returns:
            Keras tensor float32 [batch, A, width].
        """
        value = self._dense(width, "value", gain=VALUE_GAIN)(self._hidden(features, "value_hidden"))
        advantages = self._dense(self.choices * width, "advantage", gain=VALUE_GAIN)(
            self._hidden(features, "advantage_hidden")
        )
        advantages = ops.reshape(advantages, (-1, self.choices, width))  # [batch, A*width] -> [batch, A, width]
        value = ops.expand_dims(value, 1)
        sizes = [size for spec in self.action_values.values() for size in spec.sizes]
        branches = [dueling(value, advantages[:, part], axis=1) for part in slices(sizes)]
        return branches[0] if len(branches) == 1 else ops.concatenate(branches, axis=1)


class ScalarQHead(ChoiceHead[Parameters]):
    """Parent of Q heads whose values are numbers.

    The loss is half the squared error, or Huber's, summed over the choices that have a target.

    Targets: {"actions": int32 [batch], "targets": float32 [batch]} for the chosen actions; or, as in Coach, float32
    [batch, A] for each: a choice whose target is its own value has no gradient. Several choices at once need it.
    """

    branching: ClassVar[bool] = True

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        values = [outputs[of_action.output] for of_action in self.action_values.values()]
        q = values[0] if len(values) == 1 else ops.concatenate(values, axis=-1)
        if not isinstance(targets, Mapping):
            return ops.sum(self._regression(bare_target(targets, q) - q), axis=-1)
        if not self._has_one_choice:
            raise ValueError(f"head {self.name}: several choices at once take targets [batch, {self.choices}]")
        given = named_targets(targets, "actions", "targets")
        chosen = at_choice(q, given["actions"])
        return self._regression(fitted(given["targets"], chosen) - chosen)


class QHead(ScalarQHead[QHeadParameters]):
    """One value per choice (Mnih et al. 2015), also of several choices at once (Tavakoli et al. 2018)."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._value_outputs(self._dense(self.choices, gain=VALUE_GAIN)(self._hidden(features)), inputs)


class DuelingQHead(ScalarQHead[DuelingQHeadParameters]):
    """State value plus advantages (Wang et al. 2016); the outputs are the values alone."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        values = ops.squeeze(self._streams(features, 1), axis=-1)  # [batch, A, 1] -> [batch, A]
        return self._value_outputs(values, inputs)


class ConstrainedQHead(ChoiceHead[ConstrainedQHeadParameters]):
    """Values of one discrete action, of which only choices count that data makes likely (Fujimoto et al. 2019).

    Outputs `<name>/values`: float32 [batch, A], the value of every choice; `<name>/imitation`: float32 [batch, A], the
    logits of an imitation of recorded choices; and `<name>/q` with `<name>/softmax`, as of other heads: the values,
    lowered by `MASKED` where the imitation's probability is not above `threshold` times its greatest one
    (arXiv:1910.01708). So whatever takes the best of `<name>/q` takes a likely choice, in actors and in
    exported policies, too. Choices that `action_mask` forbids are lowered in all three. Imitation and values share the
    trunk.

    The loss is half the squared error of the chosen value, or Huber's, and the imitation's cross-entropy in nats.

    Targets: {"actions": int32 [batch], "targets": float32 [batch]}.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.action_values = values_specs(self.spec.actions, self.name, masked=True)

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        values = self._dense(self.choices, gain=VALUE_GAIN)(self._hidden(features))
        logits = self._dense(self.choices, "imitation", gain=POLICY_GAIN)(self._hidden(features, "imitation_hidden"))
        if self.parameters.action_mask is not None:
            forbidden = MASKED * (1.0 - self._allowed(inputs[self.parameters.action_mask]))
            values, logits = values - forbidden, logits - forbidden
        threshold = self.parameters.threshold
        least = math.log(threshold) if threshold > 0.0 else -2.0 * MASKED  # below every logit less the greatest one
        likely = ops.cast(ops.greater(logits - ops.max(logits, axis=-1, keepdims=True), least), "float32")
        q = values - MASKED * (1.0 - likely)
        softmax = ops.softmax(q / self.network.softmax_temperature, axis=-1)
        return {
            f"{self.name}/q": q,
            f"{self.name}/softmax": softmax,
            f"{self.name}/values": values,
            f"{self.name}/imitation": logits,
        }

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        given = named_targets(targets, "actions", "targets")
        chosen = at_choice(outputs[f"{self.name}/values"], given["actions"])
        labels = ops.one_hot(given["actions"], self.choices, dtype="float32")
        imitation = categorical_cross_entropy(outputs[f"{self.name}/imitation"], labels)
        return self._regression(fitted(given["targets"], chosen) - chosen) + imitation


class EnsembleQHead(ChoiceHead[EnsembleQHeadParameters]):
    """K members, each with values of its own of one discrete action (Osband et al. 2016, arXiv:1602.04621).

    Output `<name>/q`: float32 [batch, K A], the members one after the other. The gradient into the trunk is divided by
    K (the paper's appendix D.2, "gradient normalization").

    With `prior_scale` beta, Q_k = f_k + beta p_k, where p_k has the layers of f_k, other weights, and never learns
    (Osband et al. 2018, arXiv:1806.03335, equation 2). No gradient of p_k reaches the trunk.

    The loss is half the squared error, or Huber's, summed over the members.

    Targets: {"actions": int32 [batch], "targets": float32 [batch, K]} for the chosen actions.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network.softmax_temperature != 1.0:
            raise ConfigError(
                f"head {self.name}: softmax_temperature: {self.network.softmax_temperature:g} is of one value for each "
                "choice, and an ensemble has several; leave it out"
            )

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        shared = with_gradient(features, 1.0 / self.parameters.members)
        members = [
            self._dense(self.choices, str(member), gain=VALUE_GAIN)(self._hidden(shared, f"{member}_hidden"))
            for member in range(self.parameters.members)
        ]
        if self.parameters.prior_scale > 0.0:
            fixed = ops.stop_gradient(features)
            members = [
                values + self.parameters.prior_scale * self._prior(fixed, member)
                for member, values in enumerate(members)
            ]
        if self.parameters.action_mask is not None:
            lowered = MASKED * (1.0 - self._allowed(inputs[self.parameters.action_mask]))
            members = [values - lowered for values in members]
        return {f"{self.name}/q": ops.concatenate(members, axis=-1)}

    def _prior(self, features: Any, member: int) -> Any:
        """Return the member's p_k of the features, [batch, A]."""
        hidden = self._hidden(features, f"{member}_prior_hidden", learns=False)
        return self._dense(self.choices, f"{member}_prior", gain=VALUE_GAIN, learns=False)(hidden)

    def actions(self) -> dict[str, FamilySpec]:
        ((action, values),) = self.action_values.items()
        masked, parameters = self.parameters.action_mask is not None, self.parameters
        spec = EnsembleSpec(self.choices, parameters.members, values.output, parameters.decides, masked)
        return {action: spec}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        values = ops.reshape(outputs[f"{self.name}/q"], (-1, self.parameters.members, self.choices))
        given = named_targets(targets, "actions", "targets")
        made = ops.one_hot(given["actions"], self.choices, dtype="float32")[:, np.newaxis]
        chosen = ops.sum(values * made, axis=-1)
        return ops.sum(self._regression(fitted(given["targets"], chosen) - chosen), axis=-1)


class AtomsHead(ChoiceHead[Atoms]):
    """Parent of heads whose returns live on fixed atoms.

    Output `<name>`: float32 [batch, A, atoms], logits; and those of `ChoiceHead`, q being the expected return.

    The loss is the cross-entropy of the target distribution, which has been projected onto the atoms.

    Targets: {"actions": int32 [batch], "probabilities": float32 [batch, atoms]} for the chosen actions; or, as in
    Coach, float32 [batch, A, atoms] for each, whose losses are summed: a choice whose target is its own distribution
    has no gradient.

    Attributes:
        support: float32 [atoms], the return of each atom.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high, atoms = self.parameters.v_min, self.parameters.v_max, self.parameters.atoms
        self.support = np.linspace(low, high, atoms, dtype=np.float32)

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        logits = outputs[self.name]
        if not isinstance(targets, Mapping):
            return ops.sum(categorical_cross_entropy(logits, bare_target(targets, logits)), axis=-1)
        given = named_targets(targets, "actions", "probabilities")
        return categorical_cross_entropy(at_choice(logits, given["actions"]), given["probabilities"])

    def _atom_outputs(self, logits: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        q = ops.sum(ops.softmax(logits, axis=-1) * self.support, axis=-1)
        return {self.name: logits, **self._value_outputs(q, inputs)}


class CategoricalQHead(AtomsHead[CategoricalQHeadParameters]):
    """Logits of every choice's returns on fixed atoms (Bellemare, Dabney & Munos 2017)."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        atoms = self.parameters.atoms
        logits = self._dense(self.choices * atoms, gain=VALUE_GAIN)(self._hidden(features))
        return self._atom_outputs(ops.reshape(logits, (-1, self.choices, atoms)), inputs)


class RainbowQHead(AtomsHead[RainbowQHeadParameters]):
    """`CategoricalQHead` with dueling logits (Hessel et al. 2018, "dueling networks")."""

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self._atom_outputs(self._streams(features, self.parameters.atoms), inputs)


class QuantileQHead(ChoiceHead[QuantileQHeadParameters]):
    """Quantiles of every choice's returns (Dabney et al. 2018).

    Output `<name>`: float32 [batch, A, quantiles]; and those of `ChoiceHead`, q being the quantiles' mean.

    Targets: {"actions": int32 [batch], "targets": float32 [batch, M]}, samples or quantiles of the returns.
    """

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        quantiles = self.parameters.quantiles
        flat = self._dense(self.choices * quantiles, gain=VALUE_GAIN)(self._hidden(features))
        values = ops.reshape(flat, (-1, self.choices, quantiles))  # [batch, A*N] -> [batch, A, N]
        return {self.name: values, **self._value_outputs(ops.mean(values, axis=-1), inputs)}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        given = named_targets(targets, "actions", "targets")
        chosen = at_choice(outputs[self.name], given["actions"])
        return quantile_regression(chosen, given["targets"], self.parameters.huber_kappa)
