"""Policy heads: one distribution per action, with the policy gradient's loss or PPO's."""

from collections.abc import Mapping
from typing import Any, TypeVar

import keras
from keras import ops

from distrl.config.action_masks import check_mask
from distrl.config.heads import PolicyHeadParameters, PolicySection, PPOHeadParameters
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec, drawn_by
from distrl.networks.actions.family import Tensor, policy_output
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.heads.head import POLICY_GAIN, Head, Targets, fitted, masked_logits, named_targets
from distrl.networks.heads.losses import clipped_surrogate, policy_gradient
from distrl.networks.parts.embedders import layer_name
from distrl.types import BoxSpec

Parameters = TypeVar("Parameters", bound=PolicySection)


class DistributionsHead(Head[Parameters]):
    """Parent of policy heads with different losses.

    Outputs `policy_output(action, <name>)`: float32 [batch, P], the parameters of the action's distribution.

    The last kernels start at a hundredth of the usual scale, so that the first policy is nearly the same whatever the
    observation (Andrychowicz et al. 2021, section 3.2: the choice that mattered most among initialisations).

    Attributes:
        distribution: The joint distribution of all actions, over these outputs.
    """

    output_name = "policy"

    def __post_init__(self) -> None:
        distribution = self.parameters.distribution
        self._specs = {action: drawn_by(given, distribution) for action, given in self.spec.actions.items()}
        self.distribution = JointDistribution(self._specs, self.name)
        self._check_options()
        if self.parameters.action_mask is not None:
            check_mask(self.parameters.action_mask, self.spec)

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        features = self._hidden(features)
        return {
            policy_output(action, self.name): self._distribution_parameters(features, layer_name(action), spec, inputs)
            for action, spec in self._specs.items()
        }

    def actions(self) -> dict[str, FamilySpec]:
        return self._specs if self.name == self.output_name else {}  # none of several copies acts

    def _distribution_parameters(self, features: Any, part: str, spec: FamilySpec, inputs: Mapping[str, Any]) -> Any:
        if spec.log_sigma is not None:
            return self._mean_and_log_sigma(features, part, spec)
        given = self._dense(spec.parameters_size, part, gain=POLICY_GAIN)(features)
        if spec.is_tempered:
            given = given / self.network.softmax_temperature
        if self.parameters.action_mask is not None:
            given = masked_logits(given, inputs[self.parameters.action_mask])
        return given

    def _mean_and_log_sigma(self, features: Any, part: str, spec: FamilySpec) -> Any:
        size, initial = spec.parameters_size // 2, self.parameters.initial_log_sigma
        mean = self._dense(size, part, gain=POLICY_GAIN)(features)
        source = spec.log_sigma if self.parameters.log_sigma == "auto" else self.parameters.log_sigma
        if source == "state_dependent":
            log_sigma = self._dense(size, f"{part}_log_sigma", gain=POLICY_GAIN)(features) + initial
        else:
            log_sigma = StateIndependent(initial, name=f"{self.name}_head_{part}_log_sigma")(mean)
        return ops.concatenate([mean, log_sigma], axis=-1)  # [batch, n] twice -> [batch, 2 n]

    def _check_options(self) -> None:
        """Raise ConfigError if an option is set that has no effect on any of the environment's actions."""
        continuous = any(isinstance(action, BoxSpec) for action in self.spec.actions.values())
        gaussian = any(spec.log_sigma is not None for spec in self._specs.values())
        used = {"distribution": continuous, "log_sigma": gaussian, "initial_log_sigma": gaussian}
        for name in (name for name, is_used in used.items() if not is_used):
            if self.parameters.is_changed(name):
                raise ConfigError(f"head policy: {name} needs continuous actions; {self.spec.id} has none")
        tempered = any(spec.is_tempered for spec in self._specs.values())
        if self.network.softmax_temperature != 1.0 and not tempered:
            raise ConfigError(f"softmax_temperature needs discrete actions; {self.spec.id} has none")


class PolicyHead(DistributionsHead[PolicyHeadParameters]):
    """The policy gradient with an entropy bonus, ``-A log pi(a) - beta H`` (Mnih et al. 2016, section 4).

    Targets: {"actions": {name: [batch, ...]}, "advantages": float32 [batch]}.
    """

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        given = named_targets(targets, "actions", "advantages")
        log_probabilities = self.distribution.log_probability(outputs, given["actions"])
        bonus = self.parameters.beta_entropy * self.distribution.entropy(outputs)
        return policy_gradient(log_probabilities, fitted(given["advantages"], log_probabilities)) - bonus

    def fetches(self, outputs: Mapping[str, Tensor], targets: Targets) -> dict[str, Tensor]:
        """Return the mean entropy, in nats."""
        return {"entropy": ops.mean(self.distribution.entropy(outputs))}


MOST_LOG_RATIO = 20.0
"""Largest log ratio: exp is infinite in float32 from 88 on, and makes the gradient NaN where a clip passes it by."""


class PPOHead(DistributionsHead[PPOHeadParameters]):
    """PPO (Schulman et al. 2017): ``-surrogate + kl_coefficient KL(old || new) - beta H``.

    The surrogate is equation 7 with `clip_range`, equation 6 without. `initial_kl_coefficient` adds the penalty of
    equation 8; training adjusts `scalars["kl_coefficient"]` by `losses.adapted_kl_coefficient`.

    Targets: {"actions": {name: [batch, ...]}, "advantages": float32 [batch], "old_log_probabilities": float32 [batch],
    "old_outputs": {output name: [batch, P]}}; without the penalty the last is optional.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        initial, name = self.parameters.initial_kl_coefficient, f"{self.name}_head_kl_coefficient"
        if initial is not None:
            self.scalars["kl_coefficient"] = keras.Variable(initial, trainable=False, name=name, dtype="float32")

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        given = self._given(targets)
        ratios, advantages = ops.exp(self._log_ratios(outputs, given)), given["advantages"]
        clip_range = self.parameters.clip_range
        gain = ratios * advantages if clip_range is None else clipped_surrogate(ratios, advantages, clip_range)
        loss = -gain - self.parameters.beta_entropy * self.distribution.entropy(outputs)
        if "kl_coefficient" in self.scalars:
            loss = loss + self.scalars["kl_coefficient"] * self.distribution.kl(given["old_outputs"], outputs)
        return loss

    def fetches(self, outputs: Mapping[str, Tensor], targets: Targets) -> dict[str, Tensor]:
        """Return the mean entropy and KL(old || new), in nats, and with a clip the share of clipped ratios.

        Without old outputs the KL is estimated as mean(r - 1 - log r), which is unbiased and never negative.
        """
        given = self._given(targets)
        log_ratios = self._log_ratios(outputs, given)
        if "old_outputs" in given:
            kl = self.distribution.kl(given["old_outputs"], outputs)
        else:
            kl = ops.expm1(log_ratios) - log_ratios
        fetched = {"entropy": ops.mean(self.distribution.entropy(outputs)), "kl": ops.mean(kl)}
        if self.parameters.clip_range is not None:
            beyond = ops.abs(ops.expm1(log_ratios)) > self.parameters.clip_range
            fetched["clip_fraction"] = ops.mean(ops.cast(beyond, "float32"))
        return fetched

    def _given(self, targets: Targets) -> dict[str, Any]:
        always = ("actions", "advantages", "old_log_probabilities")
        if "kl_coefficient" in self.scalars:
            return named_targets(targets, *always, "old_outputs")
        return named_targets(targets, *always, optional=("old_outputs",))

    def _log_ratios(self, outputs: Mapping[str, Tensor], given: Mapping[str, Any]) -> Tensor:
        now = self.distribution.log_probability(outputs, given["actions"])
        return ops.minimum(now - given["old_log_probabilities"], MOST_LOG_RATIO)


class StateIndependent(keras.layers.Layer):  # type: ignore[misc]  # Keras has no type information
    """One trainable number per dimension, which starts at `initial` and is the same for every row of the batch."""

    def __init__(self, initial: float, *, name: str) -> None:
        super().__init__(name=name)
        self._initial = initial

    def build(self, shape: tuple[int | None, ...]) -> None:
        initializer = keras.initializers.Constant(self._initial)
        self._numbers = self.add_weight(shape=(shape[-1],), initializer=initializer, name="numbers")

    def call(self, like: Any) -> Any:
        """Return the numbers [n] as [batch, n], the shape of `like`."""
        return ops.zeros_like(like) + self._numbers
