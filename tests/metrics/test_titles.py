from distrl.metrics.snapshot import COLUMNS, METRICS, meaning_of
from distrl.metrics.titles import ALGORITHMS, TITLES, title_of


def test_titles_are_written_as_the_field_writes_them():
    titles = {name: title_of(name) for name in ("kl", "mean_td_error", "mean_q", "mean_return_100", "relu_zeros_max")}
    assert titles == {
        "kl": "KL divergence",
        "mean_td_error": "Mean TD error",
        "mean_q": "Mean Q value",
        "mean_return_100": "Return",
        "relu_zeros_max": "Zeros of a ReLU layer, at most",
    }


def test_a_metric_without_a_title_of_its_own_is_its_name_in_words():
    assert title_of("my_error [x]") == "My error [x]"
    assert title_of("") == ""


def test_no_two_metrics_have_one_title():
    titles = [title_of(name) for name in {*COLUMNS, *TITLES}]
    assert len({*titles}) == len(titles)


def test_metrics_of_algorithms_are_explained():
    assert meaning_of("mean_td_error") == ALGORITHMS["mean_td_error"][1]
    assert not {metric.name for metric in METRICS} & {*ALGORITHMS}
