"""SLM-Lab's scores beside the presets'."""

from dataclasses import replace

import pytest

from benchmarks.slm_lab import SCORES, beside_slm_lab
from benchmarks.table import ROWS


def test_every_score_is_of_a_row():
    assert SCORES.keys() <= {row.name for row in ROWS}


def test_rows_that_both_have_stand_side_by_side(row, result):
    rows = [row("acrobot-dqn", "acrobot-dqn", "Acrobot-v1", "DQN"), row("other", None, "Acrobot-v1", "IMPALA")]
    ours = [
        replace(result("acrobot-dqn", seed, -80.0), training_mean_return=mean, env_steps=steps)
        for seed, mean, steps in ((1, -90.0, 200_000), (2, -87.0, 150_000))
    ]
    (text,) = beside_slm_lab(rows, {"acrobot-dqn": ours, "other": [result("other", 1, 0.0)]})
    assert text.splitlines()[2:] == [
        "| Task | distrl | Training return | Steps | SLM-Lab | Training return | Steps |",
        "|---|---|---|---|---|---|---|",
        "| Acrobot-v1 | DQN | −88.5 | 200,000 | DQN | −94.8 | 300,000 |",
    ]


@pytest.mark.parametrize("name", ["acrobot-dqn", "other"])
def test_without_a_result_of_both_there_is_no_table(row, result, name):
    rows = [row("acrobot-dqn", "acrobot-dqn", "Acrobot-v1", "DQN"), row("other", None, "Acrobot-v1", "IMPALA")]
    by_row = {"acrobot-dqn": [], "other": []} | ({} if name == "acrobot-dqn" else {name: [result(name, 1, 0.0)]})
    assert beside_slm_lab(rows, by_row) == []
