"""Fast unpacking of similar messages: bytes that equal those of an earlier message are compared, not parsed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl import wire
from distrl.nest import Tree

MOST_LAYOUTS = 256
"""Most layouts kept; an unroll has one for every number of episodes that end in it."""
MOST_TEXT_BYTES = 65_536
"""Most text of a layout that is kept; a forged message may consist of text of any length."""

MOST_VALUES = 512
"""Most values of a layout, several times an unroll's: an empty map takes one byte of text and 64 of Python's."""


class Layouts:
    """Unpacks messages of one kind, which differ in the content of their arrays and in little else.

    The layout of a message that `wire.pack` wrote is remembered by the message's length: the places of array data, and
    all other bytes. A message whose other bytes are the same has its arrays in the same places.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Layout] = {}

    def unpack(self, data: bytes, *, max_items: int = wire.MAX_ITEMS) -> Tree:
        """Unpack a message as `wire.unpack` does.

        Returns:
            The tree; arrays are read-only views of `data`, or of copies.

        Raises:
            DecodeError: `data` is not on the allow-list.
        """
        known = self._known.get(len(data))
        if known is not None and known.fits(data):
            return _viewed(known.tree, data)
        tree = wire.unpack(data, max_items=max_items)
        if not _is_small(tree):
            return tree
        layout = _Layout.of(tree)
        if sum(len(text) for _, text in layout.texts) <= MOST_TEXT_BYTES and layout.fits(data):
            if len(self._known) >= MOST_LAYOUTS:
                self._known.clear()
            self._known[len(data)] = layout
        return tree


@dataclass(frozen=True)
class _Place:
    """Position of an array's data."""

    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class _Layout:
    """A message of `wire.pack` without the arrays' contents.

    Attributes:
        texts: (start, bytes) of everything between the arrays.
        bools: Positions of bool arrays, whose every byte is 0 or 1.
        tree: The tree with a place for each array.
    """

    texts: tuple[tuple[int, bytes], ...]
    bools: tuple[slice, ...]
    tree: Any

    @staticmethod
    def of(tree: Tree) -> "_Layout":
        texts, places, text, at = [], [], bytearray(), 0
        for piece in wire.pieces(tree):
            if isinstance(piece, np.ndarray):
                texts.append((at - len(text), bytes(text)))
                places.append(_Place(at, at + piece.nbytes, piece.shape, piece.dtype))
                text, at = bytearray(), at + piece.nbytes
            else:
                text += piece
                at += len(piece)
        texts.append((at - len(text), bytes(text)))
        bools = tuple(slice(place.start, place.stop) for place in places if place.dtype.kind == "b")
        return _Layout(tuple(texts), bools, _placed(tree, iter(places)))

    def fits(self, data: bytes) -> bool:
        """Return whether data of the same length has this layout."""
        if not all([data.startswith(text, at) for at, text in self.texts]):
            return False
        return not any([data[place].translate(None, b"\x00\x01") for place in self.bools])


def _is_small(tree: Tree) -> bool:
    left, nodes = MOST_VALUES, [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict | tuple):
            left -= len(node)
            if left < 0:
                return False
            nodes += node.values() if isinstance(node, dict) else node
    return True


def _placed(tree: Tree, places: Iterator[_Place]) -> Any:
    if isinstance(tree, np.ndarray):
        return next(places)
    if isinstance(tree, dict):
        return {key: _placed(child, places) for key, child in tree.items()}
    return tuple([_placed(child, places) for child in tree]) if isinstance(tree, tuple) else tree


def _viewed(tree: Any, data: bytes) -> Tree:
    """Return the tree with each place as a view of `data`."""
    if type(tree) is _Place:
        # Numbers of several bytes are seldom aligned in the message; NumPy would copy them at each use.
        own = data if tree.dtype.itemsize == 1 else data[tree.start : tree.stop]
        return np.ndarray(tree.shape, tree.dtype, own, tree.start if own is data else 0)
    if type(tree) is dict:
        return {key: _viewed(child, data) for key, child in tree.items()}
    return tuple([_viewed(child, data) for child in tree]) if type(tree) is tuple else tree
