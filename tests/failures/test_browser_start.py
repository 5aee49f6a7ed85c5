"""A browser starts a training, clones and stops it with the keyboard alone; and the bell tells of alerts."""

import contextlib
import json
import os
import re

import pytest

from distrl.apps.dashboard.files import id_of
from distrl.runs.directories import RunRecord
from distrl.runs.summary import Summary
from tests.failures.browsing import serving, until

pytestmark = [pytest.mark.slow, pytest.mark.redis]

TOKEN = "token-of-many-letters"
WRONG = """environment:
  id: benchmarks.sleeping:Sleeping
  kwargs: {step_s: 0.005}
actors: {count: 1, environments: 1, unroll_length_steps: 8}
algorithm: {minibatches: 1}
learner:
  batch_sise: 1
"""
STUB = """
if (!localStorage.getItem("shown")) localStorage.setItem("shown", "[]");
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (this.permission = "granted"); }
  constructor(title, { body }) {
    const before = JSON.parse(localStorage.getItem("shown"));
    localStorage.setItem("shown", JSON.stringify([...before, `${title}: ${body}`]));
  }
};
document.hasFocus = () => false;
"""


@pytest.fixture
def runs(tmp_path):
    """The folder of runs; what was started there is stopped at the end."""
    folder = tmp_path / "runs"
    folder.mkdir()
    yield folder
    for path in folder.glob("*/run.json"):
        if not (path.parent / "summary.json").exists():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(RunRecord.read(path).pid, 9)


def focus(page, element, most=80):
    """Press Tab until the element has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if element.evaluate("(element) => element === document.activeElement"):
            return
    pytest.fail(f"Tab does not reach {element}")


def test_a_run_is_started_cloned_and_stopped_with_the_keyboard(runs, free_port, tab):
    with serving(runs, free_port, "--allow-start", DISTRL_DASHBOARD_TOKEN=TOKEN) as (_, url):
        tab.goto(url)
        tab.get_by_label("Token").fill(TOKEN)
        tab.keyboard.press("Enter")
        new = tab.get_by_role("link", name="New run")
        new.wait_for()
        focus(tab, new)
        tab.keyboard.press("Enter")
        editor = tab.get_by_label("Configuration (YAML)")
        editor.wait_for()
        until(tab, "document.activeElement.id === 'draft'")
        tab.keyboard.insert_text(WRONG)
        tab.get_by_text("Line 7: unknown key learner.batch_sise (from the editor); did you mean").wait_for()
        start = tab.get_by_role("button", name="Start", exact=True)
        assert start.is_disabled()
        jump = tab.get_by_role("button", name="Go to line 7")
        focus(tab, jump)
        tab.keyboard.press("Enter")
        tab.keyboard.insert_text("  batch_size: 1")
        tab.get_by_text("Valid: benchmarks.sleeping:Sleeping, impala, 1 actor.").wait_for()
        name = tab.get_by_label("Name of the run directory")
        focus(tab, name)
        tab.keyboard.press("Control+A")
        tab.keyboard.type("first")
        tab.wait_for_timeout(500)
        until(tab, "!document.querySelector('.start .primary').disabled")
        focus(tab, start)
        tab.keyboard.press("Enter")
        tab.get_by_role("heading", name="first", exact=True).wait_for()
        assert tab.url.endswith(f"#/run/{id_of('first')}")
        tab.locator(".pill.running").first.wait_for()

        clone = tab.get_by_role("link", name="Clone")
        assert not tab.get_by_role("button", name="Resume", exact=True).is_visible()
        focus(tab, clone)
        tab.keyboard.press("Enter")
        tab.get_by_role("heading", name="Clone first").wait_for()
        text = editor.input_value()
        assert "batch_size: 1" in text
        assert "checkpoint" not in text  # only what was given
        assert re.fullmatch(r"first-\d{4}-\d{6}", name.input_value())
        tab.go_back()

        stop = tab.get_by_role("button", name="Stop …")
        stop.wait_for()
        focus(tab, stop)
        tab.keyboard.press("Enter")
        focus(tab, tab.get_by_role("button", name="Stop the run"), 4)
        tab.keyboard.press("Enter")
        resume, asked = tab.get_by_role("button", name="Resume", exact=True), []
        resume.wait_for()
        requests, refused = [], {"status": 400, "content_type": "application/json", "body": '{"error": "not here"}'}
        tab.route("**/api/resume", lambda route: (requests.append(route.request), route.fulfill(**refused)))
        for accepts in (False, True):
            tab.once("dialog", lambda it, yes=accepts: (asked.append(it.message), it.accept() if yes else it.dismiss()))
            focus(tab, resume)
            tab.keyboard.press("Enter")
            until(tab, "!document.querySelector('.start-buttons button').disabled")
            assert (len(asked), len(requests)) == (1 + accepts, int(accepts))
        tab.get_by_text("not here").first.wait_for()
        assert asked[0].startswith("Resume first? Its configuration, and all code that it names, run as")
        assert Summary.read(runs / "first" / "summary.json").stop_reason == "asked"
    # The page of a run that has no directory yet is asked for again.
    expected = ("400", "401", "404", "[DOM]")
    assert not [text for text in tab.complaints if not any(words in text for words in expected)]


@pytest.mark.long
def test_without_the_flag_there_are_no_buttons(runs, free_port, tab):
    with serving(runs, free_port) as (_, url):
        tab.goto(url)
        tab.get_by_role("heading", name="Runs").wait_for()
        assert tab.get_by_role("link", name="New run").count() == 0
        tab.goto(f"{url}#/new")
        tab.get_by_text("This dashboard starts no trainings").wait_for()


@pytest.mark.long
def test_the_bell_tells_of_an_alert(runs, free_port, tab):
    alerts = [{"id": "a-1", "rule": "solved", "severity": "info", "run": "ab", "name": "old", "text": "solved: x"}]
    answer = {"mark": "1", "on": True, "at": 1.0, "alerts": [alerts[0] | {"at": 1e9, "cleared": None}]}
    tab.add_init_script(STUB)
    with serving(runs, free_port) as (_, url):
        tab.clock.install()
        tab.route(
            "**/api/alerts*", lambda route: route.fulfill(body=json.dumps(answer), content_type="application/json")
        )
        tab.goto(url)
        until(tab, "document.title === '(1) Runs · distrl'")
        bell = tab.get_by_role("button", name="Alerts, 1 unseen")
        focus(tab, bell)
        tab.keyboard.press("Enter")
        notify = tab.get_by_role("button", name="Notify me in this browser")
        focus(tab, notify)
        tab.keyboard.press("Enter")
        tab.get_by_role("button", name="Turn off notifications").wait_for()
        assert tab.evaluate("localStorage.getItem('shown')") == "[]"

        failed = {"id": "a-2", "rule": "failed", "severity": "bad", "run": "cd", "name": "new", "text": "failed: boom"}
        answer |= {"mark": "2", "alerts": [failed | {"at": 1e9, "cleared": None}, *answer["alerts"]]}
        tab.clock.run_for(20_000)
        until(tab, "document.title === '(2) Runs · distrl'")
        assert json.loads(tab.evaluate("localStorage.getItem('shown')")) == ["distrl: new: failed: boom"]
        rows = tab.get_by_role("region", name="Alerts").get_by_role("listitem")
        assert [rows.nth(at).get_by_role("link").inner_text() for at in range(2)] == ["new", "old"]
        assert "icon-alert" in tab.locator('link[rel="icon"]').get_attribute("href")

        tab.get_by_role("region", name="Alerts").get_by_role("button", name="Info").press("Enter")
        assert rows.count() == 1
        mark = tab.get_by_role("button", name="Mark as seen: old: solved: x")
        mark.press("Enter")
        until(tab, "document.title === '(1) Runs · distrl'")
        tab.keyboard.press("Escape")
        assert tab.get_by_role("button", name="Alerts, 1 unseen").evaluate("(it) => it === document.activeElement")
        tab.reload()
        until(tab, "document.title === '(1) Runs · distrl'")  # what was seen is remembered
    assert not tab.complaints
