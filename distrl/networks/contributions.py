"""Workers' gradients become one step of the global copy, of one shared optimizer or of each worker's own."""

import numpy as np

from distrl.networks.gradient_step import moving_averages, names_of
from distrl.networks.wrapper import NetworkWrapper
from distrl.types import Array, Contributions


def apply_contributions(network: NetworkWrapper, given: Contributions, *, mean: bool) -> dict[str, float | bool]:
    """One update: gradients, moving averages and input statistics of all of `given` into every copy.

    With one optimizer it is one step with the mean, or the sum, of the gradients. Where every worker has its own, each
    takes a step with that worker's gradient, divided by the number of them if the mean is asked for.

    Args:
        network: With a global copy.
        given: At least one, their names and shapes checked.
        mean: Divide by their number.

    Returns:
        Means of the workers' metrics, and gradient_norm (of the mean or sum, of what the workers have clipped),
        learning_rate (of this update) and finite: False if that norm overflows; nothing was applied then.
    """
    scaler = 1.0 / len(given) if mean else 1.0
    names = names_of(network.online, network.online.model.trainable_variables)
    gradients = [[contribution.differentiated.gradients[name] for name in names] for contribution in given]
    with np.errstate(over="ignore"):  # which `finite` tells
        combined = [np.sum(of_one_weight, axis=0) for of_one_weight in zip(*gradients, strict=True)]
        norm = scaler * _norm(combined)
    workers = [contribution.header.actor for contribution in given]
    metrics: dict[str, float | bool] = {
        **_means(given),
        "gradient_norm": norm,
        "learning_rate": float(np.asarray(network.optimizer_of(workers[0]).learning_rate)),
        "finite": bool(np.isfinite(norm)),
    }
    if not metrics["finite"]:
        return metrics
    if network.parameters.shared_optimizer:
        network.apply_gradients_to_global_network(combined, scaler=scaler)
    else:
        for worker, gradient in zip(workers, gradients, strict=True):
            network.apply_gradients_to_global_network(gradient, scaler=scaler, worker=worker)
    _move_averages(network, given)
    for contribution in given:
        network.statistics.observe_moments(contribution.differentiated.moments)
        network.statistics.observe_rewards(contribution.reward_moments)
    network.update_online_network()
    return metrics


def _norm(gradients: list[Array]) -> float:
    """Euclidean norm of all elements together."""
    squares = [float(np.square(gradient, dtype=np.float64).sum()) for gradient in gradients]
    return float(np.sqrt(np.float64(sum(squares)).astype(np.float32)))  # float32, as optimizers' own squares are


def _means(given: Contributions) -> dict[str, float]:
    """Of every metric that all workers tell."""
    told = [contribution.differentiated.metrics for contribution in given]
    names = [name for name in told[0] if all(name in metrics for metrics in told)]
    return {name: float(np.mean([metrics[name] for metrics in told])) for name in names}


def _move_averages(network: NetworkWrapper, given: Contributions) -> None:
    """Batch normalisation's averages become the mean of where the workers' have got to."""
    assert network.global_ is not None  # gradients were applied to it
    for name, variable in moving_averages(network.global_).items():
        variable.assign(np.mean([contribution.differentiated.averages[name] for contribution in given], axis=0))
