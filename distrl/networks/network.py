"""One copy of a network: its computations, its weights, and Coach's methods to train it from Python.

Inputs and outputs are named. Weights are named by their Keras paths, ``<network>/<layer>/<kernel or bias>``; paths and
order depend only on the structure, so that every copy, process and checkpoint of one structure agrees on them.
`Architecture` has Coach's method names; the learner's compiled step works on the same variables.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import keras
import numpy as np

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.assembly import Assembly
from distrl.networks.framework.backend import (
    Gradients,
    Outputs,
    compiled_apply,
    compiled_mix,
    compiled_read,
    fastest_dtype,
)
from distrl.networks.framework.optimizers import clip_gradients, create_optimizer, global_norm, set_learning_rate
from distrl.networks.objective import RANDOM_STATES, over_rows
from distrl.networks.parts.layers import noisy_layers, random_states, training_only
from distrl.networks.policy.description import NoisyWeights
from distrl.networks.policy.savers import OnnxSaver, WeightsSaver, savers_of
from distrl.networks.weights import check_rate, checked_array, is_mixed, stable_names, to_numpy
from distrl.types import Array, EnvSpec


class NetworkCopy:
    """Embedders, merger, middleware and heads. `Architecture` adds gradients and an optimizer.

    Attributes:
        model: The Keras model of one step: {name: [batch, ...]} -> {name: [batch, ...]}.
        variables: All variables by name: weights in the network's order with states of random generators, then the
            heads' adjustable numbers.
        coefficients: See `add_coefficient`.
        name: First part of every weight's path.
        parameters: The network's configuration, with `compute_dtype` resolved.

    Args:
        seed: Equal seeds give bit-equal weights.

    Raises:
        ConfigError: `parameters` do not fit the environment or each other.
    """

    def __init__(
        self, parameters: NetworkParameters, spec: EnvSpec, heads: Sequence[HeadParameters], name: str, seed: int
    ) -> None:
        self.name = name
        if parameters.compute_dtype == "auto":
            parameters = parameters.model_copy(update={"compute_dtype": fastest_dtype()})
        self.parameters = parameters
        self.spec = spec
        self.head_parameters = tuple(heads)
        self.assembly = Assembly(parameters, spec, heads, name=name, seed=seed)
        self.model = self.assembly.model
        names = stable_names(self.model.variables, self.assembly.users_layers)
        self.variables: dict[str, Any] = dict(zip(names, self.model.variables, strict=True)) | {
            f"{name}/{head.name}_head_{key}": scalar
            for head in self.assembly.heads
            for key, scalar in head.scalars.items()
        }
        self.is_training = False
        self.coefficients: dict[str, Any] = {}
        self._together: dict[tuple[int, ...], Outputs] = {}
        self._mixes: dict[tuple[NetworkCopy, bool], Callable[[float], None]] = {}  # by source and rate == 1
        self._reads: dict[tuple[str, ...], Callable[[], list[Array]]] = {}

    def unroll(
        self,
        observations: Mapping[str, Any],
        recurrent_state: Mapping[str, Any],
        valid: Any,
        *,
        training: bool = False,
    ) -> dict[str, Any]:
        """Return the heads' outputs for every row of a batch of unrolls.

        Args:
            observations: name -> [T+1, N, ...].
            recurrent_state: name -> [N, ...], the state before row 0; empty for networks without memory.
            valid: bool [T, N]; recurrent state restarts after a row that is not valid.
            training: Dropout and noise act, batch normalisation uses and keeps the batch's own statistics.

        Returns:
            Output name -> float32 [T+1, N, ...].
        """
        return self.assembly.unroll(observations, recurrent_state, valid, training=training)

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
        names = list(self.assembly.outputs) if outputs is None else list(outputs)
        if unknown := [name for name in names if name not in self.model.output]:
            raise ValueError(f"unknown output {unknown[0]!r}; choose from {', '.join(self.model.output)}")
        computed = self._train_forward(inputs) if self.is_training else self.model(self._with_state(inputs))
        arrays = [to_numpy(computed[name]) for name in names]
        return arrays[0] if squeeze_output and len(arrays) == 1 else arrays

    @staticmethod
    def parallel_predict(network_inputs: Sequence[tuple["NetworkCopy", Mapping[str, Array]]]) -> list[Any]:
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
            arrays = [computed[f"{index}/{name}"] for name in network.assembly.outputs]
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

    def get_weights(self) -> list[Array]:
        """Return copies of all weights, in the network's order."""
        return list(self.named_weights().values())

    def named_weights(self) -> dict[str, Array]:
        """Return copies of all weights by name, in the network's order."""
        return self._read(self._weights)

    @cached_property
    def policy_variables(self) -> dict[str, Any]:
        """Weights that inference reads, by name; policies are exported and published with them."""
        unread = {id(variable) for variable in training_only(self.model)}
        return self._named([variable for variable in self.model.weights if id(variable) not in unread])

    def policy_weights(self) -> dict[str, Array]:
        """Return copies of `policy_variables` by name, in the network's order."""
        return self._read(self.policy_variables)

    @property
    def noisy(self) -> tuple[NoisyWeights, ...]:
        """Names of the noisy layers' weights."""
        names = {id(variable): name for name, variable in self.variables.items()}
        return tuple(
            NoisyWeights(
                names[id(layer.kernel)],
                names[id(layer.kernel_sigma)],
                names[id(layer.bias)] if layer.use_bias else None,
                names[id(layer.bias_sigma)] if layer.use_bias else None,
            )
            for layer in noisy_layers(self.model)
        )

    def noise_weights(self) -> dict[str, Array]:
        """Return copies of the noise scales of noisy layers by name; acting with noise needs them."""
        names = [name for layer in self.noisy for name in (layer.kernel_sigma, layer.bias_sigma) if name is not None]
        return self._read({name: self.variables[name] for name in names})

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """Set ``new = rate * given + (1 - rate) * old`` for every trainable weight.

        Integers and weights that are not trainable (running statistics) are copied, not mixed, unless the rate is 0.

        Args:
            weights: In the order of `get_weights`.
            rate: In [0, 1].

        Raises:
            ValueError: The rate, the number of weights or a shape is wrong, or a value is not finite. Nothing changed.
        """
        check_rate(rate)
        variables = self.model.weights
        if len(weights) != len(variables):
            raise ValueError(f"{len(weights)} weights given, network {self.name} has {len(variables)}")
        checked = [checked_array(variable, given) for variable, given in zip(variables, weights, strict=True)]
        for variable, given in zip(variables, checked, strict=True):
            if is_mixed(variable):
                variable.assign(given if rate == 1.0 else rate * given + (1.0 - rate) * to_numpy(variable))
            elif rate > 0.0:
                variable.assign(given)

    def pull(self, source: "NetworkCopy", rate: float) -> None:
        """Do `set_weights` from another copy of the same network, on the device."""
        check_rate(rate)
        if rate == 0.0:
            return
        how = (source, rate == 1.0)
        if how not in self._mixes:
            pairs = list(zip(self.model.weights, source.model.weights, strict=True))
            mixed = [] if rate == 1.0 else [pair for pair in pairs if is_mixed(pair[0])]
            copied = [pair for pair in pairs if rate == 1.0 or not is_mixed(pair[0])]
            self._mixes[how] = compiled_mix(mixed, copied)
        self._mixes[how](rate)

    @property
    def state_variables(self) -> list[Any]:
        """Variables that a step may assign and no gradient moves.

        These are averages, states of random generators, and the heads' adjustable numbers and coefficients, because a
        compiled loss must see assignments to them.
        """
        scalars = [scalar for head in self.assembly.heads for scalar in head.scalars.values()]
        return [*self.model.non_trainable_variables, *scalars, *self.coefficients.values()]

    def names_of(self, variables: Sequence[Any]) -> list[str]:
        """Return the names of these variables, in their order."""
        names = {id(variable): name for name, variable in self.variables.items()}
        return [names[id(variable)] for variable in variables]

    @property
    def moving_averages(self) -> dict[str, Any]:
        """The weights that batch normalisation moves while training, by name."""
        statistics = {id(weight) for _, layer in self.assembly.normalizations for weight in layer.weights}
        averages = [weight for weight in self.model.non_trainable_weights if id(weight) not in statistics]
        return dict(zip(self.names_of(averages), averages, strict=True))

    @property
    def normalized_inputs(self) -> dict[str, tuple[int, ...]]:
        """Input name -> shape of one row, for every input that the network normalises."""
        keys = {key for key, _ in self.assembly.normalizations}
        return {key: tuple(shape.shape[1:]) for key, shape in self.model.input.items() if key in keys}

    @property
    def random_states(self) -> list[Any]:
        """States of the random generators of noise and dropout."""
        return random_states(self.model)

    @cached_property
    def _weights(self) -> dict[str, Any]:
        return self._named(self.model.weights)

    def _read(self, variables: Mapping[str, Any]) -> dict[str, Array]:
        """Return copies by name, in one transfer."""
        names = tuple(variables)
        if names not in self._reads:
            self._reads[names] = compiled_read(list(variables.values()))
        return dict(zip(names, self._reads[names](), strict=True))

    def _named(self, variables: Sequence[Any]) -> dict[str, Any]:
        wanted = {id(variable) for variable in variables}
        return {name: variable for name, variable in self.variables.items() if id(variable) in wanted}

    def _train_forward(self, inputs: Mapping[str, Array]) -> Any:
        """Compute the outputs as in training; random generators advance, averages do not."""
        with keras.StatelessScope() as scope:
            computed = self.model(self._with_state(inputs), training=True)
        for state in self.random_states:
            state.assign(scope.get_current_value(state))
        return computed

    def _with_state(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return all inputs of the model, with zeros for recurrent state that is not given."""
        states, expected = self.assembly.recurrent_state, self.model.input
        if unknown := [name for name in inputs if name not in expected]:
            raise ValueError(f"network {self.name} has no input {unknown[0]!r}; choose from {', '.join(expected)}")
        if missing := [name for name in expected if name not in inputs and name not in states]:
            raise ValueError(f"network {self.name}: input {missing[0]!r} is missing")
        batch = len(next(iter(inputs.values())))
        return {name: np.zeros((batch, *spec.shape), spec.dtype) for name, spec in states.items()} | dict(inputs)

    def _scalar(self, name: str) -> Any:
        scalars = {f"{head.name}/{key}": value for head in self.assembly.heads for key, value in head.scalars.items()}
        if name not in scalars:
            raise ValueError(f"network {self.name} has no number {name!r}; it has {', '.join(scalars) or 'none'}")
        return scalars[name]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name}{list(tensor.shape[1:])}" for name, tensor in self.model.input.items())
        outputs = ", ".join(f"{name}{list(shape)}" for name, shape in self.assembly.outputs.items())
        return f"{shapes} -> {outputs}; {self.model.count_params()} weights in {len(self.model.weights)} arrays"


def _outputs_of(networks: Sequence[NetworkCopy]) -> Outputs:
    """Compile: inputs by position of the network -> ``<position>/<output>``."""

    def function(data: Any) -> tuple[Any, dict[str, Any]]:
        named: dict[str, Any] = {}
        for index, network in enumerate(networks):
            computed = network.model(data[str(index)], training=False)
            named |= {f"{index}/{name}": computed[name] for name in network.assembly.outputs}
        return 0.0, named

    # Once each: one network may occur twice.
    variables = {id(variable): variable for network in networks for variable in network.model.variables}
    return Outputs(function, list(variables.values()))


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


class Architecture(NetworkCopy):
    """A network copy with accumulated gradients and an optimizer; for the arguments see `NetworkCopy`."""

    def __init__(
        self, parameters: NetworkParameters, spec: EnvSpec, heads: Sequence[HeadParameters], name: str, seed: int
    ) -> None:
        super().__init__(parameters, spec, heads, name, seed)
        self._accumulated: list[Array] | None = None
        self._gradients: dict[tuple[str, ...], Gradients] = {}
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
        heads = self.assembly.heads
        if len(targets) != len(heads):
            raise ValueError(f"{len(targets)} targets given, network {self.name} has {len(heads)} heads")
        inputs = self._with_state(inputs)
        batch = len(next(iter(inputs.values())))
        weights = np.ones(batch) if importance_weights is None else np.asarray(importance_weights)
        if weights.shape != (batch,):
            raise ValueError(f"importance_weights must be [{batch}], one for each row, not {list(weights.shape)}")
        data = {"inputs": inputs, "targets": dict(enumerate(targets)), "weights": weights.astype(np.float32)}
        total, named, gradients = self._gradients_of(tuple(additional_fetches))(data)
        for state, drawn in zip(self.random_states, named.pop(RANDOM_STATES, ()), strict=True):
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
            self._optimizer.build(self.model.trainable_variables)
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
            self._apply = compiled_apply(self.optimizer, self.model.trainable_variables)
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

    def in_float32(self) -> "Architecture":
        """Return the network itself, or its twin that computes in float32, in which ONNX Runtime is fast and exact."""
        if self.parameters.compute_dtype == "float32":
            return self
        parameters = self.parameters.model_copy(update={"compute_dtype": "float32"})
        return Architecture(parameters, self.spec, self.head_parameters, self.name, seed=0)

    def _gradients_of(self, fetches: tuple[str, ...]) -> Gradients:
        if fetches not in self._gradients:
            function = over_rows(self.assembly, self.parameters, fetches, self.random_states)
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
