"""The export of a policy from a process whose Keras runs on JAX: a child process, whose Keras runs on TensorFlow.

tf2onnx converts TensorFlow's graphs alone. The child is `bundle_export.py`; it gets a request as JSON on its standard
input and writes the graph to a file. So the learner itself never imports TensorFlow.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from distrl.config.heads import HeadParameters
from distrl.config.network import NetworkParameters
from distrl.errors import DistrlError, require
from distrl.types import EnvSpec
from distrl.user_classes import search_path

TIMEOUT_S = 600.0
"""Importing TensorFlow and converting a network take about ten seconds."""


@dataclass(frozen=True)
class ExportRequest:
    """The structure of a network, which its graph follows from.

    Attributes:
        name: First part of every weight's path.
        path: The file to write.
    """

    parameters: NetworkParameters
    heads: tuple[HeadParameters, ...]
    spec: EnvSpec
    name: str
    path: str

    def to_json(self) -> str:
        """One line of JSON."""
        return _REQUEST.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "ExportRequest":
        """The inverse of `to_json`."""
        return _REQUEST.validate_json(text)


_REQUEST = TypeAdapter(ExportRequest)


def export_in_child(
    parameters: NetworkParameters, heads: tuple[HeadParameters, ...], spec: EnvSpec, name: str
) -> bytes:
    """The graph of the network that these describe, as `bundle.export_graph` makes it. Nothing has verified it.

    Raises:
        DistrlError: The child failed; says what its last line was.
        MissingExtraError: TensorFlow or tf2onnx is not installed.
    """
    require("tensorflow", "TensorFlow, which exports policies,", "cpu")
    require("tf2onnx", "tf2onnx, which exports policies,", "cpu")
    with tempfile.TemporaryDirectory(prefix="distrl-export-") as directory:
        path = Path(directory) / "policy.onnx"
        request = ExportRequest(parameters, heads, spec, name, str(path))
        try:
            done = subprocess.run(  # our own interpreter and arguments
                [sys.executable, "-P", "-m", "distrl.networks.policy.bundle_export"],
                input=request.to_json(),
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DistrlError(f"policy export: the TensorFlow process did not end within {TIMEOUT_S:g} s") from error
        if done.returncode != 0:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            why = said[-1] if said else "it said nothing"
            raise DistrlError(f"policy export: the TensorFlow process ended with {done.returncode}: {why}")
        return path.read_bytes()


def _environment() -> dict[str, str]:
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": search_path(),  # layers of the user's own are found as they are here
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    environment.pop("XLA_FLAGS", None)  # meant for JAX; TensorFlow's XLA ends the process at a flag that it lacks
    return environment
