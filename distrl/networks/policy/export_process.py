"""The export of a policy from a process whose Keras runs on JAX, in a child process whose Keras runs on TensorFlow.

It is for layers that `jax_conversion.py` cannot write. The child is `bundle_export.py`, which writes the graph to a
file. So the learner itself never imports TensorFlow.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from distrl.child import Child
from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import ConfigError, DistrlError, require
from distrl.networks.framework.out_of_memory import no_room
from distrl.types import EnvSpec

TIMEOUT_S = 600.0
"""Importing TensorFlow and converting a network take about ten seconds."""
VARIABLES = {
    "KERAS_BACKEND": "tensorflow",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "XLA_FLAGS": None,  # meant for JAX; TensorFlow's XLA ends the process at a flag that it lacks
}


@dataclass(frozen=True)
class ExportRequest:
    """The structure of a network, which its graph follows from.

    Attributes:
        name: First part of every weight's path.
        as_inputs: Weights are inputs of the graph; otherwise they are external initializers.
        path: The file to write.
    """

    parameters: NetworkParameters
    heads: tuple[HeadParameters, ...]
    spec: EnvSpec
    name: str
    as_inputs: bool
    path: str

    def to_json(self) -> Any:
        return _REQUEST.dump_python(self, mode="json")

    @staticmethod
    def from_json(request: Any) -> "ExportRequest":
        return _REQUEST.validate_python(request)


_REQUEST = TypeAdapter(ExportRequest)


def export_in_child(
    parameters: NetworkParameters, heads: tuple[HeadParameters, ...], spec: EnvSpec, name: str, as_inputs: bool
) -> bytes:
    """Return the graph of the network as `bundle.export_graph` makes it. It is not verified yet.

    Raises:
        ConfigError: The network cannot be exported, or does not fit into memory.
        DistrlError: The child failed in another way; the message has its error, or the last line of its output.
        MissingExtraError: TensorFlow or tf2onnx is not installed.
    """
    require("tensorflow", "TensorFlow, which exports policies,", "cpu")
    require("tf2onnx", "tf2onnx, which exports policies,", "cpu")
    with tempfile.TemporaryDirectory(prefix="distrl-export-") as directory:
        path = Path(directory) / "policy.onnx"
        request = ExportRequest(parameters, heads, spec, name, as_inputs, str(path)).to_json()
        function = "distrl.networks.policy.bundle_export:export"
        with Child(function, request, timeout_s=TIMEOUT_S, variables=VARIABLES) as child:
            exit_code = child.wait(TIMEOUT_S)
            messages, output = child.messages(), child.output()
        if exit_code is None:
            raise DistrlError(f"policy export: the TensorFlow process did not end within {TIMEOUT_S:g} s")
        if exit_code == ConfigError.exit_code and messages:
            raise ConfigError(messages[-1]["error"])
        if exit_code != 0:
            lines = [message["error"] for message in messages] or [line.strip() for line in output.splitlines()]
            why = next(filter(None, reversed(lines)), "it said nothing")
            raise no_room(why) or DistrlError(f"policy export: the TensorFlow process ended with {exit_code}: {why}")
        return path.read_bytes()
