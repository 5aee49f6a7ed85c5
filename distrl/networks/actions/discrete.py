"""Distributions over choices and switches, given by logits, in `keras.ops`.

Logits must be finite: a choice that is not allowed is lowered by 1e9, not by infinity. Its probability is then exactly
0, it adds exactly 0 to entropy and to KL(p || q) where p does not allow it, and no term is NaN.
"""

from keras import ops, random

from distrl.networks.actions.distribution import Distribution, Seed, Tensor, check_ranks, total
from distrl.networks.actions.specs import MultiCategoricalSpec


class Categorical(Distribution):
    """Softmax of logits [..., n]; actions are int32 [...]. Logits of any finite magnitude, lowered by 1e9 too, work."""

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 0)
        # A one-hot product differentiates to dense arithmetic; a gather's gradient is a scatter, which is slower.
        chosen = ops.one_hot(actions, parameters.shape[-1], dtype="float32")
        return ops.sum(chosen * ops.log_softmax(parameters, axis=-1), axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_p = ops.log_softmax(parameters, axis=-1)
        return -ops.sum(ops.exp(log_p) * log_p, axis=-1)

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        log_p = ops.log_softmax(parameters_p, axis=-1)
        log_q = ops.log_softmax(parameters_q, axis=-1)
        return ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable action, the first of equals."""
        return ops.cast(ops.argmax(parameters, axis=-1), "int32")

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        """By the Gumbel-max trick: argmax(logits - log E), E exponential."""
        return self.mode(parameters + _gumbel(parameters, seed))

    def state_value(self, parameters: Tensor) -> Tensor:
        """log(sum(exp(logits))): the soft value of a state whose action values are the logits."""
        return ops.logsumexp(parameters, axis=-1)


class MultiCategorical(Distribution):
    """Several softmaxes side by side; actions are int32 [..., k]."""

    def __init__(self, spec: MultiCategoricalSpec) -> None:
        self._slices = spec.slices
        self._one = Categorical()

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 1)
        logits = self._split(parameters)
        return total(self._one.log_probability(part, actions[..., k]) for k, part in enumerate(logits))

    def entropy(self, parameters: Tensor) -> Tensor:
        return total(self._one.entropy(part) for part in self._split(parameters))

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        parts = zip(self._split(parameters_p), self._split(parameters_q), strict=True)
        return total(self._one.kl(p, q) for p, q in parts)

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable action of each choice, the first of equals."""
        return ops.stack([self._one.mode(part) for part in self._split(parameters)], axis=-1)

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        return self.mode(parameters + _gumbel(parameters, seed))

    def _split(self, parameters: Tensor) -> list[Tensor]:
        return [parameters[..., part] for part in self._slices]


class Bernoulli(Distribution):
    """Switches with p(1) = sigmoid(logit); actions are int32 [..., n]."""

    def log_probability(self, parameters: Tensor, actions: Tensor) -> Tensor:
        check_ranks(parameters, actions, 1)
        sign = 2.0 * ops.cast(actions, "float32") - 1.0
        return ops.sum(ops.log_sigmoid(sign * parameters), axis=-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        size = ops.abs(parameters)  # the entropy is even in the logit, and here nothing large cancels
        return ops.sum(size * ops.sigmoid(-size) - ops.log_sigmoid(size), axis=-1)

    def kl(self, parameters_p: Tensor, parameters_q: Tensor) -> Tensor:
        on = ops.sigmoid(parameters_p) * (ops.log_sigmoid(parameters_p) - ops.log_sigmoid(parameters_q))
        off = ops.sigmoid(-parameters_p) * (ops.log_sigmoid(-parameters_p) - ops.log_sigmoid(-parameters_q))
        return ops.sum(on + off, axis=-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """1 where p(1) >= .5."""
        return ops.cast(parameters >= 0.0, "int32")

    def sample(self, parameters: Tensor, seed: Seed) -> Tensor:
        noise = random.uniform(ops.shape(parameters), dtype="float32", seed=seed)
        return ops.cast(noise < ops.sigmoid(parameters), "int32")


def _gumbel(parameters: Tensor, seed: Seed) -> Tensor:
    """Standard Gumbel noise, -log(-log U), of the parameters' shape. Finite: within [-4.5, 17] in float32."""
    uniform = random.uniform(ops.shape(parameters), minval=1e-38, dtype="float32", seed=seed)
    # U may be rounded to 1; infinite noise would pick an action of probability 0.
    return -ops.log(ops.maximum(-ops.log(uniform), 2.0**-24))
