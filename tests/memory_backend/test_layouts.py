"""layouts: the same trees and the same refusals as without them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from distrl import wire
from distrl.errors import DecodeError
from distrl.memory_backend import layouts as layouts_module
from distrl.memory_backend.layouts import Layouts

any_array = st.sampled_from(["?", "u1", "<i4", ">f4", "f8"]).flatmap(
    lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
leaf = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), any_array)
tree = st.recursive(
    leaf,
    lambda children: st.one_of(
        st.dictionaries(st.text(max_size=3), children, max_size=4), st.lists(children, max_size=4).map(tuple)
    ),
    max_leaves=8,
)


@given(st.lists(tree, min_size=1, max_size=4), st.data())
def test_a_layout_that_is_known_changes_nothing(same, values, data):
    """Whatever came before, and whatever single byte is another one."""
    layouts = Layouts()
    for value in values:
        message = wire.pack(value)
        assert same(layouts.unpack(message), value)
        assert same(layouts.unpack(message), value)
        damaged = bytearray(message)
        damaged[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
        try:
            expected = wire.unpack(bytes(damaged))
        except DecodeError:
            with pytest.raises(DecodeError):
                layouts.unpack(bytes(damaged))
        else:
            assert same(layouts.unpack(bytes(damaged)), expected)


def test_messages_of_a_known_layout_are_not_read_again(same, monkeypatch):
    layouts = Layouts()
    first = {
        "x": np.zeros((2, 3), np.float32),
        "on": np.zeros(3, bool),
        "picture": np.zeros(5, np.uint8),
        "n": (1, "a"),
    }
    second = {**first, "x": np.arange(6, dtype=np.float32).reshape(2, 3), "on": np.array([True, False, True])}
    layouts.unpack(wire.pack(first))
    monkeypatch.setattr(wire, "unpack", lambda data: pytest.fail("it was read"))
    found = layouts.unpack(wire.pack(second))
    assert same(found, second)
    assert all(found[name].flags.aligned and not found[name].flags.writeable for name in ("x", "on", "picture"))


def test_a_bool_of_a_known_layout_that_is_neither_0_nor_1_is_a_decode_error():
    layouts = Layouts()
    good = wire.pack(np.array([True, False]))
    layouts.unpack(good)
    with pytest.raises(DecodeError, match="bool"):
        layouts.unpack(good[:-1] + b"\x02")


def test_what_pack_would_write_otherwise_is_read_as_ever():
    layouts = Layouts()
    longer = b"\x81\xa1x\xcd\x00\x05"  # {"x": 5}, with two bytes for the 5
    assert [layouts.unpack(longer) for _ in range(2)] == [{"x": 5}] * 2


def test_layouts_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(layouts_module, "MOST_LAYOUTS", 2)
    layouts = Layouts()
    for size in (1, 2, 3, 1):
        assert layouts.unpack(wire.pack(np.ones(size))).sum() == size
    assert len(layouts._known) == 2


@pytest.mark.parametrize("text", ["x" * 65_536, ("x" * 40,) * 2000])
def test_a_message_that_is_mostly_text_is_read_but_not_kept(same, text):
    layouts = Layouts()
    message = wire.pack({"text": text, "x": np.ones(2)})
    assert [same(layouts.unpack(message)["text"], text) for _ in range(2)] == [True, True]
    assert not layouts._known
