"""The outer layers of an ONNX model's bytes, read and written without the package onnx, which actors do not have.

No part of a file is interpreted here, let alone run. https://protobuf.dev/programming-guides/encoding
"""

from collections.abc import Iterator

from distrl.errors import DistrlError

BYTES = 2
"""The wire type of strings and nested messages."""
_VARINT, _FIXED64, _FIXED32 = 0, 1, 5
_GRAPH, _INPUT, _NAME = 7, 11, 1  # onnx.proto: of ModelProto, GraphProto and ValueInfoProto


def graph_inputs(model: bytes) -> frozenset[str]:
    """Return the names of the inputs of a serialised model's graph.

    Raises:
        DistrlError: The bytes are not a whole message.
    """
    graphs = [(at, end) for number, wire_type, _, at, end in fields(model) if (number, wire_type) == (_GRAPH, BYTES)]
    inputs = [
        (at, end)
        for graph in graphs
        for number, wire_type, _, at, end in fields(model, *graph)
        if (number, wire_type) == (_INPUT, BYTES)
    ]
    return frozenset(
        model[at:end].decode(errors="replace")
        for value in inputs
        for number, wire_type, _, at, end in fields(model, *value)
        if (number, wire_type) == (_NAME, BYTES)
    )


def fields(content: bytes, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int, int]]:
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
        elif wire_type == BYTES:
            length, at = _read_varint(content, at, end)
            stop = at + length
        else:
            stop = at + {_FIXED64: 8, _FIXED32: 4}.get(wire_type, end + 1)  # other types: past any end
        if number == 0 or stop > end:
            raise DistrlError("it is no ONNX model, or not a whole one")
        yield number, wire_type, begin, at, stop
        begin = stop


def written(number: int, body: bytes) -> bytes:
    """Return a field of wire type `BYTES`."""
    return _varint(number << 3 | BYTES) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


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
