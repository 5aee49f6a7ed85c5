"""An exported policy as one file: an ONNX model with its weights inside and its description in the metadata.

The file is an ordinary ONNX model, which ONNX Runtime opens as it is. The last two of its `metadata_props` are
`distrl`, with the value of `Exported.to_json`, and `distrl.sha256`, the sha256 of that value; every other byte is the
graph, whose sha256 the description holds. Only protobuf's outermost layer is read and written here, so that no part of
a file is interpreted, let alone run, before the file is known to be whole. The hashes detect damage, not forgery.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from distrl.errors import DistrlError
from distrl.networks.policy.description import FORMAT, BundleDescription, check_description, parsed
from distrl.types import PolicyBundle

KEY = "distrl"
HASH_KEY = "distrl.sha256"
EXPORT_FORMAT = 1
"""Incremented whenever an older reader would misread a newer file."""

# onnx.proto: ModelProto.metadata_props, and StringStringEntryProto's two fields.
_METADATA_PROPS, _ENTRY_KEY, _ENTRY_VALUE = 14, 1, 2
_FUNCTIONS = 25  # of ModelProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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
    for number, wire_type, begin, body, end in _fields(content):
        if number == _METADATA_PROPS and wire_type == _BYTES:
            entry = {inner: content[at:stop] for inner, _, _, at, stop in _fields(content, body, end)}
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
    return _field(_METADATA_PROPS, _field(_ENTRY_KEY, key.encode()) + _field(_ENTRY_VALUE, value))


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def _fields(content: bytes, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (number, wire type, start, start of the value, end) of every field of a message.

    Raises:
        DistrlError: The bytes are not a whole message.
    """
    end = len(content) if end is None else end
    while begin < end:
        tag, at = _read_varint(content, begin, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            _, stop = _read_varint(content, at, end)
        elif wire_type == _BYTES:
            length, at = _read_varint(content, at, end)
            stop = at + length
        else:
            stop = at + {_FIXED64: 8, _FIXED32: 4}.get(wire_type, end + 1)  # other types: past any end
        if number == 0 or stop > end:
            raise DistrlError("it is no ONNX model, or not a whole one")
        yield number, wire_type, begin, at, stop
        begin = stop


def _read_varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, end)."""
    value = 0
    for shift in range(0, 70, 7):
        if at + shift // 7 >= end:
            break
        byte = content[at + shift // 7]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + shift // 7 + 1
    raise DistrlError("it is no ONNX model, or not a whole one")
