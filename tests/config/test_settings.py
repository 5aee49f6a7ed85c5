import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, dump, load
from distrl.config.settings import Setting, different, read_settings, settings_in, short_names, value_of
from distrl.errors import ConfigError


def written(tmp_path, *sets, name="config.yaml"):
    path = tmp_path / name
    path.write_text(dump(load("cartpole-impala", None, sets)))
    return path


def test_every_value_has_its_path_and_its_origin(tmp_path):
    loaded = load("cartpole-impala", None, ("environment.kwargs={text: 'a  # b', size: 4}",))
    (tmp_path / "config.yaml").write_text(dump(loaded))
    found = read_settings(tmp_path / "config.yaml")
    assert {path: each.origin for path, each in found.items()} == loaded.origins
    assert found["environment.kwargs.text"] == Setting("a  # b", "flag --set")
    assert found["network.learning_rate"] == Setting(0.0015, "preset cartpole-impala")
    assert found["network.middleware_parameters.scheme"].text == "[64, 64]"
    assert found["stop.minutes"].text == "null"


def test_a_configuration_that_todays_distrl_does_not_know_can_be_read(tmp_path):
    (tmp_path / "config.yaml").write_text("gone:\n  by: 3\nseed: 1  # default\n")
    assert read_settings(tmp_path / "config.yaml") == {"gone.by": Setting(3, ""), "seed": Setting(1, "default")}


def test_secrets_are_masked(tmp_path):
    found = read_settings(written(tmp_path, "environment.kwargs={url: 'tcp://me:pw@host'}"))
    assert found["environment.kwargs.url"].value == "tcp://•••@host"


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), (b"\xff", "cannot be read"), (b"[", "YAML")]
)
def test_what_is_no_configuration(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_settings(tmp_path / "config.yaml")


def test_differences_are_in_order_and_what_one_lacks_is_one(tmp_path):
    one = read_settings(written(tmp_path, "seed=1"))
    two = read_settings(written(tmp_path, "seed=2", "stop.minutes=3", "environment.kwargs={size: 4}"))
    assert different([one, two]) == ["seed", "environment.kwargs", "stop.minutes", "environment.kwargs.size"]
    assert different([one, one]) == different([one]) == different([]) == []


def test_a_value_or_all_of_a_section(tmp_path):
    found = read_settings(written(tmp_path))
    assert value_of(found, "seed") == "1"
    told = "every_env_steps: null, episodes: 20, environments: 10, last_within_s: 60.0"
    told += ", max_episode_steps: 27000, epsilon: 0.0"
    told += ", best_by: episode_return, other_environments: {}, off_policy.estimators: [], off_policy.sets: []"
    films = "films.every: null, films.best: false, films.keep: 20"
    assert value_of(found, "evaluation") == f"{{{told}, off_policy.behaviour: null, {films}}}"
    with pytest.raises(ConfigError, match=r"unknown configuration key 'sed'; did you mean seed"):
        value_of(found, "sed")


names = st.text("abcxyz_ #:-'\"", min_size=1, max_size=8)


@settings(max_examples=25)  # each reads and writes a whole configuration
@given(st.dictionaries(names, st.text(max_size=12) | st.integers() | st.none() | st.booleans(), max_size=4))
def test_any_value_keeps_its_origin(kwargs):
    kwargs = {f"k{name}": value for name, value in kwargs.items()}
    loaded = load("cartpole-impala").config.model_dump(mode="json")
    loaded["environment"]["kwargs"] = kwargs
    config = LoadedConfig.of(RunConfig.model_validate(loaded))
    assert {path: setting.origin for path, setting in settings_in(dump(config), "test").items()} == config.origins


def test_secrets_wherever_they_stand():
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
    shown = {path: setting.value for path, setting in settings_in(text, "test").items()}
    assert shown == {
        "memory.url": "rediss://•••@host:6379/0",
        "environment.kwargs.api_token": "•••",
        "environment.kwargs.password.old": "•••",
        "environment.kwargs.length_tokens": 16,
        "environment.kwargs.servers": [{"url": "http://•••@h", "secret": "•••"}],
        "environment.kwargs.token": None,
    }


def test_a_file_that_a_hand_has_changed():
    found = settings_in("seed:    1  # mine\nactors: {count: 2}  # theirs\n", "test")
    assert found == {"seed": Setting(1, ""), "actors.count": Setting(2, "")}


def test_settings_after_one_that_a_hand_has_changed_keep_their_origins():
    text = "seed: 1  # default\nactors: {count: 2, other: 3}\nstop:\n  minutes: 4  # flag\n"
    assert {path: one.origin for path, one in settings_in(text, "test").items()} == {
        "seed": "default",
        "actors.count": "",
        "actors.other": "",
        "stop.minutes": "flag",
    }


def test_short_names_are_told_apart_from_every_other_path():
    every = ["seed", "checkpoint.keep_s", "films.keep_s", "actors.count", "algorithm.name", "network.learning_rate"]
    assert short_names(every, every) == {
        "seed": "seed",
        "checkpoint.keep_s": "checkpoint.keep_s",
        "films.keep_s": "films.keep_s",
        "actors.count": "actors.count",  # a bare count says nothing
        "algorithm.name": "algorithm",
        "network.learning_rate": "learning_rate",
    }
    assert short_names(["films.keep_s"], every) == {"films.keep_s": "films.keep_s"}
    assert short_names(["films.keep_s"], ["seed"]) == {"films.keep_s": "keep_s"}
    assert short_names(["a.kind"], ["a.name", "a.kind"]) == {"a.kind": "a.kind"}
