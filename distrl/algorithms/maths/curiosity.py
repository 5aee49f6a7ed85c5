"""The errors that curiosity takes for novelty, and the losses of its networks: pure functions over rows."""

from collections.abc import Sequence

from keras import ops

from distrl.networks.actions.family import Tensor


def distillation_errors(predicted: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean squared difference of features (Burda et al. 2019, arXiv:1810.12894, section 2.2).

    Args:
        predicted: float32 [..., E]. The predictor's.
        wanted: float32 [..., E]. Those of the random network, constants to the gradient.

    Returns:
        float32 [...].
    """
    return ops.mean(ops.square(predicted - ops.stop_gradient(wanted)), axis=-1)


def forward_errors(predicted: Tensor, features: Tensor) -> Tensor:
    """Return half the squared distance of features (Pathak et al. 2017, arXiv:1705.05363, equation 5).

    The gradient goes into both, as in the authors' code.

    Args:
        predicted: float32 [..., E]. The forward model's, from phi(o_t) and a_t.
        features: float32 [..., E]. phi(o_t+1).

    Returns:
        float32 [...].
    """
    return 0.5 * ops.sum(ops.square(predicted - features), axis=-1)


def inverse_losses(outputs: Tensor, taken: Tensor, choices: Sequence[int]) -> Tensor:
    """Return how badly the actions were found from what they led to (Pathak et al. 2017, equation 3).

    The sum of the cross-entropies of all choices, in nats, and of half the squared error of every real number.

    Args:
        outputs: float32 [..., W]. Logits of every choice, one choice after the other, then real numbers.
        taken: float32 [..., W]. The actions in the same order, choices one-hot.
        choices: Number of options of every choice; what is left of W are real numbers.

    Returns:
        float32 [...].
    """
    total, end = 0.0, 0
    for options in choices:
        start, end = end, end + options
        logs = ops.log_softmax(outputs[..., start:end], axis=-1)
        total = total - ops.sum(taken[..., start:end] * logs, axis=-1)
    return total + 0.5 * ops.sum(ops.square(outputs[..., end:] - taken[..., end:]), axis=-1)
