"""`environment.metrics` in whole trainings in one process: metrics.csv, evaluations, `stop`, and resumed runs."""

import csv
from typing import Any

import pytest

import distrl
from distrl.data_store.checkpoints import load_newest
from distrl.environments.worlds.toy import Identity
from tests.launch.test_deterministic import Training, compare


class Measured(Identity):
    """Episodes of three steps, whose infos have numbers that can be added by hand."""

    _episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._episode, self._step = self._episode + 1, 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._step += 1
        info = {"pay": self._step, "episode": self._episode, "drawn": self.np_random.random()}
        if self._episode > 2:
            info["late"] = float(self._episode)
        return *super().step(action)[:4], info


METRICS = {"pay": "sum", "episode": "last", "late": "max", "never": "mean"}


def config(algorithm="impala", **tree):
    """Every update takes one unroll of four rows, and so two episodes, the next ones of two environments."""
    return {
        "environment": {
            "id": f"{__name__}:Measured",
            "kwargs": {"n": 2, "length_steps": 3},
            "vectorization": "sync",
            "metrics": METRICS,
        },
        "algorithm": {"name": algorithm},
        "network": {"middleware_parameters": {"scheme": [4]}},
        "actors": {"count": 0, "environments": 2, "unroll_length_steps": 4},
        "learner": {"batch_size": 1},
        "checkpoint": {"every_s": None, "every_updates": 1000},
        **tree,
    }


def trained(tmp_path, **tree):
    """Return the summary, and rows of metrics.csv by updates."""
    loaded = distrl.RunConfig.model_validate(config(**tree))
    summary = distrl.train(loaded, run_dir=str(tmp_path / "run"), view="silent")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        return summary, {int(row["updates"]): row for row in csv.DictReader(file)}


def test_the_columns_are_means_over_the_last_100_episodes(tmp_path):
    evaluation = {"every_env_steps": 60, "episodes": 4, "environments": 2}
    summary, rows = trained(tmp_path, stop={"metrics": {"episode": 30.5}}, evaluation=evaluation)
    assert (summary.error, summary.stop_reason, summary.updates) == (None, "metrics", 55)
    names = ("info_pay_100", "info_episode_100", "info_late_100", "info_never_100")
    cells = {updates: [row[name] for name in names] for updates, row in rows.items()}
    assert cells == {
        10: ["6.0", "5.5", "6.5", ""],
        20: ["6.0", "10.5", "11.5", ""],
        30: ["6.0", "15.5", "16.5", ""],
        40: ["6.0", "20.5", "21.5", ""],
        50: ["6.0", "25.5", "26.5", ""],
        55: ["6.0", "30.5", "30.5", ""],
    }
    # Two episodes of each of the evaluation's environments: its fifth has the numbers 9 and 10.
    evaluated = [rows[55][f"evaluation_info_{name}"] for name in ("pay", "episode", "never")]
    assert evaluated == ["6.0", "9.5", ""]
    events = (tmp_path / "run" / "logs" / "events.log").read_text()
    assert events.count("environment.metrics: info of the last 100 episodes does not have never") == 1
    assert "over 4 episodes, pay 6.00, episode 9.50, late 9.50" in events


@pytest.mark.parametrize("algorithm", ["a3c", "dqn"])
def test_gradient_actors_and_replay_report_them_too(tmp_path, algorithm):
    run = Training(tmp_path, "run", algorithm)
    run.config = config(algorithm)
    if algorithm == "dqn":
        run.config["algorithm"]["replay"] = {"capacity_steps": 1000, "min_size_steps": 6, "samples_per_insert": None}
        run.config["learner"] = {"batch_size": 2}
    else:
        del run.config["learner"]
    _, snapshot = run.train(12)
    assert snapshot["episodes"] > 3
    assert snapshot["info_pay_100"] == 6.0
    assert snapshot["info_episode_100"] == (snapshot["episodes"] / 2 + 1) / 2
    assert snapshot["info_never_100"] is None


def test_a_resumed_run_goes_on_bit_by_bit_and_may_have_further_metrics(tmp_path):
    runs = [Training(tmp_path, name, "impala") for name in ("whole", "halves")]
    for run in runs:
        run.config = config(checkpoint={"every_s": None, "every_updates": 3})
        run.config["environment"]["metrics"] = {"drawn": "mean", "pay": "sum"}
    compare(*runs)
    whole, halves = (load_newest(run.run_dir / "checkpoints").meta["recent_metrics"] for run in runs)
    assert whole == halves
    assert len(whole["drawn"]) == len({*whole["drawn"]}) == 12
    runs[1].config["environment"]["metrics"] = {"late": "max", "pay": "sum"}
    _, snapshot = runs[1].train(9)
    assert (snapshot["info_late_100"], snapshot["info_pay_100"]) == (3.0, 6.0)  # late: of the third of three episodes
    assert "info_drawn_100" not in snapshot
    meta = load_newest(runs[1].run_dir / "checkpoints").meta["recent_metrics"]
    assert [(name, len(values)) for name, values in meta.items()] == [("late", 6), ("pay", 18)]
