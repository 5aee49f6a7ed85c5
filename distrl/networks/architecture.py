"""Architecture: one copy of a network. Observations by name in, the heads' outputs by name out.

Weights are known by their Keras paths, ``<network>/<layer>/<kernel or bias>``. Paths and order depend on the structure
alone, so every copy, process and checkpoint of one structure agrees on them.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from distrl.config.network import EmbedderParameters, NetworkParameters
from distrl.errors import ConfigError
from distrl.networks import embedders, mergers, middlewares
from distrl.networks.heads import HEADS
from distrl.types import Array, EnvSpec


class Architecture:
    """Embedders, merger, middleware and heads of one network copy.

    Attributes:
        model: The Keras model: {observation name: [batch, ...]} -> {output name: [batch, ...]}.
        name: First part of every weight's path.
        parameters: What the network was built from.
        heads: Names of the heads, in the order of the outputs.

    Args:
        seed: Equal seeds give bit-equal weights.

    Raises:
        ValueError: A head is unknown.
        ConfigError: `parameters` names an observation that the environment does not have.
    """

    def __init__(
        self, parameters: NetworkParameters, spec: EnvSpec, heads: tuple[str, ...], name: str, seed: int
    ) -> None:
        if unknown := [head for head in heads if head not in HEADS]:
            raise ValueError(f"unknown head {unknown[0]!r}; there are {', '.join(HEADS)}")
        if unknown := sorted(parameters.input_embedders_parameters.keys() - spec.observations.keys()):
            known = ", ".join(spec.observations)
            raise ConfigError(f"network.input_embedders_parameters: no observation {unknown[0]!r}; there are {known}")
        self.name = name
        self.parameters = parameters
        self.heads = heads
        with keras.name_scope(name):
            self.model = _build(parameters, spec, heads, name, seed)

    def unroll(self, observations: Mapping[str, Any], recurrent_state: Mapping[str, Any], valid: Any) -> dict[str, Any]:
        """The heads' outputs for every row of a batch of unrolls.

        Args:
            observations: name -> [T+1, N, ...].
            recurrent_state: name -> [N, ...], the state before row 0; without entries for dense networks.
            valid: bool [T, N]; recurrent state restarts after a row that is not valid. Dense networks ignore it.

        Returns:
            Output name -> float32 [T+1, N, ...].
        """
        flat = {name: _merge_time(observation) for name, observation in observations.items()}
        rows, sequences = next(iter(observations.values())).shape[:2]
        outputs = self.model(flat, training=False)
        # [(T+1)*N, ...] -> [T+1, N, ...]
        return {
            name: keras.ops.reshape(output, (rows, sequences, *output.shape[1:])) for name, output in outputs.items()
        }

    def predict(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None, squeeze_output: bool = True
    ) -> Array | list[Array]:
        """Coach's `predict`: the heads' outputs as NumPy arrays. For looking at; actors use the policy bundle.

        Args:
            inputs: name -> [batch, ...].
            outputs: Names of the outputs wanted, in this order; None: all, in the order of the heads.
            squeeze_output: Return a single output bare instead of in a list.

        Raises:
            ValueError: An output does not exist.
        """
        names = list(self.model.output) if outputs is None else list(outputs)
        if unknown := [name for name in names if name not in self.model.output]:
            raise ValueError(f"no output {unknown[0]!r}; there are {', '.join(self.model.output)}")
        computed = self.model(dict(inputs), training=False)
        arrays = [to_numpy(computed[name]) for name in names]
        return arrays[0] if squeeze_output and len(arrays) == 1 else arrays

    def get_weights(self) -> list[Array]:
        """Copies of all weights, in the network's order."""
        return [to_numpy(variable) for variable in self.model.weights]

    def named_weights(self) -> dict[str, Array]:
        """Copies of all weights by Keras path, in the network's order."""
        return {variable.path: to_numpy(variable) for variable in self.model.weights}

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """``new = rate * given + (1 - rate) * old`` for every trainable weight.

        Integers and weights that are not trainable (running statistics) are never mixed: they become what is given,
        unless the rate is 0.

        Args:
            weights: In the order of `get_weights`.
            rate: In [0, 1].

        Raises:
            ValueError: The rate, the number of weights, a shape is wrong or a value is not finite. Nothing was changed.
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

    def pull(self, source: "Architecture", rate: float) -> None:
        """`set_weights` from another copy of the same network, on the device.

        Raises:
            ValueError: The rate is outside [0, 1].
        """
        check_rate(rate)
        for variable, given in zip(self.model.weights, source.model.weights, strict=True):
            if rate == 1.0 or (rate > 0.0 and not is_mixed(variable)):
                variable.assign(given.value)
            elif rate > 0.0:
                variable.assign(rate * given.value + (1.0 - rate) * variable.value)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name}{list(tensor.shape[1:])}" for name, tensor in self.model.input.items())
        outputs = ", ".join(f"{name}{list(tensor.shape[1:])}" for name, tensor in self.model.output.items())
        return f"{shapes} -> {outputs}; {self.model.count_params()} weights in {len(self.model.weights)} arrays"


def _build(parameters: NetworkParameters, spec: EnvSpec, heads: tuple[str, ...], name: str, seed: int) -> Any:
    inputs = {
        key: keras.Input(observation.shape, dtype=observation.dtype, name=embedders.layer_name(key))
        for key, observation in spec.observations.items()
    }
    embeddings = []
    for key, observation in inputs.items():
        embedder = parameters.input_embedders_parameters.get(key, EmbedderParameters())
        embeddings.append(embedders.embed(observation, embedder, name=key, seed=seed))
    features = middlewares.transform(mergers.concatenate(embeddings), parameters.middleware_parameters, seed=seed)
    outputs = dict(HEADS[head](features, spec.action, seed=seed) for head in heads)
    with warnings.catch_warnings():
        # Observations go by their own names, also where those cannot be the names of Keras tensors.
        warnings.filterwarnings("ignore", "When providing `inputs` as a dict, all keys in the dict must match")
        return keras.Model(inputs, outputs, name=name)


def _merge_time(observation: Any) -> Any:
    shape = observation.shape
    return keras.ops.reshape(observation, (shape[0] * shape[1], *shape[2:]))  # [T+1, N, ...] -> [(T+1)*N, ...]


def to_numpy(variable: Any) -> Array:
    """A copy that never shares memory with the tensor or variable."""
    # Not keras.ops.convert_to_numpy: it asks TensorFlow for a copy, to which NumPy 2 answers with a warning.
    return np.array(np.asarray(variable))


def is_mixed(variable: Any) -> bool:
    """Whether mixing rates apply to this variable: trainable floating-point weights alone."""
    return bool(variable.trainable) and np.issubdtype(np.dtype(variable.dtype), np.floating)


def check_rate(rate: float) -> None:
    """Raises ValueError unless `rate` is in [0, 1]."""
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"rate must be in [0, 1], not {rate}")


def checked_array(variable: Any, given: Array) -> Array:
    """`given` as an array that fits `variable`.

    Raises:
        ValueError: The shape differs, or a value is NaN or infinite; the message names the variable.
    """
    array = np.asarray(given)
    if array.shape != tuple(variable.shape):
        raise ValueError(f"weight {variable.path} has shape {tuple(variable.shape)}, given {array.shape}")
    array = array.astype(variable.dtype)
    if not np.isfinite(array).all():
        raise ValueError(f"weight {variable.path}: the given values are not finite")
    return array
