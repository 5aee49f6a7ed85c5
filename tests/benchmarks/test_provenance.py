import re
import subprocess

import pytest
from pydantic import create_model

from benchmarks import provenance
from benchmarks.provenance import commit, configuration, machine, program, update_steps
from distrl.config.run import RunConfig


def test_a_configuration_is_what_the_row_resolves_to(row, monkeypatch):
    cartpole = row()
    assert configuration(cartpole) == configuration(row(task="elsewhere", mean_return=1.0))  # words and goals
    others = [row("cartpole-dqn"), row(sets=("network.learning_rate=0.5",)), row(env_steps=1), row(program=("-m", "x"))]
    assert len({configuration(one) for one in (cartpole, *others)}) == 5
    # Said or left to the preset, it is the same.
    assert configuration(row(sets=("network.learning_rate=0.001",))) == configuration(cartpole)
    before = configuration(cartpole)
    monkeypatch.setattr(provenance, "EPISODES", 7)
    assert configuration(cartpole) != before


def test_a_new_setting_with_a_default_leaves_results_as_they_are(row, monkeypatch):
    cartpole = row()
    before = configuration(cartpole)
    grown = create_model("Grown", __base__=RunConfig, further=(int, 3))
    now = grown.model_validate(provenance.resolved(cartpole).model_dump(exclude_unset=True))
    assert now.further == 3
    monkeypatch.setattr(provenance, "resolved", lambda of: now)
    assert configuration(cartpole) == before


@pytest.mark.parametrize(
    ("preset", "env_steps", "updates", "expected"),
    [
        ("cartpole-impala", 801_007, 99, 8_192),  # 128 environments of 64 steps
        ("cartpole-impala", 20_000, 2, 10_000),
        ("cartpole-impala", 10_000, 0, 10_000),
        ("cartpole-a2c", 81_920, 40, 2_048),  # a gradient of 512 of each of four
    ],
)
def test_steps_of_an_update(row, preset, env_steps, updates, expected):
    assert update_steps(row(preset), env_steps, updates) == expected


def test_the_commit_is_gits(monkeypatch):
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", commit())
    told = {"rev-parse": "abc1234", "status": " M distrl/a.py"}
    monkeypatch.setattr(provenance, "_git", lambda *arguments: told[arguments[0]])
    assert commit() == "abc1234+"
    told["status"] = ""
    assert commit() == program() == "abc1234"

    def fail(*arguments):
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(provenance, "_git", fail)
    assert commit() == "unknown"


def test_the_program_is_what_is_in_its_folder(monkeypatch):
    asked = []
    monkeypatch.setattr(provenance, "_git", lambda *arguments: asked.append(arguments) or "")
    program()
    assert asked == [("rev-parse", "--short", "HEAD:distrl"), ("status", "--porcelain", "--", "distrl")]


@pytest.mark.parametrize(("allowed", "cores"), [({3}, "1 core"), ({0, 1}, "2 cores")])
def test_the_machine_has_cores_and_a_name(allowed, cores, monkeypatch):
    monkeypatch.setattr(provenance.os, "sched_getaffinity", lambda process: allowed)
    assert re.fullmatch(rf"{cores} \(.+\)", machine())
