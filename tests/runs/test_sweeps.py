import json

import pytest

from distrl.apps.experiments.directory import RunResult, SweepDirectory, SweepRun
from distrl.apps.experiments.search import Search
from distrl.apps.experiments.sweep import Planned
from distrl.errors import ConfigError
from distrl.runs.sweeps import INDEX, POPULATION, SEARCH, SWEEP, sweep_of

VARY = b"vary:\n  network.learning_rate: [0.001, 0.01]\n"


def test_a_sweep_as_the_command_writes_it(tmp_path):
    place = SweepDirectory(tmp_path)
    runs = [SweepRun(Planned(1, {"network.learning_rate": 1e-3}, 4), RunResult("failed", error="it broke"))]
    place.write_index(runs, 1.5, planned=6)
    sweep = sweep_of({SWEEP: VARY, INDEX: (tmp_path / INDEX).read_bytes()})
    assert (sweep.kind, sweep.varied, sweep.planned, sweep.minutes) == ("sweep", ("network.learning_rate",), 6, 1.5)
    (one,) = sweep.runs
    assert (one.run, one.seed, one.settings) == ("0001", 4, {"network.learning_rate": 1e-3})
    assert (one.state, one.error) == ("failed", "it broke")


def test_a_sweep_of_an_older_version_does_not_say_how_many_runs_there_are_to_be():
    assert sweep_of({SWEEP: VARY, INDEX: b'{"format": 1, "minutes": 0, "runs": []}'}).planned is None


def test_a_search():
    assert sweep_of({SEARCH: VARY + b"trials: 7\n"})[:4] == ("search", ("network.learning_rate",), 7, None)
    assert sweep_of({SEARCH: VARY}).planned == Search(vary={"a": [1]}).trials


def test_a_population():
    lesson = {"member": "0002", "teacher": "0001", "env_steps": 500, "score": 1.0, "teacher_score": 2.0, "at": 1.0}
    record = {"vary": {}, "members": {"0001": {}, "0002": {}}, "lessons": [lesson], "under_way": {}}
    sweep = sweep_of({SEARCH: VARY, POPULATION: json.dumps(record).encode()})
    assert (sweep.kind, sweep.planned) == ("population", 2)
    assert [(one.member, one.teacher, one.env_steps) for one in sweep.lessons] == [("0002", "0001", 500)]


def test_no_sweep():
    assert sweep_of({}) is None
    assert sweep_of({INDEX: b"{}"}) is None


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({SWEEP: VARY, INDEX: b"no"}, "file sweep.json is damaged"),
        ({SWEEP: VARY, INDEX: b'{"runs": [{"run": 1}]}'}, r"file sweep.json is damaged: runs\.0\.run"),
        ({SWEEP: b"\xff"}, "file sweep.yaml is not UTF-8 text"),
        ({SEARCH: b"- 1"}, "file search.yaml"),
    ],
)
def test_damaged_files_are_one_line(files, told):
    with pytest.raises(ConfigError, match=told):
        sweep_of(files)
