"""The ACER policy head: truncated importance weights, bias correction, trust region (Wang et al. 2017)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras import ops

from distrl.config.action_masks import check_mask
from distrl.config.heads import ACERPolicyHeadParameters
from distrl.networks.actions import FamilySpec
from distrl.networks.actions.categorical import CategoricalSpec
from distrl.networks.actions.family import Tensor, policy_output
from distrl.networks.heads.head import POLICY_GAIN, Head, Targets, masked_logits, named_targets, single_action
from distrl.types import DiscreteSpec


class Terms(NamedTuple):
    """Terms of the objective of each sample, float32 [...], and what the trust region needs, float32 [..., A].

    Attributes:
        probability: Term of the action taken, ``min(c, rho) log pi(a) (Q_ret - V)``.
        bias_correction: The sum over all choices.
        entropy: H, in nats.
        kl: KL(average || pi), in nats; None without an average policy.
        gradient: Gradient of the whole objective with respect to the logits.
        probabilities: pi.
    """

    probability: Tensor
    bias_correction: Tensor
    entropy: Tensor
    kl: Tensor | None
    gradient: Tensor
    probabilities: Tensor


class ACERPolicyHead(Head[ACERPolicyHeadParameters]):
    """A softmax policy that learns from replayed actions.

    Output `policy_output(action, <name>)`: float32 [batch, A], logits; those of choices that `action_mask` forbids are
    lowered by `MASKED`.

    The loss is the negative objective of equation 9, per sample, with an entropy bonus:

        min(c, rho) log pi(a) (Q_ret - V)  +  sum_b max(0, 1 - c / rho(b)) pi(b) log pi(b) (Q(b) - V)  +  beta H

    where rho = pi / mu, V = sum_b pi(b) Q(b), and all but log pi and H are constants. `trust_region_delta` keeps the
    value of the loss and changes its gradient with respect to the logits by `trust_region`.

    Targets: {"actions": {name: int32 [batch]}, "behaviour_probabilities": float32 [batch, A] (mu), "q_values": float32
    [batch, A] (Q), "retrace": float32 [batch] (Q_ret)}, and with the trust region "average_probabilities": float32
    [batch, A] of the average policy. `loss` and `terms` take any axes in place of [batch], such as [T, N].
    """

    output_name = "policy"

    def __post_init__(self) -> None:
        self.choices = single_action(self.spec, self.name, DiscreteSpec).n
        self._action = next(iter(self.spec.actions))
        self._output = policy_output(self._action, self.name)
        if self.parameters.action_mask is not None:
            check_mask(self.parameters.action_mask, self.spec)

    def build(self, features: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        logits = self._dense(self.choices, gain=POLICY_GAIN)(self._hidden(features)) / self.network.softmax_temperature
        mask = self.parameters.action_mask
        return {self._output: logits if mask is None else masked_logits(logits, inputs[mask])}

    def actions(self) -> dict[str, FamilySpec]:
        return {self._action: CategoricalSpec(self.choices)} if self.name == self.output_name else {}

    def loss(self, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        return self.loss_of(self.terms(outputs, targets), outputs, targets)

    def loss_of(self, terms: Terms, outputs: Mapping[str, Tensor], targets: Targets) -> Tensor:
        """Return the loss from the `terms` of the same outputs and targets."""
        logits, delta = outputs[self._output], self.parameters.trust_region_delta
        loss = -(terms.probability + terms.bias_correction + self.parameters.beta_entropy * terms.entropy)
        if delta is None:
            return loss
        average = self._given(targets)["average_probabilities"]
        away = terms.probabilities - average  # the gradient of KL(average || pi) with respect to the logits
        allowed = ops.stop_gradient(trust_region(terms.gradient, away, delta))
        surrogate = ops.sum(allowed * logits, axis=-1)
        return ops.stop_gradient(loss + surrogate) - surrogate

    def fetches(self, outputs: Mapping[str, Tensor], targets: Targets) -> dict[str, Tensor]:
        """Return means of the entropy, of both losses, and with a trust region of KL(average || pi)."""
        terms = self.terms(outputs, targets)
        fetched = {
            "entropy": ops.mean(terms.entropy),
            "probability_loss": -ops.mean(terms.probability),
            "bias_correction_loss": -ops.mean(terms.bias_correction),
        }
        return fetched if terms.kl is None else fetched | {"kl": ops.mean(terms.kl)}

    def terms(self, outputs: Mapping[str, Tensor], targets: Targets) -> Terms:
        """Return the terms of the objective; for the arguments see `loss`."""
        given, logits = self._given(targets), outputs[self._output]
        truncation, behaviour, q_values = (
            self.parameters.importance_weight_truncation,
            given["behaviour_probabilities"],
            given["q_values"],
        )
        log_probabilities = ops.log_softmax(logits, axis=-1)
        probabilities = ops.stop_gradient(ops.exp(log_probabilities))
        values = ops.sum(probabilities * q_values, axis=-1)
        made = ops.one_hot(given["actions"][self._action], self.choices, dtype="float32")  # [..., A]
        ratio = ops.sum(made * probabilities, axis=-1) / ops.maximum(ops.sum(made * behaviour, axis=-1), 1e-20)
        taken = made * ops.expand_dims(truncated_weights(ratio, truncation) * (given["retrace"] - values), -1)
        others = correction_weights(probabilities, behaviour, truncation) * (q_values - ops.expand_dims(values, -1))
        entropy = -ops.sum(ops.exp(log_probabilities) * log_probabilities, axis=-1)
        weights = taken + others
        # sum_b w_b log pi(b) and H, differentiated by the logits
        gradient = weights - probabilities * ops.sum(weights, axis=-1, keepdims=True)
        of_entropy = -probabilities * (log_probabilities + ops.expand_dims(entropy, -1))
        return Terms(
            probability=ops.sum(taken * log_probabilities, axis=-1),
            bias_correction=ops.sum(others * log_probabilities, axis=-1),
            entropy=entropy,
            kl=_divergence(given.get("average_probabilities"), log_probabilities),
            gradient=gradient + self.parameters.beta_entropy * of_entropy,
            probabilities=probabilities,
        )

    def _given(self, targets: Targets) -> dict[str, Any]:
        names = ("actions", "behaviour_probabilities", "q_values", "retrace")
        region = () if self.parameters.trust_region_delta is None else ("average_probabilities",)
        return named_targets(targets, *names, *region)


def _divergence(average: Tensor | None, log_probabilities: Tensor) -> Tensor | None:
    """Return KL(average || pi), float32 [...]; a choice of probability 0 adds nothing."""
    if average is None:
        return None
    return ops.sum(average * (ops.log(ops.maximum(average, 1e-20)) - log_probabilities), axis=-1)


def truncated_weights(ratios: Tensor, truncation: float) -> Tensor:
    """Truncate importance weights, ``min(c, rho)`` (Wang et al. 2017, equation 7).

    Args:
        ratios: float32 [...]. rho: pi(a) / mu(a) for the actions taken.
        truncation: c above.

    Returns:
        float32 [...].
    """
    return ops.minimum(ratios, truncation)


def correction_weights(probabilities: Tensor, behaviour_probabilities: Tensor, truncation: float) -> Tensor:
    """Weight that truncation took from every choice, in expectation under pi: ``max(0, 1 - c / rho) pi`` (equation 7).

    Args:
        probabilities: float32 [..., A]. pi.
        behaviour_probabilities: float32 [..., A]. mu; may be 0.
        truncation: c above.

    Returns:
        float32 [..., A].
    """
    return ops.maximum(probabilities - truncation * behaviour_probabilities, 0.0)  # the same, without a division by 0


def trust_region(gradients: Tensor, kl_gradients: Tensor, delta: float) -> Tensor:
    """Project g to the nearest direction in which the linearised KL to the average policy grows by at most delta.

    ``g - max(0, (k . g - delta) / |k|^2) k``, the solution of: minimise |g - z|^2 / 2 subject to k . z <= delta
    (Wang et al. 2017, equation 12).

    Args:
        gradients: float32 [..., A]. g: of the objective with respect to the network's output.
        kl_gradients: float32 [..., A]. k: of KL(average || pi) with respect to the same.
        delta: Greater than 0.

    Returns:
        float32 [..., A].
    """
    excess = ops.sum(kl_gradients * gradients, axis=-1, keepdims=True) - delta
    # Where k is 0 the excess is negative, and the lower bound avoids a division by 0.
    size = ops.maximum(ops.sum(ops.square(kl_gradients), axis=-1, keepdims=True), 1e-20)
    return gradients - ops.maximum(excess, 0.0) / size * kl_gradients
