"""Coach's `Architecture`: its methods to use and train one copy of a network."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from distrl.coach.savers import OnnxSaver, WeightsSaver, savers_of
from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.backend import Gradients, Outputs
from distrl.networks.framework.differentiation import LossFunction
from distrl.networks.framework.optimizers import clip_gradients, global_norm
from distrl.networks.network import Network
from distrl.networks.objective import regularization
from distrl.networks.weights import to_numpy
from distrl.types import Array, EnvSpec


class Accumulated(NamedTuple):
    """Result of `accumulate_gradients` and `train_on_batch`.

    Attributes:
        total_loss: Sum of `losses`.
        losses: One per head, weighted, in the heads' order; then one per regularisation.
        norm_unclipped_grads: Global norm of the gradients before clipping.
        fetched: Values of `additional_fetches`, in their order.
    """

    total_loss: float
    losses: list[float]
    norm_unclipped_grads: float
    fetched: list[Array]


class Architecture:
    """One copy of a network with Coach's methods: a `Network`, which a compiled step may train too.

    Attributes:
        network: The copy: layers, weights, optimizer.
        is_training: See `set_is_training`.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.is_training = False
        self._together: dict[tuple[int, ...], Outputs] = {}
        self._accumulated: list[Array] | None = None
        self._gradients: dict[tuple[str, ...], Gradients] = {}

    @staticmethod
    def construct(
        variable_scope: str,
        devices: Sequence[str],
        parameters: NetworkParameters,
        spec: EnvSpec,
        heads: Sequence[HeadParameters],
        seed: int,
    ) -> "Architecture":
        """Return a network named `variable_scope` with its variables on the one device given, such as "cpu:0"."""
        if len(devices) != 1:
            raise ValueError(
                f"a network lives on one device, not {list(devices)}; learner.replicas spreads batches, with JAX"
            )
        with keras.device(devices[0].lstrip("/")):
            return Architecture(Network(parameters, spec, heads, variable_scope, seed))

    def predict(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, squeeze_output: bool = True
    ) -> Array | list[Array]:
        """Do `Network.predict`, or compute the same as in training; see `set_is_training`."""
        if not self.is_training:
            return self.network.predict(inputs, outputs, squeeze_output)
        # Random generators advance, averages do not.
        with keras.StatelessScope() as scope:
            computed = self.network.model(self.network.with_state(inputs), training=True)
        for state in self.network.random_states:
            state.assign(scope.get_current_value(state))
        return self.network.chosen(computed, outputs, squeeze_output)

    @staticmethod
    def parallel_predict(network_inputs: Sequence[tuple["Architecture", Mapping[str, Array]]]) -> list[Any]:
        """Call `predict` for each (network, inputs), in order; in one compiled call unless one of them trains."""
        networks = [network for network, _ in network_inputs]
        if not networks or any(network.is_training for network in networks):
            return [network.predict(inputs) for network, inputs in network_inputs]
        copies = [network.network for network in networks]
        compiled, key = networks[0]._together, tuple(map(id, copies))
        if key not in compiled:
            compiled[key] = _outputs_of(copies)
        given = {str(index): one.network.with_state(inputs) for index, (one, inputs) in enumerate(network_inputs)}
        computed = compiled[key](given)
        return [
            copy.chosen({name: computed[f"{index}/{name}"] for name in copy.outputs}, None, True)
            for index, copy in enumerate(copies)
        ]

    def set_is_training(self, state: bool) -> None:
        """Let `predict` compute as in training or not: with dropout, noise and the batch's own statistics."""
        self.is_training = state

    def get_weights(self) -> list[Array]:
        """Return copies of all weights, in the network's order."""
        return self.network.get_weights()

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """Set ``new = rate * given + (1 - rate) * old``; see `Network.set_weights`."""
        self.network.set_weights(weights, rate)

    def get_variable_value(self, name: str) -> float:
        """Return a head's adjustable number, such as ``ppo/kl_coefficient``."""
        return float(to_numpy(self.network.number(name)))

    def set_variable_value(self, name: str, value: float) -> None:
        """Set such a number; the next loss uses it."""
        self.network.number(name).assign(value)

    def accumulate_gradients(
        self,
        inputs: Mapping[str, Array],
        targets: Sequence[Any],
        additional_fetches: Sequence[str] = (),
        importance_weights: Array | None = None,
        no_accumulation: bool = False,
    ) -> Accumulated:
        """Add the gradients of one batch to the accumulator; weights stay as they are.

        Args:
            inputs: name -> [batch, ...].
            targets: One per head, in the form that its `loss` takes.
            additional_fetches: Names of the heads' metrics, such as ``policy/entropy``.
            importance_weights: float32 [batch]; multiplies every sample's loss.
            no_accumulation: Replace the accumulated gradients instead of adding to them.

        Raises:
            ValueError: The number of targets, a fetch, the inputs or the importance weights do not fit.
        """
        if len(targets) != len(self.network.heads):
            raise ValueError(
                f"{len(targets)} targets given, network {self.network.name} has {len(self.network.heads)} heads"
            )
        inputs = self.network.with_state(inputs)
        batch = len(next(iter(inputs.values())))
        weights = np.ones(batch) if importance_weights is None else np.asarray(importance_weights)
        if weights.shape != (batch,):
            raise ValueError(f"importance_weights must be [{batch}], one for each row, not {list(weights.shape)}")
        data = {"inputs": inputs, "targets": dict(enumerate(targets)), "weights": weights.astype(np.float32)}
        differentiate = self._gradients_of(tuple(additional_fetches))
        total, named, gradients = differentiate(data)
        for state, drawn in zip(
            self.network.random_states, differentiate.after(self.network.random_states), strict=True
        ):
            state.assign(drawn)  # so that the next batch gets other noise
        norm = float(global_norm(gradients))
        gradients = [to_numpy(gradient) for gradient in clip_gradients(gradients, self.network.parameters)]
        if self._accumulated is None or no_accumulation:
            self._accumulated = gradients
        else:
            self._accumulated = [old + new for old, new in zip(self._accumulated, gradients, strict=True)]
        return Accumulated(total, named["losses"].tolist(), norm, [named[name] for name in additional_fetches])

    @property
    def accumulated_gradients(self) -> list[Array]:
        """Copies of the accumulated gradients, one per trainable weight in the network's order; zeros at first."""
        if self._accumulated is None:
            return [np.zeros(variable.shape, np.float32) for variable in self.network.model.trainable_variables]
        return [gradient.copy() for gradient in self._accumulated]

    def set_accumulated_gradients(self, gradients: Sequence[Array]) -> None:
        """Replace the accumulated gradients by gradients that were computed elsewhere; see `Network.fitting`."""
        self._accumulated = [gradient.copy() for gradient in self.network.fitting(gradients)]

    def reset_accumulated_gradients(self) -> None:
        """Empty the accumulator."""
        self._accumulated = None

    def apply_gradients(
        self,
        gradients: Sequence[Array],
        scaler: float = 1.0,
        additional_inputs: Mapping[str, Array] | None = None,
    ) -> None:
        """Do `Network.apply_gradients`, then `update_statistics` with the additional inputs."""
        self.network.apply_gradients(gradients, scaler)
        self.update_statistics(additional_inputs)

    def apply_and_reset_gradients(
        self,
        gradients: Sequence[Array],
        scaler: float = 1.0,
        additional_inputs: Mapping[str, Array] | None = None,
    ) -> None:
        """Do `apply_gradients`, then `reset_accumulated_gradients`."""
        self.apply_gradients(gradients, scaler, additional_inputs)
        self.reset_accumulated_gradients()

    def update_statistics(self, inputs: Mapping[str, Array] | None) -> None:
        """Move the averages of batch normalisation towards those of `inputs`; do nothing without inputs.

        In the learner's compiled step every batch moves them; here only this method does.
        """
        if inputs is not None:
            self.network.model(self.network.with_state(inputs), training=True)

    def train_on_batch(
        self,
        inputs: Mapping[str, Array],
        targets: Sequence[Any],
        scaler: float = 1.0,
        additional_fetches: Sequence[str] = (),
        importance_weights: Array | None = None,
    ) -> Accumulated:
        """Do `accumulate_gradients`, then `apply_and_reset_gradients` with the accumulated gradients."""
        accumulated = self.accumulate_gradients(inputs, targets, additional_fetches, importance_weights)
        self.apply_and_reset_gradients(self.accumulated_gradients, scaler)
        return accumulated

    def collect_savers(self, parent_path_suffix: str = "") -> list[WeightsSaver | OnnxSaver]:
        """Return a saver of the weights and one of the network as ONNX, under ``<parent>/<network>``."""
        return savers_of(self.network, parent_path_suffix)

    def __str__(self) -> str:
        model = self.network.model
        shapes = ", ".join(f"{name}{list(tensor.shape[1:])}" for name, tensor in model.input.items())
        outputs = ", ".join(f"{name}{list(shape)}" for name, shape in self.network.outputs.items())
        return f"{shapes} -> {outputs}; {model.count_params()} weights in {len(model.weights)} arrays"

    def _gradients_of(self, fetches: tuple[str, ...]) -> Gradients:
        if fetches not in self._gradients:
            function, network = over_rows(self.network, fetches), self.network
            self._gradients[fetches] = Gradients(function, network.model.trainable_variables, network.state_variables)
        return self._gradients[fetches]


def over_rows(network: Network, fetches: Sequence[str]) -> LossFunction:
    """Return Coach's objective: every head's own loss, a mean over rows times importance weights.

    The function takes {"inputs", "targets" (by index of head), "weights" [batch]} and returns "losses" (one per head,
    then one per regularisation) and the fetches.

    Raises:
        ValueError: While tracing, if no head has a fetch.
    """

    def objective(data: Any) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = network.model(data["inputs"], training=True)
        losses: list[Tensor] = []
        available: dict[str, Tensor] = {}
        for index, head in enumerate(network.heads):
            target = data["targets"][index]
            loss = ops.mean(data["weights"] * head.loss(outputs, target))
            losses.append(head.parameters.loss_weight * loss)
            available |= {f"{head.name}/{name}": value for name, value in head.fetches(outputs, target).items()}
        if unknown := [name for name in fetches if name not in available]:
            raise ValueError(f"unknown fetch {unknown[0]!r}; choose from {', '.join(available) or 'none'}")
        losses += regularization(network)
        named = {"losses": ops.stack(losses), **{name: available[name] for name in fetches}}
        return sum(losses), named

    return objective


def _outputs_of(networks: Sequence[Network]) -> Outputs:
    """Compile: inputs by position of the network -> ``<position>/<output>``."""

    def function(data: Any) -> tuple[Any, dict[str, Any]]:
        named: dict[str, Any] = {}
        for index, network in enumerate(networks):
            computed = network.model(data[str(index)], training=False)
            named |= {f"{index}/{name}": computed[name] for name in network.outputs}
        return 0.0, named

    # Once each: one network may occur twice.
    variables = {id(variable): variable for network in networks for variable in network.model.variables}
    return Outputs(function, list(variables.values()))
