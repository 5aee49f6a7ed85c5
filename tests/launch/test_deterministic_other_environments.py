"""`evaluation.other_environments` in whole trainings in one process, with metrics, and in a resumed run."""

from distrl.observers.metrics_csv import CsvSink
from tests.launch.test_deterministic import Training
from tests.launch.test_deterministic_info_metrics import config, rows_of

OTHERS = {"two": {"kwargs": {"length_steps": 2}}, "five": {"kwargs": {"length_steps": 5}}}
EVALUATION = {"every_env_steps": 60, "episodes": 4, "environments": 2}


def test_each_has_its_columns_and_the_training_stays_the_same_bit_by_bit(tmp_path, same):
    runs = {name: Training(tmp_path, name, "impala") for name in ("alone", "with", "halves")}
    runs["alone"].config = config(evaluation=EVALUATION)
    for name in ("with", "halves"):
        runs[name].config = config(evaluation={**EVALUATION, "other_environments": OTHERS})
    for run in runs.values():
        run.config["checkpoint"] = {"every_s": None, "every_updates": 20}
    _, alone = runs["alone"].train(40)
    _, snapshot = runs["with"].train(40)
    sink = CsvSink(tmp_path / "metrics.csv")
    for each in runs["with"].snapshots:
        sink.write(each)
    sink.close()
    # The sum of 1, 2, … up to the episode's length; Measured counts its steps.
    names = [f"evaluation_{where}info_pay" for where in ("", "in_two_", "in_five_")]
    rows = rows_of(tmp_path / "metrics.csv")
    assert [rows[40][name] for name in names] == ["6.0", "3.0", "15.0"]
    assert rows[40]["evaluation_in_two_success_rate"] == ""
    assert 0.0 <= float(rows[40]["evaluation_in_two_mean_return"]) <= 2.0
    assert snapshot["evaluation_mean_return"] == alone["evaluation_mean_return"]
    assert snapshot["best_evaluation_return"] == alone["best_evaluation_return"]
    assert same(runs["alone"].arrays, runs["with"].arrays)
    runs["halves"].train(20)
    _, resumed = runs["halves"].train(40)
    assert [resumed[name] for name in names] == [6.0, 3.0, 15.0]
    assert same(runs["with"].arrays, runs["halves"].arrays)
