import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, dump, load
from distrl.dashboard.configuration import Leaf, leaves, read_configuration
from distrl.dashboard.files import NotThereError
from distrl.errors import ConfigError


def test_values_and_their_origins():
    loaded = load("cartpole-impala", sets=["actors.count=4"], flags={"--seed": 7})
    found = {leaf.path: leaf for leaf in leaves(dump(loaded))}
    assert found["actors.count"] == Leaf("actors.count", 4, "flag --set")
    assert found["seed"] == Leaf("seed", 7, "flag --seed")
    assert found["environment.id"] == Leaf("environment.id", "CartPole-v1", "preset cartpole-impala")
    assert {path: leaf.origin for path, leaf in found.items()} == loaded.origins


names = st.text("abcxyz_ #:-'\"", min_size=1, max_size=8)


@settings(max_examples=25)  # each reads and writes a whole configuration
@given(st.dictionaries(names, st.text(max_size=12) | st.integers() | st.none() | st.booleans(), max_size=4))
def test_any_value_keeps_its_origin(kwargs):
    kwargs = {f"k{name}": value for name, value in kwargs.items()}
    loaded = load("cartpole-impala").config.model_dump(mode="json")
    loaded["environment"]["kwargs"] = kwargs
    config = LoadedConfig.of(RunConfig.model_validate(loaded))
    assert {leaf.path: leaf.origin for leaf in leaves(dump(config))} == config.origins


def test_secrets():
    text = """
memory:
  url: rediss://me:pw@host:6379/0
environment:
  kwargs:
    api_token: abc
    password:
      old: x
    length_tokens: 16
    servers: [{url: "http://u:p@h", secret: 5}]
    token: null
"""
    shown = {leaf.path: leaf.value for leaf in leaves(text)}
    assert shown == {
        "memory.url": "rediss://•••@host:6379/0",
        "environment.kwargs.api_token": "•••",
        "environment.kwargs.password.old": "•••",
        "environment.kwargs.length_tokens": 16,
        "environment.kwargs.servers": [{"url": "http://•••@h", "secret": "•••"}],
        "environment.kwargs.token": None,
    }


def test_a_file_that_a_hand_has_changed():
    found = list(leaves("seed:    1  # mine\nactors: {count: 2}  # theirs\n"))
    assert found == [Leaf("seed", 1, ""), Leaf("actors.count", 2, "")]


def test_no_file_and_a_damaged_one(tmp_path):
    with pytest.raises(NotThereError):
        read_configuration(tmp_path)
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"config\.yaml is not valid YAML"):
        read_configuration(tmp_path)
