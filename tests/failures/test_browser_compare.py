"""Comparisons and sweeps in a real browser: groups, ranges, tables and pictures, by mouse and by keyboard."""

import csv
import json
import re

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard.files import id_of
from distrl.config.load import dump
from tests.failures.browsing import until
from tests.run_folders import summary

pytestmark = [pytest.mark.slow, pytest.mark.row("P12", "P13")]


RATES, SEEDS = (1e-4, 1e-3, 1e-2), (1, 2, 3)
BEST = {1e-4: 100.0, 1e-3: 400.0, 1e-2: 200.0}


def make_run(folder, rate, seed, outcome, actors):
    """A run that has ended; its returns go straight to the outcome."""
    folder.mkdir(parents=True)
    sets = [f"network.learning_rate={rate}", f"seed={seed}", f"actors.count={actors}"]
    record = {"run_id": folder.name, "redis_url": None, "pid": 1, "process": "gone", "started": 1000.0}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(dump(load("cartpole-impala", sets=sets)))
    rows = "".join(f"{n},{100 * n},{n},{n},{outcome * n / 30}\n" for n in range(1, 31))
    (folder / "metrics.csv").write_text(f"updates,env_steps,episodes,wall_s,mean_return_100\n{rows}")
    numbers = {"mean_return_100": outcome, "best_mean_return_100": outcome, "env_steps": 3000, "seed": seed}
    nothing = dict.fromkeys(("evaluation_mean_return", "best_evaluation_return"))
    summary(run_id=folder.name, **numbers, **nothing).write(folder / "summary.json")


@pytest.fixture
def sweep(tmp_path):
    """Nine runs of a sweep of ten, three rates under three seeds, and its id; made before the dashboard starts."""
    pairs = [(rate, seed) for rate in RATES for seed in SEEDS]
    for number, (rate, seed) in enumerate(pairs, 1):
        make_run(tmp_path / "rates" / f"{number:04}", rate, seed, BEST[rate] + 10 * seed, actors=1 + number % 2)
    (tmp_path / "rates" / "sweep.yaml").write_text("vary: {network.learning_rate: [1]}\n")
    (tmp_path / "rates" / "sweep.json").write_text('{"format": 1, "minutes": 3.0, "planned": 10, "runs": []}')
    return id_of("rates")


@pytest.fixture
def page(sweep, dashboard, tab):
    """The page of the sweep, opened with a query."""

    def opened(query=""):
        tab.goto(f"{dashboard}#/sweep/{sweep}{query}")
        tab.locator(".legend button").first.wait_for()
        return tab

    yield opened
    assert tab.complaints == []


def rows(tab):
    return tab.locator(".compared tbody tr")


def test_a_sweep_is_found_grouped_and_kept_in_the_address(sweep, dashboard, tab):
    tab.goto(f"{dashboard}#/sweeps")
    tab.get_by_role("link", name="rates").press("Enter")
    tab.get_by_text("9 of 10 runs: 9 done, 1 not begun").wait_for()
    tab.get_by_label("Group", exact=True).select_option("network.learning_rate")
    tab.get_by_text(
        "Best: learning_rate=0.001: IQM 420.0 [410.0, 430.0] over 3 runs; next learning_rate=0.01"
    ).wait_for()
    bands = tab.locator(".legend button")
    bands.filter(has_text="learning_rate=0.0001 (3)").wait_for()
    assert bands.count() == 3
    tab.get_by_label("Statistic").select_option("median")
    tab.get_by_text("median 420.0 [410.0, 430.0] over 3 runs").wait_for()

    tab.get_by_label("Group", exact=True).select_option("several")
    tab.get_by_label("actors.count", exact=True).check()
    bands.nth(5).wait_for()
    assert bands.count() == 6
    tab.reload()
    bands.filter(has_text="learning_rate=0.0001 actors.count=1").wait_for()
    assert tab.get_by_label("Statistic").input_value() == "median"
    tab.get_by_role("button", name="Groups").press("Enter")
    assert rows(tab).count() == 6

    # The state of the chart, too: a hidden band, the zoom, and how y is drawn.
    bands.nth(1).press("Enter")
    tab.get_by_role("application", name=re.compile("^Return of 9 runs")).press("+")
    tab.get_by_label("Options of the chart").press("Enter")
    tab.get_by_label("Log scale").check()
    tab.get_by_label("Least y").fill("5")
    tab.get_by_label("Least y").press("Tab")
    tab.reload()
    tab.get_by_role("button", name="Reset zoom").wait_for()
    bands.nth(5).wait_for()
    assert [band.get_attribute("aria-pressed") for band in bands.all()].index("false") == 1
    tab.get_by_label("Options of the chart").press("Enter")
    assert tab.get_by_label("Log scale").is_checked()
    assert tab.get_by_label("Least y").input_value() == "5"
    tab.get_by_role("button", name="Reset zoom").press("Enter")
    until(tab, "!location.hash.includes('zoom')")
    assert tab.complaints == []


@pytest.mark.long
def test_ranges_by_keyboard_and_by_mouse_choose_runs(page):
    tab = page()
    assert rows(tab).count() == 9
    rate = tab.get_by_role("slider", name="Range of learning_rate")
    rate.press("ArrowDown")
    tab.get_by_text("6 of 9 runs are within the ranges").wait_for()
    assert rate.get_attribute("aria-valuetext") == "0.0001 to 0.001"
    tab.get_by_role("slider", name="Range of learning_rate").press("Shift+ArrowUp")
    tab.get_by_text("3 of 9 runs are within the ranges").wait_for()
    assert rows(tab).count() == 3
    tab.locator(".legend button").nth(2).wait_for(state="detached")  # a band for either number of actors
    assert tab.locator(".legend button").count() == 2
    tab.reload()
    tab.get_by_text("3 of 9 runs are within the ranges").wait_for()
    tab.get_by_role("slider", name="Range of learning_rate").press("Delete")
    tab.get_by_role("slider", name="Range of learning_rate").and_(tab.locator("[aria-valuetext=all]")).wait_for()
    assert rows(tab).count() == 9

    outcome = tab.get_by_role("slider", name="Range of Return")
    outcome.scroll_into_view_if_needed()
    box = outcome.bounding_box()
    middle = box["x"] + box["width"] / 2
    tab.mouse.move(middle, box["y"] + 8)
    tab.mouse.down()
    tab.mouse.move(middle, box["y"] + 0.3 * box["height"], steps=4)
    tab.mouse.up()
    tab.get_by_text("3 of 9 runs are within the ranges").wait_for()
    assert rows(tab).locator("td.n", has_text=re.compile(r"^4\d\d\.0$")).count() >= 3
    tab.get_by_role("button", name="Remove all ranges").click()
    rows(tab).nth(8).wait_for()


@pytest.mark.long
def test_the_table_is_sorted_cut_and_saved(page, tmp_path):
    tab = page()
    heading = tab.locator(".compared").get_by_role("columnheader", name=re.compile("^Return"))
    assert heading.get_attribute("aria-sort") == "descending"
    assert rows(tab).first.inner_text().split()[0] == "rates/0006"
    tab.locator(".compared").get_by_role("button", name="learning_rate").press("Enter")
    assert rows(tab).first.inner_text().split()[0] == "rates/0001"
    tab.get_by_role("button", name="Columns …").press("Enter")
    tab.get_by_label("Find settings").fill("actors")
    assert tab.locator(".picker label:visible").count() == 1
    tab.get_by_role("checkbox", name=re.compile(r"^actors\.count")).uncheck()
    tab.get_by_role("button", name="Show", exact=True).press("Enter")
    tab.get_by_role("columnheader", name="actors.count", exact=True).wait_for(state="detached")
    assert tab.get_by_role("slider", name="Range of actors.count").count() == 0
    with tab.expect_download() as download:
        tab.get_by_label("Comparison as a table").get_by_role("button", name="CSV").click()
    saved = tmp_path / "table.csv"
    download.value.save_as(saved)
    with saved.open() as file:
        table = [*csv.DictReader(file)]
    assert [row["network.learning_rate"] for row in table[:4]] == ["0.0001", "0.0001", "0.0001", "0.001"]
    assert table[0]["Return"] == "110"


@pytest.mark.long
def test_pictures_tell_what_mattered_and_lead_to_runs(page, tmp_path):
    tab = page()
    tab.get_by_text("more than by chance: learning_rate").wait_for()
    plot = tab.get_by_role("application", name=re.compile("^Return over learning_rate of 9 runs"))
    plot.press("End")
    tab.locator("#status").filter(has_text="learning_rate: 0.01").wait_for(state="attached")
    assert tab.locator(".tip:visible").inner_text().splitlines()[-1].startswith("Return: 2")
    card = tab.locator("figure", has=tab.get_by_role("heading", name="Outcome over a setting"))
    card.get_by_label("Options of Outcome over a setting").press("Enter")
    for form, start in (("CSV", b"run,learning_rate,"), ("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with tab.expect_download() as download:
            card.get_by_role("button", name=form).press("Enter")
        saved = tmp_path / f"picture.{form}"
        download.value.save_as(saved)
        assert saved.read_bytes().startswith(start)
    card.get_by_role("button", name="Table").press("Enter")
    assert card.locator("tbody tr").count() == 9
    card.get_by_role("button", name="Table").press("Enter")
    plot.press("Home")
    plot.press("Enter")
    tab.wait_for_url(re.compile("#/run/"))


@pytest.mark.long
def test_chosen_runs_lead_to_their_sweep(sweep, dashboard, tab):
    chosen = "&".join(f"id={id_of(f'rates/{number:04}')}" for number in (1, 4))
    tab.goto(f"{dashboard}#/compare?{chosen}&x=actors.count&group=-")
    tab.locator(".legend button").nth(1).wait_for()
    assert tab.get_by_label("x", exact=True).input_value() == "actors.count"
    tab.get_by_text("What mattered cannot be judged: 2 runs").wait_for()
    tab.get_by_role("link", name="rates (9 runs)").click()
    tab.wait_for_url(re.compile(f"#/sweep/{sweep}"))
    assert tab.complaints == []


@pytest.mark.long
def test_a_search_and_a_population(tmp_path, request, tab):
    for kind in ("search", "population"):
        for number in (1, 2, 3):
            make_run(tmp_path / kind / f"{number:04}", 10.0**-number, number, 100.0 * number, actors=1)
        (tmp_path / kind / "search.yaml").write_text("vary: {network.learning_rate: [1]}\ntrials: 5\n")
    lesson = {"member": "0002", "teacher": "0003", "env_steps": 2000, "score": 1.0, "teacher_score": 2.0}
    record = {"members": {"0001": {}, "0002": {}, "0003": {}}, "lessons": [lesson]}
    (tmp_path / "population" / "population.json").write_text(json.dumps(record))
    dashboard = request.getfixturevalue("dashboard")  # started later than a run was made, it knows the run at once
    tab.goto(f"{dashboard}#/sweep/{id_of('search')}")
    tab.get_by_role("application", name=re.compile("^Return over number of the run of 3 runs")).wait_for()
    tab.get_by_text("3 of 5 runs: 3 done, 2 not begun").wait_for()
    tab.goto(f"{dashboard}#/sweep/{id_of('population')}")
    tab.get_by_role("img", name="1 time a member took the networks of another one").wait_for()
    assert tab.complaints == []
