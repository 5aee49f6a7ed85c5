"""The flow view in a real browser: rates on every edge, a map of the roles by keyboard, history, log and stacks."""

import re

import pytest

from distrl.apps.dashboard.files import id_of
from tests.failures.browsing import until

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]


def test_the_flow_of_a_training_and_one_of_its_actors(start_run, unhurried, dashboard, tab):
    run = start_run(*unhurried)
    run.wait_for_updates(3)
    tab.goto(f"{dashboard}#/run/{id_of('run')}")
    flow = tab.locator("section.flow")
    for station, told in {
        "environments": r"[\d.]+ ?k? steps/s",
        "actors": "2 actors",
        "stream": r"\d+ unrolls?",
        "learner": r"[\d.,]+ updates/s",
        "weights": r"version [\d,]+",
    }.items():
        flow.locator(f".station.{station} strong").filter(has_text=re.compile(f"^{told}$")).wait_for()
    assert flow.locator(".edge").count() == 4
    flow.locator(".edge.flows", has_text="unrolls/s").first.wait_for()
    flow.get_by_text(re.compile(r"unrolls produced = .* · exact")).wait_for()
    flow.get_by_text(re.compile(r"cores?, \d+ % busy")).wait_for()
    flow.get_by_text(re.compile(r"[\d.]+ GB of [\d.]+ GB memory")).wait_for()

    # Without a mouse: Tab reaches one actor, the arrows the others, and Enter shows one.
    cells = flow.locator(".cells button")
    assert [cell.get_attribute("tabindex") for cell in cells.all()] == ["0", "-1"]
    cells.nth(0).focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")  # beyond the last one there is nothing
    assert tab.evaluate("document.activeElement.title").startswith("actor 1 on ")
    tab.keyboard.press("Enter")
    role = flow.get_by_role("region", name="The chosen role")
    role.get_by_text(re.compile(r"^Speed: [\d,]+ steps/s")).wait_for()
    role.get_by_text(re.compile(r"^Memory: [\d.]+ MB")).wait_for()
    flow.get_by_label("Colour").select_option("rss_mb")
    tab.reload()
    role.get_by_text(re.compile(r"^Memory: [\d.]+ MB")).wait_for()
    assert flow.get_by_label("Colour").input_value() == "rss_mb"
    assert "MB" in cells.nth(0).get_attribute("title")
    role.get_by_role("button", name="Stacks").click()
    role.get_by_text("thread MainThread:").wait_for()
    role.get_by_role("button", name="Log").click()
    assert tab.locator("#panel-logs select").first.input_value() == "actor-1"
    until(tab, "document.querySelectorAll('#panel-logs .log span').length > 0")
    role.get_by_role("button", name="Close").click()
    role.wait_for(state="hidden")
    assert tab.evaluate("document.activeElement.title").startswith("actor 1 on ")

    # The list stops chosen runs that run.
    tab.get_by_role("link", name="Runs", exact=True).first.click()
    tab.get_by_role("checkbox", name="Choose run", exact=True).check()
    tab.get_by_role("button", name="Stop …").click()
    tab.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    assert run.finish().stop_reason == "asked"
    tab.locator("tr[data-run] .pill", has_text="stopped").wait_for()
    tab.get_by_role("button", name="Stop …").click()
    tab.get_by_text("None of the chosen runs is running.").wait_for()
    assert tab.complaints == []
