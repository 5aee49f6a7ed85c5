"""A real browser on the list of runs: query, groups, columns, labels, deletion, and all of it in the address."""

import json
import re
import time

import pytest
from playwright.sync_api import expect

from distrl.apps.config.configuration import load
from distrl.apps.dashboard.files import id_of
from distrl.config.load import dump
from distrl.runs.labels import Labels
from tests import run_folders
from tests.failures.browsing import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.fixture(autouse=True)
def folders(tmp_path):
    """Six runs that have ended, at three learning rates; one has failed."""
    for number in range(6):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        record = {"run_id": f"r{number}", "redis_url": None, "pid": 0, "started": 1e9 + number}
        (folder / "run.json").write_text(json.dumps(record))
        rate = (0.001, 0.0001, 0.01)[number % 3]
        (folder / "config.yaml").write_text(dump(load("cartpole-impala", sets=[f"network.learning_rate={rate}"])))
        rows = "".join(f"{row},{100 * row},{number * row}.0\n" for row in range(1, 9))
        (folder / "metrics.csv").write_text(f"updates,env_steps,mean_return_100\n{rows}")
        outcome = {"mean_return_100": 10.0 * number, "exit_code": int(number == 5), "stop_reason": "env_steps"}
        run_folders.summary(run_id=f"r{number}", **outcome).write(folder / "summary.json")
    return tmp_path


def shows(tab, names):
    expect(tab.locator("tbody a.name")).to_have_text(names, timeout=1000 * PATIENCE_S)


def test_a_query_is_typed_and_the_address_is_a_link(dashboard, tab, browser):
    tab.goto(dashboard)
    tab.get_by_role("link", name="run5").wait_for()
    shows(tab, ["run5", "run4", "run3", "run2", "run1", "run0"])
    assert (
        tab.get_by_role("img", name=re.compile("^return: first 4.00, last 32.0 at 800 steps, best 32.0$")).count() == 1
    )
    tab.get_by_role("columnheader", name="learning rate").wait_for()  # settings are read meanwhile
    tab.get_by_role("button", name="1 failed").click()
    tab.get_by_role("link", name="run4").wait_for(state="detached")
    shows(tab, ["run5"])
    query = tab.get_by_role("searchbox", name="Query")
    query.fill("lr>=1e-3 -state:failed")
    tab.get_by_role("link", name="run3").wait_for()
    tab.get_by_role("columnheader", name="Return", exact=True).get_by_role("button").click()
    tab.wait_for_url(re.compile("sort=-mean_return_100"))
    until(tab, "document.querySelector('tbody a.name').textContent === 'run3'")
    query.fill("lrr>1")
    tab.get_by_text("no number or setting is named 'lrr'").wait_for()
    shows(tab, ["run3", "run2", "run0"])  # as before
    query.fill("lr>=1e-3 -state:failed")
    tab.get_by_text("no number or setting").wait_for(state="detached")
    query.fill("-run3")  # rows that were not shown before
    tab.get_by_role("link", name="run4").wait_for()
    tab.go_back()
    tab.get_by_role("link", name="run3").wait_for()
    query.fill("lr>=1e-3 -state:failed")
    tab.get_by_role("link", name="run1").wait_for(state="detached")
    other = browser.new_page()
    other.goto(tab.url)
    other.get_by_role("link", name="run3").wait_for()
    shows(other, ["run3", "run2", "run0"])
    other.close()
    assert tab.complaints == []
    assert tab.asked == {"127.0.0.1"}


@pytest.mark.long
def test_groups_are_unfolded_with_the_keyboard(dashboard, tab):
    tab.goto(f"{dashboard}#/?group=network.learning_rate&sort=-mean_return_100")
    group = tab.get_by_role("button", name="0.01", exact=True)
    group.wait_for()
    tab.get_by_role("button", name="–", exact=True).wait_for(state="detached")  # settings that were not read yet
    assert [text.split()[1] for text in tab.locator("tr.group .fold").all_inner_texts()] == ["0.01", "0.0001", "0.001"]
    assert tab.locator("tr.group").first.locator(".both").first.inner_text().split() == ["35.0", "35.0"]
    group.focus()
    tab.keyboard.press("Enter")
    tab.get_by_role("link", name="run5").wait_for()
    shows(tab, ["run5", "run2"])
    assert group.evaluate("element => element === document.activeElement")
    tab.reload()
    tab.get_by_role("link", name="run2").wait_for()
    shows(tab, ["run5", "run2"])
    tab.go_back()
    tab.get_by_role("link", name="run2").wait_for(state="detached")
    assert tab.complaints == []


@pytest.mark.long
def test_columns_are_chosen(dashboard, tab):
    tab.goto(dashboard)
    tab.get_by_role("button", name="Columns …").click()
    tab.get_by_role("searchbox", name="Find columns").fill("discount")
    tab.get_by_role("checkbox", name=re.compile("algorithm.discount")).check()
    tab.get_by_role("button", name="Show", exact=True).click()
    tab.get_by_role("columnheader", name="discount").wait_for()
    assert "column=algorithm.discount" in tab.url


@pytest.mark.long
def test_runs_are_labelled_archived_and_deleted(dashboard, tab, folders):
    tab.goto(dashboard)
    tab.get_by_role("button", name="Name, tags and note of run3").click()
    tab.get_by_label("Name to show").fill("the <best>")
    tab.get_by_label("Tags, separated by spaces").fill("paper v2")
    tab.get_by_role("button", name="Save").click()
    tab.get_by_role("link", name="the <best>").wait_for()
    assert Labels.read(folders / "run3") == Labels(name="the <best>", tags=("paper", "v2"))
    tab.get_by_role("button", name="paper").click()
    tab.get_by_role("link", name="run5").wait_for(state="detached")
    shows(tab, ["the <best>"])
    tab.get_by_role("checkbox", name="Choose the <best>").check()
    tab.get_by_role("button", name="Archive", exact=True).click()
    tab.get_by_text("No run matches the query.").wait_for()
    assert Labels.read(folders / "run3").archived
    tab.get_by_role("searchbox", name="Query").fill("")
    tab.get_by_role("checkbox", name="Choose run0").check()
    tab.get_by_role("checkbox", name="Choose run1").check()
    tab.get_by_role("button", name="Delete …").click()
    delete = tab.get_by_role("button", name="Delete", exact=True)
    assert delete.is_disabled()
    tab.get_by_label("Type 2 to delete that many runs").fill("2")
    delete.click()
    tab.get_by_role("link", name="run0").wait_for(state="detached")
    shows(tab, ["run5", "run4", "run2"])
    assert sorted(path.name for path in folders.glob("run*")) == ["run2", "run3", "run4", "run5"]
    assert tab.complaints == []


@pytest.mark.long
def test_a_stop_of_several_shows_how_far_it_is_and_ends_with_the_server(dashboard, tab, folders):
    """The server's answers are made up: nothing here runs."""
    names, asked = ["run5", "run4", "run3", "run2", "run1"], []
    tab.route("**/api/runs/*/control", lambda route: asked.append(route))
    tab.goto(dashboard)
    for name in names:
        tab.get_by_role("checkbox", name=f"Choose {name}").check()
    ids = [id_of(name) for name in names]
    tab.route("**/api/selection?*", lambda route: route.fulfill(json={"ids": ids, "at": 1.0}))
    tab.get_by_role("button", name="Stop …").click()
    dialog = tab.get_by_role("dialog")
    tab.get_by_label("Type 5 to stop that many runs").fill("5")
    dialog.get_by_role("button", name="Stop", exact=True).click()
    for number, answer in enumerate([{"json": {"message": "stops"}}, {"status": 409, "json": {"error": "no"}}, None]):
        expect(dialog.get_by_role("status")).to_have_text(f"stopping {number + 1} of 5 …")
        until_asked(tab, asked, number + 1)
        asked[number].fulfill(**answer) if answer else asked[number].abort()
    told = dialog.get_by_role("alert")
    expect(told.locator("p")).to_have_text(
        [
            "1 run done; not done:",
            "run4: no",
            re.compile("^run3: the server cannot be reached"),
            "run2: not asked to stop",
            "run1: not asked to stop",
        ]
    )
    expect(dialog.get_by_role("status")).to_have_text("")
    assert len(asked) == 3


def until_asked(tab, asked, number):
    """Wait until the page has asked so many times."""
    give_up_at = time.monotonic() + PATIENCE_S
    while len(asked) < number:
        assert time.monotonic() < give_up_at, f"the page has asked {len(asked)} times, not {number}"
        tab.wait_for_timeout(20)


@pytest.mark.long
def test_what_was_typed_last_does_not_change_the_address_of_the_next_page(dashboard, tab):
    tab.goto(dashboard)
    tab.get_by_role("link", name="run2").wait_for()
    tab.get_by_role("searchbox", name="Query").fill("run")
    tab.evaluate("[...document.querySelectorAll('a.name')].find((link) => link.textContent === 'run2').click()")
    tab.get_by_role("heading", name="run2").wait_for()
    tab.wait_for_timeout(500)  # twice as long as the query waits for further letters
    assert re.search("#/run/[0-9a-f]+$", tab.url)
