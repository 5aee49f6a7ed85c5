"""Signed descriptions, and the code that an unsigned one may name."""

import os

import pytest

from distrl.config import RunConfig
from distrl.errors import ConfigError, RunKeyError
from distrl.roles.description import RunDescription
from distrl.roles.trust import Trust, code_named, given_key, key_may_change, new_key, signature
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec("X", {"a": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
KEY = "ab" * 32


def config(**sections):
    return RunConfig.model_validate(sections)


def test_keys_are_random_and_a_signature_is_of_key_and_text():
    assert new_key() != new_key()
    assert len(bytes.fromhex(new_key())) == 32
    assert signature(KEY, "x") != signature(KEY, "y")
    assert signature(KEY, "x") != signature(new_key(), "x")


def test_a_description_that_was_rewritten_is_refused_and_the_right_one_is_not():
    trust = Trust(KEY)
    trust.check_signature("r", "text", signature(KEY, "text"))
    for text, signed, what in (
        ("other", signature(KEY, "text"), "does not have its signature"),
        ("text", signature(new_key(), "text"), "does not have its signature"),
        ("text", "ünsinn", "does not have its signature"),
        ("text", "", "is not signed"),
        ("text", None, "is not signed"),
    ):
        with pytest.raises(
            RunKeyError, match=f"the description of run r in Redis {what}: a client of Redis has"
        ) as error:
            trust.check_signature("r", text, signed)
        assert "is the key of another run or launch: copy run.key again" in str(error.value)
        assert KEY not in str(error.value)
    Trust().check_signature("r", "text", None)  # nothing can be checked without a key
    assert KEY not in repr(trust)


def test_the_key_comes_from_a_variable_or_a_file(tmp_path):
    path = tmp_path / "run.key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    assert given_key({}) is None
    assert given_key({"DISTRL_RUN_KEY": f" {KEY}\n"}) == KEY
    assert given_key({"DISTRL_RUN_KEY_FILE": str(path)}) == KEY
    assert given_key({"DISTRL_RUN_KEY": "cd" * 32, "DISTRL_RUN_KEY_FILE": str(path)}) == "cd" * 32
    path.write_text("no key")
    readable = tmp_path / "readable"
    readable.write_text(KEY)
    readable.chmod(0o644)
    for variables, refusal in (
        ({"DISTRL_RUN_KEY": "short"}, "DISTRL_RUN_KEY is no run key; copy the 64 hexadecimal digits in run.key"),
        ({"DISTRL_RUN_KEY_FILE": str(path)}, f"DISTRL_RUN_KEY_FILE {path} is no run key"),
        ({"DISTRL_RUN_KEY_FILE": str(tmp_path / "none")}, "none cannot be read: .*No such file"),
        ({"DISTRL_RUN_KEY_FILE": str(readable)}, "others may read DISTRL_RUN_KEY_FILE .*; chmod 600"),
    ):
        with pytest.raises(RunKeyError, match=refusal):
            given_key(variables)


def test_a_key_in_a_file_may_change():
    file = {"DISTRL_RUN_KEY_FILE": "run.key"}
    assert key_may_change(file)
    assert not key_may_change({**file, "DISTRL_RUN_KEY": KEY})
    assert not key_may_change({})


LAYER = {"kind": "custom", "layer": "mine:Layer"}
OWN_REWARD = {"name": "dqn", "replay": {"hindsight": {"reward": {"kind": "function", "function": "mine:reward"}}}}


OTHERS = {
    "every_env_steps": 9,
    "other_environments": {"a": {"id": "mine:Other"}, "b": {"id": "tcp://h:1"}, "c": {"id": "CartPole-v0"}},
}


@pytest.mark.parametrize(
    ("role", "sections", "named"),
    [
        ("actor", {}, []),
        ("actor", {"environment": {"id": "mine:Env"}}, ["mine:Env"]),
        ("evaluator", {"environment": {"id": "gym:CartPole-v1"}}, ["gym:CartPole-v1"]),
        (
            "evaluator",
            {"environment": {"id": "mine:Env"}, "evaluation": OTHERS},
            ["mine:Env", "mine:Other", "tcp://h:1"],
        ),
        ("actor", {"evaluation": OTHERS}, []),  # the evaluator alone makes them
        ("actor", {"environment": {"id": "tcp://host:1"}}, ["tcp://host:1"]),
        ("actor", {"environment": {"id": "GymV26Environment-v0"}}, ["GymV26Environment-v0"]),
        ("actor", {"algorithm": {"name": "mine:Algorithm"}}, []),  # the learner alone imports it
        ("learner", {"algorithm": {"name": "mine:Algorithm"}}, ["mine:Algorithm"]),
        ("actor", {"network": {"model": "mine:Model"}}, []),
        ("learner", {"network": {"model": "mine:Model"}}, ["mine:Model"]),
        ("actor", {"algorithm": {"name": "a3c"}, "network": {"model": "mine:Model"}}, ["mine:Model"]),
        ("learner", {"network": {"middleware_parameters": {"scheme": [LAYER, LAYER]}}}, ["mine:Layer"] * 2),
        ("evaluator", {"network": {"model": "mine:Model"}}, []),
        ("learner", {"algorithm": OWN_REWARD}, ["mine:reward"]),
        ("actor", {"algorithm": OWN_REWARD}, []),
    ],
)
def test_what_a_role_would_import_of_a_description(role, sections, named):
    assert [name for _, name in code_named(config(**sections), role)] == named


def test_without_a_key_only_what_the_operator_names_is_imported():
    own = config(environment={"id": "mine:Env"})
    Trust(KEY).check_code("r", own, "actor")
    Trust().check_code("r", config(), "actor")
    Trust(allowed=frozenset({"mine:Env"})).check_code("r", own, "actor")
    for allowed in (frozenset(), frozenset({"mine:Other"})):
        with pytest.raises(ConfigError, match=r"r names code, environment.id: mine:Env, .* or add --allow mine:Env"):
            Trust(allowed=allowed).check_code("r", own, "actor")
    with pytest.raises(
        ConfigError, match=r"a learner of run r needs the run's key; set DISTRL_RUN_KEY to what run.key"
    ):
        Trust(allowed=frozenset({"mine:Env"})).check_code("r", own, "learner")


@pytest.mark.parametrize(
    ("url", "public"),
    [
        (None, None),
        ("redis://h:6379/2", "redis://h:6379/2"),
        ("redis://full@h:6379", "redis://h:6379"),
        ("rediss://full@h?ca_file=/full/x", "rediss://h"),
        ("unix://full@/run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_the_url_in_redis_has_neither_user_nor_options(url, public):
    description = RunDescription(run_id="r", run_dir="/r", config=config(memory={"url": url}), spec=SPEC)
    assert "full" not in description.published()
    assert RunDescription.model_validate_json(description.published()).config.memory.url == public
    assert description.config.memory.url == url


def test_a_role_reads_its_own_environment(monkeypatch):
    monkeypatch.setitem(os.environ, "DISTRL_RUN_KEY", KEY)
    assert given_key() == KEY
