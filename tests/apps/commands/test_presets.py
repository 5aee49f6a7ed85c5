import json

import pytest

from distrl.apps.commands import main, presets
from distrl.apps.config.configuration import load
from distrl.config import presets as known

HALFCHEETAH = "halfcheetah-impala  HalfCheetah-v5 · impala · ≥ 1,500 within 2,000,000 steps (training) · needs mujoco"


@pytest.fixture
def run(capsys):
    """run(*arguments): what `distrl presets` prints."""

    def made(*arguments, code=0):
        assert main.main(["presets", *arguments]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return made


@pytest.mark.row("D40")
def test_a_line_of_facts_and_a_line_of_description(run):
    lines = run().splitlines()
    names, descriptions = lines[::2], lines[1::2]
    assert [line.split()[0] for line in names] == sorted(known.presets())
    assert [line.strip() for line in descriptions] == [*known.presets().values()]
    assert names[[line.split()[0] for line in names].index("halfcheetah-impala")] == HALFCHEETAH


def test_what_is_missing_is_told(run, monkeypatch):
    monkeypatch.setattr(known, "find_spec", lambda module: None)
    assert f"{HALFCHEETAH} (not installed)\n" in run()
    listed = {preset["name"]: preset for preset in json.loads(run("--json"))}
    assert listed["halfcheetah-impala"]["needs"] == [{"extra": "mujoco", "installed": False}]


def test_as_json(run):
    listed = {preset["name"]: preset for preset in json.loads(run("--json"))}
    assert listed.keys() == known.presets().keys()
    cartpole = listed["cartpole-impala"]
    assert cartpole["acceptance"] == {"mean_return": 475.0, "env_steps": 500_000, "measure": "evaluation"}
    assert cartpole["expected_from"] == "the mean of three seeds"
    assert (cartpole["environment"], cartpole["algorithm"], cartpole["needs"]) == ("CartPole-v1", "impala", [])


@pytest.mark.parametrize("name", sorted(known.presets()))
def test_one_is_printed_as_a_file_that_trains_the_same(run, tmp_path, name):
    text = run(name)
    (tmp_path / "mine.yaml").write_text(text)
    assert load(file=tmp_path / "mine.yaml").config == load(preset=name).config
    facts = known.preset_facts(name)
    lines = text.splitlines()
    assert lines[0] == f"# {known.presets()[name]}"
    assert f"within {facts.acceptance.env_steps:,} steps ({facts.acceptance.measure})" in lines[1]
    assert lines[1].startswith("# ")


def test_what_was_measured_is_in_the_file(monkeypatch):
    facts = "preset:\n  acceptance: {mean_return: -3, env_steps: 9000}\n  expected: [[1000, -7.5], [9000, -2]]\n"
    facts += "  expected_from: seed 101\n"
    text = f"# A task\n\n{facts}\nenvironment: {{id: X}}\nalgorithm: {{name: a2c}}\n"
    monkeypatch.setattr(known, "read_preset", lambda name: text)
    monkeypatch.setattr(presets, "read_preset", known.read_preset)
    assert presets._as_file("cartpole-impala").splitlines() == [
        "# A task",
        "# X · a2c · ≥ −3 within 9,000 steps (evaluation)",
        "# as measured with seed 101: mean return -7.5 at 1,000, -2 at 9,000 steps",
        "",
        "environment: {id: X}",
        "algorithm: {name: a2c}",
    ]


def test_bad_input_is_one_line(run):
    assert "unknown preset 'cartpol-impala'; did you mean cartpole-impala" in run("cartpol-impala", code=2)
    assert "--json prints the whole list" in run("cartpole-impala", "--json", code=2)
