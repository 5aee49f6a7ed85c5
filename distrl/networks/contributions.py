"""Gradients of workers: gradient actors compute them under the weights that acted, the learner applies them."""

from typing import Any

import numpy as np

from distrl.networks.copies import Copies
from distrl.networks.framework.backend import Gradients
from distrl.networks.framework.optimizers import clip_gradients
from distrl.networks.network import Network
from distrl.networks.objective import UnrollLoss, over_unrolls
from distrl.networks.parts.normalization import RunningMoments
from distrl.networks.weights import to_numpy
from distrl.types import Array, Batch, Contributions, Differentiated


class GradientStep:
    """Loss, gradient and clipping of one copy, compiled together; its trainable weights stay as they are.

    Args:
        network: The copy whose weights acted.
        loss: (outputs, batch) -> one scalar per head, and metrics; traced once.
    """

    def __init__(self, network: Network, loss: UnrollLoss) -> None:
        self._network = network
        self._averages = network.moving_averages
        self._generators = network.random_states
        self._names = network.names_of(network.model.trainable_variables)
        self._gradients = Gradients(
            over_unrolls(network, loss),
            network.model.trainable_variables,
            network.state_variables,
            lambda gradients: clip_gradients(gradients, network.parameters),
        )

    def __call__(self, batch: Batch) -> Differentiated:
        """Compute the gradient of one batch; random generators and moving averages advance."""
        loss, named, gradients = self._gradients(batch)
        moved = [*self._generators, *self._averages.values()]
        for variable, value in zip(moved, self._gradients.after(moved), strict=True):
            variable.assign(value)
        return Differentiated(
            gradients=dict(zip(self._names, gradients, strict=True)),
            averages={name: to_numpy(variable) for name, variable in self._averages.items()},
            metrics={"loss": loss, **{name: float(value) for name, value in named.items()}},
            moments=self._moments(batch),
        )

    def reseed(self, seeds: np.random.SeedSequence) -> None:
        """Restart the random generators of dropout and noise from `seeds`."""
        for generator, child in zip(self._generators, seeds.spawn(len(self._generators)), strict=True):
            state = child.generate_state(int(np.prod(generator.shape)), np.uint32)
            generator.assign(state.reshape(generator.shape).astype(generator.dtype))

    def _moments(self, batch: Batch) -> dict[str, dict[str, Array]]:
        """Return moments of the valid rows of every normalised input, without the first row of the next unroll."""
        moments = {}
        for name, shape in self._network.normalized_inputs.items():
            of_rows = RunningMoments(shape)
            rows = batch.observations[name][:-1][batch.valid]
            of_rows.add(self._network.spec.observations[name].expand(rows))
            moments[name] = of_rows.state()
        return moments


def apply_contributions(network: Copies, given: Contributions, *, mean: bool) -> dict[str, float | bool]:
    """Make one update of every copy from the gradients, moving averages and input statistics of all workers.

    A shared optimizer takes one step with the mean, or the sum, of the gradients. Otherwise each worker's optimizer
    takes a step with that worker's gradient, divided by the number of workers for the mean.

    Args:
        network: Has a global copy.
        given: At least one, with names and shapes checked.
        mean: Divide by their number.

    Returns:
        Means of the workers' metrics, and gradient_norm (of the mean or sum of the clipped gradients), learning_rate
        (of this update) and finite: False if that norm overflows and nothing was applied.
    """
    scaler = 1.0 / len(given) if mean else 1.0
    names = network.online.names_of(network.online.model.trainable_variables)
    gradients = [[contribution.differentiated.gradients[name] for name in names] for contribution in given]
    with np.errstate(over="ignore"):  # reported by `finite`
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
        network.apply_gradients(combined, scaler=scaler)
    else:
        for worker, gradient in zip(workers, gradients, strict=True):
            network.apply_gradients(gradient, scaler=scaler, worker=worker)
    assert network.global_ is not None  # gradients were applied to it
    for name, variable in network.global_.moving_averages.items():
        variable.assign(np.mean([contribution.differentiated.averages[name] for contribution in given], axis=0))
    for contribution in given:
        network.statistics.observe_moments(contribution.differentiated.moments)
        network.statistics.observe_rewards(contribution.reward_moments)
    network.update_online_network()
    return metrics


def contribution_shapes(network: Network) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Return name -> shape of trainable weights, of moving averages, and of a row of each normalised input."""
    trainable = network.model.trainable_variables
    named: tuple[dict[str, Any], ...] = (
        dict(zip(network.names_of(trainable), trainable, strict=True)),
        network.moving_averages,
    )
    shapes = [{name: tuple(variable.shape) for name, variable in variables.items()} for variables in named]
    return (*shapes, network.normalized_inputs)


def _norm(gradients: list[Array]) -> float:
    """Return the Euclidean norm of all elements together."""
    squares = [float(np.square(gradient, dtype=np.float64).sum()) for gradient in gradients]
    return float(np.sqrt(np.float64(sum(squares)).astype(np.float32)))  # float32, like the squares in optimizers


def _means(given: Contributions) -> dict[str, float]:
    """Return the mean of every metric that all workers have."""
    metrics = [contribution.differentiated.metrics for contribution in given]
    names = [name for name in metrics[0] if all(name in each for each in metrics)]
    return {name: float(np.mean([each[name] for each in metrics])) for name in names}
