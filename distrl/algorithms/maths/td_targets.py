"""Targets of action values: pure functions in `keras.ops`.

If several choices are made at once, each has its own values, and all share one target: the branching Q-network of
Tavakoli, Pardo and Kormushev 2018 (arXiv:1711.08946, section "Temporal-difference target").
"""

from collections.abc import Sequence

from keras import ops

from distrl.config.replay import SHARE_OF_GREATEST
from distrl.networks.actions.family import Tensor


def chosen_values(values: Tensor, choices: Tensor) -> Tensor:
    """Q(s, a) of the choice that was made.

    Args:
        values: float32 [..., A].
        choices: int32 [...], 0 … A - 1.

    Returns:
        float32 [...].
    """
    # A one-hot product differentiates to dense arithmetic; a gather's gradient is a scatter, which is slower.
    return ops.sum(values * ops.one_hot(choices, values.shape[-1], dtype="float32"), axis=-1)


def greedy_values(values: Tensor, choosing: Tensor | None = None) -> Tensor:
    """Return the value of the best choice: max_a Q(s, a) (Mnih et al. 2015, algorithm 1).

    Args:
        values: float32 [..., A]. Values of the target network.
        choosing: float32 [..., A]. Values that select the best choice. With the online network's this is double
            Q-learning, Q(s, argmax_a Q_online(s, a)) (van Hasselt et al. 2016, equation 4). None: `values`.

    Returns:
        float32 [...].
    """
    return ops.max(values, axis=-1) if choosing is None else chosen_values(values, ops.argmax(choosing, axis=-1))


def mean_over_choices(per_choice: Sequence[Tensor]) -> Tensor:
    """Mean over K simultaneous choices.

    The mean of values is the shared target (Tavakoli et al. 2018, equation 6). The mean of each choice's loss is the
    loss of the item (equation 7): errors of +1 and -1 have a mean square of 1, not 0.

    Args:
        per_choice: K tensors, float32 [...].

    Returns:
        float32 [...].
    """
    return per_choice[0] if len(per_choice) == 1 else ops.mean(ops.stack(list(per_choice), axis=-1), axis=-1)


def item_priorities(errors: Tensor, valid: Tensor) -> Tensor:
    """eta max |error| + (1 - eta) mean |error| over the valid steps of each item, eta = .9 (Kapturowski et al. 2019).

    Of a transition it is the size of its only error.

    Args:
        errors: float32 [T, N]. Sizes, at least 0.
        valid: bool [T, N].

    Returns:
        float32 [N]; 0 where no step is valid.
    """
    known = ops.where(valid, errors, 0.0)
    mean = ops.sum(known, axis=0) / ops.maximum(ops.sum(ops.cast(valid, "float32"), axis=0), 1.0)
    return mean + SHARE_OF_GREATEST * (ops.max(known, axis=0) - mean)
