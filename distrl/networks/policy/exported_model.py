"""An exported policy as one file: an ONNX model with its weights inside and its description in the metadata.

The file is an ordinary ONNX model, which ONNX Runtime opens as it is. The last two of its `metadata_props` are
`distrl`, with the value of `Exported.to_json`, and `distrl.sha256`, the sha256 of that value; every other byte is the
graph, whose sha256 the description holds. Only protobuf's outermost layer is read and written here, so that no part of
a file is interpreted, let alone run, before the file is known to be whole. The hashes detect damage, not forgery.
"""

import hashlib
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from distrl.errors import DistrlError
from distrl.networks.policy.description import FORMAT, BundleDescription, check_description, parsed
from distrl.networks.policy.protobuf import BYTES, fields, written
from distrl.types import PolicyBundle

KEY = "distrl"
HASH_KEY = "distrl.sha256"
EXPORT_FORMAT = 1
"""Incremented whenever an older reader would misread a newer file."""

# onnx.proto: ModelProto.metadata_props, and StringStringEntryProto's two fields.
_METADATA_PROPS, _ENTRY_KEY, _ENTRY_VALUE = 14, 1, 2
_FUNCTIONS = 25  # of ModelProto


@dataclass(frozen=True)
class Exported:
    """Description of an exported policy and its training.

    Attributes:
        policy: The description of the run's bundle, without weights; `sha256` is that of the file's graph.
        env_steps: Environment steps of training; None if the run no longer records them.
        format: `EXPORT_FORMAT` at the time of writing.
    """

    policy: BundleDescription
    algorithm: str
    env_steps: int | None
    weights_version: int
    format: int = EXPORT_FORMAT

    def to_json(self) -> str:
        return _EXPORTED.dump_json(self).decode()


_EXPORTED = TypeAdapter(Exported)


def sealed(graph: bytes, exported: Exported) -> bytes:
    """Return the file's content.

    Args:
        graph: A serialised ONNX model with its weights inside.
        exported: Its description; sha256 and weights are set here.
    """
    policy = replace(exported.policy, weights=(), sha256=hashlib.sha256(graph).hexdigest())
    described = replace(exported, policy=policy).to_json().encode()
    return graph + _entry(KEY, described) + _entry(HASH_KEY, hashlib.sha256(described).hexdigest().encode())


def opened(content: bytes) -> tuple[PolicyBundle, Exported]:
    """Invert `sealed`: return a bundle that takes no weights, checked against its description, and the description.

    Raises:
        DistrlError: The content is not a whole ONNX model, or its description is missing, not valid or contradicts
            itself. The message does not contain the file's name.
    """
    rest, own = [], {KEY.encode(): b"", HASH_KEY.encode(): b""}
    for number, wire_type, begin, body, end in fields(content):
        if number == _METADATA_PROPS and wire_type == BYTES:
            entry = {inner: content[at:stop] for inner, _, _, at, stop in fields(content, body, end)}
            if (key := entry.get(_ENTRY_KEY)) in own:
                own[key] = entry.get(_ENTRY_VALUE, b"")
                continue
        if number == _FUNCTIONS:  # few functions that call each other twice can keep ONNX Runtime busy endlessly
            raise DistrlError("its graph defines functions, which no policy of distrl does; export it again")
        rest.append(content[begin:end])
    described, digest = own.values()
    if not described:
        raise DistrlError("it has no description by distrl; write one with: distrl export RUN")
    if (found := hashlib.sha256(described).hexdigest()).encode() != digest:
        raise DistrlError(f"it is damaged: its description's sha256 is {found}, {HASH_KEY} is {digest[:64]!r}")
    exported = _read(described)
    graph = b"".join(rest)
    if (found := hashlib.sha256(graph).hexdigest()) != exported.policy.sha256:
        raise DistrlError(f"it is damaged: the graph's sha256 is {found}, described is {exported.policy.sha256[:64]!r}")
    if exported.policy.weights:
        raise DistrlError(f"weight {exported.policy.weights[0].name!r} is not in it")
    check_description(exported.policy)
    return PolicyBundle(graph, exported.policy.to_json()), exported


def _read(described: bytes) -> Exported:
    exported = parsed(_EXPORTED, described, "its description")
    if (exported.format, exported.policy.format) != (EXPORT_FORMAT, FORMAT):
        raise DistrlError(
            f"its format is {exported.format}.{exported.policy.format}, this distrl reads {EXPORT_FORMAT}.{FORMAT}; "
            "export it again"
        )
    return exported


def _entry(key: str, value: bytes) -> bytes:
    return written(_METADATA_PROPS, written(_ENTRY_KEY, key.encode()) + written(_ENTRY_VALUE, value))
