"""wire: round trips of every allowed tree, and nothing but DecodeError for everything else."""

import contextlib
import io
import pickle

import msgpack
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from distrl import wire
from distrl.errors import DecodeError

DTYPES = ["?", "i1", "i2", "<i4", ">i4", "i8", "u1", "u2", "u4", "u8", "f2", "<f4", ">f4", "f8", "c8", "c16"]

any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
leaf = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(), st.binary(), any_array
)
tree = st.recursive(
    leaf,
    lambda children: st.one_of(
        st.dictionaries(st.text(), children, max_size=4), st.lists(children, max_size=4).map(tuple)
    ),
    max_leaves=8,
)


def message(**changes):
    """A float32 [2, 3] array as msgpack-numpy encodes it, with some keys replaced; None removes a key."""
    plain = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2, 3], b"data": bytes(24)}
    plain.update({name.encode(): value for name, value in changes.items()})
    return msgpack.packb({key: value for key, value in plain.items() if value is not None})


@given(tree)
def test_a_tree_comes_back_bit_by_bit(same, value):
    assert same(wire.unpack(wire.pack(value)), value)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64, np.complex64])
def test_numpy_scalars_stay_scalars_of_their_type(dtype):
    value = wire.unpack(wire.pack({"x": dtype(1)}))["x"]
    assert type(value) is dtype
    assert value == 1


def test_the_encoding_is_msgpack_numpys(same):
    value = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.int16(-3), "c": np.zeros((0, 2), bool)}
    assert wire.pack(value) == msgpack.packb(value, default=msgpack_numpy.encode)
    theirs = msgpack.unpackb(wire.pack(value), object_hook=msgpack_numpy.decode)
    assert same(theirs, value)
    assert message() == wire.pack(np.zeros((2, 3), np.float32))


def test_strided_arrays_are_encoded_in_c_order():
    value = np.arange(12, dtype=np.int32).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(wire.unpack(wire.pack(value)), value)


def test_decoded_arrays_are_read_only_views():
    array = wire.unpack(wire.pack(np.ones(4)))
    assert not array.flags.writeable
    assert not array.flags.owndata


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array(["text"]),
        np.zeros(2, [("a", "f4")]),
        np.array([np.datetime64(0, "s")]),
        np.zeros(2, np.longdouble),
        object(),
        {1, 2},
        {1: "integer key"},
        {b"nd": True},
        1j,
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_what_has_no_encoding_is_a_type_error(value):
    with pytest.raises(TypeError):
        wire.pack({"x": value})


@pytest.mark.row("D61")
def test_a_pickle_for_msgpack_numpys_decoder_is_refused_and_not_executed(tmp_path):
    touched = tmp_path / "touched"

    class Touch:
        def __reduce__(self):
            return io.open, (str(touched), "w")

    payload = message(type="|O", kind=b"O", shape=[1], data=pickle.dumps(Touch()))
    with pytest.raises(DecodeError, match="kind"):
        wire.unpack(payload)
    assert not touched.exists()
    # The payload is real: the library's own decoder runs it.
    msgpack.unpackb(payload, object_hook=msgpack_numpy.decode).close()
    assert touched.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "|O", "data": bytes(48)},
        {"type": "O", "data": bytes(48)},
        {"type": "i4,f4", "data": bytes(48)},
        {"type": [["a", "<f4"]], "kind": b"V"},
        {"type": [["a", "<f4"]]},
        {"type": "<U1"},
        {"type": "|V4"},
        {"type": "|S4"},
        {"type": "<M8[s]", "data": bytes(48)},
        {"type": b"<f4"},
        {"type": ["<f4"]},
        {"type": None},
        {"kind": b"O"},
        {"kind": ""},
        {"kind": None},
        {"data": bytes(23)},
        {"data": bytes(25)},
        {"data": "x" * 24},
        {"data": [0] * 24},
        {"data": None},
        {"shape": [-2, -3]},
        {"shape": [-1, 6]},
        {"shape": [2, 3.0]},
        {"shape": [True, 6]},
        {"shape": ["2", 3]},
        {"shape": 6},
        {"shape": None},
        {"shape": [2**32, 2**32], "data": b""},
        {"shape": [2**62, 4, 6]},
        {"shape": [0, 2**63], "data": b""},
        {"shape": [0, 2**28, 2**28, 2**28], "data": b""},
        {"shape": [1] * 33, "data": bytes(4)},
        {"nd": 1},
        {"nd": None},
        {"nd": False},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_malformed_array_is_a_decode_error(changes):
    with pytest.raises(DecodeError):
        wire.unpack(message(**changes))


def test_a_bool_that_is_neither_0_nor_1_is_a_decode_error():
    with pytest.raises(DecodeError, match="bool"):
        wire.unpack(message(type="|b1", shape=[2], data=b"\x01\x02"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb(1) + b"\x00",
        msgpack.packb({1: 2}),
        msgpack.packb({b"x": 2}),
        b"\x82\xa1a\x01\xa1a\x02",
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb(msgpack.Timestamp(0)),
        b"\xa2\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ],
    ids=[
        "empty",
        "reserved",
        "trailing",
        "int key",
        "bytes key",
        "repeated key",
        "extension",
        "timestamp",
        "no utf-8",
        "long list",
        "long map",
        "long bytes",
    ],
)
def test_msgpack_outside_the_allow_list_is_a_decode_error(data):
    with pytest.raises(DecodeError):
        wire.unpack(data)


def test_depth_is_capped():
    def nested(depth):
        return b"\x91" * depth + b"\x01"

    value = wire.unpack(nested(16))
    for _ in range(16):
        (value,) = value
    assert value == 1
    for depth in (17, 1_000, 100_000):
        with pytest.raises(DecodeError):
            wire.unpack(nested(depth))


def test_items_are_capped_over_all_containers_before_they_are_built():
    assert wire.unpack(msgpack.packb([[], [1]]), max_items=6) == ((), (1,))
    with pytest.raises(DecodeError, match="elements"):
        wire.unpack(msgpack.packb([[], [1]]), max_items=5)
    with pytest.raises(DecodeError):  # 4 million empty maps in 4 MB
        wire.unpack(b"\xdc\x07\xd0" + (b"\xdc\x07\xd0" + b"\x80" * 2000) * 2000)


def test_bytes_are_capped():
    data = wire.pack(b"x" * 100)
    assert wire.unpack(data, max_bytes=len(data)) == b"x" * 100
    with pytest.raises(DecodeError, match=f"{len(data)} bytes exceed"):
        wire.unpack(data, max_bytes=len(data) - 1)


def decode_or_refuse(data):
    """Any other exception fails the test that calls this."""
    with contextlib.suppress(DecodeError):
        wire.unpack(data)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_decode_error(data):
    decode_or_refuse(data)


@given(tree, st.data())
def test_a_damaged_message_raises_nothing_but_decode_error(value, data):
    damaged = bytearray(wire.pack(value))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(damaged))
    decode_or_refuse(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), st.binary(max_size=3)),
    lambda children: st.lists(children, max_size=3),
    max_leaves=4,
)


@given(st.fixed_dictionaries({}, optional={name: plain for name in (b"nd", b"type", b"kind", b"shape", b"data")}))
def test_any_values_under_an_arrays_keys_raise_nothing_but_decode_error(changes):
    description = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [0], b"data": b"", **changes}
    decode_or_refuse(msgpack.packb(description))


def test_names_live_on_for_the_next_message_that_has_them():
    # Otherwise each message added them to Python's table of interned strings, which msgpack puts every key into.
    data = wire.pack({"a name of weights": 1})
    (name,) = wire.unpack(data)
    address = id(name)
    del name
    fillers = ["".join((f"{number:08}", f"{number:09}")) for number in range(1000)]  # in the place of one that died
    (again,) = wire.unpack(data)
    assert id(again) == address
    del fillers


def test_foreign_names_are_not_remembered_for_ever():
    for number in range(3 * wire._MOST_KEPT):
        wire.unpack(wire.pack({f"foreign {number}": 1}))
    wire.unpack(wire.pack({"x" * 1000: 1}))
    wire.unpack(wire.pack({f"more {number}": 1 for number in range(2 * wire._MOST_KEPT)}))
    assert len(wire._kept) <= wire._MOST_KEPT
    assert max(map(len, wire._kept)) < 1000
