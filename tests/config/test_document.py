import re
import subprocess
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config import document
from distrl.config.document import lines_of, parse, parse_mapping, scalar, shown
from distrl.config.load import dump, load
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
    ("values", "texts"),
    [
        (
            [0.0, -0.0, 0, False, 1, 1.0, True, None, "1"],
            ["0.0", "-0.0", "0", "false", "1", "1.0", "true", "null", "'1'"],
        )
    ],
)
def test_a_scalar_is_not_taken_for_an_equal_one(values, texts):
    assert [scalar(value) for value in values] == texts
    assert [scalar(value) for value in reversed(values)] == texts[::-1]


# Where libyaml and PyYAML are known to differ: tabs, marks of byte order, tags, block scalars, keys after "?".
_TOKENS = [
    *["a", "b", "1", "1e-3", ".5", "null", "~", "true", "0x1", "1_0", "1:30", "2001-01-01", "é", "😀", "=", "`", "@"],
    *[":", ": ", "-", "- ", "\n", "\n  ", "\n    ", "\r", "\r\n", "\x85", "\u2028", " ", "\t", ",", ", ", "...", "---"],
    *["#", " # c", "'", '"', "\\", "\\n", "\\x41", "\\u1", "{", "}", "[", "]", "?", "? ", "|", ">", "|-", ">+", "%"],
    *["&a ", "*a", "<<: ", "<<", "!", "!!str ", "!!int ", "!x ", "%YAML 1.1\n", "\ufeff", "\x7f", "\x00", "\ud800"],
]


_ALIKE = [token for token in _TOKENS if not document._READ_APART.search(token)]


@settings(max_examples=500)
@given(
    st.lists(st.sampled_from(_TOKENS), max_size=14).map("".join)
    | st.lists(st.sampled_from(_ALIKE), max_size=14).map("".join)
    | plain.map(yaml.safe_dump)
)
def test_libyaml_reads_what_pyyaml_reads(text):
    def outcome():
        try:
            return repr(parse(text, "here"))
        except ConfigError as error:
            return str(error)

    fast = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_READ_APART", re.compile(""))
        assert outcome() == fast


def test_libyaml_reads_configurations(monkeypatch):
    text = dump(load(preset="cartpole-impala"))
    monkeypatch.setattr(document, "_Loader", None)
    assert parse_mapping(text, "here")["environment"]["id"] == "CartPole-v1"


def test_without_libyaml_the_same_is_read():
    script = """import yaml
yaml.__with_libyaml__ = False
del yaml.CSafeLoader
from distrl.config.document import parse
print(parse('a: [1, 1e-3]', 'here'))"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{'a': [1, 0.001]}\n"


@pytest.mark.timeout(60)  # in quadratic time it takes minutes
def test_many_digits_and_a_letter_are_text():
    text = "1" * 100_000 + "x"
    assert parse(f"a: {text}", "here") == {"a": text}


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
        ("{a: 1, b: 2, a: 3}", "the key 'a' is there twice (line 1, column 14)"),
        ("a: [1", "(line 1, column 6)"),
        ("!!python/object/apply:os.system [id]", "python/object/apply:os.system"),
        ("!!python/name:os.system", "could not determine a constructor"),
        ("!!set {a, b}", "a value of type set is not plain data"),
        ("!!binary aGk=", "a value of type bytes is not plain data"),
        ("!!timestamp 2026-01-02", "a value of type date is not plain data"),
        ("{1: a}", "the key 1 must be text; write it in quotes"),
        ("!!int abc", "not valid YAML"),
        ("!!timestamp 0", "not valid YAML: a value does not fit its tag; remove the tag (!!)"),
        ('a: [!!int ""]', "not valid YAML: a value does not fit its tag; remove the tag (!!)"),
        ("!!bool maybe", "not valid YAML: a value does not fit its tag; remove the tag (!!)"),
        ("a: \x00", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("{a: " * 65 + "1" + "}" * 65, "more than 64 levels of mappings and lists"),
        ("[" * 66 + "]" * 66, "more than 64 levels of mappings and lists"),
        ("\n".join(["k0: &k0 {}", *(f"k{i}: &k{i} {{x: *k{i - 1}}}" for i in range(1, 70))]), "more than 64 levels"),
        ("&a {a: *a}", "more than 64 levels"),
        ('a: "\\ud800"', r"the half character '\ud800', which UTF-8 cannot hold"),
        ('"\\ud800": 1', r"the half character '\ud800', which UTF-8 cannot hold"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(ConfigError) as caught:
        parse(text, "file x.yaml")
    message = str(caught.value)
    assert message.startswith("file x.yaml")
    assert problem in message
    assert "\n" not in message


def test_the_deepest_document_that_is_allowed():
    value = parse("[" * 64 + "1" + "]" * 64, "here")
    for _ in range(64):
        (value,) = value
    assert value == 1


def test_every_key_of_a_mapping_is_compared_with_no_other():
    class Key(str):
        comparisons = 0

        __hash__ = str.__hash__

        def __eq__(self, other):
            Key.comparisons += 1
            return str.__eq__(self, other)

    def scalar_node(value):
        return yaml.ScalarNode("tag:yaml.org,2002:str", value)

    node = yaml.MappingNode(
        "tag:yaml.org,2002:map", [(scalar_node(Key(f"k{i}")), scalar_node("1")) for i in range(300)]
    )
    assert len(document._Loader("").construct_mapping(node)) == 300
    assert Key.comparisons < 300


def test_the_rest_of_a_document_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(document, "MOST_VALUES", 50)
    composed = []
    compose = yaml.SafeLoader.compose_node
    monkeypatch.setattr(yaml.SafeLoader, "compose_node", lambda *arguments: composed.append(1) or compose(*arguments))
    with pytest.raises(
        ConfigError, match=r"^file x.yaml is not valid YAML: more than 50 values \(line 100, column 3\)$"
    ):
        parse("\n".join(f"- {i}" for i in range(10_000)), "file x.yaml")
    assert len(composed) == 100


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


def test_lines_of_keys():
    text = "a:\n  b: 1\n\n  c: {d: 2}\n# x\ne: [1,\n  2]\n"
    assert lines_of(text) == {"a": 1, "a.b": 2, "a.c": 4, "a.c.d": 4, "e": 6}
    assert lines_of("? [1, 2]\n: 3\nx: 1\n") == {"x": 3}
    assert lines_of("- 1") == lines_of("a: [") == lines_of("{" * 5000) == lines_of("\0") == {}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {x: *a, x.x: *a}\n",
        "\n".join(["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{x: *a{n - 1}, x.x: *a{n - 1}}}" for n in range(1, 60))]),
        "\n".join(["x: &a0 [1, 1, 1]", *(f"k{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 60)), "? *a59\n: 1"]),
    ],
    ids=["recursive", "aliases", "a key of aliases"],
)
def test_the_lines_of_a_document_that_multiplies_itself_are_found_at_once(text):
    assert lines_of(text)


@pytest.mark.parametrize("text", ["a\u202eb", "a\u2066b", "a\u200bb", "\u2028", "\u2029", "\x1b[2J", "a\x85b"])
def test_characters_that_hide_text_are_written_as_escapes(text):
    assert scalar(text).isascii()
    assert scalar({text: [text]}).isprintable()
    assert parse(scalar(text), "x") == text


@pytest.mark.parametrize("text", ["Zoë 👩\u200d🔬", "東京\u3000駅", "a\xa0b", "\u3000", "é\u3000: #"])
def test_joined_emoji_and_wide_spaces_are_written_as_they_are(text):
    assert text in scalar(text)
    assert text in scalar({"a": [text]})
    assert parse(scalar(text), "x") == text
