"""Choosing actions from logits, in NumPy. The learner's twin is `networks/distributions.py`; tests tie them together.

Actions are chosen here and not in the policy's graph: sampling needs the actor's own random generator.
"""

import numpy as np

from distrl.types import FloatArray, IntArray


def sample_categorical(logits: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draws one action per row from softmax(logits), by inversion of the cumulative distribution.

    Logits of any finite magnitude work, and an action whose probability underflows to 0 is never drawn.

    Args:
        logits: float32 [B, A], finite.
        rng: Advanced by B numbers.

    Returns:
        actions: int32 [B], in 0 … A - 1.
        log_probabilities: float32 [B], of these actions.
    """
    # Actions first: reductions over a short last axis cost several times as much.
    shifted = np.ascontiguousarray(logits.T)  # [B, A] -> [A, B]
    shifted = shifted - np.maximum.reduce(shifted, axis=0)
    cumulative = np.add.accumulate(np.exp(shifted), axis=0)
    total = cumulative[-1]
    # In (0, total], compared strictly: at neither end can rounding pick an action of probability 0.
    threshold = (1.0 - rng.random(total.shape[0], np.float32)) * total
    actions: IntArray = np.add.reduce(cumulative[:-1] < threshold, axis=0, dtype=np.int32)
    log_probabilities: FloatArray = shifted[actions, np.arange(total.shape[0])] - np.log(total)
    return actions, log_probabilities


def greedy(logits: FloatArray) -> IntArray:
    """The most probable action of each row; the first of equals.

    Args:
        logits: float32 [B, A].

    Returns:
        int32 [B].
    """
    return np.asarray(np.argmax(logits, axis=1), np.int32)
