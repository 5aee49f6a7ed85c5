import json

from distrl.runs.directories import open_run
from distrl.runs.listing import compare_runs
from tests.run_folders import make_run


def compared(tmp_path, **second):
    first = make_run(tmp_path / "a", sets=("seed=1", "network.learning_rate=0.001"))
    return compare_runs([open_run(first), open_run(make_run(tmp_path / "b", **second))])


def test_only_what_differs_is_told(tmp_path):
    found = compared(tmp_path, sets=("seed=2", "network.learning_rate=0.001", "stop.minutes=5"))
    assert found.differences == [("seed", ("1", "2")), ("stop.minutes", ("null", "5.0"))]


def test_settings_that_one_lacks_differ(tmp_path):
    found = compared(tmp_path, sets=("seed=1", "network.learning_rate=0.001", "algorithm.name=a2c"))
    assert ("algorithm.name", ("impala", "a2c")) in found.differences
    assert ("algorithm.rho_bar", ("1.0", "–")) in found.differences


def test_a_list_of_sections_has_a_row_for_each_value(tmp_path):
    steps = "environment.preprocessing=[{step: select, keep: [0, %s]}, {step: flatten}]"
    first, second = (make_run(tmp_path / name, sets=(steps % factor,)) for name, factor in (("c", 1), ("d", 2)))
    found = compare_runs([open_run(first), open_run(second)])
    assert found.differences == [("environment.preprocessing[0].keep", ("[0, 1]", "[0, 2]"))]


def test_equal_configurations(tmp_path):
    assert compared(tmp_path, sets=("network.learning_rate=0.001",)).differences == []


def test_what_runs_came_to(tmp_path):
    ended = {"stop_reason": "stalled", "exit_code": 4, "mean_return_100": None, "policy_lag": {}}
    told = dict(compared(tmp_path, summary=ended).outcomes)
    assert told == {
        "end": ("solved", "stalled (exit code 4)"),
        "environment": ("CartPole-v1", "CartPole-v1"),
        "algorithm": ("impala", "impala"),
        "return": ("20.0", "–"),
        "best return": ("25.0", "25.0"),
        "steps": ("3,000", "3,000"),
        "updates": ("30", "30"),
        "episodes": ("50", "50"),
        "steps/s": ("62,057", "62,057"),
        "wall time": ("9.8 s", "9.8 s"),
        "to first update": ("3.2 s", "3.2 s"),
        "policy lag": ("1.2, max 5", "–"),
        "bottleneck": ("learner", "learner"),
        "peak memory": ("905 MB", "905 MB"),
    }


def test_as_plain_data(tmp_path):
    told = compared(tmp_path, sets=("algorithm.name=a2c", "network.learning_rate=0.001")).json()
    assert json.loads(json.dumps(told)) == told
    assert [one["name"] for one in told["runs"]] == ["a", "b"]
    assert told["differences"][0]["algorithm.rho_bar"] == 1.0
    assert "algorithm.rho_bar" not in told["differences"][1]


def test_a_run_without_configuration_is_told_and_differs_from_none(tmp_path):
    runs = [open_run(make_run(tmp_path / name)) for name in ("a", "b")]
    (tmp_path / "a/config.yaml").unlink()
    found = compare_runs(runs)
    assert [one.mean_return_100 for one in found.entries] == [20.0, 20.0]  # all else of it is sound
    missing = "config.yaml cannot be read: No such file or directory"
    assert dict(found.outcomes)["end"] == (f"solved; damaged: {missing}", "solved")
    assert (found.differences, found.json()["differences"]) == ([], [{}, {}])
