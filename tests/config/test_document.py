import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.document import parse, parse_mapping, scalar, shown
from distrl.errors import ConfigError

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_a_scalar_is_one_line_and_reads_back_equal(value):
    text = scalar(value)
    assert "\n" not in text
    back = parse(text, "here")
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-2.5e+2", -250.0),
        (".5e1", 5.0),
        ("1e", "1e"),
        ("'1e-3'", "1e-3"),
        ("3", 3),
        ("1_000_000", 1000000),
        ("true", True),
        ("null", None),
        ("[1, a, 2.0]", [1, "a", 2.0]),
        ("2026-01-02", "2026-01-02"),
        ("redis://:pw@host:6379/0", "redis://:pw@host:6379/0"),
        ("__import__('os').getcwd()", "__import__('os').getcwd()"),
    ],
)
def test_values(text, value):
    read = parse(text, "here")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{a: 1, b: 2, a: 3}", "the key 'a' is there twice (line 1, column 1)"),
        ("a: [1", "(line 1, column 6)"),
        ("!!python/object/apply:os.system [id]", "python/object/apply:os.system"),
        ("!!python/name:os.system", "could not determine a constructor"),
        ("!!set {a, b}", "a value of type set is not plain data"),
        ("!!binary aGk=", "a value of type bytes is not plain data"),
        ("!!timestamp 2026-01-02", "a value of type date is not plain data"),
        ("{1: a}", "the key 1 must be text; write it in quotes"),
        ("!!int abc", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(ConfigError) as caught:
        parse(text, "file x.yaml")
    message = str(caught.value)
    assert message.startswith("file x.yaml")
    assert problem in message
    assert "\n" not in message


def test_a_merge_key_is_no_duplicate():
    text = "base: &base {x: 1, y: 2}\nother: {<<: *base, y: 3}\n"
    assert parse(text, "here") == {"base": {"x": 1, "y": 2}, "other": {"x": 1, "y": 3}}


def test_documents_are_mappings():
    assert parse_mapping("", "file x.yaml") == {}
    assert parse_mapping("seed: 3\n", "file x.yaml") == {"seed": 3}
    with pytest.raises(ConfigError, match=r"^file x.yaml must hold a mapping .* not \[1, 2\]$"):
        parse_mapping("- 1\n- 2\n", "file x.yaml")


def test_shown_is_one_short_line():
    assert shown(None) == "null"
    assert shown("a") == "'a'"
    assert shown({"a": [1, 2]}) == "{a: [1, 2]}"
    assert shown("x" * 100) == "'" + "x" * 58 + "…"
