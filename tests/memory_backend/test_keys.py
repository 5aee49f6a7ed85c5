"""keys: names, and the header in an entry's fields."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from distrl.errors import ConfigError
from distrl.memory_backend.keys import (
    HIGHEST_NUMBER,
    INCARNATIONS,
    TABLE,
    RunKeys,
    entry_fields,
    entry_header,
    producer_field,
    producer_of,
    run_of,
    runs_pattern,
    split_namespace,
    with_namespace,
)
from distrl.types import UnrollHeader

number = st.integers(0, 10**18 - 1)


def test_keys_stand_under_the_runs_prefix():
    keys = RunKeys("cartpole-1")
    assert keys.unrolls == "distrl:default:{cartpole-1}:unrolls:0"
    assert keys.ledger == "distrl:default:{cartpole-1}:ledger"
    assert keys.held((3, 2)) == "distrl:default:{cartpole-1}:held:3.2"


@pytest.mark.row("S01")
@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9-]{1,50}", fullmatch=True),
    st.dictionaries(st.integers(0, 10**18 - 1), st.integers(1, 40), max_size=3),
)
def test_all_keys_of_a_run_are_in_one_hash_slot_of_its_namespace(run_id, namespace, newest):
    keys = RunKeys(run_id, namespace)
    made = keys.all({str(actor).encode(): str(incarnation).encode() for actor, incarnation in newest.items()})
    assert {row.name.partition("{")[0] for row in TABLE} == {
        key.removeprefix(keys.prefix) if not key.startswith(f"{keys.prefix}held:") else "held:"
        for key in [*made, keys.held((3, 2))]
    }
    assert {value for name, value in vars(keys).items() if name not in ("run_id", "prefix")} <= {*made}
    assert {key_slot(key.encode()) for key in [*made, keys.held((3, 2))]} == {key_slot(run_id.encode())}
    assert all(key.startswith(f"distrl:{namespace}:{{{run_id}}}:") for key in made)


@pytest.mark.parametrize("namespace", ["", "a:b", "a*", "a b", "ä", "a_b", "x" * 51, "{a}"])
def test_a_namespace_has_no_character_with_a_meaning(namespace):
    with pytest.raises(ConfigError, match=r"memory\.namespace"):
        RunKeys("r", namespace)


def test_the_key_of_a_run_names_its_namespace_and_id():
    assert run_of(RunKeys("a.b-1", "team-a").run) == ("team-a", "a.b-1")
    assert fnmatch.fnmatchcase(RunKeys("r", "team-a").run, runs_pattern("team-a"))
    assert fnmatch.fnmatchcase(RunKeys("r", "team-a").run, runs_pattern(None))
    assert not fnmatch.fnmatchcase(RunKeys("r", "team-b").run, runs_pattern("team-a"))
    assert [run_of(key) for key in ("distrl:r:run", "distrl:n:{r}:ledger", "distrl:n:{a b}:run")] == [None] * 3


@pytest.mark.parametrize(
    ("url", "namespace", "expected"),
    [
        ("redis://h/0", "default", "redis://h/0"),
        ("redis://h/0", "a", "redis://h/0?namespace=a"),
        ("redis://h/0?password=x%26y", "a", "redis://h/0?password=x%26y&namespace=a"),
        ("redis://h/0?namespace=a&db=1", "default", "redis://h/0?db=1&namespace=a"),
        ("redis://h/0?namespace=a", "a", "redis://h/0?namespace=a"),
        ("unix:///x.sock?namespace=default", "default", "unix:///x.sock"),
    ],
)
def test_a_namespace_is_an_option_of_the_url(url, namespace, expected):
    made = with_namespace(url, namespace)
    assert made == expected
    assert split_namespace(made)[1] == (None if "namespace" not in made else "a")
    assert "namespace" not in split_namespace(made)[0]


@pytest.mark.parametrize("option", ["", "a*", "a:b"])
def test_a_namespace_in_a_url_is_checked_where_it_is_read(option):
    """An empty one is not the default one, and a pattern is no name."""
    with pytest.raises(ConfigError, match=r"memory\.namespace .* is not allowed"):
        split_namespace(f"redis://h?namespace={option}")


def test_two_namespaces_for_one_run_are_refused():
    with pytest.raises(ConfigError, match="'b' and the URL's namespace 'a' differ"):
        with_namespace("redis://h?namespace=a", "b")


@pytest.mark.row("S01")
def test_every_key_is_a_row_and_every_row_a_key():
    keys = RunKeys("r")
    made = {value for name, value in vars(keys).items() if name not in ("run_id", "prefix")}
    made.add(f"{keys.prefix}held:{{actor}}.{{incarnation}}")
    assert made == {keys.prefix + row.name for row in TABLE}
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_tickets_are_held_under_the_newest_incarnations_of_registered_actors():
    keys = RunKeys("r")
    incarnations = {b"0": b"2", b"7": b"%d" % HIGHEST_NUMBER, b"evaluator": b"3", b"8": b"-1", b"9": b"x"}
    held = keys.all_held(incarnations)
    assert held[:2] == [keys.held((0, 1)), keys.held((0, 2))]
    assert held[2:] == [keys.held((7, HIGHEST_NUMBER - age)) for age in range(INCARNATIONS)][::-1]
    made = {value for name, value in vars(keys).items() if name not in ("run_id", "prefix")}
    assert sorted(keys.all(incarnations)) == sorted([*made, *held])


@pytest.mark.parametrize("run_id", ["", "a:b", "a*", "a b", "../x", "-a", "ä", "a\n", "x" * 101, "[a]", "a?"])
def test_a_run_id_has_no_character_with_a_meaning(run_id):
    with pytest.raises(ConfigError, match="run id"):
        RunKeys(run_id)


@given(st.builds(UnrollHeader, number, number, number, number, number), st.binary(max_size=20))
def test_a_header_comes_back_from_its_fields(header, payload):
    fields = entry_fields(header, payload)
    assert entry_header(fields) == header
    assert fields[b"payload"] == payload


@given(st.dictionaries(st.sampled_from([b"actor", b"incarnation", b"sequence", b"version", b"steps"]), st.binary()))
def test_any_other_fields_are_no_header_or_five_plain_numbers(fields):
    header = entry_header(fields)
    if header is not None:
        assert min(header.actor, header.incarnation, header.sequence, header.weights_version, header.env_steps) >= 0
        assert len(fields) == 5


@given(number, number)
def test_a_producer_comes_back_from_its_field(actor, incarnation):
    assert producer_of(producer_field((actor, incarnation)).encode()) == (actor, incarnation)
