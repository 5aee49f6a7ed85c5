import json

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard.comparing import ALL, ALL_BUT_SEED, Asked, Compared
from distrl.apps.dashboard.files import NotThereError, id_of
from distrl.config.load import dump
from distrl.errors import ConfigError

RATE = "network.learning_rate"


@pytest.fixture
def make(make_run):
    """A run with settings, and an outcome in its summary."""

    def made(name, rate=1e-3, seed=1, outcome=475.5, sets=(), **changes):
        config = dump(load("cartpole-impala", sets=[f"{RATE}={rate}", f"seed={seed}", *sets]))
        nothing = dict.fromkeys(("evaluation_mean_return", "best_evaluation_return"))
        returns = {"mean_return_100": outcome, "best_mean_return_100": outcome + 5}
        return make_run(name, config=config, **{**nothing, **returns, **changes})

    return made


def asked(names, *groups, statistic="mean", **more):
    return Asked([id_of(name) for name in names], groups=groups, statistic=statistic, **more)


def curves(runs, one, metric="mean_return_100"):
    return Compared(runs, one).curves(metric, "steps", 100, 1)


def test_bands_by_a_key_of_the_configuration(runs, make):
    for name, rate, seed, rows in (("a", 1e-3, 1, 3), ("b", 1e-3, 2, 3), ("c", 1e-2, 3, 2)):
        make(name, rate, seed, rows=rows)
    told = curves(runs, asked("abc", RATE))
    assert [run["group"] for run in told["runs"]] == [
        "learning_rate=0.001",
        "learning_rate=0.001",
        "learning_rate=0.01",
    ]
    first, second = told["bands"]
    line = [10.0, 20.0, 30.0]
    assert first == {
        "label": "learning_rate=0.001",
        "place": 0,
        "runs": 2,
        "x": [100.0, 200.0, 300.0],
        **{name: line for name in ("centre", "low", "high")},
    }
    assert (second["label"], second["x"]) == ("learning_rate=0.01", [100.0, 200.0])
    assert told["curves"][id_of("c")] == {"x": [100.0, 200.0], "y": [10.0, 20.0]}
    together = curves(runs, asked("abc", ALL, statistic="iqm"))["bands"]
    assert [(band["label"], band["runs"], band["centre"]) for band in together] == [("all runs", 3, [10.0, 20.0])]
    assert curves(runs, asked("abc"))["bands"] == []


def test_groups_are_in_the_order_of_their_numbers(runs, make):
    for name, rate in (("a", 0.01), ("b", 0.0003), ("c", 0.002)):
        make(name, rate)
    told = curves(runs, asked("abc", RATE))
    assert [band["label"] for band in told["bands"]] == [
        f"learning_rate={rate}" for rate in ("0.0003", "0.002", "0.01")
    ]


def test_curves_of_some_runs_keep_the_groups_labels_and_colours_of_all(runs, make):
    for name, rate, seed in (("a", 0.00123, 1), ("b", 0.00124, 1), ("c", 0.01, 1), ("d", 0.01, 2)):
        make(name, rate, seed)
    compared = Compared(runs, asked("abcd", ALL_BUT_SEED))
    every = compared.curves("mean_return_100", "steps", 100, 1)
    some = compared.curves("mean_return_100", "steps", 100, 1, [id_of(name) for name in "bd"])
    assert [run["id"] for run in some["runs"]] == [*some["curves"]] == [id_of("b"), id_of("d")]
    assert [(band["label"], band["place"], band["runs"]) for band in every["bands"]] == [
        ("learning_rate=0.00123", 0, 1),
        ("learning_rate=0.00124", 1, 1),
        ("learning_rate=0.01", 2, 2),
    ]
    assert [(band["label"], band["place"], band["runs"]) for band in some["bands"]] == [
        ("learning_rate=0.00124", 1, 1),
        ("learning_rate=0.01", 2, 1),
    ]
    none = compared.curves("mean_return_100", "steps", 100, 1, [""])
    assert (none["runs"], none["curves"], none["bands"], none["columns"]) == ([], {}, [], every["columns"])


def test_the_usual_groups_are_all_but_the_seed_if_a_seed_differs(runs, make):
    for name, rate, seed in (("a", 1e-3, 1), ("b", 1e-3, 2), ("c", 1e-2, 1)):
        make(name, rate, seed)
    assert Compared(runs, Asked([id_of(name) for name in "abc"])).grouped_by == (RATE,)
    assert Compared(runs, Asked([id_of(name) for name in "ab"])).grouped_by == (ALL,)
    assert Compared(runs, Asked([id_of(name) for name in "ac"])).grouped_by == ()
    assert Compared(runs, asked("ac", ALL_BUT_SEED)).grouped_by == (RATE,)


def test_groups_of_several_settings(runs, make):
    for name, rate, actors in (("a", 1e-3, 1), ("b", 1e-3, 2), ("c", 1e-3, 2)):
        make(name, rate, seed=len(name), sets=[f"actors.count={actors}"])
    told = Compared(runs, asked("abc", RATE, "actors.count")).table()
    assert {group["label"] for group in told["groups"]} == {
        f"{RATE}=0.001 actors.count={actors}" for actors in (1, 2)
    }  # a key that does not differ has its whole name


def test_the_table_of_settings_and_outcomes(runs, make):
    make("a", 1e-3, 1, sets=["environment.kwargs={api_token: x}"])
    make("b", 1e-2, 2, sets=["environment.kwargs={api_token: y, size: big}"])
    told = Compared(runs, asked("ab")).table()
    columns = {one["path"]: one for one in told["settings"]}
    assert columns[RATE] == {
        "path": RATE,
        "name": "learning_rate",
        "texts": ["0.001", "0.01"],
        "numbers": [0.001, 0.01],
    }
    assert columns["environment.kwargs.size"]["texts"] == ["null", "big"]
    assert columns["environment.kwargs.size"]["numbers"] is None
    assert told["settings"][-1]["path"] == "seed"
    assert "api_token" not in json.dumps(told)  # masked alike, so that they do not differ
    assert [one["name"] for one in told["outcomes"]] == [
        *("mean_return_100", "best_mean_return_100", "env_steps_per_s", "env_steps", "training_s")
    ]


def test_the_outcome_of_groups_and_the_best_of_them(runs, make):
    outcomes = {"a": (1e-3, 1, 10.0), "b": (1e-3, 2, 20.0), "c": (1e-2, 1, 300.0), "d": (1e-2, 2, 400.0)}
    for name, values in outcomes.items():
        make(name, *values)
    make("e", 1e-2, 3, 500.0, exit_code=1)
    told = Compared(runs, asked("abcde", ALL_BUT_SEED, statistic="interval")).table()
    assert [(one["label"], one["counted"], one["interval"], one["best"]) for one in told["groups"]] == [
        ("learning_rate=0.01", 2, [350.0, 300.0, 400.0], 405.0),
        ("learning_rate=0.001", 2, [15.0, 10.0, 20.0], 25.0),
    ]
    assert told["best"] == (
        "learning_rate=0.01: IQM 350.0 [300.0, 400.0] over 2 runs; next learning_rate=0.001: IQM 15.0 [10.0, 20.0] "
        "over 2 runs. Not counted: 1 of 5 runs, which failed or have no value yet."
    )
    assert Compared(runs, asked("abcd", outcome="env_steps")).table()["best"] == ""  # more steps are not better


def test_an_evaluation_is_the_usual_outcome_if_every_run_has_one(runs, make):
    make("a", evaluation_mean_return=300.0)
    make("b", evaluation_mean_return=200.0)
    make("c", evaluation_mean_return=None)
    assert Compared(runs, asked("ab")).outcome == "evaluation_mean_return"
    assert Compared(runs, asked("abc")).outcome == "mean_return_100"


def test_which_setting_mattered(runs, make):
    for at, name in enumerate("abcdefgh"):
        make(name, [1e-3, 1e-2][at // 4], at % 4, 100.0 * (at // 4) + at, sets=[f"actors.count={1 + at % 2}"])
    told = Compared(runs, asked("abcdefgh")).table()["importance"]
    first, second = told["settings"]
    assert (first["path"], second["path"]) == (RATE, "actors.count")
    assert first["share"] > 0.99
    assert first["p"] < 0.06
    assert second["p"] > 0.5
    assert (
        Compared(runs, asked("ab")).table()["importance"]["words"].startswith("What mattered cannot be judged: 2 runs")
    )


def test_runs_without_numbers_or_configuration(runs, make, make_run):
    make("a")
    make("b", rows=0)
    (make("damaged") / "metrics.csv").write_text("a,b\n1\n")
    make_run("odd", config="no mapping")
    told = curves(runs, asked(["a", "b", "damaged", "odd"], ALL))
    assert told["curves"][id_of("b")] == {"x": [], "y": []}
    assert told["bands"][0]["runs"] == 1
    assert curves(runs, asked("b", ALL), "loss")["bands"][0]["x"] == []
    assert told["runs"][3]["group"] is None


def test_keys_that_differ(runs, make_run):
    for name, config in {"a": "seed: 1\na: 1\nb: [1]\n", "b": "seed: 2\na: 1\nb: [2]\n", "odd": "no mapping"}.items():
        make_run(name, config=config)
    assert Compared(runs, asked(["a", "b", "odd"])).paths == ["b", "seed"]


def test_settings_of_a_sweep_come_first_also_where_they_became_sections(runs, make_run, root):
    for number in (1, 2):
        epsilon = f"exploration: {{epsilon: {{kind: constant, value: {number}}}}}\n"
        make_run(f"rates/000{number}", config=f"a: {number}\nseed: {number}\n{epsilon}z: {number}\n")
    (root / "rates" / "sweep.yaml").write_text("vary: {z: [1, 2], exploration.epsilon: [1, 2]}\n")
    assert Compared(runs, Asked([], id_of("rates"))).paths == ["z", "exploration.epsilon.value", "a", "seed"]


def test_sixty_runs_at_most_and_sweeps_beyond_by_groups(runs, make_run, root, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.comparing.MOST_LINES", 2)
    monkeypatch.setattr("distrl.apps.dashboard.comparing.MOST_RUNS", 4)
    monkeypatch.setattr("distrl.apps.dashboard.comparing.MOST_BANDS", 1)
    for number in range(1, 6):
        make_run(f"rates/000{number}", config=f"seed: {number}\nrate: {number % 2}\n", mean_return_100=number % 2)
    (root / "rates" / "sweep.yaml").write_text("vary: {rate: [0, 1]}\n")
    with pytest.raises(ConfigError, match="name 1 to 2 runs, or a sweep"):
        Compared(runs, Asked([id_of(f"rates/000{number}") for number in (1, 2, 3)]))
    told = curves(runs, Asked([], id_of("rates"), ("rate",)))
    assert (told["curves"], [band["label"] for band in told["bands"]]) == ({}, ["rate=1"])
    assert told["left_out"] == (
        "Only the first 4 runs are compared; 1 more are left out. 4 runs are too many for lines of their own: the "
        "chart shows groups. The chart shows the 1 groups with the greatest outcome of 2."
    )
    among = Compared(runs, Asked([], id_of("rates"), ("rate",)))
    few = among.curves("mean_return_100", "steps", 100, 1, [id_of("rates/0001"), id_of("rates/0003")])
    assert (len(few["curves"]), len(few["bands"])) == (2, 1)
    assert few["left_out"] == "Only the first 4 runs are compared; 1 more are left out."  # all of those are shown
    alone = curves(runs, Asked([], id_of("rates"), ()))
    assert len(alone["curves"]) == 2
    assert "The chart shows the first 2 of 4 runs" in alone["left_out"]
    narrowed = Compared(runs, Asked([id_of("rates/0002")], id_of("rates")))
    assert [entry.path for entry in narrowed.entries] == ["rates/0002"]


def test_no_such_run_or_sweep(runs):
    for one in (Asked(["0000000000000000"]), Asked([], "0000000000000000")):
        with pytest.raises(NotThereError):
            Compared(runs, one)


def test_runs_that_are_gone_are_left_out(runs, make_run):
    make_run("a")
    found = Compared(runs, Asked([id_of("a"), id_of("gone")]))
    assert [entry.name for entry in found.entries] == ["a"]
    assert found.curves("mean_return_100", "steps", 100, 1)["left_out"] == "1 of these runs is not there any more."
    with pytest.raises(NotThereError, match="none of these runs is there any more"):
        Compared(runs, Asked([id_of("gone")]))
