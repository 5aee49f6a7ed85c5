"""Several epochs over every batch: over its rows, or over whole sequences if the network has memory."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from distrl import nest
from distrl.algorithms.algorithm import Loss
from distrl.config.algorithms import AlgorithmContext
from distrl.config.algorithms.ppo import ProximalSection
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.framework.backend import Metrics, Outputs
from distrl.networks.heads.losses import adapted_kl_coefficient
from distrl.networks.objective import weighted_sum
from distrl.networks.steps import Minibatches, Step, sequences_of
from distrl.types import Array, Batch, IntArray

KL_COEFFICIENT = "policy/kl_coefficient"


class Experience(NamedTuple):
    """Training data of several epochs: T rows, without the bootstrap row.

    Attributes:
        observations: name -> [T, N, ...].
        recurrent_state: name -> [N, ...], before row 0.
        actions: name -> [T, N, ...].
        valid: bool [T, N].
        estimates: name -> [T, N, ...]. Computed from the batch before the first epoch, then constant.
    """

    observations: dict[str, Any]
    recurrent_state: dict[str, Any]
    actions: dict[str, Any]
    valid: Any
    estimates: dict[str, Any]


def by_sequences(batch: Batch, estimates: dict[str, Array]) -> Experience:
    """Arrange a batch [T, N] as T rows of N items, the sequences."""
    observations = {name: rows[:-1] for name, rows in batch.observations.items()}
    return Experience(observations, batch.recurrent_state, batch.actions, batch.valid, estimates)


def by_rows(batch: Batch, estimates: dict[str, Array]) -> Experience:
    """Arrange a batch [T, N] of a network without memory as one row of T*N items."""
    sequences = by_sequences(batch, estimates)
    flat: Experience = nest.map(lambda rows: rows.reshape(1, -1, *rows.shape[2:]), sequences)  # [T, N, ...]
    return flat


def shuffled(items: int, *, epochs: int, minibatches: int, seed: int, step: int) -> IntArray:
    """Return the items of every minibatch: each epoch goes through all of them once, in a new order.

    Args:
        items: A multiple of `minibatches`.
        seed: The run's seed.
        step: Number of optimizer steps before this batch; a resumed run continues with the same orders.

    Returns:
        int32 [epochs * minibatches, items / minibatches].
    """
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2, step)))
    orders = [random.permutation(items) for _ in range(epochs)]
    return np.concatenate(orders).astype(np.int32).reshape(epochs * minibatches, items // minibatches)


class ProximalUpdate:
    """An update of the online copy: estimates, the steps of all epochs in one compiled call, the KL coefficient.

    Args:
        estimates: (outputs, batch) -> estimates before the first epoch, by name; see `Ppo.estimates`.
        loss: (outputs, minibatch) -> one scalar per head, and metrics, "kl" among them; see `Ppo.surrogate_loss`.
    """

    def __init__(
        self,
        context: AlgorithmContext,
        parameters: ProximalSection,
        network: Copies,
        estimates: Callable[[Mapping[str, Tensor], Batch], dict[str, Tensor]],
        loss: Callable[[Mapping[str, Tensor], Experience], Loss],
    ) -> None:
        online = self._network = network.online
        self._parameters = parameters
        self._make, self._loss = estimates, loss
        self._arrange = by_sequences if online.recurrent_state else by_rows
        self._seed = context.seed
        variables = [*online.model.trainable_variables, *online.state_variables]
        self._estimates = Outputs(self._make_estimates, variables)
        self._kl = Outputs(self._measure_kl, variables)
        bound = parameters.stop_at_kl
        minibatches = Minibatches(sequences_of, self._order, None if bound is None else ("kl", bound))
        self._epochs = Step(
            self._objective,
            [network.part()],
            online.state_variables,
            replicas=context.replicas,
            minibatches=minibatches,
        )

    def __call__(self, batch: Batch) -> Metrics:
        """Make one update; see `TrainStep`. With a KL penalty, kl_coefficient is its coefficient in this update."""
        experience = self._arrange(batch, self._estimates(batch))
        metrics, network = self._epochs(experience), self._network
        penalty = self._parameters.kl_penalty
        if penalty is None or not metrics["finite"]:
            return metrics
        number = network.number(KL_COEFFICIENT)
        kl, coefficient = float(self._kl(experience)["kl"]), float(ops.convert_to_numpy(number))
        adapted = adapted_kl_coefficient(
            np.float32(coefficient), np.float32(kl), penalty.target, penalty.initial_coefficient
        )
        number.assign(float(ops.convert_to_numpy(adapted)))
        return metrics | {"kl": kl, "kl_coefficient": coefficient}

    def compile(self, batch: Batch) -> None:
        """Compile the update for batches of this form; see `TrainStep`."""
        experience = self._arrange(batch, self._estimates(batch))
        self._epochs.compile(experience)
        if self._parameters.kl_penalty is not None:
            self._kl(experience)

    def _order(self, experience: Experience) -> IntArray:
        return shuffled(
            experience.valid.shape[1],
            epochs=self._parameters.epochs,
            minibatches=self._parameters.minibatches,
            seed=self._seed,
            step=int(ops.convert_to_numpy(self._network.optimizer.iterations)),
        )

    def _make_estimates(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = self._network.unroll(batch.observations, batch.recurrent_state, batch.valid, training=False)
        return ops.zeros(()), self._make(outputs, batch)

    def _objective(self, experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        terms, metrics = self._loss(self._outputs(experience, training=True), experience)
        return weighted_sum(self._network, terms), metrics

    def _measure_kl(self, experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        _, metrics = self._loss(self._outputs(experience, training=False), experience)
        return ops.zeros(()), {"kl": metrics["kl"]}

    def _outputs(self, experience: Experience, *, training: bool) -> dict[str, Tensor]:
        """Return the heads' outputs for all T rows, [T, M, ...]; memory restarts after each invalid row."""
        return self._network.unroll(
            experience.observations, experience.recurrent_state, experience.valid[:-1], training=training
        )
