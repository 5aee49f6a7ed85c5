"""axe-core on the dashboard's pages in every state: no serious finding; and a journey by keyboard alone."""

import json
import re
from pathlib import Path

import axe_playwright_python
import numpy as np
import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard.files import id_of
from distrl.config.load import dump
from distrl.memory_backend.records import HostLoad, RoleStatus
from distrl.metrics.event_file import EventFile
from tests import run_folders
from tests.failures.browsing import PATIENCE_S, serving, until

pytestmark = [pytest.mark.slow, pytest.mark.redis]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")


def findings(tab):
    """Serious findings in what is shown now, with the elements that have them."""
    if not tab.evaluate("typeof axe !== 'undefined'"):
        tab.evaluate(AXE)
    told = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["id"], [node["html"][:150] for node in one["nodes"][:3]]) for one in told if one["impact"] in SERIOUS]


@pytest.fixture
def folders(tmp_path, job):
    """One run of every kind: running (with a silent actor), two that have ended, failed, gone, damaged."""
    job.registry.beat(RoleStatus("learner", 0, 1, "hera", 4, "training", machine=HostLoad(4.0, 0.5, 8e3, 2e3)))
    job.registry.beat(RoleStatus("actor", 1, 2, "zeus", 6, "acting", blocked_share=0.5, env_steps_per_s=9.0))
    for number, (name, changes) in enumerate(
        {
            "solved": {},
            "other": {"stop_reason": "env_steps"},
            "failed": {"exit_code": 5, "stop_reason": "non-finite", "error": "the loss is NaN"},
            "gone": None,
        }.items()
    ):
        folder = tmp_path / name
        (folder / "logs").mkdir(parents=True)
        record = {"run_id": name, "redis_url": None, "pid": 1, "process": "gone", "started": 1e9 + number}
        (folder / "run.json").write_text(json.dumps(record))
        sets = [f"network.learning_rate={10.0**-number}", "evaluation.every_env_steps=100"]
        (folder / "config.yaml").write_text(dump(load("cartpole-impala", sets=sets)))
        rows = "".join(f"{n},{100 * n},{n},{n / 2},{10 * n},{0.5 / n}\n" for n in range(1, 30))
        (folder / "metrics.csv").write_text(f"updates,env_steps,episodes,wall_s,mean_return_100,loss\n{rows}")
        (folder / "logs" / "events.log").write_text("2026-01-02 03:04:05 actor 1 ended (signal 9)\n")
        (folder / "logs" / "learner.log").write_text("2026-01-02 03:04:05 ERROR it has failed\n")
        if changes is not None:
            run_folders.summary(run_id=name, mean_return_100=475.0, **changes).write(folder / "summary.json")
    file = EventFile(tmp_path / "solved" / "tensorboard" / "learner")
    file.histogram("gradients/main/dense/kernel", np.linspace(-1, 1, 100), 1000)
    file.close()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("[]")
    return tmp_path


def run_states(tab):
    """States of the page of one run: each of its tabs, the table of a chart, and the choice of metrics."""
    for name in tab.get_by_role("tab").all_inner_texts():
        tab.get_by_role("tab", name=re.compile(re.escape(name.split()[0]))).click()
        yield f"tab {name}"
    tab.locator("summary[aria-label='Options of the chart']").first.click()
    yield "options of a chart"
    tab.get_by_role("button", name="Table", exact=True).first.click()
    yield "table of a chart"
    tab.get_by_role("button", name=re.compile("^Add a panel")).click()
    yield "choice of metrics"
    tab.keyboard.press("Escape")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_no_state_has_a_serious_finding(folders, dashboard, browser, theme):
    tab = browser.new_page(color_scheme=theme, reduced_motion="reduce")
    tab.set_default_timeout(1000 * PATIENCE_S)
    found, seen = {}, []

    def look(state):
        seen.append(state)
        tab.locator("main:not([aria-busy])").wait_for()
        if told := findings(tab):
            found[state] = told

    tab.goto(dashboard)
    tab.get_by_role("link", name="solved").wait_for()
    look("list")
    tab.get_by_role("searchbox", name="Query").fill("lrr>1")
    tab.get_by_text("no number or setting is named 'lrr'").wait_for()
    look("a query that cannot be read")
    tab.goto(f"{dashboard}#/?sort=name")
    for name in ("solved", "other"):
        tab.get_by_role("checkbox", name=f"Choose {name}", exact=True).check()
    tab.get_by_role("button", name="Delete …").click()
    tab.get_by_role("dialog").get_by_text("other", exact=True).wait_for()
    look("deletion")
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="Clear", exact=True).click()
    tab.goto(f"{dashboard}#/sweeps")
    tab.get_by_role("heading", name="Sweeps").wait_for()
    look("sweeps")
    tab.goto(f"{dashboard}#/?group=algorithm.name")
    tab.get_by_text("IQM").first.wait_for()
    look("groups")
    tab.goto(f"{dashboard}#/?query=nothing-has-this-name")
    tab.get_by_role("link", name="solved").wait_for(state="detached")
    look("nothing found")
    for run in ("job", "solved", "failed", "gone", "damaged"):
        tab.goto(f"{dashboard}#/run/{id_of(run)}")
        tab.get_by_role("heading", name=run, exact=True).wait_for()
        tab.locator(".sentence").wait_for()
        look(run)
        if run == "job":
            tab.locator(".flow .cells button").first.click()
            tab.get_by_role("region", name="The chosen role").get_by_text(re.compile("^Memory: ")).wait_for()
            look("a role")
        if run in ("job", "solved"):
            for state in run_states(tab):
                look(f"{run}: {state}")
    tab.goto(f"{dashboard}#/compare?id={id_of('solved')}&id={id_of('other')}")
    tab.locator(".legend button").nth(1).wait_for()
    look("compare")
    tab.goto(f"{dashboard}#/fleet")
    tab.get_by_role("heading", name="hera").wait_for()
    look("fleet")
    tab.close()
    assert found == {}
    assert len(seen) >= 20, seen


TOKEN = "token-of-many-letters"
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def hostile(tmp_path):
    """A run whose every text is markup."""
    folder = tmp_path / MARKUP
    (folder / "logs").mkdir(parents=True)
    record = {"run_id": MARKUP, "redis_url": None, "pid": 1, "process": "gone", "started": 1e9}
    (folder / "run.json").write_text(json.dumps(record))
    sets = [f"environment.kwargs={{'{MARKUP}.a': '{MARKUP}', api_key: s3cret}}"]
    (folder / "config.yaml").write_text(dump(load("cartpole-impala", sets=sets)))
    labels = {"name": f"{MARKUP} title", "tags": ["<img/src=x/onerror=alert(1)>"], "note": MARKUP}
    (folder / "labels.json").write_text(json.dumps(labels))
    (folder / "logs" / "learner.log").write_text(f"2026-01-02 03:04:05 ERROR {MARKUP}\n")
    (folder / "logs" / "events.log").write_text(f"2026-01-02 03:04:05 {MARKUP}\n")
    run_folders.summary(run_id=MARKUP, exit_code=5, stop_reason="non-finite", error=MARKUP, host=MARKUP).write(
        folder / "summary.json"
    )
    return id_of(MARKUP)


def alerts(route):
    """Answer with one alert of each severity, the last one cleared."""
    told = [
        {"id": f"a-{at}", "rule": "failed", "severity": severity, "run": "ab", "name": MARKUP, "text": MARKUP}
        for at, severity in enumerate(("bad", "warning", "info", "bad"))
    ]
    rows = [row | {"at": 1e9, "cleared": 2e9 if row["id"] == "a-3" else None} for row in told]
    route.fulfill(
        body=json.dumps({"mark": "1", "on": True, "at": 2e9, "alerts": rows}), content_type="application/json"
    )


@pytest.mark.long
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_neither_sign_in_nor_editor_nor_bell_has_a_serious_finding(hostile, tmp_path, free_port, browser, theme):
    tab = browser.new_page(color_scheme=theme, reduced_motion="reduce")
    tab.set_default_timeout(1000 * PATIENCE_S)
    found, dialogs = {}, []
    tab.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.accept())

    def look(state):
        tab.locator("main:not([aria-busy])").wait_for()
        if told := findings(tab):
            found[state] = told
        assert tab.locator("img[src=x]").count() == 0
        tab.set_viewport_size({"width": 390, "height": 844})  # a phone shows the whole bar
        assert tab.evaluate("(document.querySelector('#theme')?.getBoundingClientRect().right ?? 0) <= innerWidth")
        tab.set_viewport_size({"width": 1280, "height": 720})

    with serving(tmp_path, free_port, "--allow-start", DISTRL_DASHBOARD_TOKEN=TOKEN) as (_, url):
        tab.goto(url)
        tab.get_by_label("Token").fill("wrong")
        tab.keyboard.press("Enter")
        tab.get_by_text("that is not the token").wait_for()
        look("sign-in")
        tab.get_by_label("Token").fill(TOKEN)
        tab.route("**/api/alerts*", alerts)
        tab.keyboard.press("Enter")
        tab.get_by_role("button", name="Alerts, 4 unseen").click()  # the page that comes meanwhile leaves it open
        tab.get_by_role("button", name="Mark as seen").nth(2).click()
        tab.get_by_role("region", name="Alerts").get_by_text("seen", exact=True).wait_for()
        look("alerts")
        tab.keyboard.press("Escape")
        tab.goto(f"{url}#/new?preset=cartpole-impala")
        tab.get_by_text("Valid: CartPole-v1").wait_for()
        look("editor")
        tab.get_by_label("Configuration (YAML)").fill(f"actors:\n  '{MARKUP}': 1\n")
        tab.get_by_label("Name of the run directory").fill(MARKUP)
        tab.get_by_text("unknown key actors.").wait_for()
        tab.get_by_text("a name has 1 to 80 letters").wait_for()
        look("editor with problems")
        tab.goto(f"{url}#/new?run={hostile}")
        tab.get_by_text("environment.kwargs.api_key is masked").wait_for()
        assert f"{MARKUP}.a" in tab.get_by_label("Configuration (YAML)").input_value()
        assert "s3cret" not in tab.content()
        assert tab.locator("img[src=x]").count() == 0
        tab.goto(f"{url}#/run/{hostile}")
        tab.get_by_role("button", name="Resume", exact=True).click()
        tab.locator(".start-buttons .said.bad").wait_for()
        tab.get_by_text(f"{MARKUP} title").first.wait_for()
        assert tab.locator("img[src=x]").count() == 0
    tab.close()
    assert (found, [text.split(" ")[0] for text in dialogs]) == ({}, ["Resume"])


class Keyboard:
    """Presses keys, and knows what has the focus."""

    NAME = "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent || '').trim()"

    def __init__(self, tab):
        self._tab = tab
        self.press = tab.keyboard.press

    @property
    def name(self):
        return self._tab.evaluate(self.NAME)

    def to(self, words, key="Tab", most=150):
        """Press Tab until something with such a name has the focus, which is then visible as such."""
        passed = []
        for _ in range(most):
            self.press(key)
            passed.append(self.name)
            if re.search(words, passed[-1]):
                outline = self._tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", f"the focus on {passed[-1]!r} is not visible"
                return
        raise AssertionError(f"{words!r} cannot be reached by {key}; it passed {passed}")


@pytest.mark.long
@pytest.mark.usefixtures("folders")
def test_all_of_it_is_reached_without_a_mouse(dashboard, tab, job):
    keys = Keyboard(tab)
    tab.goto(dashboard)
    tab.get_by_role("link", name="solved").wait_for()
    keys.to("^Query$")
    tab.keyboard.type("state:failed")
    tab.get_by_role("link", name="solved").wait_for(state="detached")
    keys.press("Control+A")
    tab.keyboard.type("job")
    tab.get_by_role("link", name="job", exact=True).wait_for()
    keys.to("^Return$")
    keys.press("Enter")
    tab.wait_for_url(re.compile("sort=-mean_return_100"))
    keys.to("^job$")
    keys.press("Enter")
    tab.get_by_role("heading", name="job", exact=True).wait_for()
    tab.get_by_role("button", name="Pause").wait_for()

    keys.to("^Pause$")
    keys.press("Enter")
    tab.locator(".pill", has_text="paused").wait_for()
    assert [request.what for _, request in job.registry.requests("0")] == ["pause"]
    keys.to("^actor 0 on hera")
    keys.press("ArrowRight")
    assert keys.name.startswith("actor 1 on zeus")
    keys.press("Enter")
    tab.get_by_role("region", name="The chosen role").get_by_text(re.compile("^Memory: ")).wait_for()
    keys.to("^Close$")
    keys.press("Enter")
    assert keys.name.startswith("actor 1 on zeus")

    keys.to("^Return")
    keys.press("Home")
    tab.locator("#status").filter(has_text=re.compile("10")).wait_for(state="attached")
    keys.press("+")
    tab.wait_for_url(re.compile("zoom="))
    keys.press("0")
    until(tab, "!location.hash.includes('zoom=')")
    keys.to("^Roles$")
    keys.press("End")
    assert tab.get_by_role("tab", selected=True).inner_text() == "Logs"
    keys.press("ArrowLeft")
    assert tab.get_by_role("tab", selected=True).inner_text().startswith("Events")
    keys.to("^Fleet$", "Shift+Tab")
    keys.press("Enter")
    tab.get_by_role("heading", name="hera").wait_for()
    assert tab.complaints == []
