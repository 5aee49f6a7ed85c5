"""Rows and results as measurements would leave them."""

import pytest

from benchmarks import publishing
from benchmarks.measurement import Result
from benchmarks.table import Row


@pytest.fixture
def row():
    """row(name, mean_return=…): CartPole by PPO."""

    def make(name="cartpole-ppo", mean_return=475.0, task="CartPole-v1", algorithm="PPO", **more):
        return Row(name, name, task, algorithm, mean_return, more.pop("env_steps", 500_000), **more)

    return make


@pytest.fixture
def result():
    """result(row, seed, mean_return): 60 s, 200,000 steps, a straight curve."""

    def make(name, seed, mean_return, wall_s=60.0, env_steps=200_000, configuration="c0", training_mean_return=...):
        training = mean_return if training_mean_return is ... else training_mean_return
        return Result(
            row=name,
            seed=seed,
            env_steps=env_steps,
            update_steps=2_000,
            stop_reason="mean_return",
            mean_return=mean_return,
            failure=None,
            training_mean_return=training,
            wall_s=wall_s,
            curve=((1_000, 10.0), (env_steps, mean_return or 0.0)),
            evaluation_seed=1000 + seed,
            configuration=configuration,
            commit="abc1234",
            date="2026-01-02",
            machine="2 cores (X)",
        )

    return make


@pytest.fixture
def page_agrees():
    """page_agrees(name, block): the page is what the committed report says, or says that there is none."""

    def agrees(name, block):
        report = publishing.RESULTS / f"{name}.json"
        page = publishing.PAGE.read_text("utf-8")
        text = block(report) if report.exists() else "Not measured yet."
        return publishing.published(page, name, text) == page

    return agrees
