import numpy as np
import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard import settings_table
from distrl.apps.dashboard.list_view import ListView
from distrl.apps.dashboard.payloads import Runs
from distrl.config.load import dump
from distrl.errors import ConfigError
from distrl.runs.labels import Labels


def config(**values):
    return dump(load("cartpole-impala", sets=[f"{name.replace('__', '.')}={value}" for name, value in values.items()]))


@pytest.fixture
def runs(root, make_run, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.payloads.FILL_S", 60.0)
    for number, (rate, seed) in enumerate([(0.001, 1), (0.001, 2), (0.0001, 1), (0.0001, 2), (0.01, 1)]):
        text = config(network__learning_rate=rate, seed=seed, memory__queue_batches=8 + number)
        make_run(
            f"r{number}", config=text, mean_return_100=100.0 * number, started=float(number), exit_code=number == 4
        )
    made = Runs(root)
    yield made
    made.close()


def names(page):
    by_id = {row["id"]: row["name"] for row in page["rows"]}
    return [by_id[line["run"]] if "run" in line else line["group"] for line in page["lines"]]


def test_a_page_is_a_part_of_the_sorted_list(runs):
    page = runs.page(ListView(sort="-return", offset=2, limit=2))
    assert names(page) == ["r2", "r1"]
    assert (page["matched"], page["total"], page["length"], page["offset"]) == (5, 5, 5, 2)
    assert page["counts"] == {"failed": 1, "solved": 4}
    assert names(runs.page(ListView(sort="lr"))) == ["r3", "r2", "r1", "r0", "r4"]
    assert names(runs.page(ListView(offset=99, limit=2))) == ["r0"]  # the last page
    assert names(runs.page(ListView(query="lr<1e-2 seed=1 -state:failed", limit=9))) == ["r2", "r0"]


def test_settings_that_differ_are_columns_by_themselves(runs):
    page = runs.page(ListView(limit=9))
    assert [column["name"] for column in page["columns"] if column["kind"] == "setting"] == ["network.learning_rate"]
    assert [row["settings"]["network.learning_rate"] for row in page["rows"]] == [
        *("0.01", "0.0001", "0.0001", "0.001", "0.001")
    ]
    assert [column["kind"] for column in runs.page(ListView(query="r0"))["columns"]] == ["number"] * 7
    chosen = runs.page(ListView(columns=("lr", "queue_batches", "best", "started", "network.learning_rate")))["columns"]
    assert [column["name"] for column in chosen] == [
        *("network.learning_rate", "memory.queue_batches", "best_mean_return_100", "started")
    ]
    choices = runs.choices("")
    assert {one["path"]: one["values"] for one in choices["differing"]} == {
        **{"seed": 2, "network.learning_rate": 3, "memory.queue_batches": 5}
    }
    assert "algorithm.discount" in choices["same"]


def test_groups_are_folded_unless_they_are_opened(runs):
    view = ListView(group="lr", sort="-return", limit=9)
    page = runs.page(view)
    assert names(page) == ["0.01", "0.0001", "0.001"]
    assert page["lines"][1]["numbers"]["mean_return_100"] == {"median": 250.0, "iqm": 250.0, "n": 2}
    assert page["grouped"] == 3
    opened = runs.page(ListView(group="lr", sort="-return", limit=4, opened=frozenset({"0.0001"})))
    assert names(opened) == ["0.01", "0.0001", "r3", "r2"]
    all_but = ListView(group="network.learning_rate", opened=frozenset({"*"}), folded=frozenset({"0.001"}))
    assert names(runs.page(all_but)) == ["0.0001", "r3", "r2", "0.001", "0.01", "r4"]
    assert names(runs.page(ListView(group="state"))) == ["failed", "solved"]
    assert names(runs.page(ListView(group="algorithm"))) == ["impala"]


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (ListView(query="lrr=1"), "no number or setting is named 'lrr'"),
        (ListView(sort="colour"), "no number or setting is named 'colour'"),
        (ListView(columns=("colour",)), "no number or setting is named 'colour'"),
        (ListView(group="colour"), "no number or setting is named 'colour'"),
    ],
)
def test_views_that_cannot_be_shown(runs, view, problem):
    with pytest.raises(ConfigError, match=problem):
        runs.page(view)


def test_a_page_is_made_again_only_if_something_has_changed(runs, root):
    view = ListView(limit=3)
    first = runs.page(view)["rows"]
    assert runs.page(view)["rows"] is first
    assert runs.page(ListView(limit=2))["rows"] is not first
    Labels(note="new").write(root / "r4")
    runs.index.read_again([row["id"] for row in first])
    assert runs.page(view)["rows"][0]["note"] == "new"


def test_settings_are_read_in_parts(runs, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.payloads.FILL_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.payloads.READ_S", 0.0)
    assert runs.read_settings() is False  # no list was shown
    assert runs.page(ListView(limit=9))["unread"] == 4
    assert [runs.read_settings() for _ in range(4)] == [True, True, True, False]


def test_a_changed_configuration_is_read_again(runs, root, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.index.RESTS", 0.0)
    assert len(runs.page(ListView(query="lr=0.01"))["rows"]) == 1
    (root / "r4" / "config.yaml").write_text(config(network__learning_rate=0.5))
    assert names(runs.page(ListView(query="lr=0.5"))) == ["r4"]
    assert names(runs.page(ListView(query="lr=0.01"))) == []


def test_small_curves(runs, root):
    (row,) = runs.page(ListView(query="r0"))["rows"]
    first = runs.sparks_of([row["id"], "none"])
    assert first == {row["id"]: ([100.0, 200.0, 300.0], [10.0, 20.0, 30.0])}
    again = Runs(root)
    (root / "r0" / "metrics.csv").touch()  # of another time: it is read again
    assert again.sparks_of([row["id"]]) == first
    again.close()


def test_a_small_curve_that_cannot_be_made_is_logged_once(runs, monkeypatch, caplog):
    monkeypatch.setattr("distrl.apps.dashboard.sparks.Sparks._made", lambda *_: 1 / 0)
    (row,) = runs.page(ListView(query="r0"))["rows"]
    assert [runs.sparks_of([row["id"]]) for _ in range(3)] == [{row["id"]: ([], [])}] * 3
    assert caplog.text.count("a small curve cannot be made: r0") == 1


def test_secrets_are_no_columns(runs, make_run):
    for number in range(2):
        make_run(f"s{number}", config=f"memory:\n  url: redis://:pw{number}@h{number}\nseed: {number}\n")
    page = runs.page(ListView(columns=("memory.url",), query="name:s"))
    assert [row["settings"]["memory.url"] for row in page["rows"]] == ["redis://•••@h0", "redis://•••@h1"]


def test_usual_settings_of_many_runs_are_those_that_differ_within_an_algorithm(runs, make_run):
    for number, value in enumerate(np.linspace(0.9, 0.99, 4)):
        make_run(f"p{number}", config=dump(load("cartpole-ppo", sets=[f"algorithm.discount={value:.2f}"])))
    settings = [column["name"] for column in runs.page(ListView())["columns"] if column["kind"] == "setting"]
    assert settings == ["algorithm.discount", "network.learning_rate"]


def test_foreign_configurations_take_bounded_memory(runs, make_run, monkeypatch):
    monkeypatch.setattr(settings_table, "MOST_OF_A_RUN", 10)
    monkeypatch.setattr(settings_table, "MOST_PATHS", 300)
    for number in range(40):
        make_run(f"odd{number}", config="".join(f"k{number}_{key}: 1\n" for key in range(50)))
    runs.page(ListView())
    while runs.read_settings():
        pass
    assert len(runs.settings.paths) <= 300
    assert "k0_10" not in runs.settings.paths
