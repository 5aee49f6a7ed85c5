"""Texts as tokens: which numbers, of which shape, the same in every process."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.environment import TextParameters
from distrl.environments.text import PADDING, text_reader, token, tokens

SMALL = TextParameters(length_tokens=4, vocabulary=100)


@pytest.mark.row("L06")
def test_the_same_word_has_the_same_bucket_in_every_process():
    # printf go | b2sum -l 64, the bytes read backwards as one number, modulo 1023, plus 1
    assert [token(word, 1024) for word in ("go", "to", "the", "red", "door")] == [111, 904, 139, 926, 341]


@pytest.mark.row("L06")
def test_a_text_becomes_one_token_for_each_word_and_padding():
    one, two = token("go", 100), token("home", 100)
    np.testing.assert_array_equal(tokens("go home", SMALL), np.int32([one, two, PADDING, PADDING]), strict=True)
    np.testing.assert_array_equal(tokens("  go\t\nhome ", SMALL), [one, two, PADDING, PADDING])
    np.testing.assert_array_equal(tokens("go go go home home", SMALL), [one, one, one, two])
    np.testing.assert_array_equal(tokens("", SMALL), [PADDING] * 4)
    assert token("Go", 100) != one


@given(st.text(max_size=20), st.integers(3, 5000))
def test_no_word_has_the_bucket_of_padding_or_one_beyond_the_vocabulary(word, vocabulary):
    assert 1 <= token(word, vocabulary) < vocabulary


def test_words_are_spread_over_all_buckets():
    counts = np.bincount([token(f"word{index}", 11) for index in range(5000)], minlength=11)
    # Binomial: 500 expected in each of ten, deviation 21.
    assert counts[0] == 0
    assert (abs(counts[1:] - 500) < 110).all()


def test_a_word_need_not_be_valid_unicode():
    assert token("\udc80", 100) > 0


def test_a_reader_gives_fresh_rows():
    read = text_reader(SMALL, 3)
    rows = read(("go", "home", "go"))
    np.testing.assert_array_equal(rows, np.stack([tokens(text, SMALL) for text in ("go", "home", "go")]), strict=True)
    rows[:] = 7
    np.testing.assert_array_equal(read(np.array(["go", "home", "go"]))[0], tokens("go", SMALL))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (("go", 3), "3 of type int is not a text"),
        (("go", b"home"), "b'home' of type bytes is not a text"),
        (("go",), r"\('go',\) is not 2 texts"),
        ("go", "'go' is not 2 texts"),
    ],
)
def test_what_is_no_text_is_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        text_reader(SMALL, 2)(raw)
