import json
import re

import pytest
import yaml

from distrl.apps.config.configuration import load
from distrl.apps.experiments.directory import SweepDirectory, read_file
from distrl.apps.experiments.report import Report, sweep_file
from distrl.apps.experiments.results import ReturnScale
from distrl.apps.experiments.sweep import Sweep, planned_runs
from distrl.errors import ConfigError
from tests.apps.experiments.sweeps import make_sweep
from tests.apps.reports.test_report import ALLOWED, HOSTILE, Reader

RATES = [0.001, 0.01]


def evaluated(planned):
    return {"evaluation_mean_return": 100.0 * planned.values["network.learning_rate"] + planned.seed}


def read(place, bounds=None):
    return Reader(Report(SweepDirectory(place.path), bounds or {}).page())


@pytest.fixture(scope="module")
def rates(tmp_path_factory):
    """A sweep of two rates and two seeds that is done."""
    return make_sweep(
        tmp_path_factory.mktemp("a") / "rates", evaluated, vary={"network.learning_rate": RATES}, seeds="1..2"
    )


@pytest.fixture(scope="module")
def page(rates):
    return read(rates)


def drawings(page):
    return [value.partition(".")[0] for name, value in page.attributes if name == "aria-label"]


def test_a_sweep_that_is_done(rates, page):
    for told in (
        "rates",
        "a sweep of 2 combinations, on CartPole-v1",
        "4 runs done",
        "0.001, 0.01",
        "The score of a run is the mean return of its newest evaluation.",
        "2.50",
        "2.00 … 3.00",
        "evaluation_mean_return: interquartile mean over seeds",
        "probability that a run scores more than one of the best combination, learning_rate=0.01",
        "2 cores of AMD EPYC",
        "numpy 2.4.6",
        f"distrl sweep again.yaml --dir {rates.path}-again",
        f"distrl report {rates.path}",
    ):
        assert told in page.text, told
    assert drawings(page) == ["Learning curves", "Performance profiles", "Probability of improvement"]
    for untold in ("None", "nan", "failed runs", "Not all runs had the same", "no score"):
        assert untold not in page.text


def test_nothing_is_fetched_and_nothing_runs(page):
    assert set(page.tags) <= ALLOWED
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "action", "srcset", "data", "background", "poster"}
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    ids = {value for name, value in page.attributes if name == "id"}
    assert {value[1:] for name, value in page.attributes if name == "href"} <= ids


def test_lines_have_the_pages_colours(rates):
    markup = Report(rates, {}).page().decode()
    assert "#0a00" not in markup
    assert {"var(--line-0)", "var(--line-1)", "var(--dim)"} <= {*re.findall(r"var\(--[a-z0-9-]+\)", markup)}


def test_failed_and_open_runs_are_told_and_in_no_number(tmp_path):
    def ends(planned):
        if planned.number == 2:
            return "environment X fails"
        return None if planned.number == 3 else {"mean_return_100": 20.0}

    place = make_sweep(tmp_path / "a", ends, vary={"network.learning_rate": RATES}, seeds="1..3", runs=5)
    page = read(place)
    assert "3 runs done, 1 failed, 1 under way, 1 not begun" in page.text
    assert "have no score: they are in no interval and in no curve" in page.text
    assert "environment X fails" in page.text
    assert "at 3,000 steps, mean return 20.0" in page.text
    assert "its last 100 training episodes; no run was evaluated" in page.text
    record = place.path / "0003/run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"pid": 2**22 + 1}))
    assert "1 interrupted" in read(place).text


def test_two_kinds_of_scores_are_told(tmp_path):
    place = make_sweep(
        tmp_path / "a",
        lambda planned: {"mean_return_100": 1.0} | ({"evaluation_mean_return": 9.0} if planned.seed == 1 else {}),
        seeds="1..3",
    )
    assert (
        "Two kinds of scores: 1 of 3 runs are scored by the mean return of their newest evaluation" in read(place).text
    )


def test_one_seed_is_told_and_a_sweep_of_seeds_has_no_improvement(tmp_path):
    one = make_sweep(tmp_path / "a", evaluated, vary={"network.learning_rate": RATES})
    assert "One seed each cannot tell how much seeds differ" in read(one).text
    seeds = make_sweep(tmp_path / "b", lambda planned: {"mean_return_100": 1.0}, seeds="1..2")
    page = read(seeds)
    assert drawings(page) == ["Learning curves", "Performance profiles"]
    assert "every seed" in page.text


@pytest.mark.parametrize("end", [None, "broken", {"stop_reason": "SIGTERM"}, {"mean_return_100": None}])
def test_a_sweep_without_a_score_is_refused(tmp_path, end):
    place = make_sweep(tmp_path / "a", lambda planned: end, seeds="1..2")
    with pytest.raises(ConfigError, match=r"no run in .*a is done and has a return; see: distrl runs "):
        Report(place, {})


def test_environments_are_sections_and_together_between_bounds(tmp_path):
    vary = {"environment.id": ["CartPole-v1", "Acrobot-v1"], "network.learning_rate": RATES}
    place = make_sweep(tmp_path / "a", evaluated, vary=vary, seeds="1..2")
    text = read(place).text
    assert "Results: CartPole-v1" in text
    assert "Results: Acrobot-v1" in text
    assert "Results: All environments" not in text
    bounds = {"CartPole-v1": ReturnScale(0.0, 10.0), "Acrobot-v1": ReturnScale(0.0, 5.0)}
    made = Report(place, bounds)
    page = Reader(made.page())
    assert "CartPole-v1: 0 is 0, 10 is 1; Acrobot-v1: 0 is 0, 5 is 1" in page.text
    assert "--normalise=CartPole-v1=0:10 --normalise=Acrobot-v1=0:5" in page.text
    assert len(drawings(page)) == 2 + 3 + 3  # returns of several environments have no common curve
    names = {name.partition(".")[0] for name in made.files()}
    ends = {
        f"{name}-{end}" for name in ("profiles", "improvement", "table") for end in ("all", "CartPole-v1", "Acrobot-v1")
    }
    assert names == ends | {"curves-CartPole-v1", "curves-Acrobot-v1"}


def test_three_combinations_have_a_matrix(tmp_path):
    place = make_sweep(tmp_path / "a", evaluated, vary={"network.learning_rate": [0.1, 0.2, 0.3]}, seeds="1..2")
    text = read(place).text
    assert "Probability that a run of the row scores more than one of the column" in text
    assert text.count("1.00 (1.00 … 1.00)") == text.count("0.00 (0.00 … 0.00)") == 3


def test_of_many_combinations_the_best_are_drawn(tmp_path):
    rates = [round(0.01 * place, 2) for place in range(1, 26)]
    place = make_sweep(tmp_path / "a", evaluated, vary={"network.learning_rate": rates}, seeds="1..2")
    page = read(place)
    assert "and 17 more, which are in the table" in page.text
    assert "learning_rate=0.25; the next 20 of 24" in page.text
    assert page.tags.count("figure") == 3
    assert sum(value == "key" for name, value in page.attributes if name == "class") == 8
    assert page.text.count("learning_rate=0.01 seed") == 2


def test_files_for_a_paper(rates):
    files = Report(rates, {}).files()
    pictures = {f"{name}.{form}" for name in ("curves", "profiles", "improvement") for form in ("svg", "pdf")}
    assert {*files} == pictures | {"table.tex", "table.csv"}
    assert b"learning_rate=0.001" in files["curves.svg"]()
    assert files["table.csv"]().startswith(b"network.learning_rate,runs,iqm,")


def test_damaged_metrics_are_passed_over(tmp_path):
    place = make_sweep(tmp_path / "a", lambda planned: {"mean_return_100": 1.0}, seeds="1..2")
    (place.path / "0001/metrics.csv").write_text("updates,env_steps\n1\n")
    page = read(place)
    assert "Passed over: " in page.text
    assert "not a table of metrics" in page.text
    assert "Learning curves" in page.text


def test_hostile_values_stay_text_and_secrets_are_masked(tmp_path):
    vary = {"environment.kwargs.name": [HOSTILE, "b"], "environment.kwargs.api_key": ["k3y"]}
    vary["network.learning_rate"] = {"values": [0.1], "when": {"environment.kwargs.api_key": "k3y"}}
    sets = ("environment.kwargs={password: pa55}",)
    place = make_sweep(tmp_path / "<script>", lambda planned: {"mean_return_100": 1.0}, sets, vary=vary)
    made = Report(place, {})
    page = Reader(made.page())
    assert set(page.tags) <= ALLOWED
    assert page.text.count(HOSTILE) >= 4
    everything = b"".join(make() for name, make in made.files().items() if not name.endswith(".pdf"))
    for secret in ("k3y", "pa55"):
        assert secret not in page.text
        assert secret.encode() not in everything


def test_the_sweeps_file_is_the_same_sweep(tmp_path):
    described = {
        "method": "random",
        "vary": {"network.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "learner.batch_size": [1, 2]},
        "seeds": [3, 4],
        "budget": {"runs": 4},
    }
    sets = ("stop.updates=2", "network.clip_gradients=1.5", "environment.kwargs={a.b: 1}")
    sets += ("trackers.own={package.module:Class: {x: 1}, mine:Mine: {}}",)
    place = make_sweep(tmp_path / "a", lambda planned: None, sets, **described)
    sweep, _ = read_file(place.file, Sweep)
    file = tmp_path / "again.yaml"
    file.write_text(sweep_file(sweep, load(file=place.base)))
    again, shared = read_file(file, Sweep)
    assert [*planned_runs(again)] == [*planned_runs(sweep)]
    sets = [f"{path}={json.dumps(value)}" for path, value in shared["set"].items()]
    assert load(sets=sets).config == load(file=place.base).config
    assert yaml.safe_load(file.read_text())["budget"] == {"runs": 4}
