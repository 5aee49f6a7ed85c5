import pytest

from benchmarks import staleness
from benchmarks.measurement import keep
from benchmarks.report import report_tree
from distrl.config.load import load


def report(tmp_path, result, means, rows=staleness.ROWS[:3]):
    """The block of a report of one seed; means are (greedy, training)."""
    results = [
        result(row.name, 1, greedy, training_mean_return=training)
        for row, (greedy, training) in zip(rows, means, strict=True)
    ]
    keep(tmp_path / "report.json", report_tree(staleness.ROWS, results, {}, "c", [1]))
    return staleness.block(tmp_path / "report.json")


@pytest.mark.parametrize(
    ("means", "words"),
    [
        (
            ((500, 480), (450, 384), (50, 24)),
            "by 100 greedy episodes, V-trace keeps 90%, as it must, and without correction 10% are left; by the "
            "training's own, V-trace keeps 80%, **missing the 90% it must keep**, and without correction 5% are left.",
        ),
        (((500, 480), (500, 480), (475, 480)), "without correction 95% are left, **which is no visible loss**; by"),
        (((500, 480), (500, 480), (None, None)), "without correction 0% are left."),
        (((None, None), (500, 480), (9, 9)), "**nothing is learned without lag**"),
    ],
)
def test_what_is_kept_is_told_by_both_measures(result, tmp_path, means, words):
    told = report(tmp_path, result, means)
    assert words in told
    assert told.endswith("- At the preset's own learning rate of 0.0015: not measured yet.")


def test_what_is_missing_is_told(result, tmp_path):
    told = report(tmp_path, result, ((500, 480),), staleness.ROWS[3:4])
    assert told.endswith("- At the preset's own learning rate of 0.0015: **incomplete.**")
    assert "learning rate of 0.001: not measured yet." in told


def test_the_settings_that_differ_from_the_preset_are_shown(result, tmp_path):
    told = report(tmp_path, result, ((500, 480), (500, 480), (9, 10)))
    shared = "`stop.mean_return=null`, `algorithm.minibatches=1`, `actors.environments=64`, "
    shared += "`actors.unroll_length_steps=32`"
    line = f"| no lag, V-trace | {shared}, `network.learning_rate=0.001` | 800,000 | 500 "
    assert f"| `cartpole-impala` {line}| 500 | 480 [480, 480] |" in told
    assert load(preset="cartpole-impala").config.network.learning_rate == 0.0015
    assert [row.sets for row in staleness.ROWS[3:]] == [staleness.SHARED] * 3


def test_the_page_is_what_the_committed_report_says(page_agrees):
    assert page_agrees("staleness", staleness.block)
