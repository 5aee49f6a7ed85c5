"""One copy of a network: its layers, its weights by name, and the optimizer that moves them.

Inputs and outputs are named. Weights are named by their Keras paths, ``<network>/<layer>/<kernel or bias>``; paths and
order depend only on the structure, so that every copy, process and checkpoint of one structure agrees on them.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import keras
import numpy as np
from keras import ops

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.actions import FamilySpec
from distrl.networks.framework.backend import compiled_apply, compiled_mix, compiled_read
from distrl.networks.framework.optimizers import create_optimizer, set_learning_rate
from distrl.networks.framework.precision import fastest
from distrl.networks.freezing import freeze
from distrl.networks.heads import make_heads
from distrl.networks.parts import embedders, layers
from distrl.networks.parts.normalization import ObservationNormalization
from distrl.networks.parts.trunk import Trunk, by_row, by_sequence
from distrl.networks.policy.description import NoisyWeights
from distrl.networks.weights import check_rate, checked_array, is_mixed, stable_names, to_numpy
from distrl.types import Array, ArraySpec, EnvSpec

ACTION, POLICY = "action", "policy"
_NAMES_DIFFER = "When providing `inputs` as a dict, all keys in the dict must match"
"""Keras' warning about a model whose inputs it cannot call by the observations' names."""


class Network:
    """Embedders, merger, middleware and heads. Initial weights depend only on `seed` and the layers' names.

    Attributes:
        name: First part of every weight's path.
        parameters: The network's configuration, with `compute_dtype` resolved.
        model: One step: {inputs and recurrent state by name} -> {outputs and next state by name}, [batch, ...] each.
        variables: All variables by name: weights in the network's order with states of random generators, then the
            heads' adjustable numbers.
        heads: In the order of their outputs.
        outputs: Output name -> shape without batch axis; without recurrent state.
        recurrent_state: Name -> spec; the step returns the next state as ``next_<name>``.
        normalizations: (input name, layer) of every normalised input; one per trunk.
        numbers: The heads' numbers by name (`Head.scalars`): part of the network's state, and no weights.
        frozen: Names of the weights that `network.frozen` keeps as they are.
        optimized: Weights that the optimizer moves: all trainable ones, unless an algorithm moves some of them
            otherwise and sets this before the optimizer's first use.

    Raises:
        ConfigError: `parameters` do not fit the environment or each other.
    """

    def __init__(
        self, parameters: NetworkParameters, spec: EnvSpec, heads: Sequence[HeadParameters], name: str, seed: int
    ) -> None:
        if parameters.compute_dtype == "auto":
            parameters = parameters.model_copy(update={"compute_dtype": fastest().dtype})
        self.name, self.parameters, self.spec, self.head_parameters = name, parameters, spec, tuple(heads)
        if not heads:
            raise ConfigError("network.heads_parameters: a network needs at least one head")
        try:
            self.heads = make_heads(heads, spec.expanded, parameters, seed=seed)
        except ConfigError as error:
            raise ConfigError(f"network.heads_parameters: {error}") from error
        with keras.name_scope(name), _compute_dtype(parameters.compute_dtype), warnings.catch_warnings():
            # Inputs keep their own names, although some cannot be names of Keras tensors.
            warnings.filterwarnings("ignore", _NAMES_DIFFER)
            arrays = _input_arrays(parameters, spec, any(head.takes_action for head in self.heads))
            self._inputs = {
                key: keras.Input(array.shape, dtype=array.dtype, name=f"input_{index}")
                for index, (key, array) in enumerate(arrays.items())
            }
            self._met = {key: embedders.expanded(self._inputs[key], array) for key, array in arrays.items()}
            self._arrays = {key: array.expanded for key, array in arrays.items()}
            self._assemble(parameters, name, seed)
        names = stable_names(self.model.variables, self._users_layers)
        self.numbers: dict[str, Any] = {
            f"{name}/{head.name}_head_{key}": scalar for head in self.heads for key, scalar in head.scalars.items()
        }
        self.variables: dict[str, Any] = dict(zip(names, self.model.variables, strict=True)) | self.numbers
        self.frozen = freeze(self.model, self._weights, parameters.frozen)
        self.optimized: list[Any] = self.model.trainable_variables
        self._coefficients: list[Any] = []
        self._optimizer: Any = None
        self._learning_rate = parameters.learning_rate
        self._apply: Callable[..., None] | None = None
        self._mixes: dict[tuple[Network, bool], Callable[[float], None]] = {}  # by source and rate == 1
        self._reads: dict[tuple[str, ...], Callable[[], list[Array]]] = {}

    def predict(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, squeeze_output: bool = True
    ) -> Array | list[Array]:
        """Return the heads' outputs in inference as NumPy arrays; actors use the policy bundle.

        Args:
            inputs: name -> [batch, ...]; recurrent state that is not among them is zero.
            outputs: Names of the outputs, in order, ``next_<state>`` allowed; None: all of the heads.
            squeeze_output: Return a single output bare instead of in a list.

        Raises:
            ValueError: An output does not exist, or an input is missing, unknown or of another shape.
        """
        return self.chosen(self.model(self.with_state(inputs)), outputs, squeeze_output)

    def chosen(self, computed: Mapping[str, Any], outputs: Sequence[str] | None, squeeze: bool) -> Array | list[Array]:
        """Return some of the model's outputs as arrays; for arguments and errors see `predict`."""
        names = list(self.outputs) if outputs is None else list(outputs)
        if unknown := [name for name in names if name not in self.model.output]:
            raise ValueError(f"unknown output {unknown[0]!r}; choose from {', '.join(self.model.output)}")
        arrays = [to_numpy(computed[name]) for name in names]
        return arrays[0] if squeeze and len(arrays) == 1 else arrays

    def with_state(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return all inputs of the model, with zeros for recurrent state that is not given."""
        states, expected = self.recurrent_state, self.model.input
        if unknown := [name for name in inputs if name not in expected]:
            raise ValueError(f"network {self.name} has no input {unknown[0]!r}; choose from {', '.join(expected)}")
        if missing := [name for name in expected if name not in inputs and name not in states]:
            raise ValueError(f"network {self.name}: input {missing[0]!r} is missing")
        batch = len(next(iter(inputs.values())))
        return {name: np.zeros((batch, *spec.shape), spec.dtype) for name, spec in states.items()} | dict(inputs)

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
        flat, features = self._features(observations, recurrent_state, valid, training)
        outputs = self._ends({**flat, **features}, training=training)
        return {name: by_row(output, valid.shape[1]) for name, output in outputs.items()}

    def activations(
        self, observations: Mapping[str, Any], recurrent_state: Mapping[str, Any], valid: Any
    ) -> dict[str, Any]:
        """Return the outputs in inference of layers that end in an activation: layer -> [T+1, N, ...].

        Layers inside a user's own model are not included. For the arguments see `unroll`.
        """
        if self._activations is None:
            return {}
        flat, features = self._features(observations, recurrent_state, valid, False)
        found = self._activations({**flat, **features} if self.recurrent_state else flat, training=False)
        return {name: by_row(output, valid.shape[1]) for name, output in found.items()}

    def state_after(
        self, observations: Mapping[str, Any], recurrent_state: Mapping[str, Any], valid: Any
    ) -> dict[str, Any]:
        """Return the recurrent state before the row that follows, in inference and without a gradient.

        Args:
            observations: Name -> [T, N, ...], as many rows as `valid`.
        """
        flat = {name: by_sequence(observation) for name, observation in observations.items()}
        after: dict[str, Any] = {}
        for trunk in self._trunks.values():
            after |= trunk.state_after(flat, recurrent_state, valid)
        return {name: ops.stop_gradient(state) for name, state in after.items()}

    @property
    def relu_layers(self) -> list[str]:
        """Names of the layers that learn with activation relu, without those inside a user's own model."""
        return [layer.name for layer in self.model.layers if layers.is_relu(layer) and layer.trainable]

    @property
    def actions(self) -> dict[str, FamilySpec]:
        """How every action is taken: by the policy head, otherwise by the first head that can; empty if none can."""
        heads = sorted(self.heads, key=lambda head: head.name != POLICY)
        return next(filter(None, (head.actions() for head in heads)), {})

    @property
    def normalizations(self) -> list[tuple[str, ObservationNormalization]]:
        return [item for trunk in self._trunks.values() for item in trunk.normalizations.items()]

    def get_weights(self) -> list[Array]:
        """Return copies of all weights, in the network's order."""
        return list(self.named_weights().values())

    def named_weights(self) -> dict[str, Array]:
        """Return copies of all weights by name, in the network's order."""
        return self._read(self._weights)

    @property
    def weight_names(self) -> list[str]:
        """Names of all weights in the network's order, without states of random generators and the heads' numbers."""
        return self.names_of(self.model.weights)

    @cached_property
    def policy_variables(self) -> dict[str, Any]:
        """Weights that inference reads, by name; policies are exported and published with them."""
        unread = {id(variable) for variable in layers.training_only(self.model)}
        return self._named([variable for variable in self.model.weights if id(variable) not in unread])

    def policy_weights(self) -> dict[str, Array]:
        """Return copies of `policy_variables` by name, in the network's order."""
        return self._read(self.policy_variables)

    def trainable_variables_of(self, head: str) -> list[Any]:
        """Return the trainable weights that a head's outputs depend on, its trunk's among them.

        Raises:
            ConfigError: `network.frozen` leaves none.
        """
        outputs = {name: tensor for name, tensor in self.model.output.items() if name.partition("/")[0] == head}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _NAMES_DIFFER)
            weights: list[Any] = keras.Model(self.model.input, outputs).trainable_variables
        if not weights:
            raise ConfigError(f"network.frozen leaves no weight of head {head} to train; leave a pattern out")
        return weights

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
            for layer in layers.noisy_layers(self.model)
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

    def pull(self, source: "Network", rate: float) -> None:
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

    def apply_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """Apply ``scaler * gradients`` by this copy's own optimizer; the caller's arrays stay as they are.

        Args:
            gradients: One per trainable weight, in the network's order.

        Raises:
            ValueError: See `fitting`. Nothing was changed.
        """
        arrays = self.fitting(gradients)
        if self._apply is None:
            self._apply = compiled_apply(self.optimizer, self.optimized)
        self._apply(arrays, scaler)

    def fitting(self, gradients: Sequence[Array]) -> list[Array]:
        """Return gradients as float32, one per trainable weight, in the network's order.

        Raises:
            ValueError: Their number or a shape is wrong, or a value is not finite.
        """
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

    def number(self, name: str) -> Any:
        """Return the variable of a head's adjustable number, such as ``ppo/kl_coefficient``; ValueError: none."""
        scalars = {f"{head.name}/{key}": value for head in self.heads for key, value in head.scalars.items()}
        if name not in scalars:
            raise ValueError(f"network {self.name} has no number {name!r}; it has {', '.join(scalars) or 'none'}")
        return scalars[name]

    def add_coefficient(self, name: str, value: float) -> Any:
        """Return a new float32 [] variable for losses compiled from now on; the next update sees assignments to it."""
        variable = keras.Variable(value, trainable=False, name=name, dtype="float32")
        self._coefficients.append(variable)
        return variable

    @property
    def state_variables(self) -> list[Any]:
        """Variables that a step may assign and no gradient moves.

        These are averages, states of random generators, and the heads' adjustable numbers and coefficients, because a
        compiled loss must see assignments to them.
        """
        return [*self.model.non_trainable_variables, *self.numbers.values(), *self._coefficients]

    def names_of(self, variables: Sequence[Any]) -> list[str]:
        names = {id(variable): name for name, variable in self.variables.items()}
        return [names[id(variable)] for variable in variables]

    @property
    def moving_averages(self) -> dict[str, Any]:
        """The weights that no gradient moves, by name: batch normalisation's, and the fixed ones of priors.

        Frozen weights are not among them.
        """
        statistics = {id(weight) for _, layer in self.normalizations for weight in layer.weights}
        averages = [weight for weight in self.model.non_trainable_weights if id(weight) not in statistics]
        named = zip(self.names_of(averages), averages, strict=True)
        return {name: weight for name, weight in named if name not in self.frozen}

    @property
    def normalized_inputs(self) -> dict[str, tuple[int, ...]]:
        """Input name -> shape of one row, for every input that the network normalises by statistics that move."""
        return {name: tuple(layer.mean.shape) for name, layer in self.normalizations if layer.trainable}

    @property
    def random_layers(self) -> list[str]:
        """Names of layers that draw random numbers while training."""
        return layers.random_layers(self.model)

    @property
    def random_states(self) -> list[Any]:
        """States of the random generators of noise and dropout."""
        return layers.random_states(self.model)

    def in_float32(self) -> "Network":
        """Return the network itself, or its twin that computes in float32, in which ONNX Runtime is fast and exact."""
        if self.parameters.compute_dtype == "float32":
            return self
        parameters = self.parameters.model_copy(update={"compute_dtype": "float32"})
        return Network(parameters, self.spec, self.head_parameters, self.name, seed=0)

    def _features(
        self,
        observations: Mapping[str, Any],
        recurrent_state: Mapping[str, Any],
        valid: Any,
        training: bool,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return inputs and features by name, [N*(T+1), ...], sequence by sequence."""
        flat = {name: by_sequence(observation) for name, observation in observations.items()}
        return flat, {
            key: trunk.unroll(flat, recurrent_state, valid, training=training) for key, trunk in self._trunks.items()
        }

    def _assemble(self, parameters: NetworkParameters, name: str, seed: int) -> None:
        separate = parameters.use_separate_networks_per_head and len(self.heads) > 1
        prefixes = [f"{head.name}_" for head in self.heads] if separate else [""]

        def seen(by_name: Mapping[str, Any]) -> dict[str, Any]:
            # Memory is of observations alone: several actions can be judged after the same ones.
            return {key: by_name[key] for key in by_name if not parameters.has_memory or key in self.spec.observations}

        self._trunks = {
            f"{prefix}features": Trunk(
                parameters, seen(self._inputs), seen(self._met), seen(self._arrays), prefix=prefix, seed=seed
            )
            for prefix in prefixes
        }
        features = {key: ops.cast(trunk.features, "float32") for key, trunk in self._trunks.items()}
        outputs: dict[str, Any] = {}
        with _compute_dtype("float32"):
            for index, head in enumerate(self.heads):
                of_head = list(features.values())[index if separate else 0]
                of_head = layers.with_gradient(of_head, head.parameters.rescale_gradient_from_head_by_factor)
                if head.takes_action and parameters.has_memory:
                    actions = [self._met[key] for key in self._met if key not in self.spec.observations]
                    of_head = ops.concatenate([of_head, *(ops.cast(action, "float32") for action in actions)], axis=-1)
                outputs |= head.build(of_head, self._met)
        self.outputs = {key: tuple(tensor.shape[1:]) for key, tensor in outputs.items()}
        states: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for trunk in self._trunks.values():
            states |= trunk.state_inputs
            after |= {f"next_{key}": ops.cast(tensor, "float32") for key, tensor in trunk.next_state.items()}
        if double := sorted(states.keys() & self._inputs.keys()):
            raise ConfigError(f"network: observation {double[0]!r} has the name of a recurrent state; rename it")
        self.recurrent_state = {key: ArraySpec(tuple(tensor.shape[1:]), "float32") for key, tensor in states.items()}
        self.model = keras.Model({**self._inputs, **states}, {**outputs, **after}, name=name)
        ends = {**self._inputs, **{key: trunk.features for key, trunk in self._trunks.items()}}
        self._ends = keras.Model(ends, outputs, name=f"{name}_heads")
        found = {layer.name: layer.output for layer in self.model.layers if layers.is_activated(layer)}
        given = ends if states else self._inputs  # rows of a sequence need the features that memory made of it
        self._activations = keras.Model(given, found, name=f"{name}_activations") if found else None

    @property
    def _users_layers(self) -> list[str]:
        """Names of layers whose classes are neither Keras' nor distrl's."""
        modules = [(layer.name, type(layer).__module__.partition(".")[0]) for layer in self.model.layers]
        return [name for name, module in modules if module not in ("keras", "distrl")]

    @cached_property
    def _weights(self) -> dict[str, Any]:
        return self._named(self.model.weights)

    def _read(self, variables: Mapping[str, Any]) -> dict[str, Array]:
        names = tuple(variables)
        if names not in self._reads:
            self._reads[names] = compiled_read(list(variables.values()))
        return dict(zip(names, self._reads[names](), strict=True))

    def _named(self, variables: Sequence[Any]) -> dict[str, Any]:
        wanted = {id(variable) for variable in variables}
        return {name: variable for name, variable in self.variables.items() if id(variable) in wanted}


def action_input(action: str) -> str:
    """Return the name of the network's input for an action, if a head takes actions."""
    return ACTION if action == ACTION else f"{ACTION}/{action}"


def _input_arrays(parameters: NetworkParameters, spec: EnvSpec, with_actions: bool) -> dict[str, ArraySpec]:
    """Return the network's inputs by name: all observations, and the actions if a head takes them.

    Raises:
        ConfigError: An embedder is configured for an unknown input, or for an action that no head takes; or all
            observations, or an action, are left out.
    """
    arrays = dict(spec.observations)
    _check_names("observations", arrays)
    _check_names("actions", spec.actions)
    actions = {action_input(name): action.array for name, action in spec.actions.items()}
    wanted = parameters.input_embedders_parameters.keys()
    if unknown := sorted(wanted - arrays.keys() - actions.keys()):
        known = ", ".join([*arrays, *(name for name in actions if with_actions and name not in arrays)])
        raise ConfigError(f"network.input_embedders_parameters: no input {unknown[0]!r}; there are {known}")
    useless = sorted(name for name in wanted if name not in arrays)
    if useless and not with_actions:
        raise ConfigError(f"network.input_embedders_parameters: {useless[0]!r}, but no head takes the action")
    if useless and parameters.has_memory:
        raise ConfigError(
            f"network.input_embedders_parameters: {useless[0]!r}, but actions enter behind the memory, in the heads; "
            "leave it out"
        )
    left_out = {name for name, embedder in parameters.input_embedders_parameters.items() if embedder is None}
    if action := sorted(left_out - arrays.keys()):
        raise ConfigError(f"network.input_embedders_parameters.{action[0]}: null leaves out an action; give it layers")
    if left_out == arrays.keys():
        raise ConfigError("network.input_embedders_parameters: null leaves out every observation; keep at least one")
    if with_actions:
        arrays |= {name: array for name, array in actions.items() if name not in arrays}
    return arrays


def _check_names(what: str, names: Iterable[str]) -> None:
    """Raise ConfigError if layers of two of them would have the same name."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(embedders.layer_name(name), name)
        if other != name:
            raise ConfigError(
                f"environment: {what} {other!r} and {name!r} would share the names of their layers; rename one of them"
            )


@contextmanager
def _compute_dtype(dtype: str) -> Iterator[None]:
    """Let layers created inside compute in `dtype`; their weights are always float32."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
