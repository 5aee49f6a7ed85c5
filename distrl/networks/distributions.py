"""The categorical distribution over A actions, given by unnormalised log-probabilities (logits), in `keras.ops`.

Pure functions of what a policy head puts out. Logits must be finite: mask an action with a large negative number rather
than with minus infinity. Everything goes through ``log_softmax``, which subtracts the largest logit first, so no
magnitude overflows. The actors' twin in NumPy is `actors/action_selection.py`; tests hold the two together.
"""

from typing import Any, TypeAlias

from keras import ops

Tensor: TypeAlias = Any
"""An array or tensor of whichever backend Keras runs on."""


def log_probability(logits: Tensor, actions: Tensor) -> Tensor:
    """Log-probability of the actions taken: ``logits[a] - log(sum(exp(logits)))``.

    Args:
        logits: float32 [..., A].
        actions: Integers [...] in 0 … A - 1.

    Returns:
        float32 [...].

    Raises:
        ValueError: `logits` does not have exactly one axis more than `actions`.
    """
    if len(logits.shape) != len(actions.shape) + 1:
        raise ValueError(f"logits must have one axis more than actions: {logits.shape} against {actions.shape}")
    # A one-hot product differentiates to dense arithmetic; a gather's gradient is a scatter, which is slower.
    chosen = ops.one_hot(actions, logits.shape[-1], dtype="float32")
    return ops.sum(chosen * ops.log_softmax(logits, axis=-1), axis=-1)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy in nats: ``-sum(p * log p)``.

    Args:
        logits: float32 [..., A].

    Returns:
        float32 [...], in 0 … log(A).
    """
    log_probabilities = ops.log_softmax(logits, axis=-1)
    return -ops.sum(ops.exp(log_probabilities) * log_probabilities, axis=-1)


def kl(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """Kullback-Leibler divergence KL(p || q) in nats: ``sum(p * (log p - log q))``.

    Args:
        logits_p: float32 [..., A]. The distribution that the expectation is taken under.
        logits_q: float32 [..., A].

    Returns:
        float32 [...], at least 0 up to rounding.
    """
    log_p = ops.log_softmax(logits_p, axis=-1)
    log_q = ops.log_softmax(logits_q, axis=-1)
    return ops.sum(ops.exp(log_p) * (log_p - log_q), axis=-1)


def mode(logits: Tensor) -> Tensor:
    """The most probable action.

    Args:
        logits: float32 [..., A].

    Returns:
        int32 [...]. The first of equals.
    """
    return ops.cast(ops.argmax(logits, axis=-1), "int32")
