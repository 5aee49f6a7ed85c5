"""One update of PPO: all epochs of a batch."""

from collections.abc import Callable, Mapping

import numpy as np
from keras import ops

from distrl.algorithms.algorithm import Loss
from distrl.algorithms.minibatches import Experience, by_rows, by_sequences, shuffled, take
from distrl.config import RunConfig
from distrl.config.algorithms import ProximalSection
from distrl.config.environment_checks import check_memory
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.backend import Epochs, Metrics, Outputs
from distrl.networks.framework.differentiation import Part
from distrl.networks.framework.optimizers import clip_gradients
from distrl.networks.heads.losses import adapted_kl_coefficient
from distrl.networks.objective import weighted_sum
from distrl.networks.wrapper import NetworkWrapper
from distrl.types import Batch

KL_COEFFICIENT = "policy/kl_coefficient"


class ProximalStep:
    """An update of the online copy: estimates, then the steps of all epochs in one compiled call, then the coefficient.

    Args:
        estimates: (outputs, batch) -> what is made of a batch before its first epoch, by name; see `Ppo.estimates`.
        loss: (outputs, minibatch) -> one scalar per head, and metrics, "kl" among them; see `Ppo.surrogate_loss`.

    Raises:
        ConfigError: The network has memory, and the batch's sequences cannot be shared among the minibatches.
    """

    def __init__(
        self,
        config: RunConfig,
        parameters: ProximalSection,
        network: NetworkWrapper,
        estimates: Callable[[Mapping[str, Tensor], Batch], dict[str, Tensor]],
        loss: Callable[[Mapping[str, Tensor], Experience], Loss],
    ) -> None:
        online = self._network = network.online
        self._assembly = online.assembly
        self._parameters = parameters
        self._make, self._loss = estimates, loss
        self._arrange = by_sequences if self._assembly.recurrent_state else by_rows
        if self._assembly.recurrent_state:
            check_memory(config)
        self._seed = config.seed
        variables = [*online.model.trainable_variables, *online.state_variables]
        self._estimates = Outputs(self._make_estimates, variables)
        self._kl = Outputs(self._measure_kl, variables)
        part = Part(
            online.model.trainable_variables,
            online.optimizer,
            lambda gradients: clip_gradients(gradients, online.parameters),
        )
        bound = self._parameters.stop_at_kl
        stop = None if bound is None else ("kl", bound)
        self._epochs = Epochs(self._objective, take, [part], online.state_variables, stop)

    @property
    def traces(self) -> int:
        """How often the epochs were compiled."""
        return self._epochs.traces

    def __call__(self, batch: Batch) -> Metrics:
        """One update; see `TrainStep`. KL-penalised ones tell kl_coefficient, as it was in this update."""
        parameters, network = self._parameters, self._network
        experience = self._arrange(batch, self._estimates(batch))
        order = shuffled(
            experience.valid.shape[1],
            epochs=parameters.epochs,
            minibatches=parameters.minibatches,
            seed=self._seed,
            step=int(ops.convert_to_numpy(network.optimizer.iterations)),
        )
        metrics = self._epochs(experience, order)
        penalty = parameters.kl_penalty
        if penalty is None or not metrics["finite"]:
            return metrics
        kl, coefficient = float(self._kl(experience)["kl"]), network.get_variable_value(KL_COEFFICIENT)
        adapted = adapted_kl_coefficient(
            np.float32(coefficient), np.float32(kl), penalty.target, penalty.initial_coefficient
        )
        network.set_variable_value(KL_COEFFICIENT, float(ops.convert_to_numpy(adapted)))
        return metrics | {"kl": kl, "kl_coefficient": coefficient}

    def _make_estimates(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = self._assembly.unroll(batch.observations, batch.recurrent_state, batch.valid, training=False)
        return ops.zeros(()), self._make(outputs, batch)

    def _objective(self, experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        terms, metrics = self._loss(self._outputs(experience, training=True), experience)
        return weighted_sum(self._assembly, self._network.parameters, terms), metrics

    def _measure_kl(self, experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        _, metrics = self._loss(self._outputs(experience, training=False), experience)
        return ops.zeros(()), {"kl": metrics["kl"]}

    def _outputs(self, experience: Experience, *, training: bool) -> dict[str, Tensor]:
        """The heads' outputs for all T rows, [T, M, ...]; memory restarts after all but the last of them."""
        return self._assembly.unroll(
            experience.observations, experience.recurrent_state, experience.valid[:-1], training=training
        )
