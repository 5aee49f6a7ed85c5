"""compression: every method comes back exactly, and nothing that a forger writes allocates more than an unroll."""

import builtins
import sys
import tracemalloc
from dataclasses import replace

import lz4.block
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from distrl import wire
from distrl.errors import DecodeError, MissingExtraError
from distrl.memory_backend.codec import decode_unroll, encode_unroll
from distrl.memory_backend.compression import HEAD_BYTES, MARK, compressor, decompressed
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, Unroll, UnrollHeader
from distrl.unroll_schema import UnrollSchema

MEBIBYTE = 2**20
T, B = 4, 3
SPEC = EnvSpec(
    "Toy-v0",
    observations={"camera": ArraySpec((16, 16, 1), "uint8"), "speed": ArraySpec((), "float32")},
    actions={"action": DiscreteSpec(4)},
)
SCHEMA = UnrollSchema.of(
    SPEC, T, B, {"lstm": ArraySpec((5,), "float32")}, normalizes_rewards=True, extras=["priorities"]
)


def make_unroll(episodes: int = 0, *, camera: int = 7) -> Unroll:
    return Unroll(
        header=UnrollHeader(0, 1, 0, 1, T * B),
        observations={
            "camera": np.full((T + 1, B, 16, 16, 1), camera, np.uint8),
            "speed": np.zeros((T + 1, B), np.float32),
        },
        actions={"action": np.zeros((T, B), np.int32)},
        rewards=np.zeros((T, B), np.float32),
        terminated=np.zeros((T, B), np.bool_),
        truncated=np.zeros((T, B), np.bool_),
        valid=np.ones((T, B), np.bool_),
        behaviour_log_probabilities=np.full((T, B), -1.0, np.float32),
        recurrent_state={"lstm": np.zeros((1, B, 5), np.float32)},
        episode_returns=np.ones(episodes, np.float32),
        episode_lengths_steps=np.ones(episodes, np.int32),
        episode_discounted_returns=np.ones(episodes, np.float32),
        episode_successes=np.ones(episodes, np.int8),
        reward_moments={
            name: np.array(float(T * B) if name == "count" else 0.0) for name in ("count", "mean", "squares")
        },
        extras={"priorities": np.ones((T, B), np.float32)},
    )


def frame(code: int, size: int, body: bytes) -> bytes:
    return MARK + bytes([code]) + size.to_bytes(4, "big") + body


@pytest.mark.row("O10")
@pytest.mark.parametrize("method", ["none", "zstd", "lz4"])
@given(payload=st.binary(max_size=200).flatmap(lambda piece: st.integers(0, 50).map(lambda times: piece * times)))
def test_content_comes_back_and_is_never_longer(method, payload):
    payload = b"\xde" + payload  # as every unroll begins
    sent = compressor(method)(payload)
    assert len(sent) <= len(payload)
    assert decompressed(sent, len(payload)) == payload


def test_a_payload_that_would_not_get_shorter_is_sent_as_it_is():
    payload = np.random.default_rng(0).bytes(10_000)
    for method in ("none", "zstd", "lz4"):
        assert compressor(method)(payload) is payload
    assert decompressed(payload, 1) is payload


@pytest.mark.row("O10")
@pytest.mark.parametrize("method", ["zstd", "lz4"])
def test_the_learner_decodes_every_method(method, same):
    unroll = make_unroll(2)
    plain = encode_unroll(unroll)
    sent = compressor(method)(plain)
    assert len(sent) < len(plain) / 2
    expected, decoded = (decode_unroll(unroll.header, payload, SCHEMA) for payload in (plain, sent))
    assert same(decoded.observations, expected.observations)
    assert same(decoded.reward_moments, expected.reward_moments)
    assert same(decoded.episode_returns, expected.episode_returns)


@pytest.mark.parametrize("episodes", [0, 1, T * B])
def test_no_unroll_is_longer_than_its_bound(episodes):
    assert len(encode_unroll(make_unroll(episodes))) <= SCHEMA.most_bytes


def test_the_bound_is_near_a_large_unroll():
    schema = UnrollSchema.of(replace(SPEC, observations={"camera": ArraySpec((84, 84, 1), "uint8")}), 20, 32, {})
    assert schema.least_bytes < schema.most_bytes < 1.01 * schema.least_bytes


def bombs():
    """Payloads of less than 100 KB that decompress, or claim to, to 512 MiB and more than an unroll."""
    zeros = zstandard.ZstdCompressor(level=1).compress(bytes(512 * MEBIBYTE))
    unsized = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(bytes(64 * MEBIBYTE))
    block = lz4.block.compress(bytes(16 * MEBIBYTE), store_size=False)
    yield "zstd, honest", frame(1, 512 * MEBIBYTE, zeros)
    yield "zstd, the size understated", frame(1, 1000, zeros)
    yield "zstd, no size in the frame", frame(1, 1000, unsized)
    yield "lz4, honest", frame(2, 16 * MEBIBYTE, block)
    yield "lz4, the size understated", frame(2, 1000, block)
    yield "the largest size", frame(1, 2**32 - 1, zeros)


BOMBS = dict(bombs())


@pytest.mark.row("O10")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_more_memory_than_an_unroll(name):
    payload = BOMBS[name]
    with pytest.raises(DecodeError):  # libraries are imported before memory is measured
        decode_unroll(make_unroll().header, payload, SCHEMA)
    tracemalloc.start()
    with pytest.raises(DecodeError):
        decode_unroll(make_unroll().header, payload, SCHEMA)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < SCHEMA.most_bytes + 100_000


def test_a_window_larger_than_the_content_is_refused():
    """A frame may ask for a window of gigabytes, which a decoder allocates before the first byte of content."""
    magic, descriptor, window = b"\x28\xb5\x2f\xfd", 0x80, (30 - 10) << 3  # 4 bytes of content size; 2**30
    block = (1000 << 3).to_bytes(3, "little") + bytes(10)  # raw, of which most is missing
    greedy = magic + bytes([descriptor, window]) + (1000).to_bytes(4, "little") + block
    assert zstandard.get_frame_parameters(greedy).window_size == 2**30
    assert zstandard.get_frame_parameters(greedy).content_size == 1000
    with pytest.raises(DecodeError, match="requires too much memory"):
        decompressed(frame(1, 1000, greedy), 1000)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (MARK, "compressed bytes"),
        (frame(1, 10, b""), "compressed bytes"),
        (frame(1, 0, b"x"), "compressed bytes"),
        (frame(3, 10, b"x"), "method 3 is not known"),
        (frame(0, 10, b"x"), "method 0 is not known"),
        (frame(1, 10, b"not a frame"), "Zstandard"),
        (frame(2, 10, b"not a block"), "LZ4"),
        (frame(1, 5, zstandard.compress(b"12345") + b"more"), "damaged Zstandard frame"),
        (frame(1, 5, zstandard.compress(b"12345") * 2), "damaged Zstandard frame"),
        (frame(1, 6, zstandard.compress(b"12345")), "not of 6 bytes"),
        (frame(2, 6, lz4.block.compress(b"12345", store_size=False)), "LZ4|decompressed bytes"),
    ],
)
def test_what_no_actor_writes_is_refused(payload, why):
    with pytest.raises(DecodeError, match=why):
        decompressed(payload, 1000)


def test_content_is_decompressed_once():
    inner = compressor("zstd")(encode_unroll(make_unroll()))
    outer = frame(1, len(inner), zstandard.compress(inner))
    with pytest.raises(DecodeError, match="not msgpack"):
        decode_unroll(make_unroll().header, outer, SCHEMA)


@pytest.mark.parametrize("method", ["zstd", "lz4"])
@given(data=st.data())
def test_a_damaged_payload_is_refused_or_has_the_stated_size(method, data):
    plain = encode_unroll(make_unroll(3))
    payload = bytearray(compressor(method)(plain))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        content = decompressed(bytes(payload), SCHEMA.most_bytes)
    except DecodeError:
        return
    assert len(content) in {len(payload), int.from_bytes(payload[2:HEAD_BYTES], "big")}


def test_no_message_begins_with_the_mark():
    for tree in (None, True, 0, -1, 2**40, 1.5, "x", b"x", (), {}, {"a": 1}, np.zeros(3)):
        assert wire.pack(tree)[:1] != MARK


@pytest.mark.parametrize(("method", "module"), [("zstd", "zstandard"), ("lz4", "lz4")])
def test_a_missing_library(method, module, monkeypatch):
    payload = compressor(method)(bytes(1000))
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    sys.path_importer_cache.clear()
    original = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        return original(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DecodeError, match=f"a library that the learner does not have: {module}"):
        decompressed(payload, 1000)
    with pytest.raises(
        MissingExtraError, match=rf"{module}, which memory.compression: {method} needs, is not installed"
    ):
        compressor(method)
