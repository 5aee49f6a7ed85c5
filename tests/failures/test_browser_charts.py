"""Charts in a real browser: by mouse, by keyboard, by touch, as tables and files; and panels that the address keeps."""

import csv
import json
import os
import re
import time
from dataclasses import asdict

import numpy as np
import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard.files import id_of
from distrl.config.load import dump
from distrl.memory_backend.records import Evaluation
from distrl.metrics.event_file import EventFile
from distrl.runs.evaluations import write_evaluation
from tests.failures.browsing import until

pytestmark = [pytest.mark.slow, pytest.mark.row("P08")]


ROWS = 4000
BEGAN = 1_700_000_000


def make_run(root, name="a", rows=ROWS):
    """A run that has ended without a summary: a row a second, an algorithm's own metric, events, a checkpoint."""
    folder = root / name
    (folder / "logs").mkdir(parents=True)
    (folder / "checkpoints" / "ckpt-000000001000").mkdir(parents=True)
    record = {"run_id": name, "redis_url": None, "pid": 1, "process": "gone", "started": float(BEGAN)}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(dump(load("cartpole-impala")))
    header = "updates,env_steps,episodes,wall_s,mean_return_100,loss,env_steps_per_s,updates_per_s,my error [x],kl"
    lines = [
        f"{n},{100 * n},{n},{n},{n / 10},{10.0 ** (n % 4 - 2)},{100 + n % 7},{1},{n % 50},\n"
        for n in range(1, rows + 1)
    ]
    (folder / "metrics.csv").write_text(f"{header}\n{''.join(lines)}")
    os.utime(folder / "metrics.csv", (BEGAN + rows, BEGAN + rows))

    def event(second, text):
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(BEGAN + second))} {text}\n"

    (folder / "logs" / "events.log").write_text(
        event(0, f"run {name} in runs/{name}")
        + event(2000, "actor 1 started again (restart 1)")
        + event(2500, "evaluation at 250,000 steps: return 300.0 ± 50.0 over 5 episodes")
        + event(3000, "asked: network.learning_rate 0.001 (by ann)")
    )
    told = Evaluation(1, 250_000, 5, 300.0, 50.0, 250.0, 350.0, 300.0, 0.5)
    write_evaluation(folder / "evaluations.jsonl", asdict(told))
    return folder


@pytest.fixture
def made(tmp_path):
    """A run that is there before the dashboard, whose list is up to a second old."""
    make_run(tmp_path)


@pytest.fixture
def page(made, dashboard, tab):
    """The page of a run, opened with a query."""

    def opened(query=""):
        tab.goto(f"{dashboard}#/run/{id_of('a')}{query}")
        tab.locator(".legend button").first.wait_for()
        return tab

    yield opened
    assert tab.complaints == []


def status(tab, words):
    tab.locator("#status").filter(has_text=words).wait_for(state="attached")


def point_at(tab, share, height=0.5):
    box = tab.locator(".u-over").first.bounding_box()
    tab.mouse.move(box["x"] + share * box["width"], box["y"] + height * box["height"])
    return box


@pytest.mark.long
def test_a_chart_by_mouse(page):
    tab = page()
    point_at(tab, 0.5)
    tip = tab.locator(".tip").first
    tip.wait_for()
    steps, minutes, seconds, value = re.search(
        r"([\d,]+) steps · (\d+):(\d\d)\s.*Return\s*([\d.]+)", tip.inner_text(), re.DOTALL
    ).groups()
    steps = int(steps.replace(",", ""))
    assert 60 * int(minutes) + int(seconds) == pytest.approx(steps / 100, abs=1)  # in steps and in time
    assert float(value) == pytest.approx(steps / 1000, rel=0.01)

    point_at(tab, 0.25)
    tab.mouse.down()
    point_at(tab, 0.26)
    with tab.expect_response(re.compile(r"/curve\?(?=.*from=).*metric=mean_return_100")) as fetched:
        tab.mouse.up()
    x = fetched.value.json()["curves"]["mean_return_100"]["x"]
    assert set(np.diff(x)) == {100.0}  # every row of the stretch, where the whole curve had each fourth
    tab.get_by_role("button", name="Reset zoom").wait_for()
    assert "zoom=" in tab.url
    tab.get_by_label("Axis", exact=True).select_option("time")
    tab.wait_for_url(re.compile("over=time"))
    low, high = (float(end) for end in re.search(r"zoom=([\d.]+)%3A([\d.]+)", tab.url).groups())
    assert (low, high) == pytest.approx((x[0] / 100, x[-1] / 100), abs=2)
    box = point_at(tab, 0.5)
    tab.mouse.dblclick(box["x"] + 50, box["y"] + 50)
    tab.wait_for_url(lambda url: "zoom=" not in url)


def test_a_chart_by_keyboard_and_as_a_table(page):
    tab = page()
    chart = tab.get_by_role("application", name=re.compile("^Return"))
    chart.focus()
    chart.press("Home")
    status(tab, "100 steps · 1.0 s: Return 0.1")
    chart.press("End")
    status(tab, f"{100 * ROWS:,} steps")
    tab.locator(".tip .nearest").first.wait_for()
    for told in (
        "checkpoint of update 1,000",
        "Restart: actor 1 started again",
        "Changed setting: asked: network.learning_rate",
    ):
        chart.press("m")
        status(tab, told)
    tab.locator(".tip .mark", has_text="network.learning_rate").wait_for()
    chart.press("+")
    tab.wait_for_url(re.compile("zoom="))
    chart.press("0")
    tab.wait_for_url(lambda url: "zoom=" not in url)

    card = tab.locator("figure").first
    card.locator("summary").focus()
    tab.keyboard.press("Enter")
    card.get_by_role("button", name="Table").press("Enter")
    table = card.get_by_role("region", name="Values of Return")
    assert table.locator("tbody tr").count() == 100
    assert table.locator("tbody tr").last.inner_text().split() == ["400,000", "steps", "·", "1:06:40", "300", "400"]
    tab.keyboard.press("Escape")
    assert card.locator("summary").evaluate("(element) => element === document.activeElement")


@pytest.mark.long
def test_a_chart_as_files(page, tmp_path):
    tab = page()
    card = tab.locator("figure").first
    card.locator("summary").click()
    saved = {}
    for kind in ("CSV", "SVG", "PNG"):
        with tab.expect_download() as download:
            card.get_by_role("button", name=kind).click()
        saved[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(saved[kind])
    rows = [*csv.DictReader(saved["CSV"].read_text().splitlines())]
    assert (len(rows), rows[-1]["mean_return_100"], rows[-1]["wall_s"]) == (ROWS, "400", str(ROWS))
    assert saved["CSV"].name == "a-Return-Evaluation.csv"
    svg = saved["SVG"].read_text()
    assert svg.startswith("<svg")
    assert all(text in svg for text in ("polyline", "Return", "target 475", "polygon"))
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")


def titles(tab):
    return tab.locator(".panels-grid h2").all_inner_texts()


@pytest.mark.long
def test_panels_are_chosen_arranged_and_kept_in_the_address(page):
    tab = page()
    assert titles(tab) == ["Throughput", "Loss"]  # those without numbers, such as KL divergence, are not shown
    throughput = tab.locator(".panels-grid figure").first
    assert throughput.locator(".legend button").count() == 1  # no updates/s, which are proportional

    tab.get_by_role("button", name="Add a panel …").press("Enter")
    find = tab.get_by_label("Find metrics")
    find.fill("error [x]")
    tab.get_by_text("of the algorithm").wait_for()
    assert tab.locator(".picker label:visible").count() == 1
    tab.get_by_role("checkbox", name=re.compile(r"^My error \[x\]")).check()
    find.fill("")
    tab.get_by_role("checkbox", name=re.compile("^Loss")).check()
    assert tab.get_by_role("checkbox", name=re.compile(r"^Steps\/s")).is_disabled()  # a third unit has no axis
    tab.get_by_text("Both axes are taken").wait_for()
    tab.get_by_role("button", name="Show", exact=True).press("Enter")
    own = tab.locator(".panels-grid figure").nth(2)
    own.get_by_role("img", name=re.compile(r"My error \[x\] 0 at 400,000 steps; Loss")).wait_for()

    own.locator("summary").press("Enter")
    own.get_by_role("button", name="Move back").press("Enter")
    status(tab, "My error [x], Loss: place 2 of 3")
    loss = tab.locator(".panels-grid figure", has=tab.get_by_role("heading", name="Loss", exact=True))
    loss.locator("summary").press("Enter")
    loss.get_by_label("Log scale").check()
    loss.get_by_label("Greatest y").fill("5")
    loss.get_by_label("Greatest y").press("Tab")
    loss.get_by_text(re.compile(r"^\d+ of \d+ drawn points are outside the range")).wait_for()
    tab.locator(".panels-grid figure").first.locator("summary").press("Enter")
    tab.locator(".panels-grid figure").first.get_by_role("button", name="Remove").press("Enter")
    status(tab, "Throughput is removed")

    tab.reload()
    tab.locator(".panels-grid h2", has_text="Loss").first.wait_for()
    assert titles(tab) == ["My error [x], Loss", "Loss"]
    loss.locator("summary").click()
    assert loss.get_by_label("Log scale").is_checked()
    assert loss.get_by_label("Greatest y").input_value() == "5"
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Usual panels").click()
    tab.wait_for_url(lambda url: "panel=" not in url)
    tab.locator(".panels-grid h2", has_text="Throughput").wait_for()
    assert titles(tab) == ["Throughput", "Loss"]


@pytest.mark.long
def test_smoothing_keeps_the_raw_line_and_a_range_that_is_wrong_is_told(page):
    tab = page("?smooth=51&main=loss;clip")
    main = tab.locator("figure").first
    main.locator("header", has_text="mean of 51 points").wait_for()
    main.locator("summary").click()
    assert main.get_by_label(re.compile("^Without outliers")).is_checked()
    main.get_by_label("Least y").fill("low")
    main.get_by_label("Least y").press("Tab")
    main.get_by_text("low is not a number").wait_for()


@pytest.mark.long
def test_histograms_are_a_heat_map(page, tmp_path):
    tab = page()
    assert tab.locator(".histograms").is_hidden()
    file = EventFile(tmp_path / "a" / "tensorboard" / "learner")
    for step in (1000, 2000, 3000):
        for tag in ("gradients/main/dense/kernel", "variables/main/dense/kernel"):
            file.histogram(tag, np.linspace(-step / 1000, step / 1000, 1000), step)
    file.close()
    tab.reload()
    heat = tab.get_by_role(
        "img", name=re.compile("^Histograms of gradients.main.dense.kernel: 3 of 1,000 to 3,000 steps")
    )
    heat.wait_for()
    heat.press("ArrowRight")
    tab.get_by_text(re.compile(r"1,000 steps: -1\S* to 1\S*, the middle half")).wait_for()
    tab.get_by_label("Histograms of", exact=True).select_option("variables/main/dense/kernel")
    tab.get_by_role("img", name=re.compile("^Histograms of variables")).wait_for()


@pytest.mark.long
def test_two_fingers_zoom(tmp_path, dashboard, browser):
    make_run(tmp_path)
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    tab = context.new_page()
    tab.goto(f"{dashboard}#/run/{id_of('a')}")
    tab.locator(".u-over").first.wait_for()
    tab.locator(".u-over").first.scroll_into_view_if_needed()
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    box = tab.locator(".u-over").first.bounding_box()
    session = context.new_cdp_session(tab)

    def touch(kind, *shares):
        points = [
            {"x": box["x"] + share * box["width"], "y": box["y"] + 60, "id": at} for at, share in enumerate(shares)
        ]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def zoom():
        tab.wait_for_url(re.compile("zoom="))
        return [float(end) for end in re.search(r"zoom=([\d.]+)%3A([\d.]+)", tab.url).groups()]

    touch("touchStart", 0.4, 0.6)
    touch("touchMove", 0.3, 0.7)
    touch("touchMove", 0.2, 0.8)
    touch("touchEnd")
    low, high = zoom()
    assert high - low == pytest.approx(100 * ROWS / 3, rel=0.1)
    touch("touchStart", 0.5)
    touch("touchMove", 0.4)
    touch("touchMove", 0.3)
    touch("touchEnd")
    until(tab, f"Number(location.hash.match(/zoom=([0-9.]+)/)[1]) > {low + 1000}")
    moved = zoom()
    assert moved[1] - moved[0] == pytest.approx(high - low, rel=0.01)
    context.close()


@pytest.mark.long
def test_from_the_ninth_line_on_dashes_differ(tmp_path, dashboard, tab):
    names = [f"run-{number}" for number in range(9)]
    for name in names:
        make_run(tmp_path, name, rows=5)
    tab.goto(f"{dashboard}#/compare?{'&'.join(f'id={id_of(name)}' for name in names)}")
    lines = tab.locator(".legend button line")
    lines.nth(8).wait_for(state="attached")
    dashes = [lines.nth(at).get_attribute("stroke-dasharray") for at in range(9)]
    assert dashes[:8] == [""] * 8
    assert dashes[8] != ""
    tab.get_by_label("Options of the chart").click()
    with tab.expect_download() as download:
        tab.locator(".menu").first.get_by_role("button", name="CSV").click()
    saved = tmp_path / "compare.csv"
    download.value.save_as(saved)
    assert saved.read_text().splitlines()[-1] == "500," + ",".join(["0.5"] * 9)
    assert tab.complaints == []


@pytest.mark.long
def test_a_page_without_panels_stays_without(page):
    tab = page("?panel=none")
    tab.locator(".legend button").first.wait_for()
    assert titles(tab) == []
