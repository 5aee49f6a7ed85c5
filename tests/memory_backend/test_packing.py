"""Commands are read as they were meant, and long values are not copied."""

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.memory_backend import packing
from distrl.memory_backend.packing import packed

values = st.one_of(st.text(), st.binary(max_size=40), st.integers(), st.floats(allow_nan=False))


@given(st.lists(st.lists(values, min_size=1, max_size=5).map(tuple), min_size=1, max_size=4), st.integers(1, 30))
def test_commands_are_read_as_they_were_meant_wherever_they_are_cut(commands, long_bytes):
    reader = hiredis.Reader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_LONG_BYTES", long_bytes)
        for piece in packed(commands):
            reader.feed(piece)
    read = [reader.gets() for _ in commands]
    assert read == [[v if isinstance(v, bytes) else str(v).encode() for v in command] for command in commands]
    assert not reader.has_data()


def test_numbers_that_are_equal_are_told_apart():
    assert [packed([("X", value)])[0].split(b"\r\n")[4] for value in (0, 0.0, -0.0, True, 1)] == [
        b"0",
        b"0.0",
        b"-0.0",
        b"True",
        b"1",
    ]


def test_only_short_texts_are_remembered():
    packing._remembered.cache_clear()
    packed([("HSET", "key", "x" * 64, 1.5, 7, b"y")])
    assert packing._remembered.cache_info().currsize == 2


def test_a_long_value_is_not_copied(monkeypatch):
    monkeypatch.setattr(packing, "_LONG_BYTES", 10)
    payload = b"x" * 10
    assert [piece for piece in packed([("SET", "k", payload), ("GET", "k")]) if piece is payload] == [payload]


@pytest.mark.parametrize("value", [None, memoryview(b"x"), bytearray(b"x"), (1,)])
def test_what_is_neither_text_nor_number_is_not_written_as_python_shows_it(value):
    with pytest.raises(TypeError):
        packed([("SET", "k", value)])
