import json

import pytest

from benchmarks.peers import run as running
from benchmarks.peers.contenders import TASKS, selected
from benchmarks.peers.run import main, remaining_s, turns, words


@pytest.fixture
def runs(monkeypatch):
    """Stands for the contenders: keeps what was to run; `failing` names those that fail."""
    kept, failing = [], set()

    def pretended(contender, task, repetition, seconds, folder, environments):
        kept.append((contender.name, task.name, repetition, seconds))
        names = ("failure", "steps_per_s", "first_update_s", "solved_s", "mean_return", "pss_bytes", "cpu_us_per_step")
        found = {
            **dict.fromkeys(names),
            "env_steps": 10,
            "wall_s": 20.0,
            "load": 0.1,
            "steps_per_s": 100.0 * repetition,
        }
        return {**found, "failure": "Error: no"} if contender.name in failing else found

    monkeypatch.setattr(running, "measure", pretended)
    monkeypatch.setattr(running.environments, "make", lambda names, folder, tell: {})
    monkeypatch.setattr(running.provenance, "commit", lambda: "abc1234")
    monkeypatch.setattr(running.provenance, "program", lambda: "def5678")
    return kept, failing


def test_all_of_the_first_repetition_comes_before_the_second():
    plan = turns(selected(["distrl", "sb3"]), ["halfcheetah", "cartpole"], 2)
    assert [(repetition, task.name, contender.name) for repetition, task, contender in plan] == [
        (1, "cartpole", "distrl"),
        (1, "cartpole", "sb3-ppo"),
        (1, "cartpole", "sb3-a2c"),
        (1, "halfcheetah", "distrl"),
        (1, "halfcheetah", "sb3-ppo"),
        (2, "cartpole", "distrl"),
        (2, "cartpole", "sb3-ppo"),
        (2, "cartpole", "sb3-a2c"),
        (2, "halfcheetah", "distrl"),
        (2, "halfcheetah", "sb3-ppo"),
    ]


def test_what_is_there_is_kept_and_what_failed_is_tried_again(runs, tmp_path, capsys):
    kept, failing = runs
    failing.add("sb3-ppo")
    command = [
        "--only",
        "distrl",
        "sb3",
        "--task",
        "cartpole",
        "--repeat",
        "3",
        "--seconds",
        "5",
        "--out",
        str(tmp_path),
    ]
    assert main(command) == 1
    assert [(name, repetition) for name, _, repetition, _ in kept] == [
        (name, repetition) for repetition in (1, 2, 3) for name in ("distrl", "sb3-ppo", "sb3-a2c")
    ]
    assert kept[1] == ("sb3-ppo", "cartpole", 1, 5.0)
    printed = capsys.readouterr().out
    assert "[2/9] sb3-ppo cartpole 1 … (3 min to go)\n[2/9] sb3-ppo cartpole 1: failed: Error: no\n" in printed
    assert "[3/9] sb3-a2c cartpole 1: 100 steps/s\n" in printed
    assert "- sb3-ppo, cartpole: failed 3 times: Error: no\n" in printed
    kept.clear()
    failing.clear()
    assert main(command) == 0
    assert [name for name, *_ in kept] == ["sb3-ppo"] * 3
    assert "6 of 9 are there already\n" in capsys.readouterr().out
    told = json.loads((tmp_path / "peers.json").read_text())
    assert told["command"] == "python -m benchmarks.peers --only distrl sb3 --task cartpole --repeat 3 --seconds 5"
    assert "| Stable-Baselines3 A2C | 200 | – | – | – | – | – | – |" in told["table"]
    kept.clear()
    assert main(command) == 0
    assert kept == []


def test_earlier_calls_with_more_repetitions_are_told_as_well(runs, monkeypatch, tmp_path):
    more = ["--only", "distrl", "--task", "pong", "--repeat", "3", "--out", str(tmp_path)]
    assert main(more) == 0
    pages = []
    monkeypatch.setattr(running, "RESULTS", tmp_path / "committed")
    monkeypatch.setattr(running, "write_page", lambda name, block: pages.append((name, block)))
    assert main(["--only", "distrl", "sb3-ppo", "--task", "pong", "--repeat", "1", "--out", str(tmp_path)]) == 0
    assert pages == []
    assert (
        main(["--only", "distrl", "sb3-ppo", "--task", "pong", "--repeat", "1", "--out", str(tmp_path), "--publish"])
        == 0
    )
    assert pages == [("peers", running.block)]
    assert len(runs[0]) == 4
    told = json.loads((tmp_path / "committed" / "peers.json").read_text())
    assert [(one["contender"], one["repetition"]) for one in told["results"]] == [
        ("distrl", 1),
        ("sb3-ppo", 1),
        ("distrl", 2),
        ("distrl", 3),
    ]
    assert "| distrl | – | – | – | 200 | – | – | – |" in told["table"]
    assert "| Stable-Baselines3 PPO | – | – | – | 100 (1) | – | – | – |" in told["table"]
    assert (
        running.block(told)
        .splitlines()[0]
        .endswith("Medians of 3 runs, of fewer where a number in brackets says so; load before a run: 0.1 at most.")
    )


def test_a_peer_without_an_environment_is_told_as_failed(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(running.environments, "make", lambda names, folder, tell: {"sb3": "no such version"})
    assert main(["--only", "sb3-a2c", "--task", "pong", "--repeat", "1", "--out", str(tmp_path)]) == 1
    assert runs[0] == []
    (one,) = json.loads((tmp_path / "peers.json").read_text())["results"]
    assert one["failure"] == "not installed: no such version"


def test_an_interruption_leaves_what_was_measured(runs, monkeypatch, tmp_path, capsys):
    measure = running.measure

    def interrupted(contender, *rest):
        if contender.name == "sb3-a2c":
            raise KeyboardInterrupt
        return measure(contender, *rest)

    monkeypatch.setattr(running, "measure", interrupted)
    assert main(["--only", "sb3", "--task", "solve", "--out", str(tmp_path)]) == 130
    assert "interrupted; the same command goes on from here" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["sb3-ppo-solve-1.json"]


def test_wrong_names_are_told_at_once(capsys):
    assert main(["--only", "coach"]) == 2
    assert capsys.readouterr().err.startswith("benchmarks.peers: error: --only coach: there is distrl, ")


def test_the_rest_takes_as_long_as_its_like(measured):
    plan = list(turns(selected(["sb3-ppo"]), ["cartpole", "pong"], 2))
    seconds = {name: task.seconds for name, task in TASKS.items()}
    assert remaining_s(plan, [], seconds) == 2 * (45.0 + 80.0)
    done = [measured("sb3-ppo", "cartpole", wall_s=33.0), measured("sb3-a2c", "pong", wall_s=1.0)]
    assert remaining_s(plan, done, seconds) == 2 * (33.0 + 80.0)
    assert remaining_s(plan, [], {**seconds, "pong": 10.0}) == 2 * (45.0 + 30.0)


def test_a_run_in_words(measured):
    one = measured("x", steps_per_s=18_400.4, first_update_s=2.44, cpu_us_per_step=54.11, pss_bytes=350_000_000)
    assert words(one) == "18,400 steps/s, first update after 2.4 s, 54.1 µs of CPU per step, 0.35 GB"
    assert words(measured("x", solved_s=9.96, mean_return=480.4)) == "solved after 10.0 s, mean return 480"
