"""Keras network -> policy bundle: an ONNX graph without its weights, and its description.

Actors supply weights under their Keras paths, and need neither TensorFlow nor the network's Python code. Weights are
inputs of the graph or external initializers (`are_inputs`). Ordinary initializers would be silently wrong:
ONNX Runtime folds them into other constants, which replacing them later does not reach.
Every bundle, cached or fresh, is checked against Keras with random weights and inputs before it is used.
"""

import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import onnxruntime

from distrl.config.exploration import ExplorationParameters
from distrl.errors import ConfigError, DistrlError, how_to_install, one_line, require
from distrl.networks.framework.backend import NAME, as_one_program, building
from distrl.networks.framework.cache import cache_directory, write_cached
from distrl.networks.network import Network
from distrl.networks.parts.layers import training_only
from distrl.networks.policy.description import FORMAT, BundleDescription, RewardStatistics, WeightSpec
from distrl.networks.policy.exploration_checks import check_exploration
from distrl.networks.policy.export_process import export_in_child
from distrl.networks.policy.protobuf import graph_inputs
from distrl.networks.weights import is_mixed, to_numpy
from distrl.types import Array, ArraySpec, PolicyBundle

OPSET = 17
TOLERANCE = 1e-5
"""Largest difference between ONNX and Keras, absolute up to magnitude 1 and relative above."""

MOST_FED = 2**22
"""Most numbers that weights feed into a graph between one version and the next; see `are_inputs`."""

_NOWHERE = "/dev/null"
"""Folder of external data for ONNX Runtime, here and in actors, so that a graph that reads files is refused."""

logger = logging.getLogger(__name__)


def export_bundle(
    architecture: Network,
    *,
    exploration: ExplorationParameters | None = None,
    rewards: RewardStatistics | None = None,
    unroll_steps: int = 1,
    cache_dir: Path | None = None,
) -> PolicyBundle:
    """Return the policy bundle of a network's structure; weights travel separately.

    Args:
        rewards: The scale of rewards in which the policy learns.
        unroll_steps: Steps that an actor takes with one version of the weights; they decide how a graph takes them.
        cache_dir: Folder of graphs by structure; None: ``$XDG_CACHE_HOME/distrl/bundles`` or ``~/.cache/…``.

    Raises:
        ConfigError: The exploration does not fit the actions or the network, or a layer cannot be exported.
        DistrlError: Graph and network compute different outputs; names the output.
        MissingExtraError: tf2onnx is not installed and the cache has no valid graph.
    """
    spec = architecture.spec
    with building():
        network = architecture.in_float32()
    distributions = architecture.actions
    check_exploration(exploration, distributions, spec.actions, has_noisy_layers=bool(architecture.noisy))
    model, weights = network.model, network.policy_variables
    as_inputs = are_inputs((tuple(variable.shape) for variable in weights.values()), unroll_steps)
    key = _structure_key(architecture, as_inputs)
    path = (cache_directory("bundles") if cache_dir is None else cache_dir) / f"{key}.onnx"
    graph = _read_cached(path, model, weights, spec.observations)
    if graph is None:
        graph = _verified_graph(network, as_inputs)
        write_cached(path, graph, "policy graph", "exports it")
    description = BundleDescription(
        inputs=spec.observations,
        recurrent_state=architecture.recurrent_state,
        outputs=architecture.outputs,
        action_distributions=distributions,
        environment=spec,
        weights=_weight_specs(weights),
        libraries=_libraries(),
        sha256=hashlib.sha256(graph).hexdigest(),
        noisy=architecture.noisy,
        exploration=exploration,
        rewards=rewards,
    )
    return PolicyBundle(graph, description.to_json())


def are_inputs(shapes: Iterable[tuple[int, ...]], unroll_steps: int) -> bool:
    """Return whether a graph should take weights of these shapes as inputs, and not as external initializers.

    New values of inputs cost nothing; new values of initializers need a new session: 0.5 ms for 5,700 numbers, 0.9 for
    72,000, 10 for 1.7 million. In return ONNX Runtime prepares initializers once for its kernels: with inputs, a step
    of 8 rows through two layers of 256 takes 47 µs instead of 27. Both break even where numbers times steps are 1 to 20
    million, fewer with more rows; with convolutions and 64 rows at 1.3.
    """
    return sum(map(math.prod, shapes)) * unroll_steps <= MOST_FED


def export_whole(architecture: Network) -> bytes:
    """Return the network as one ONNX model with its weights inside; for errors see `export_graph`."""
    graph = _verified_graph(architecture.in_float32(), as_inputs=True)
    from distrl.networks.policy import onnx_graph

    return onnx_graph.embed(graph, architecture.policy_weights())


def export_graph(model: Any, weights: Mapping[str, Any] | None = None, *, as_inputs: bool = True) -> bytes:
    """Convert a Keras model to ONNX with a free batch axis.

    Args:
        model: Takes and returns {name: [batch, ...]}; converted in inference mode.
        weights: Variables that inference reads, by name; None: under their Keras paths.
        as_inputs: Weights are inputs of the graph; otherwise they are external initializers.

    Raises:
        ConfigError: A layer cannot be converted, or a weight reaches no output; names the layer.
        DistrlError: Outputs were renamed on the way.
        MissingExtraError: Keras runs on TensorFlow, and tf2onnx is not installed.
    """
    convert = _converter()  # tf2onnx and onnx: a start from the cache needs neither
    from distrl.networks.policy import onnx_graph

    weights = _by_path(model) if weights is None else weights
    # Neutral names: tf2onnx rewrites characters such as '/', and fails on some.
    inputs = {f"input_{index}": name for index, name in enumerate(model.input)}
    neutral = {f"weight_{index}": name for index, name in enumerate(weights)}
    outputs = {f"output_{index}": name for index, name in enumerate(model.output)}
    tensors = zip([*inputs, *neutral], [*model.input.values(), *weights.values()], strict=True)
    forms = {name: (tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors}

    def call(*arguments: Any) -> list[Any]:
        given = dict(zip(model.input, arguments, strict=False))
        computed = _stateless_call(model, given, weights, arguments[len(given) :])
        return [computed[name] for name in model.output]

    graph_model = convert(call, forms, list(outputs), OPSET)
    graph = graph_model.graph
    if (unknown := onnx_graph.unknown_operation(graph)) is not None:
        operation, name = unknown
        raise ConfigError(
            f"policy export: {_where(model, name)} computes {operation}, which cannot be exported to ONNX; "
            "take another layer (docs/networks.md)"
        )
    if {output.name for output in graph.output} != outputs.keys():
        raise DistrlError(f"policy export: outputs are {[output.name for output in graph.output]}, not {list(outputs)}")
    onnx_graph.rename(graph, {**inputs, **neutral, **outputs})
    if (idle := onnx_graph.unused_weight(graph, list(weights))) is not None:
        raise ConfigError(
            f"policy export: {_where(model, idle)} has a weight, {idle}, that reaches no output of the network; "
            "take another layer (docs/networks.md)"
        )
    if not as_inputs:
        onnx_graph.externalise(graph, list(weights))
    return bytes(graph_model.SerializeToString())


def verify_graph(
    graph: bytes,
    model: Any,
    weights: Mapping[str, Any] | None = None,
    specs: Mapping[str, ArraySpec] = MappingProxyType({}),
) -> None:
    """Compare ONNX with Keras on random inputs and random weights, with two batch sizes.

    Random weights reveal mistakes that small kernels and zero biases near initialisation hide, and weights that were
    folded into the graph.

    Args:
        specs: Specifications of inputs by name, so that tokens are drawn from their whole vocabulary.

    Raises:
        ConfigError: ONNX Runtime refuses the graph; names the layer.
        DistrlError: An output differs; names the output.
    """
    rng = np.random.default_rng(0)
    weights = _by_path(model) if weights is None else weights
    arrays = {name: _random_weight(variable, rng) for name, variable in weights.items()}
    fed = arrays if arrays.keys() <= graph_inputs(graph) else {}
    with _refusals(model):
        session = _open_session(graph, {} if fed else arrays)
    compute = as_one_program(lambda inputs, values: _stateless_call(model, inputs, weights, values))
    for batch in (1, 5):
        inputs = {name: _random_input(tensor, batch, specs.get(name), rng) for name, tensor in model.input.items()}
        with keras.device("cpu:0"):  # GPUs multiply float32 with fewer bits
            tensors = {name: keras.ops.convert_to_tensor(array) for name, array in inputs.items()}
            expected = compute(tensors, [keras.ops.convert_to_tensor(array) for array in arrays.values()])
        with _refusals(model):
            outputs = session.run(list(expected), inputs | fed)
        for name, computed in zip(expected, outputs, strict=True):
            reference = to_numpy(expected[name])
            difference = float(np.abs(computed - reference).max())
            if computed.shape != reference.shape or not difference <= TOLERANCE * max(1.0, np.abs(reference).max()):
                raise DistrlError(f"policy export: output {name!r} differs from the network by {difference:.3g}")


def _verified_graph(network: Network, as_inputs: bool) -> bytes:
    """Return the network's graph, which has been compared with Keras; for errors see `export_bundle`.

    TensorFlow, in a child process, does what this module cannot do with JAX, if it is installed.
    """
    model, weights, specs = network.model, network.policy_variables, network.spec.observations
    try:
        graph = export_graph(model, weights, as_inputs=as_inputs)
        verify_graph(graph, model, weights, specs)
    except DistrlError as error:
        if NAME == "tensorflow":
            raise
        if not all(map(find_spec, ("tensorflow", "tf2onnx"))):
            kind = ConfigError if isinstance(error, ConfigError) else DistrlError
            raise kind(f"{error}; TensorFlow exports more layers: {how_to_install('cpu')}") from error
        logger.info("%s; TensorFlow exports the policy instead", error)
        graph = export_in_child(network.parameters, network.head_parameters, network.spec, network.name, as_inputs)
        verify_graph(graph, model, weights, specs)
    return graph


def _converter() -> Any:
    """Return the function that makes a graph of one of Keras' framework."""
    if NAME == "jax":
        from distrl.networks.policy.jax_conversion import convert

        return convert
    require("tf2onnx", "tf2onnx, which exports policies,", "cpu")
    from distrl.networks.policy import conversion

    return conversion.convert


def _by_path(model: Any) -> dict[str, Any]:
    unread = {id(variable) for variable in training_only(model)}
    return {variable.path: variable for variable in model.weights if id(variable) not in unread}


def _stateless_call(model: Any, inputs: dict[str, Any], weights: Mapping[str, Any], values: Sequence[Any]) -> Any:
    with keras.StatelessScope(state_mapping=list(zip(weights.values(), values, strict=True))):
        return model(inputs, training=False)


@contextmanager
def _refusals(model: Any) -> Iterator[None]:
    """Turn an error of ONNX Runtime into one line that names the layer."""
    try:
        yield
    except Exception as error:  # ONNX Runtime's errors have no closer common ancestor
        said = one_line(error)
        where = _where(model, said)
        raise ConfigError(f"policy export: {where}: ONNX Runtime refuses the graph: {said}") from error


def _where(model: Any, text: str) -> str:
    """Return the innermost layer whose path stands in the text, such as the name of a node of the graph."""
    ends: dict[int, str] = {}
    for layer in model._flatten_layers(include_self=False):
        path = layer.path or layer.name
        # TensorFlow counts equal names: main/dense -> main_1/dense_1.
        counted = "/".join(rf"{re.escape(part)}(_\d+)?" for part in path.split("/"))
        if (found := re.search(rf"(?<!\w){counted}(?!\w)", text)) is not None:
            ends[found.end()] = f"layer {path} ({type(layer).__name__})"
    return ends[max(ends)] if ends else f"network {model.name}"


def _open_session(graph: bytes, weights: dict[str, Array]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # the caller reports a refused graph
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", _NOWHERE)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    if values:
        options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _random_weight(variable: Any, rng: np.random.Generator) -> Array:
    shape, dtype = tuple(variable.shape), np.dtype(variable.dtype)
    if not is_mixed(variable):
        return np.asarray(rng.uniform(0.5, 1.5, shape), dtype)  # running variances must be positive
    fan_in = max(1, int(np.prod(shape[:-1])))
    return np.asarray(rng.standard_normal(shape) / np.sqrt(fan_in), dtype)


def _random_input(tensor: Any, batch: int, spec: ArraySpec | None, rng: np.random.Generator) -> Array:
    dtype = np.dtype(tensor.dtype)
    shape = (batch, *tensor.shape[1:])
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    if spec is not None and spec.categories is not None:
        return rng.integers(0, spec.categories.choices, shape).astype(dtype)
    if spec is not None and spec.vocabulary is not None:
        tokens = rng.integers(0, spec.vocabulary, shape)
        return (tokens * rng.integers(0, 2, shape)).astype(dtype)  # half of them padding
    return rng.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)


def _weight_specs(weights: Mapping[str, Any]) -> tuple[WeightSpec, ...]:
    return tuple(
        WeightSpec(name, tuple(variable.shape), str(np.dtype(variable.dtype)), is_mixed(variable))
        for name, variable in weights.items()
    )


def _libraries() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("keras", "onnx", {"tensorflow": "tf2onnx"}.get(NAME, NAME))}


def _structure_key(architecture: Network, as_inputs: bool) -> str:
    parameters = architecture.parameters.model_dump_json()
    heads = [head.model_dump_json() for head in architecture.head_parameters]
    spec = architecture.spec.to_json()
    parts = [FORMAT, OPSET, as_inputs, architecture.name, heads, parameters, spec, _libraries()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_cached(path: Path, model: Any, weights: Mapping[str, Any], specs: Mapping[str, ArraySpec]) -> bytes | None:
    """Return the cached graph; None if there is none or it does not compute what the network computes."""
    try:
        graph = path.read_bytes()
        verify_graph(graph, model, weights, specs)
    except FileNotFoundError:
        return None
    except (OSError, DistrlError) as error:
        logger.warning("cached policy graph %s is not usable and is exported again: %s", path, error)
        return None
    return graph
