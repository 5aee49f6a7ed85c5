"""Coach's methods to use and train one copy of a network from Python.

The learner's compiled step works on the same variables.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.assembly import Assembly
from distrl.networks.framework.backend import Gradients, Outputs, compiled_apply
from distrl.networks.framework.optimizers import clip_gradients, create_optimizer, global_norm, set_learning_rate
from distrl.networks.objective import over_rows
from distrl.networks.policy.savers import OnnxSaver, WeightsSaver, savers_of
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


class Architecture(Assembly):
    """A network copy with predictions, accumulated gradients and an optimizer; for the arguments see `Assembly`.

    Attributes:
        coefficients: See `add_coefficient`.
        optimized: Weights that the optimizer moves: all trainable ones, unless an algorithm moves some of them
            otherwise and sets this before the optimizer's first use.
    """

    def __init__(
        self, parameters: NetworkParameters, spec: EnvSpec, heads: Sequence[HeadParameters], name: str, seed: int
    ) -> None:
        super().__init__(parameters, spec, heads, name, seed)
        self.is_training = False
        self.coefficients: dict[str, Any] = {}
        self._together: dict[tuple[int, ...], Outputs] = {}
        self._accumulated: list[Array] | None = None
        self._gradients: dict[tuple[str, ...], Gradients] = {}
        self.optimized: list[Any] = self.model.trainable_variables
        self._optimizer: Any = None
        self._learning_rate = parameters.learning_rate
        self._apply: Callable[..., None] | None = None

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
            return Architecture(parameters, spec, heads, variable_scope, seed)

    def predict(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, squeeze_output: bool = True
    ) -> Array | list[Array]:
        """Return the heads' outputs as NumPy arrays, for inspection; actors use the policy bundle.

        Args:
            inputs: name -> [batch, ...]; recurrent state that is not among them is zero.
            outputs: Names of the outputs, in order, ``next_<state>`` allowed; None: all of the heads.
            squeeze_output: Return a single output bare instead of in a list.

        Raises:
            ValueError: An output does not exist, or an input is missing, unknown or of another shape.
        """
        names = list(self.outputs) if outputs is None else list(outputs)
        if unknown := [name for name in names if name not in self.model.output]:
            raise ValueError(f"unknown output {unknown[0]!r}; choose from {', '.join(self.model.output)}")
        computed = self._train_forward(inputs) if self.is_training else self.model(self._with_state(inputs))
        arrays = [to_numpy(computed[name]) for name in names]
        return arrays[0] if squeeze_output and len(arrays) == 1 else arrays

    @staticmethod
    def parallel_predict(network_inputs: Sequence[tuple["Architecture", Mapping[str, Array]]]) -> list[Any]:
        """Call `predict` for each (network, inputs), in order; in one compiled call unless one of them trains."""
        networks = [network for network, _ in network_inputs]
        if not networks or any(network.is_training for network in networks):
            return [network.predict(inputs) for network, inputs in network_inputs]
        compiled, key = networks[0]._together, tuple(map(id, networks))
        if key not in compiled:
            compiled[key] = _outputs_of(networks)
        given = {str(index): network._with_state(inputs) for index, (network, inputs) in enumerate(network_inputs)}
        computed = compiled[key](given)
        results = []
        for index, network in enumerate(networks):
            arrays = [computed[f"{index}/{name}"] for name in network.outputs]
            results.append(arrays[0] if len(arrays) == 1 else arrays)
        return results

    def set_is_training(self, state: bool) -> None:
        """Let `predict` compute as in training or not: with dropout, noise and the batch's own statistics."""
        self.is_training = state

    def get_variable_value(self, name: str) -> float:
        """Return a head's adjustable number, such as ``ppo/kl_coefficient``."""
        return float(to_numpy(self._scalar(name)))

    def set_variable_value(self, name: str, value: float) -> None:
        """Set such a number; the next loss uses it."""
        self._scalar(name).assign(value)

    def add_coefficient(self, name: str, value: float) -> Any:
        """Return a new float32 [] variable for losses compiled from now on; the next update sees assignments to it."""
        variable = keras.Variable(value, trainable=False, name=name, dtype="float32")
        self.coefficients[name] = variable
        return variable

    @property
    def state_variables(self) -> list[Any]:
        """Variables that a step may assign and no gradient moves.

        These are averages, states of random generators, and the heads' adjustable numbers and coefficients, because a
        compiled loss must see assignments to them.
        """
        scalars = [scalar for head in self.heads for scalar in head.scalars.values()]
        return [*self.model.non_trainable_variables, *scalars, *self.coefficients.values()]

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
        if len(targets) != len(self.heads):
            raise ValueError(f"{len(targets)} targets given, network {self.name} has {len(self.heads)} heads")
        inputs = self._with_state(inputs)
        batch = len(next(iter(inputs.values())))
        weights = np.ones(batch) if importance_weights is None else np.asarray(importance_weights)
        if weights.shape != (batch,):
            raise ValueError(f"importance_weights must be [{batch}], one for each row, not {list(weights.shape)}")
        data = {"inputs": inputs, "targets": dict(enumerate(targets)), "weights": weights.astype(np.float32)}
        differentiate = self._gradients_of(tuple(additional_fetches))
        total, named, gradients = differentiate(data)
        for state, drawn in zip(self.random_states, differentiate.after(self.random_states), strict=True):
            state.assign(drawn)  # so that the next batch gets other noise
        norm = float(global_norm(gradients))
        gradients = [to_numpy(gradient) for gradient in clip_gradients(gradients, self.parameters)]
        if self._accumulated is None or no_accumulation:
            self._accumulated = gradients
        else:
            self._accumulated = [old + new for old, new in zip(self._accumulated, gradients, strict=True)]
        return Accumulated(total, named["losses"].tolist(), norm, [named[name] for name in additional_fetches])

    @property
    def accumulated_gradients(self) -> list[Array]:
        """Copies of the accumulated gradients, one per trainable weight in the network's order; zeros at first."""
        if self._accumulated is None:
            return [np.zeros(variable.shape, np.float32) for variable in self.model.trainable_variables]
        return [gradient.copy() for gradient in self._accumulated]

    def set_accumulated_gradients(self, gradients: Sequence[Array]) -> None:
        """Replace the accumulated gradients by gradients that were computed elsewhere."""
        self._accumulated = [gradient.copy() for gradient in self._checked_gradients(gradients)]

    def reset_accumulated_gradients(self) -> None:
        """Empty the accumulator."""
        self._accumulated = None

    @property
    def optimizer(self) -> Any:
        """This copy's own optimizer, created on first use."""
        if self._optimizer is None:
            self._optimizer = create_optimizer(self.parameters)
            self._optimizer.build(self.optimized)
            self.set_learning_rate(self._learning_rate)
        return self._optimizer

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate; see `optimizers.set_learning_rate`."""
        self._learning_rate = rate
        if self._optimizer is not None:
            set_learning_rate(self._optimizer, self.parameters, rate)

    def apply_gradients(
        self,
        gradients: Sequence[Array],
        scaler: float = 1.0,
        additional_inputs: Mapping[str, Array] | None = None,
    ) -> None:
        """Apply ``scaler * gradients`` by this copy's own optimizer; the caller's arrays stay as they are.

        Args:
            additional_inputs: See `update_statistics`.

        Raises:
            ValueError: The number of gradients or a shape is wrong. Nothing was changed.
        """
        checked = self._checked_gradients(gradients)
        if self._apply is None:
            self._apply = compiled_apply(self.optimizer, self.optimized)
        self._apply(checked, scaler)
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
            self.model(self._with_state(inputs), training=True)

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
        return savers_of(self, parent_path_suffix)

    def _gradients_of(self, fetches: tuple[str, ...]) -> Gradients:
        if fetches not in self._gradients:
            function = over_rows(self, fetches)
            self._gradients[fetches] = Gradients(function, self.model.trainable_variables, self.state_variables)
        return self._gradients[fetches]

    def _checked_gradients(self, gradients: Sequence[Array]) -> list[Array]:
        variables = self.model.trainable_variables
        if len(gradients) != len(variables):
            raise ValueError(f"{len(gradients)} gradients given, network {self.name} has {len(variables)} weights")
        arrays = [np.asarray(gradient, np.float32) for gradient in gradients]
        for variable, array in zip(variables, arrays, strict=True):
            if array.shape != tuple(variable.shape):
                raise ValueError(f"gradient of {variable.path} has shape {array.shape}, not {tuple(variable.shape)}")
            if not np.isfinite(array).all():
                raise ValueError(f"gradient of {variable.path}: the given values are not finite")
        return arrays

    def _train_forward(self, inputs: Mapping[str, Array]) -> Any:
        """Compute the outputs as in training; random generators advance, averages do not."""
        with keras.StatelessScope() as scope:
            computed = self.model(self._with_state(inputs), training=True)
        for state in self.random_states:
            state.assign(scope.get_current_value(state))
        return computed

    def _with_state(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return all inputs of the model, with zeros for recurrent state that is not given."""
        states, expected = self.recurrent_state, self.model.input
        if unknown := [name for name in inputs if name not in expected]:
            raise ValueError(f"network {self.name} has no input {unknown[0]!r}; choose from {', '.join(expected)}")
        if missing := [name for name in expected if name not in inputs and name not in states]:
            raise ValueError(f"network {self.name}: input {missing[0]!r} is missing")
        batch = len(next(iter(inputs.values())))
        return {name: np.zeros((batch, *spec.shape), spec.dtype) for name, spec in states.items()} | dict(inputs)

    def _scalar(self, name: str) -> Any:
        scalars = {f"{head.name}/{key}": value for head in self.heads for key, value in head.scalars.items()}
        if name not in scalars:
            raise ValueError(f"network {self.name} has no number {name!r}; it has {', '.join(scalars) or 'none'}")
        return scalars[name]


def _outputs_of(networks: Sequence[Architecture]) -> Outputs:
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
