"""An update within a trust region: the policy's natural gradient step, then the fit of the value function."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from keras import ops

from distrl import nest
from distrl.algorithms.epochs import Experience, by_sequences, shuffled
from distrl.algorithms.maths.trust_region import line_search, natural_step
from distrl.config.algorithms import AlgorithmContext
from distrl.config.algorithms.trpo import TrpoParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.framework.backend import Metrics, hessian_product, value_and_gradients
from distrl.networks.framework.differentiation import Prelude, Prepared, PureLoss
from distrl.networks.framework.optimizers import global_norm
from distrl.networks.objective import weighted_sum
from distrl.networks.steps import Minibatches, Step, sequences_of
from distrl.types import Batch, IntArray


class Losses(Protocol):
    """The parts of `Trpo` that are differentiated; see there."""

    def coefficient(self, name: str) -> Any: ...
    def estimates(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]: ...
    def policy_loss(
        self, outputs: Mapping[str, Tensor], experience: Experience
    ) -> tuple[Tensor, dict[str, Tensor]]: ...
    def value_loss(self, outputs: Mapping[str, Tensor], experience: Experience) -> tuple[Tensor, dict[str, Tensor]]: ...


class TrustRegionUpdate:
    """One update of the online copy, in one compiled call.

    1. Estimates, and the policy's loss and gradient, over the whole batch.
    2. The natural gradient by products with the Hessian of the mean KL(old || new) at the old policy, which is the
       Fisher matrix (Schulman et al. 2015, appendix C), then the line search. If it accepts no point, the policy stays.
    3. The value function's optimizer steps, minibatch by minibatch, towards the targets of the first part.

    Policy and value function have no weights in common.
    """

    def __init__(self, context: AlgorithmContext, parameters: TrpoParameters, network: Copies, losses: Losses) -> None:
        online = self._network = network.online
        self._parameters, self._losses, self._seed = parameters, losses, context.seed
        self._policy, online.optimized = (online.trainable_variables_of(head) for head in ("policy", "value"))
        self._held = [*online.optimized, *online.state_variables]  # while the policy moves
        self._value_weight = next(head.parameters.loss_weight for head in online.heads if head.name == "value")
        prelude = Prelude(self._move_policy, self._policy)
        self._step = Step(
            self._value_objective,
            [network.part()],
            [],
            [*self._policy, *online.state_variables],
            replicas=context.replicas,
            minibatches=Minibatches(sequences_of, self._order, prelude=prelude),
        )

    def __call__(self, batch: Batch) -> Metrics:
        """Make one update; see `Step`.

        Returns:
            Metrics: those of `Trpo.policy_loss` before the step and of `Trpo.value_loss` as means over the minibatches;
            kl, surrogate_gain (what the policy's objective gained) and step_fraction (of the natural step) of the point
            that the line search accepted, zeros if none; expected_gain of the whole step; loss and gradient_norm of
            both parts together; learning_rate, optimizer_steps and finite.
        """
        metrics = self._step(batch)
        metrics["loss"] = metrics.pop("policy_objective") + self._value_weight * metrics["value_loss"]
        metrics["gradient_norm"] = float(np.hypot(metrics.pop("policy_gradient_norm"), metrics["gradient_norm"]))
        return metrics

    def compile(self, batch: Batch) -> None:
        """Compile the update for batches of this form; see `TrainStep`."""
        self._step.compile(batch)

    def _order(self, batch: Batch) -> IntArray:
        items = batch.valid.shape[1] if self._network.recurrent_state else batch.valid.size
        return shuffled(
            items,
            epochs=self._parameters.value_epochs,
            minibatches=self._parameters.value_minibatches,
            seed=self._seed,
            step=int(ops.convert_to_numpy(self._network.optimizer.iterations)),
        )

    def _move_policy(self, batch: Batch) -> Prepared:
        outputs = self._network.unroll(batch.observations, batch.recurrent_state, batch.valid)
        experience = by_sequences(batch, self._losses.estimates(outputs, batch))
        values, scalars = self._policy_step(experience)
        if not self._network.recurrent_state:
            # [T, N, ...] -> [1, T*N, ...]
            experience = nest.map(lambda rows: ops.reshape(rows, (1, -1, *rows.shape[2:])), experience)
        return Prepared(values, experience, scalars)

    def _policy_step(self, experience: Experience) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the policy's new weights, and metrics."""
        parameters, max_kl = self._parameters, self._losses.coefficient("max_kl")
        objective = PureLoss(self._policy_objective, self._policy, [], self._held)
        start = [ops.convert_to_tensor(variable.value) for variable in self._policy]
        held = [ops.convert_to_tensor(variable.value) for variable in self._held]

        def at(weights: list[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            loss, (metrics, _) = objective(weights, [], experience, held)
            return loss, metrics

        base, metrics = at(start)
        _, gradients = value_and_gradients(lambda weights: at(weights)[0], start)
        hessian = hessian_product(lambda weights: at(weights)[1]["kl"], start)
        natural = natural_step(
            lambda vector: _flat(hessian(_like(start, vector))),
            -_flat(gradients),
            max_kl=max_kl,
            iterations=parameters.conjugate_gradient_iterations,
            damping=parameters.damping,
        )
        steps = _like(start, natural.step)

        def evaluate(fraction: Tensor) -> tuple[Tensor, Tensor]:
            loss, found = at([old + fraction * step for old, step in zip(start, steps, strict=True)])
            return base - loss, found["kl"]

        accepted = line_search(
            evaluate,
            expected_gain=natural.expected_gain,
            max_kl=max_kl,
            steps=parameters.line_search_steps,
            factor=parameters.line_search_factor,
            accept_ratio=parameters.accept_ratio,
        )
        moved = [
            ops.where(accepted.fraction > 0.0, old + accepted.fraction * step, old)
            for old, step in zip(start, steps, strict=True)
        ]
        return moved, metrics | {
            "kl": accepted.kl,
            "surrogate_gain": accepted.gain,
            "step_fraction": accepted.fraction,
            "expected_gain": natural.expected_gain,
            "policy_objective": base,
            "policy_gradient_norm": global_norm(gradients),
        }

    def _policy_objective(self, experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = self._losses.policy_loss(self._outputs(experience), experience)
        return weighted_sum(self._network, {"policy": loss, "value": 0.0}), metrics

    def _value_objective(self, experience: Experience) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = self._losses.value_loss(self._outputs(experience), experience)
        return weighted_sum(self._network, {"policy": 0.0, "value": loss}), metrics

    def _outputs(self, experience: Experience) -> dict[str, Tensor]:
        """Return the heads' outputs for all T rows, [T, M, ...]; memory restarts after each invalid row."""
        return self._network.unroll(experience.observations, experience.recurrent_state, experience.valid[:-1])


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of all tensors, float32 [P]."""
    return ops.concatenate([ops.reshape(tensor, (-1,)) for tensor in tensors])


def _like(tensors: Sequence[Tensor], vector: Tensor) -> list[Tensor]:
    """Invert `_flat`: return parts of a vector in the shapes of the tensors."""
    ends = np.cumsum([int(np.prod(tensor.shape)) for tensor in tensors])[:-1].tolist()
    parts = ops.split(vector, ends) if ends else [vector]
    return [ops.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
