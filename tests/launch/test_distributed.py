"""The lines that tell other hosts how to join a training."""

import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

from distrl.launch.distributed import _tell_how_to_join
from distrl.launch.run_redis import RunRedis
from tests.launched_run import run_in


def told_for(folder, url):
    """The line for the hosts of actors, and the URL in its command."""
    told = []
    _tell_how_to_join(run_in(folder, url, "k" * 64), RunRedis(url, url), SimpleNamespace(event=told.append))
    line, shared = told
    assert shared.endswith(f"as this user: distrl actors --run-dir {folder}")
    *before, named, option, run_id = shlex.split(line[line.index("distrl actors") :])
    assert (before, option, run_id) == (["distrl", "actors", "--redis-url"], "--run-id", "r1")
    return line, named


def test_the_command_for_other_hosts_can_be_pasted_into_a_shell(tmp_path):
    url = "rediss://h:1?ca_file=/etc/ca.crt&namespace=team-a"
    line, named = told_for(tmp_path, url)
    assert named == url
    assert f"'{url}'" in line  # & ends a command


@pytest.mark.parametrize(
    ("user", "namespace", "named", "needs_user"),
    [
        ("", "team-a", "", False),
        ("distrl-team-a-learner@", "team-a", "distrl-team-a-actor@", False),
        ("distrl-default-learner@", "default", "distrl-default-actor@", False),
        ("distrl-team-a-learner@", "team-b", "", True),
        ("a%40b@", "default", "", True),
        ("default@", "default", "default@", False),
    ],
)
def test_the_learners_user_is_not_for_other_hosts(tmp_path, user, namespace, named, needs_user):
    option = "" if namespace == "default" else f"?namespace={namespace}"
    line, url = told_for(tmp_path, f"redis+sentinel://{user}h:1,i/mymaster/0{option}")
    assert url == f"redis+sentinel://{named}h:1,i/mymaster/0{option}"
    assert ("a user for actors in the URL" in line) == needs_user
    assert ("learner's" in line) == needs_user


@pytest.mark.parametrize(
    ("url", "reached"),
    [("redis://h:1", True), ("redis://127.0.0.1:1", False), ("redis://localhost:1", False), ("unix:///r.sock", False)],
)
def test_an_address_that_only_this_host_reaches_is_to_be_replaced(tmp_path, url, reached):
    assert ("an address of Redis that they reach" in told_for(tmp_path, url)[0]) != reached


def test_an_evaluator_of_another_host_has_a_user_of_its_own(tmp_path):
    url, told = "redis://distrl-default-learner@h:1", []
    run = run_in(tmp_path, url, "k" * 64)
    evaluation = run.config.evaluation.model_copy(update={"every_env_steps": 100})
    environment = run.config.environment.model_copy(update={"spec_file": "spec.json"})
    config = run.config.model_copy(update={"evaluation": evaluation, "environment": environment})
    run = replace(run, description=run.description.model_copy(update={"config": config}))
    _tell_how_to_join(run, RunRedis(url, url), SimpleNamespace(event=told.append))
    *_, line = told
    assert line.endswith(": distrl evaluator --redis-url redis://distrl-default-evaluator@h:1 --run-id r1")


def test_a_password_is_named_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTRL_REDIS_PASSWORD", "s3cret")
    line, _ = told_for(tmp_path, "redis://h:1")
    assert "DISTRL_REDIS_PASSWORD_FILE" in line
    assert "s3cret" not in line
    monkeypatch.delenv("DISTRL_REDIS_PASSWORD")
    assert "DISTRL_REDIS_PASSWORD_FILE" not in told_for(tmp_path, "redis://h:1")[0]


def test_a_run_whose_own_redis_listens_names_the_file_of_its_password(tmp_path):
    url, told, password_file = "redis://10.0.0.1:7000", [], tmp_path / "redis.password"
    password_file.write_text("s3cret")
    password_file.chmod(0o600)
    redis = RunRedis("unix:///run/redis.sock", url, password_file)
    run = run_in(tmp_path, redis.here, "k" * 64)
    _tell_how_to_join(run, redis, SimpleNamespace(event=told.append))
    assert f"DISTRL_REDIS_PASSWORD_FILE naming a copy of {password_file}: distrl actors --redis-url {url} " in told[0]
    assert "s3cret" not in "".join(told)
    assert redis.of_any_host == f"{url}?password_file={password_file}"
