"""Texts as tokens: words, split on white space and hashed into numbers that are the same in every process."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distrl.config.environment import TextParameters
from distrl.types import IntArray

PADDING = 0
_REMEMBERED_TEXTS = 1024
"""Number of cached texts: environments repeat the same few, such as an instruction at every step of an episode."""


def token(word: str, vocabulary: int) -> int:
    """Return the bucket of a word, in 1 … vocabulary - 1.

    It depends on the word's characters alone, upper and lower case apart: Python's own `hash` differs from process to
    process. Different words share a bucket with probability 1 / (vocabulary - 1) (feature hashing, Weinberger et al.
    2009).
    """
    # surrogatepass: file names, for one, may hold what is no valid Unicode, and have as much right to a number.
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "little") % (vocabulary - 1)


def tokens(text: str, parameters: TextParameters) -> IntArray:
    """Return a token for each of the first words, then `PADDING`: int32 [length_tokens]."""
    row = np.full(parameters.length_tokens, PADDING, np.int32)
    words = text.split()[: parameters.length_tokens]
    row[: len(words)] = [token(word, parameters.vocabulary) for word in words]
    return row


def text_reader(parameters: TextParameters, count: int) -> Callable[[Any], IntArray]:
    """Return the function from `count` texts, a tuple of str, to fresh tokens int32 [count, length_tokens].

    It raises ValueError where it is given anything else.
    """
    remembered = lru_cache(maxsize=_REMEMBERED_TEXTS)(lambda text: tokens(text, parameters))

    def read(raw: Any) -> IntArray:
        if isinstance(raw, str) or len(raw) != count:
            raise ValueError(f"{raw!r:.100} is not {count} texts")
        for text in raw:
            if not isinstance(text, str):
                raise ValueError(f"{text!r:.100} of type {type(text).__name__} is not a text")
        return np.stack([remembered(text) for text in raw])

    return read
