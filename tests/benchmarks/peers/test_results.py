from dataclasses import replace

import pytest

from benchmarks.peers import results
from benchmarks.peers.contenders import CONTENDERS, TASKS
from benchmarks.peers.results import configuration, keep_result, kept, median, repetitions, result_path

BY_NAME = {contender.name: contender for contender in CONTENDERS}
TASK = TASKS["cartpole"]


@pytest.mark.parametrize("name", ["distrl", "sb3-ppo"])
def test_results_are_kept_as_long_as_what_decides_them_stays(name, measured, monkeypatch, tmp_path):
    monkeypatch.setattr(results.provenance, "program", lambda: "abc1234")
    contender = BY_NAME[name]
    assert kept(tmp_path, contender, TASK, 2, 30.0) is None
    one = measured(name, repetition=2, configuration=configuration(contender, TASK, 30.0), steps_per_s=5.5)
    keep_result(tmp_path, contender, TASK, one)
    assert result_path(tmp_path, contender, TASK, 2) == tmp_path / "results" / f"{name}-cartpole-2.json"
    assert kept(tmp_path, contender, TASK, 2, 30.0) == one
    assert kept(tmp_path, contender, TASK, 1, 30.0) is None
    assert kept(tmp_path, contender, TASK, 2, 31.0) is None
    assert kept(tmp_path, replace(contender, arguments=("--set", "x=1")), TASK, 2, 30.0) is None
    monkeypatch.setattr(results.provenance, "program", lambda: "def5678")
    assert (kept(tmp_path, contender, TASK, 2, 30.0) == one) == (name != "distrl")


def test_a_result_of_another_program_is_none(measured, tmp_path):
    contender = BY_NAME["sb3-ppo"]
    one = measured("sb3-ppo", configuration=configuration(contender, TASK, 30.0))
    keep_result(tmp_path, contender, TASK, one)
    path = result_path(tmp_path, contender, TASK, 1)
    path.write_text(path.read_text().replace('"load"', '"loads"'))
    assert kept(tmp_path, contender, TASK, 1, 30.0) is None


def test_the_script_of_a_peer_decides_its_results(tmp_path, monkeypatch):
    (tmp_path / "progress.py").write_text("1")
    (tmp_path / "sb3.py").write_text("2")
    monkeypatch.setattr(results, "SCRIPTS", tmp_path)
    before = configuration(BY_NAME["sb3-ppo"], TASK, 30.0)
    (tmp_path / "sb3.py").write_text("3")
    assert configuration(BY_NAME["sb3-ppo"], TASK, 30.0) != before


def test_medians_are_of_those_that_have_the_figure(measured):
    runs = [measured("x", steps_per_s=speed) for speed in (5.0, None, 1.0, 9.0, 2.0)]
    assert median(runs, lambda one: one.steps_per_s) == 3.5
    assert median(runs[:3], lambda one: one.steps_per_s) == 3.0
    assert median(runs[1:2], lambda one: one.steps_per_s) is None


def test_repetitions_that_there_are(measured, tmp_path):
    for contender, repetition in (("sb3-ppo", 10), ("sb3-ppo", 2), ("sb3-a2c", 1)):
        keep_result(tmp_path, BY_NAME[contender], TASK, measured(contender, repetition=repetition))
    assert repetitions(tmp_path, BY_NAME["sb3-ppo"], TASK) == [2, 10]
    assert repetitions(tmp_path, BY_NAME["distrl"], TASK) == []
