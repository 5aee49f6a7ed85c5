"""Keras network -> policy bundle: an ONNX graph whose weights are external initializers, and its description.

Actors inject weights under their Keras paths and need neither TensorFlow nor the network's Python code. Ordinary
initializers would not do: ONNX Runtime folds them into other constants, and replacing them later is silently wrong.
Every bundle, cached or fresh, is checked against Keras with random weights and random inputs before it is used.
"""

import hashlib
import json
import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tensorflow as tf

from distrl.errors import DistrlError, require
from distrl.networks.architecture import Architecture, is_mixed
from distrl.networks.description import FORMAT, BundleDescription, CategoricalSpec, WeightSpec
from distrl.types import Array, EnvSpec, PolicyBundle

OPSET = 17
TOLERANCE = 1e-5
"""Largest difference between ONNX and Keras, absolute up to magnitude 1 and relative above."""

logger = logging.getLogger(__name__)


def export_bundle(architecture: Architecture, spec: EnvSpec, *, cache_dir: Path | None = None) -> PolicyBundle:
    """The policy bundle of a network's structure; its weights travel apart.

    Args:
        architecture: The network whose heads' outputs the policy puts out.
        spec: The environment it was built for.
        cache_dir: Where graphs are kept by structure; None: ``$XDG_CACHE_HOME/distrl/bundles`` or ``~/.cache/…``.

    Raises:
        DistrlError: The graph computes something else than the network; names the output.
        MissingExtraError: tf2onnx is not installed and the cache has no valid graph.
    """
    model = architecture.model
    path = (_default_cache() if cache_dir is None else cache_dir) / f"{_structure_key(architecture, spec)}.onnx"
    graph = _read_cached(path, model)
    if graph is None:
        graph = export_graph(model)
        verify_graph(graph, model)
        _write_cached(path, graph)
    description = BundleDescription(
        inputs=spec.observations,
        recurrent_state={},
        outputs={name: tuple(tensor.shape[1:]) for name, tensor in model.output.items()},
        action_distribution=CategoricalSpec(spec.action.n),
        environment=spec,
        weights=tuple(_weight_spec(variable) for variable in model.weights),
        libraries=_libraries(),
        sha256=hashlib.sha256(graph).hexdigest(),
    )
    return PolicyBundle(graph, description.to_json())


def export_graph(model: Any) -> bytes:
    """A Keras model as ONNX with a free batch axis; every weight is an external initializer under its Keras path.

    Args:
        model: Called with {name: [batch, ...]}, returns {name: [batch, ...]}; runs in inference mode.

    Raises:
        DistrlError: A weight reaches no output, or outputs were renamed on the way.
        MissingExtraError: tf2onnx is not installed.
    """
    require("tf2onnx", "tf2onnx, which exports policies,", "cpu")
    from distrl.networks import onnx_graph  # brings onnx, which a start from the cache can do without

    variables = _ordered_variables(model)
    # Neutral names on the way: tf2onnx rewrites characters such as '/', and gives up on some.
    names = {f"input_{index}": name for index, name in enumerate(model.input)}
    names |= {f"weight_{index}": variable.path for index, variable in enumerate(variables)}
    signature = [
        tf.TensorSpec(tensor.shape, tensor.dtype, name=f"input_{index}")
        for index, tensor in enumerate(model.input.values())
    ] + [
        tf.TensorSpec(variable.shape, variable.dtype, name=f"weight_{index}")
        for index, variable in enumerate(variables)
    ]

    def call(*arguments: Any) -> Any:
        inputs = dict(zip(model.input, arguments, strict=False))
        return _stateless_call(model, inputs, list(arguments[len(inputs) :]))

    graph_model = _convert(tf.function(call, input_signature=signature, autograph=False), signature)
    graph = graph_model.graph
    onnx_graph.rename_inputs(graph, names)
    onnx_graph.externalise(graph, [variable.path for variable in variables])
    if {output.name for output in graph.output} != set(model.output):
        raise DistrlError(
            f"policy export: outputs are {[output.name for output in graph.output]}, not {list(model.output)}"
        )
    return bytes(graph_model.SerializeToString())


def verify_graph(graph: bytes, model: Any) -> None:
    """Compares ONNX with Keras on random inputs and random weights, two batch sizes.

    The weights are not the model's own: near its initialisation small kernels and zero biases would hide mistakes, and
    weights that were folded into the graph would go unnoticed.

    Raises:
        DistrlError: ONNX Runtime refuses the graph, or an output differs; names it.
    """
    rng = np.random.default_rng(0)
    variables = _ordered_variables(model)
    weights = [_random_weight(variable, rng) for variable in variables]
    try:
        session = _open_session(graph, dict(zip((variable.path for variable in variables), weights, strict=True)))
    except Exception as error:  # ONNX Runtime's errors have no common ancestor but Exception
        raise DistrlError(f"policy export: ONNX Runtime refuses the graph: {error}") from error
    for batch in (1, 5):
        inputs = {name: _random_input(tensor, batch, rng) for name, tensor in model.input.items()}
        expected = _stateless_call(model, {name: tf.constant(array) for name, array in inputs.items()}, weights)
        for name, computed in zip(expected, session.run(list(expected), inputs), strict=True):
            reference = expected[name].numpy()
            difference = float(np.abs(computed - reference).max())
            if computed.shape != reference.shape or not difference <= TOLERANCE * max(1.0, np.abs(reference).max()):
                raise DistrlError(f"policy export: output {name!r} differs from the network by {difference:.3g}")


def _ordered_variables(model: Any) -> list[Any]:
    """Trainable weights, then the others: the order in which `stateless_call` takes them."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def _stateless_call(model: Any, inputs: dict[str, Any], weights: list[Any]) -> Any:
    trainable = len(model.trainable_variables)
    outputs, _ = model.stateless_call(weights[:trainable], weights[trainable:], inputs, training=False)
    return outputs


def _convert(function: Any, signature: list[Any]) -> Any:
    with warnings.catch_warnings():
        # tf2onnx and the onnx helpers it calls still use names that NumPy and protobuf have deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        import tf2onnx

        graph_model, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=OPSET)
    return graph_model


def _open_session(graph: bytes, weights: dict[str, Array]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a refused graph is reported by whoever called
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _random_weight(variable: Any, rng: np.random.Generator) -> Array:
    shape, dtype = tuple(variable.shape), np.dtype(variable.dtype)
    if not is_mixed(variable):
        return np.asarray(rng.uniform(0.5, 1.5, shape), dtype)  # running variances must be positive
    fan_in = max(1, int(np.prod(shape[:-1])))
    return np.asarray(rng.standard_normal(shape) / np.sqrt(fan_in), dtype)


def _random_input(tensor: Any, batch: int, rng: np.random.Generator) -> Array:
    dtype = np.dtype(tensor.dtype)
    shape = (batch, *tensor.shape[1:])
    if np.issubdtype(dtype, np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)


def _weight_spec(variable: Any) -> WeightSpec:
    return WeightSpec(variable.path, tuple(variable.shape), str(np.dtype(variable.dtype)), is_mixed(variable))


def _libraries() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("keras", "onnx", "tf2onnx")} | {"tensorflow": tf.__version__}


def _structure_key(architecture: Architecture, spec: EnvSpec) -> str:
    parameters = architecture.parameters.model_dump_json()
    parts = [FORMAT, OPSET, architecture.name, architecture.heads, parameters, spec.to_json(), _libraries()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _default_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "distrl" / "bundles"


def _read_cached(path: Path, model: Any) -> bytes | None:
    """The cached graph; None if there is none or it is not what the network computes."""
    try:
        graph = path.read_bytes()
        verify_graph(graph, model)
    except FileNotFoundError:
        return None
    except (OSError, DistrlError) as error:
        logger.warning("cached policy graph %s is not usable and is exported again: %s", path, error)
        return None
    return graph


def _write_cached(path: Path, graph: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            unfinished = Path(directory) / path.name
            unfinished.write_bytes(graph)
            unfinished.replace(path)
    except OSError as error:
        logger.warning("policy graph is not cached, so the next start exports it again: %s", error)
