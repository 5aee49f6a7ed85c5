from distrl.memory_backend.records import WHOLE, WORDS
from distrl.metrics.snapshot import (
    COLUMNS,
    DISCOUNTED,
    METRICS,
    REPORTED_ONCE,
    TAGS,
    TEXTS,
    TIMED,
    columns_of,
    estimate_columns,
    evaluation_info_column,
    info_column,
    is_other_return,
    meaning_of,
    other_evaluation_column,
    tag_of,
)


def test_names_and_tags_are_unique():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert len(set(TAGS.values())) == len(TAGS)
    assert TAGS["env_steps_per_s"] == "speed/env_steps_per_s"


def test_every_row_says_what_it_means():
    for metric in METRICS:
        assert metric.meaning
        assert "\n" not in metric.meaning


def test_what_the_design_asks_for_is_there():
    needed = {
        *("updates", "env_steps", "trained_steps", "episodes", "mean_return_100", "best_mean_return_100", "wall_s"),
        *("mean_length_100_steps", "loss", "policy_loss", "value_loss", "entropy", "gradient_norm", "learning_rate"),
        *("policy_lag_mean", "policy_lag_p95", "policy_lag_max", "weights_version", "queue_entries", "queue_bytes"),
        *("queue_fill", "dropped", "env_steps_per_s", "updates_per_s", "learner_wait_share", "actors_up", "restarts"),
        "bottleneck",
    }
    assert needed <= set(COLUMNS)
    assert COLUMNS[:2] == ("updates", "env_steps")


def test_what_depends_on_the_clock_is_marked():
    assert {"wall_s", "env_steps_per_s", "updates_per_s", "learner_wait_share", "queue_fill", "bottleneck"} <= TIMED
    assert not {"updates", "env_steps", "mean_return_100", "loss", "gradient_norm", "weights_version"} & TIMED
    assert sorted(REPORTED_ONCE) == [
        *("first_update_unix_s", "missing_workers", "origin", "stop_reason", "unreported", "unsaved", "unstored")
    ]
    assert not REPORTED_ONCE & {*COLUMNS, *TAGS}


def test_a_name_with_a_slash_is_a_tag_and_no_column():
    assert not any("/" in metric.name for metric in METRICS)
    snapshot = {"loss": 1.0, "own": 2.0, "network/relu_zeros/middleware_dense_0_activation": 0.5, "stop_reason": None}
    assert columns_of(snapshot) == {"loss", "own"}
    assert [tag_of(name) for name in snapshot if name != "stop_reason"] == [
        "loss/loss",
        "algorithm/own",
        "network/relu_zeros/middleware_dense_0_activation",
    ]


def test_units_are_in_the_names():
    for metric in METRICS:
        if metric.unit == "bytes":
            assert metric.name.endswith("_bytes")
        if metric.unit == "steps/s":
            assert metric.name.endswith("_steps_per_s")


def test_what_the_registry_takes_for_words_and_whole_numbers_is_in_the_table():
    """A snapshot with a word under any other name is ignored as another program's."""
    assert TEXTS | (REPORTED_ONCE - {"first_update_unix_s"}) == WORDS
    assert {metric.name for metric in METRICS} >= WHOLE


def test_metrics_of_the_environment_have_columns_beside_the_table():
    assert not any(name.startswith(("info_", "evaluation_info_")) for name in (metric.name for metric in METRICS))
    column, evaluated = info_column("reward/forward-x y"), evaluation_info_column("reward/forward-x y")
    assert (column, evaluated) == ("info_reward_forward_x_y_100", "evaluation_info_reward_forward_x_y")
    assert columns_of({column: 1.0, evaluated: None}) == {column, evaluated}
    assert (tag_of(column), tag_of(evaluated)) == (f"info/{column}", f"evaluation/{evaluated}")
    assert tag_of("info_gain") == "algorithm/info_gain"


def test_evaluations_in_other_environments_have_columns_beside_the_table():
    mean, metric = other_evaluation_column("hard", "mean_return"), other_evaluation_column("hard", "info_x_mean_return")
    assert (mean, metric) == ("evaluation_in_hard_mean_return", "evaluation_in_hard_info_x_mean_return")
    assert [tag_of(name) for name in (mean, metric)] == [f"evaluation/{mean}", f"evaluation/{metric}"]
    own = ("evaluation_mean_return", "evaluation_info_x", "evaluation_in_hard_success_rate")
    assert [is_other_return(name) for name in (mean, metric, *own)] == [True, False, False, False, False]


def test_estimates_have_columns_beside_the_table():
    names = [DISCOUNTED, *estimate_columns("fqe")]
    assert [tag_of(name) for name in names] == [f"evaluation/{name}" for name in names]
    assert [meaning_of(name).split(" ")[0] for name in names] == ["mean", "estimate", "estimate", "estimate"]


def test_every_number_has_a_meaning():
    assert meaning_of("updates") == "updates of the online network"
    assert meaning_of("evaluation_in_hard_mean_return").endswith("in one of evaluation.other_environments")
    assert meaning_of("evaluation_info_x").endswith("over the newest evaluation's episodes")
    assert meaning_of("info_x_100").endswith("over the last 100 episodes")
    assert meaning_of("info_gain") == "of the algorithm"
