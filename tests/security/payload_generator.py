"""Hostile payloads by families, the same ones for the same seed.

Half of the families damage what an actor has really encoded, in its bytes or in its structure; the others are made from
nothing. The last one is no attack: a decoder that refused everything would otherwise pass.
"""

import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import lz4.block
import msgpack
import numpy as np
import zstandard

from distrl import wire
from distrl.memory_backend.codec import decode_unroll, encode_unroll
from distrl.memory_backend.compression import MARK
from distrl.memory_backend.gradient_codec import GradientSchema, decode_contribution, encode_contribution
from distrl.types import (
    ArraySpec,
    BoxSpec,
    Contribution,
    Differentiated,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Unroll,
    UnrollHeader,
)
from distrl.unroll_schema import UnrollSchema

SPEC = EnvSpec(
    "Hostile-v0",
    {"camera": ArraySpec((8, 8, 3), "uint8", 0, 255), "speed": ArraySpec((5,), "float32")},
    {
        "gear": DiscreteSpec(4),
        "force": BoxSpec((2,), (-1.0, -1.0), (1.0, 1.0)),
        "some": MultiDiscreteSpec((2, 3), (0, 0)),
        "switches": MultiBinarySpec((3,)),
    },
)
STATE = {"h": ArraySpec((6,), "float32")}
T, B = 4, 3
WEIGHTS = {"main/dense/kernel": (5, 8), "main/dense/bias": (8,)}
TRAP = "DISTRL_TRAP_SPRUNG"
"""In the environment of a process that has executed one of the pickles."""


class Target(NamedTuple):
    """A learner's input: the header and schema, and payloads that actors really send."""

    header: UnrollHeader
    schema: UnrollSchema | GradientSchema
    genuine: tuple[bytes, ...]

    def decode(self, payload: bytes) -> Any:
        if isinstance(self.schema, GradientSchema):
            return decode_contribution(self.header, payload, self.schema)
        return decode_unroll(self.header, payload, self.schema)


class Hostile(NamedTuple):
    family: str
    target: str
    payload: bytes


def _unroll(rng: np.random.Generator, episodes: int, extras: Sequence[str]) -> bytes:
    single = np.float32
    return encode_unroll(
        Unroll(
            header=UnrollHeader(0, 1, 0, 1, T * B),
            observations={
                "camera": rng.integers(0, 256, (T + 1, B, 8, 8, 3)).astype(np.uint8),
                "speed": rng.standard_normal((T + 1, B, 5)).astype(single),
            },
            actions={
                "gear": rng.integers(0, 4, (T, B)).astype(np.int32),
                "force": rng.uniform(-1, 1, (T, B, 2)).astype(single),
                "some": rng.integers(0, 2, (T, B, 2)).astype(np.int32),
                "switches": rng.integers(0, 2, (T, B, 3)).astype(np.int32),
            },
            rewards=rng.standard_normal((T, B)).astype(single),
            terminated=np.zeros((T, B), bool),
            truncated=np.zeros((T, B), bool),
            valid=np.ones((T, B), bool),
            behaviour_log_probabilities=rng.standard_normal((T, B)).astype(single),
            recurrent_state={"h": rng.standard_normal((1, B, 6)).astype(single)},
            episode_returns=rng.standard_normal(episodes).astype(single),
            episode_lengths_steps=np.full(episodes, 7, np.int32),
            episode_discounted_returns=np.zeros(episodes, np.float32),
            episode_successes=np.ones(episodes, np.int8),
            reward_moments={"count": np.array(float(T * B)), "mean": np.array(0.5), "squares": np.array(2.0)},
            extras={name: np.full((T, B), 0.25, single) for name in extras},
        )
    )


def _contribution(rng: np.random.Generator, episodes: int) -> bytes:
    gradients = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in WEIGHTS.items()}
    moments = {"count": np.array(12.0), "mean": rng.standard_normal(5), "squares": np.ones(5)}
    differentiated = Differentiated(
        gradients=gradients,
        averages={"main/average": np.ones(4, np.float32)},
        metrics={"loss": 0.5, "entropy": 0.1},
        moments={"speed": moments},
    )
    return encode_contribution(
        Contribution(
            UnrollHeader(0, 1, 0, 1, T * B),
            differentiated,
            episode_returns=rng.standard_normal(episodes).astype(np.float32),
            episode_lengths_steps=np.full(episodes, 7, np.int32),
            episode_discounted_returns=np.zeros(episodes, np.float32),
            episode_successes=np.ones(episodes, np.int8),
            reward_moments={},
        )
    )


def targets() -> dict[str, Target]:
    """New ones: schemas remember what they have decoded."""
    rng, header = np.random.default_rng(1), UnrollHeader(0, 1, 0, 1, T * B)
    made = {
        name: Target(
            header,
            UnrollSchema.of(SPEC, T, B, STATE, normalizes_rewards=True, extras=extras),
            tuple(_unroll(rng, episodes, extras) for episodes in (0, 2)),
        )
        for name, extras in (("unroll", ()), ("unroll with priorities", ("priorities",)))
    }
    schema = GradientSchema.of(T * B, WEIGHTS, {"main/average": (4,)}, {"speed": (5,)})
    made["gradient"] = Target(header, schema, tuple(_contribution(rng, episodes) for episodes in (0, 2)))
    return made


# ------------------------------------------------------------------------------------------------------ its structure


def _plain(payload: bytes) -> Any:
    """msgpack's own view: arrays are maps with binary keys."""
    return msgpack.unpackb(payload, raw=False, strict_map_key=False)


def _packed(plain: Any) -> bytes:
    return bytes(msgpack.packb(plain))


def _places(plain: Any) -> list[tuple[dict[Any, Any], Any]]:
    """(map, key) of every array."""
    found = []
    for key, child in plain.items():
        if isinstance(child, dict):
            found += [(plain, key)] if b"nd" in child else _places(child)
    return found


def _with_array(rng: np.random.Generator, payload: bytes, changed: Callable[[dict[bytes, Any]], Any]) -> bytes:
    """The payload with another thing in place of one of its arrays."""
    plain = _plain(payload)
    places = _places(plain)
    holder, key = places[rng.integers(len(places))]
    holder[key] = changed(dict(holder[key]))
    return _packed(plain)


class _Trap:
    """Unpickling one is noticed by audit hooks, and by the environment."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; os.environ[{TRAP!r}] = '1'",)


PICKLE = pickle.dumps(_Trap())
PICKLED = [
    {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": PICKLE},
    {b"nd": True, b"type": "O", b"kind": b"O", b"shape": [1], b"data": PICKLE},
    {b"nd": True, b"type": b"|O", b"kind": b"O", b"shape": [1], b"data": PICKLE},
    {b"nd": True, b"type": "<f4", b"kind": b"O", b"shape": [1], b"data": PICKLE},
    {b"nd": True, b"type": "|O", b"kind": b"", b"shape": [1], b"data": PICKLE},
    {b"nd": True, b"type": [["a", "|O"]], b"kind": b"V", b"shape": [1], b"data": PICKLE},
    {b"nd": False, b"type": "|O", b"data": PICKLE},
    {b"nd": False, b"type": "|O", b"kind": b"O", b"data": PICKLE},
    {b"complex": True, b"data": PICKLE},
    {b"complex": True, b"data": "__import__('os').abort()"},
    {"nd": True, "type": "|O", "kind": "O", "shape": [1], "data": PICKLE},
]


def _pickles(rng: np.random.Generator, payload: bytes) -> bytes:
    forged = PICKLED[rng.integers(len(PICKLED))]
    if rng.random() < 0.2:
        return _packed(forged)
    if rng.random() < 0.2:
        return _packed({**_plain(payload), "observations": forged, "gradients": forged})
    return _with_array(rng, payload, lambda _: forged)


def _array_change(*choices: dict[bytes, Any]) -> Callable[[np.random.Generator, bytes], bytes]:
    def change(rng: np.random.Generator, payload: bytes) -> bytes:
        return _with_array(rng, payload, lambda array: array | choices[rng.integers(len(choices))])

    return change


def _record(fields: list[list[Any]], size: int) -> list[dict[bytes, Any]]:
    return [{b"type": fields, b"kind": kind, b"shape": [2], b"data": bytes(2 * size)} for kind in (b"V", b"")]


def _overflow(rng: np.random.Generator, payload: bytes) -> bytes:
    def forge(array: dict[bytes, Any]) -> dict[bytes, Any]:
        numbers = len(array[b"data"]) // np.dtype(array[b"type"]).itemsize
        # What each of these comes to in 64 bits, with and without a sign, is what the data holds.
        shapes = [
            [2**32, 2**32],
            [2**63, 2, *([0] if not numbers else [])],
            [2**62, 4],
            [max(numbers, 1) + 2**63 - 1 + 2**63],
            [3, 6148914691236517205, max(numbers, 1)],  # 3 times that is 2**64 - 1
            [0, 2**62, 2**62],
            [2**31 + 1] * 3,
        ]
        shape = shapes[rng.integers(len(shapes))]
        shape = [min(size, 2**64 - 1) for size in shape]
        return array | {b"shape": shape} | ({b"data": b""} if rng.random() < 0.5 else {})

    return _with_array(rng, payload, forge)


def _negative(rng: np.random.Generator, payload: bytes) -> bytes:
    def forge(array: dict[bytes, Any]) -> dict[bytes, Any]:
        shape = list(array[b"shape"])
        choices = [[-1], [-size - 1 for size in shape] or [-1], [-1, *shape], [*shape, -1, -1], [-(2**63), 2], [0, -5]]
        return array | {b"shape": choices[rng.integers(len(choices))]}

    return _with_array(rng, payload, forge)


def _another_value(rng: np.random.Generator, payload: bytes) -> bytes:
    """Well-formed arrays of numbers that no environment gives: NaN, choices that there are not, broken booleans."""

    def forge(array: dict[bytes, Any]) -> dict[bytes, Any]:
        data = bytearray(array[b"data"])
        patterns = [b"\xff", b"\x00\x00\x80\x7f", b"\x01\x00\xa0\x7f", b"\x80", b"\x02", b"\x00\x00\x00\x80"]
        pattern = patterns[rng.integers(len(patterns))]
        at = int(rng.integers(max(len(data) // 4, 1))) * 4
        count = len(data) - at if rng.random() < 0.5 else min(len(data) - at, 8)
        data[at : at + count] = (pattern * (count + 1))[:count]
        return array | {b"data": bytes(data)}

    return _with_array(rng, payload, forge)


def _another_schema(rng: np.random.Generator, payload: bytes) -> bytes:
    """Yield trees that the strict decoder accepts and the run's schema must refuse."""
    tree = dict(wire.unpack(payload))  # type: ignore[arg-type]
    name = list(tree)[rng.integers(len(tree))]
    choices: list[Any] = [None, 1, -1.5, "text", b"bytes", (), {}, np.float32(1.0), np.zeros((0, 3)), ((1, 2), "x")]
    choices += [
        np.zeros((T, B), ">f4"),
        np.zeros((T, B), "<c16"),
        np.zeros((B, T), "<f4"),
        {"": np.zeros(3)},
        dict(tree),
    ]
    kind = rng.integers(4)
    if kind == 0:
        del tree[name]
    elif kind == 1:
        tree[f"{name}{rng.integers(10)}"] = tree[name]
    elif kind == 2 and isinstance(tree[name], dict):
        inner = dict(tree[name])
        inner[next(iter(inner), "new")] = choices[rng.integers(len(choices))]
        tree[name] = inner
    else:
        tree[name] = choices[rng.integers(len(choices))]
    return wire.pack(tree)


def _another_shape(rng: np.random.Generator, payload: bytes) -> bytes:
    wrong = [2.0, True, "2", None, [2], {}, {"a": 1}, b"\x02", [[2]], [1] * 33, [1] * 5000, [2, 3.0], ["2"], [None]]
    wrong += [[True, True], [float("nan")], [b"\x00" * 100_000], [{}], [[[]]]]
    shape = wrong[rng.integers(len(wrong))]
    return _with_array(rng, payload, lambda array: array | {b"shape": shape})


# ---------------------------------------------------------------------------------------------------------- its bytes


def _cut(rng: np.random.Generator, payload: bytes) -> bytes:
    return payload[: rng.integers(len(payload))]


def _flipped(rng: np.random.Generator, payload: bytes) -> bytes:
    damaged = bytearray(payload)
    # Seven of eight bytes are what arrays hold: half of the flips shall meet the structure, which is at the front.
    reach = len(damaged) if rng.random() < 0.5 else min(200, len(damaged))
    for _ in range(int(rng.integers(1, 9))):
        damaged[rng.integers(reach)] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def _spliced(rng: np.random.Generator, payload: bytes) -> bytes:
    one, other = sorted(int(at) for at in rng.integers(0, len(payload), 2))
    piece = payload[one : min(other, one + 200)]
    at = int(rng.integers(len(payload)))
    kind = rng.integers(3)
    if kind == 0:
        return payload[:at] + piece + payload[at:]
    if kind == 1:
        return payload[:one] + payload[one + len(piece) :]
    return payload[:at] + piece + payload[at + len(piece) :]


def _trailing(rng: np.random.Generator, payload: bytes) -> bytes:
    return payload + (payload if rng.random() < 0.3 else rng.bytes(int(rng.integers(1, 50))))


def _head_changed(rng: np.random.Generator, payload: bytes) -> bytes:
    """A head that announces more than there is, somewhere in the genuine payload."""
    code = (0xC5, 0xC6, 0xDA, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF)[rng.integers(8)]
    length = rng.bytes(4) if rng.random() < 0.5 else b"\xff\xff\xff\xff"
    at = int(rng.integers(min(len(payload), 400)))
    return payload[:at] + bytes([code]) + length[: 4 if code & 1 else 2] + payload[at:]


# ------------------------------------------------------------------------------------------------------- from nothing


def _deep(rng: np.random.Generator, _: bytes) -> bytes:
    depth = int(rng.choice([17, 40, 500, 1023, 1025, 5_000, 100_000]))
    opened = [b"\x91", b"\x81\xa1a", b"\x81\xc4\x02nd", b"\xdc\x00\x01", b"\x92\x90"][rng.integers(5)]
    return opened * depth + (b"\xc0" if rng.random() < 0.8 else b"")


def _never_ending(rng: np.random.Generator, _: bytes) -> bytes:
    """Heads of long containers within one another; in some, so many elements come before the next head."""
    depth = int(rng.integers(2, 1100))
    kind = rng.integers(4)
    head = (b"\xdd\x00\x01\x00\x00", b"\xdc\xff\xff", b"\xdf\x00\x00\xff\xff", b"\xdc\x02\x00")[kind]
    element = b"\xa0\x01" if kind == 2 else b"\x01"
    before = int(rng.choice([0, 10, 400, 60_000])) if kind != 3 else int(rng.integers(500))
    before = min(before, 500_000 // depth)
    return (head + element * before + (b"\xa0" if kind == 2 else b"")) * depth


def _wide(rng: np.random.Generator, _: bytes) -> bytes:
    """More elements than are allowed, or as many, in very few bytes each."""
    count = int(rng.integers(20_000, 70_000))
    element = [b"\x80", b"\x90", b"\xc0", b"\xa0", b"\x81\xa0\x80", b"\x82\xa0\x01\xa1a\x90\x00"][rng.integers(6)]
    if rng.random() < 0.3:
        inner = b"\xdc\x07\xd0" + element * 2000
        return b"\xdc\x00\x28" + inner * 40
    # Text of more than 64 KiB, so that it is no layout that is remembered.
    return b"\x92" + b"\xdd" + count.to_bytes(4, "big") + element * count + b"\xc6\x00\x01\x00\x01" + bytes(65_537)


def _extension(rng: np.random.Generator, payload: bytes) -> bytes:
    made = [
        _packed(msgpack.ExtType(int(rng.integers(128)), rng.bytes(int(rng.integers(40))))),
        _packed(msgpack.Timestamp(int(rng.integers(2**40)))),
        b"\xd4\x2a\x00",
        b"\xd8\x00" + bytes(16),
        b"\xc7\x0c\xff" + bytes(12),
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xc8\xff\xff\x05",
    ][rng.integers(7)]
    if rng.random() < 0.3:
        return made
    mark = _packed("in place of this")
    return _with_array(rng, payload, lambda _: "in place of this").replace(mark, made)


def _odd_keys(rng: np.random.Generator, payload: bytes) -> bytes:
    plain = _plain(payload)
    odd = [1, -1, b"bytes", None, True, 1.5, b"nd", b"complex", "", "\x00", "a" * 70_000, b"\xff" * 70_000]
    key = odd[rng.integers(len(odd))]
    kind = rng.integers(3)
    if kind == 0:
        return _packed({**plain, key: 1})
    if kind == 1:
        return _with_array(rng, payload, lambda array: {**array, key: PICKLE})
    name = _packed(next(iter(plain)))
    return bytes([payload[0] + 1]) + payload[1:] + name + _packed(None)  # the same name once more


def _text(rng: np.random.Generator, payload: bytes) -> bytes:
    bad = [
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98\x80" + b"a" * 10**6,
    ]
    made = bad[rng.integers(len(bad))] * int(rng.integers(1, 3))
    packed = b"\xdb" + len(made).to_bytes(4, "big") + made
    if rng.random() < 0.5:
        return packed
    mark = _packed("in place of this")
    return _with_array(rng, payload, lambda _: "in place of this").replace(mark, packed)


def _long_values(rng: np.random.Generator, payload: bytes) -> bytes:
    """Values of a megabyte where a few characters are expected, and messages would show them."""
    long = [bytes(10**6), "x" * 10**6, [b"\x00" * 1000] * 1000, {"a" * 10**6: 1}, list(range(60_000))][rng.integers(5)]
    names = (b"nd", b"type", b"kind", b"shape", b"data")
    changed = names[rng.integers(len(names))]
    return _with_array(rng, payload, lambda array: array | {changed: long})


def _noise(rng: np.random.Generator, _: bytes) -> bytes:
    return rng.bytes(int(rng.integers(0, 400)))


def _built(rng: np.random.Generator, _: bytes) -> bytes:
    """Any tree of msgpack's types, with an array's keys among the others."""

    def node(depth: int) -> Any:
        kind = rng.integers(9 if depth else 6)
        if kind < 6:
            leaves = [None, bool(rng.integers(2)), int(rng.integers(-(2**63), 2**63)), float(rng.standard_normal())]
            leaves += [rng.bytes(int(rng.integers(9))), ["<f4", "|O", "", "nd", "ü"][rng.integers(5)]]
            return leaves[kind]
        if kind == 6:
            return [node(depth - 1) for _ in range(rng.integers(4))]
        keys = [b"nd", b"type", b"kind", b"shape", b"data"] if kind == 7 else ["a", "rewards", "", "gradients"]
        return {key: node(depth - 1) for key in keys if rng.random() < 0.8}

    return _packed(node(4))


def _numbers_as_bits(rng: np.random.Generator, payload: bytes) -> bytes:
    """Floats outside arrays: a gradient's metrics may be NaN, infinite or no floats at all."""
    plain = _plain(payload)
    odd = [
        float("nan"),
        float("inf"),
        struct.unpack(">d", b"\x7f\xf0\x00\x00\x00\x00\x00\x01")[0],
        2**64 - 1,
        True,
        "1",
    ]
    plain["metrics"] = {name: odd[rng.integers(len(odd))] for name in ("loss", "a", "b" * int(rng.integers(1, 300)))}
    return _packed(plain)


def _framed(code: int, body: bytes, size: int) -> bytes:
    return MARK + bytes([code]) + size.to_bytes(4, "big") + body


def _compressed(code: int, compress: Callable[[bytes], bytes]) -> Callable[[np.random.Generator, bytes], bytes]:
    """Compressed payloads with damage inside and outside, and bombs; code: the method's."""
    zeros = bytes(2**24)
    bomb = compress(zeros)

    def change(rng: np.random.Generator, payload: bytes) -> bytes:
        inside = (_another_schema, _another_value, _pickles, _flipped, _unchanged)[rng.integers(5)](rng, payload)
        sent = _framed(code, compress(inside), len(inside))
        kind = rng.integers(6)
        if kind == 0:
            return _framed(code, bomb, (len(zeros), len(payload), 2**32 - 1)[rng.integers(3)])
        if kind == 1:
            return _framed(int(rng.integers(256)), sent[6:], int(rng.choice([0, 1, len(inside) - 1, len(inside) + 1])))
        if kind == 2:
            return _framed(code, compress(sent), len(sent))
        return (_flipped, _cut, _unchanged)[kind - 3](rng, sent)

    return change


def _unchanged(_: np.random.Generator, payload: bytes) -> bytes:
    return payload


GENUINE = "genuine"
FAMILIES: dict[str, Callable[[np.random.Generator, bytes], bytes]] = {
    "pickle": _pickles,
    "object dtype": _array_change(
        {b"type": "|O", b"data": bytes(8), b"shape": [1]}, {b"type": "O", b"data": bytes(48)}, {b"type": "object"}
    ),
    "structured dtype": _array_change(
        *_record([["a", "<f4"], ["b", "|O"]], 12),
        *_record([["a", "<f4", [3]]], 12),
        {b"type": "f4,f4"},
        {b"type": "(2,3)f4"},
        {b"type": "V" + "9" * 20},
        {b"type": {"names": ["a"], "formats": ["|O"]}},
    ),
    "other dtype": _array_change(
        *({b"type": name} for name in ("<U4", "|S4", "<M8[s]", "<m8", "=f4", "f4", "<f16", "<V4", "", "<", "<f4\x00")),
        {b"type": 4},
        {b"type": ["<f4"]},
        {b"type": None},
    ),
    "zero itemsize": _array_change(
        *(
            {b"type": name, b"kind": kind, b"shape": shape, b"data": b""}
            for name in ("|V0", "|S0", "<U0", "V0")
            for kind in (b"", b"V")
            for shape in ([2**62], [10**9, 10**9], [2**31], [65_535] * 4)
        )
    ),
    "shape overflow": _overflow,
    "negative shape": _negative,
    "shape of another kind": _another_shape,
    "another schema": _another_schema,
    "another value": _another_value,
    "deep nesting": _deep,
    "never-ending containers": _never_ending,
    "wide": _wide,
    "extension type": _extension,
    "truncation": _cut,
    "bit flips": _flipped,
    "splices": _spliced,
    "trailing bytes": _trailing,
    "announced lengths": _head_changed,
    "odd keys": _odd_keys,
    "text": _text,
    "long values": _long_values,
    "odd metrics": _numbers_as_bits,
    "built": _built,
    "noise": _noise,
    "zstd": _compressed(1, zstandard.ZstdCompressor().compress),
    "lz4": _compressed(2, lambda payload: bytes(lz4.block.compress(payload, store_size=False))),
    GENUINE: _unchanged,
}


def payloads(count: int, seed: int, every: int = 1) -> Iterator[Hostile]:
    """`count` of them, as many of each family; deterministic.

    Args:
        every: Only the first of so many; no multiple of the number of families.
    """
    made = targets()
    kinds = list(made)
    names = list(FAMILIES)
    for index in range(0, count, every):
        rng = np.random.default_rng([seed, index])
        family, kind = names[index % len(names)], kinds[index // len(names) % len(kinds)]
        genuine = made[kind].genuine
        yield Hostile(family, kind, FAMILIES[family](rng, genuine[rng.integers(len(genuine))]))
