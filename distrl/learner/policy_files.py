"""policy/ of a run directory: the bundle and the newest saved weights, which together act without the learner.

graph.onnx          the policy's graph; its weights are external initializers
description.json    inputs, outputs, action distribution, weight names, sha256 of the graph, scale of rewards
weights.msgpack     `codec.encode_weights` of the version that the newest checkpoint holds
"""

from dataclasses import replace
from pathlib import Path

from distrl.memory_backend.codec import encode_weights
from distrl.networks.description import BundleDescription, RewardStatistics
from distrl.types import PolicyBundle, Weights


def write_bundle(directory: Path, bundle: PolicyBundle) -> None:
    """Writes graph and description, once per run."""
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / "graph.onnx", bundle.graph)
    _replace(directory / "description.json", bundle.description.encode())


def write_rewards(directory: Path, rewards: RewardStatistics) -> None:
    """Puts the scale of rewards that goes with newly saved weights into the description."""
    path = directory / "description.json"
    description = replace(BundleDescription.from_json(path.read_text()), rewards=rewards)
    _replace(path, description.to_json().encode())


def write_weights(directory: Path, weights: Weights) -> None:
    """Writes the weights; a reader sees the old file or the whole new one."""
    _replace(directory / "weights.msgpack", encode_weights(weights))


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
