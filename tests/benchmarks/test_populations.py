import json

import pytest

from benchmarks import populations, speed
from distrl.apps.experiments.search import Search
from distrl.config.load import load, validated


@pytest.mark.parametrize("task", populations.TASKS.values(), ids=populations.TASKS.keys())
def test_the_trainings_can_be_configured(task):
    shared = [f"{path}={json.dumps(value)}" for path, value in task.shared["set"].items()]
    config = load(preset=task.shared.get("preset"), sets=shared).config
    assert config.network.learning_rate_schedule == "constant"
    assert len(task.rates) == populations.MEMBERS
    validated(Search, {"vary": {"network.learning_rate": {"low": 1e-5, "high": 1e-2}}, "population": {}}, {})


@pytest.fixture
def out(tmp_path):
    """A repeat whose trainings have ended: the rate 0.001 and the member 0003 have the best last evaluations."""
    for number, score in enumerate((-900.0, -400.0, -200.0, -1200.0), 1):
        for folder, name in (("pendulum-2-fixed", f"000{number}"), ("pendulum-2", f"000{number}")):
            place = tmp_path / folder / name
            place.mkdir(parents=True)
            (place / "metrics.csv").write_text("env_steps\n100352\n")
            summary = {"evaluation_mean_return": score, "env_steps": 100_352, "imbalance": 0}
            (place / "summary.json").write_text(json.dumps(summary))
    rate = "network.learning_rate"
    lessons = [
        {"member": "0003", "before": {rate: 0.01}, "after": {rate: 0.004}},
        {"member": "0001", "before": {rate: 1e-5}, "after": {rate: 0.004}},
        {"member": "0003", "before": {rate: 0.004}, "after": {rate: 0.001}},
    ]
    members = {f"000{number}": {"values": {rate: 0.001}} for number in range(1, 5)}
    (tmp_path / "pendulum-2" / "population.json").write_text(json.dumps({"members": members, "lessons": lessons}))
    (tmp_path / "pendulum-2.log").write_text("0002: killed by signal 9; it goes on from its last checkpoint\n")
    return tmp_path


def test_the_best_of_each_are_judged_by_other_episodes(out, monkeypatch, capsys):
    commands = []

    def run(arguments):
        commands.append(arguments)
        return json.dumps({"mean_return": -100.0 - len(commands)})

    monkeypatch.setattr(populations, "run", run)
    monkeypatch.setattr(
        populations, "judged", lambda path, episodes: json.loads(run(["evaluate", path.name]))["mean_return"]
    )
    monkeypatch.setattr(populations, "Worker", lambda target, log, *options: Ended())
    assert populations.main(["--only", "pendulum-2", "--out", str(out)]) == 0
    assert commands[0][2:] == ["sweep", str(out / "pendulum-2-fixed")]
    assert [command[1] for command in commands[1:]] == ["0001", "0002", "0003", "0004", "0003"]
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "| pendulum-2 | −102 | −103 | −104 | −105 | −104 (0.001) | −106 | 0.01 → 0.004 → 0.001 | 3 |",
        "| Interquartile mean | −102 | −103 | −104 | −105 | −104 | −106 |  |  |",
    ]
    (entry,) = json.loads((out / "populations.json").read_text())["results"]
    assert (entry["env_steps"], entry["imbalances"], entry["was_killed"]) == (4 * 100_352, [0] * 4, True)


class Ended:
    """A worker whose process has ended."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    @property
    def process(self):
        return self

    def poll(self):
        return 0

    def wait(self):
        return 0


def test_the_page_says_what_the_committed_report_says():
    page = populations.PAGE.read_text("utf-8")
    assert speed.published(page, "populations", speed.page_text("populations", populations.block)) == page
