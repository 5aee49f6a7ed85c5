import json

import numpy as np
import pytest

from benchmarks.report import comparison, mean_curve, published, read_report, report_tree, score_table, verdict


def test_the_table_shows_every_seed_and_says_what_was_missed(row, result):
    rows = [row(), row("cartpole-dqn", algorithm="DQN", env_steps=100_000), row("pong", None, "Pong", minutes=60.0)]
    by_row = {
        "cartpole-ppo": [result("cartpole-ppo", seed, 500.0) for seed in (1, 2, 3)],
        "cartpole-dqn": [result("cartpole-dqn", 1, 100.25), result("cartpole-dqn", 3, 500.0)],
        "pong": [result("pong", 1, -3.5)],
    }
    assert score_table(rows, by_row, {"CartPole-v1": 22.37}, [1, 2, 3]).splitlines() == [
        "| Task | Algorithm | Threshold | Seed 1 | Seed 2 | Seed 3 | Interquartile mean | Random |  |",
        "|---|---|---|---|---|---|---|---|---|",
        "| CartPole-v1 | PPO (`cartpole-ppo`) | ≥ 475 within 500,000 steps | 500 after 200,000 | 500 after 200,000 "
        "| 500 after 200,000 | 500 | 22.4 | reached |",
        "| CartPole-v1 | DQN (`cartpole-dqn`) | ≥ 475 within 100,000 steps | 100.2 after 200,000, **100,000 over** | – "
        "| 500 after 200,000, **100,000 over** | 300.1 | 22.4 | incomplete |",
        "| Pong | PPO (`pong`) | none, 60 minutes | −3.50 after 200,000 | – | – | −3.50 | – | incomplete |",
    ]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([500.0], "incomplete"),
        ([], "incomplete"),
        ([470.0, 475.0, 480.0], "reached"),
        ([470.0, 474.0, 480.0], "**missed**"),
        ([500.0, 500.0, None], "**missed**"),
    ],
)
def test_a_threshold_is_reached_by_all_seeds_together(row, result, scores, expected):
    results = [result("cartpole-ppo", seed, score) for seed, score in enumerate(scores, start=1)]
    assert verdict(row(), results, [1, 2, 3]) == expected
    assert verdict(row(mean_return=None), results, [1, 2, 3]) == ("–" if len(scores) == 3 else "incomplete")


def test_a_row_may_be_judged_by_its_training(row, result):
    results = [result("cartpole-ppo", seed, 0.0, training_mean_return=480.0 + seed) for seed in (1, 2, 3)]
    line = score_table([row(measure="training")], {"cartpole-ppo": results}, {}, [1, 2, 3]).splitlines()[-1]
    assert "| ≥ 475 in training within 500,000 steps | 481 after 200,000 |" in line
    assert line.endswith("| 482 | – | reached |")


def test_a_training_that_failed_is_shown_and_counts_as_the_worst(row, result):
    results = [result("cartpole-ppo", 1, 480.0), result("cartpole-ppo", 2, None), result("cartpole-ppo", 3, 490.0)]
    line = score_table([row()], {"cartpole-ppo": results}, {}, [1, 2, 3]).splitlines()[-1]
    assert line.endswith("| **failed** (mean_return) after 200,000 | 490 after 200,000 | −∞ | – | **missed** |")


def test_a_budget_may_be_exceeded_by_an_update(row, result):
    results = [result("cartpole-ppo", seed, 480.0, env_steps=498_000 + 2_001 * seed) for seed in (1, 2)]
    line = score_table([row()], {"cartpole-ppo": results}, {}, [1, 2]).splitlines()[-1]
    assert "| 480 after 500,001 | 480 after 502,002, **2,002 over** |" in line


def test_variants_are_compared_at_equal_steps(row, result):
    rows = [row("a", None, algorithm="1 actor"), row("b", None, algorithm="4 actors", sets=("x=1",))]
    by_row = {"a": [result("a", 1, 200.0), result("a", 2, 300.0)], "b": [result("b", 2, 250.0)]}
    assert comparison(rows, by_row, [1, 2]).splitlines() == [
        "| Preset | Variant | Settings | Steps | Seed 1 | Seed 2 | Interquartile mean "
        "| Of the last 100 training episodes |",
        "|---|---|---|---|---|---|---|---|",
        "| `a` | 1 actor | – | 500,000 | 200 | 300 | 250 | 250 [200, 300] |",
        "| `b` | 4 actors | `x=1` | 500,000 | – | 250 | 250 | 250 [250, 250] |",
    ]


def test_a_report_is_read_back(row, result, tmp_path):
    rows = [row(sets=("a=1",)), row("failed")]
    results = [result("cartpole-ppo", 1, 480.0, wall_s=1800.0), result("cartpole-ppo", 2, 490.0, wall_s=900.0)]
    (tmp_path / "report.json").write_text(
        json.dumps(report_tree(rows, results, {"CartPole-v1": 22.0}, "make x", [1, 2]))
    )
    tree, found_rows, by_row = read_report(tmp_path / "report.json")
    assert (tree["command"], tree["seeds"], tree["random"]) == ("make x", [1, 2], {"CartPole-v1": 22.0})
    assert (found_rows, by_row) == (rows, {"cartpole-ppo": results, "failed": []})


def test_curves_over_seeds_keep_the_last_value_of_one_that_stopped(result):
    curves = [((0, 0.0), (100, 100.0)), ((20, 20.0), (50, 50.0)), ((0, 0.0), (100, 100.0))]
    steps, around = mean_curve(curves)
    assert (steps[0], steps[-1], len(steps)) == (20, 100, 120)
    # The middle one counts fully, the others a quarter each.
    np.testing.assert_allclose(around.centre[-1], (0.25 * 50 + 100 + 0.25 * 100) / 1.5)
    np.testing.assert_allclose(around.centre[0], 20.0)
    np.testing.assert_allclose([around.low[-1], around.high[-1]], [50.0, 100.0])


def test_a_part_of_a_page_is_replaced():
    page = "# A\n\n<!-- x: begin, written by benchmarks.x -->\nold\n<!-- x: end -->\nrest\n"
    new = published(page, "x", "new\n\nlines")
    assert new == page.replace("old", "new\n\nlines")
    assert published(new, "x", "old") == page
    with pytest.raises(ValueError, match="the page has no part from <!-- y: begin"):
        published(page, "y", "new")
