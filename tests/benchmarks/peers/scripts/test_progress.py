import json
import sys

import pytest

from benchmarks.peers.scripts import progress
from benchmarks.peers.scripts.progress import Progress, arguments

SETTINGS = {("ppo", "cartpole"): {"envs": 8, "rate": 0.1}, ("a2c", "cartpole"): {"envs": 4}}


@pytest.fixture
def given(monkeypatch, tmp_path):
    """given(*words): what a script gets that was started at second 1000."""

    def parse(*words):
        command = ["x.py", "--task", "cartpole", "--progress", str(tmp_path / "p.jsonl"), "--began", "1000", *words]
        monkeypatch.setattr(sys, "argv", command)
        return arguments("a script", ["ppo", "a2c"], SETTINGS)

    return parse


@pytest.fixture
def at(monkeypatch):
    """at(seconds): what the clock shows from now on."""
    return lambda seconds: monkeypatch.setattr(progress.time, "time", lambda: seconds)


def told(given):
    return [tuple(json.loads(line).values()) for line in given.progress.read_text().splitlines()]


def test_settings_are_those_of_the_algorithm_and_the_task_unless_they_are_set(given, capsys):
    assert given().settings == {"envs": 8, "rate": 0.1}
    assert given("--algorithm", "a2c").settings == {"envs": 4}
    assert given("--set", "rate=1e-3", "envs=[1, 2]").settings == {"envs": [1, 2], "rate": 0.001}
    assert SETTINGS["ppo", "cartpole"] == {"envs": 8, "rate": 0.1}
    with pytest.raises(SystemExit):
        given("--set", "gamma=1")
    assert "--set gamma: there is envs, rate" in capsys.readouterr().err


def test_a_run_tells_its_first_update_then_twice_a_second_and_its_end(given, at):
    run = given("--seconds", "1.2")
    told_by = Progress(run)
    overs = []
    for second, steps in [(1004.0, 10), (1004.2, 20), (1004.5, 30), (1004.9, 40), (1005.1, 50), (1005.2, 60)]:
        at(second)
        overs.append(told_by.update(steps, steps // 10))
    assert overs == [False] * 5 + [True]
    assert told(run) == [(4.0, 10, 1, None), (4.5, 30, 3, None), (5.1, 50, 5, None), (5.2, 60, 6, None)]


def test_seconds_since_the_command_count_from_there(given, at):
    run = Progress(given("--seconds", "5", "--since", "command"))
    at(1004.9)
    assert not run.update(1, 1)
    at(1005.0)
    assert run.update(2, 2)


def test_the_mean_is_that_of_the_last_hundred_episodes_and_ends_a_run(given, at):
    given = given("--until-return", "100")
    run = Progress(given)
    at(1001.0)
    for _ in range(99):
        run.episode(0.0)
    assert run.mean_return_100 is None
    assert not run.update(1, 1)
    for _ in range(99):
        run.episode(100.0)
    assert run.mean_return_100 == 99.0
    assert not run.update(2, 2)
    run.episode(100.0)
    assert run.update(3, 3)
    assert told(given) == [(1.0, 1, 1, None), (1.0, 3, 3, 100.0)]


def test_a_peer_may_know_the_mean_itself(given, at):
    given = given("--until-return", "10")
    at(1001.0)
    assert Progress(given).update(1, 1, 12.344)
    assert told(given) == [(1.0, 1, 1, 12.34)]
