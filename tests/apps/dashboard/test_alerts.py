"""Alerts of real run directories: looked at without a page, told by an address, not of what ended before."""

import re
import time

import pytest

from distrl.apps.dashboard import background
from distrl.apps.dashboard.alert_settings import AlertSettings
from distrl.apps.dashboard.alerts import AlertWatch
from distrl.apps.dashboard.payloads import Runs
from tests.waiting import wait_until


@pytest.fixture
def watch(root):
    runs = Runs(root)
    yield AlertWatch(runs, AlertSettings())
    runs.close()


def alerts_of(watch):
    return [(row["rule"], row["name"], row["text"]) for row in watch.answer("")["alerts"]]


def test_a_run_that_fails_while_the_dashboard_runs(watch, make_run, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.index.RESTS", 0.0)
    make_run("old", exit_code=1, error="long ago")
    watch.look()
    assert watch.answer("")["alerts"] == []
    make_run("new", exit_code=1, error="redis://me:s3cret@h is \x1b[31maway", started=time.time())
    watch.look()
    watch.look()
    assert alerts_of(watch) == [("failed", "new", "failed: redis://•••@h is ␛[31maway")]


def test_the_name_of_a_directory_is_one_printable_line(watch, make_run, monkeypatch):
    """It goes into the dashboard's log, and into the line that a chat service shows."""
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    monkeypatch.setattr("distrl.apps.dashboard.index.RESTS", 0.0)
    watch.look()
    make_run("a\x1b[2J\nb\u202ec token=s3cret", exit_code=1, error="boom", started=time.time())
    watch.look()
    assert alerts_of(watch) == [("failed", "a␛[2J b⟨U+202E⟩c token=•••", "failed: boom")]


def test_a_run_in_one_process_is_seen_by_its_files(watch, make_run, alive, monkeypatch):
    monkeypatch.setattr("distrl.apps.dashboard.index.FRESH_S", 0.0)
    times = iter([0.0, 200.0])
    watch._clock = lambda: next(times)
    make_run("alone", ended=False, pid=alive)
    watch.look()
    watch.look()
    assert alerts_of(watch) == [("no_steps", "alone", "no new environment steps for 2:00")]


def test_the_address_answers_only_changes(page, make_run):
    client = page(alerts=AlertSettings(), read_only_token="r" * 20, token="t" * 20)
    headers = {"Authorization": f"Bearer {'r' * 20}"}
    assert client.get("/api/alerts").status_code == 401
    first = client.get("/api/alerts", headers=headers).json()
    assert first["alerts"] == []
    assert first["on"] is True
    again = client.get(f"/api/alerts?since={first['mark']}", headers=headers).json()
    assert again["alerts"] is None
    assert again["mark"] == first["mark"]
    assert client.get("/api/alerts?since=other", headers=headers).json()["alerts"] == []


def test_alerts_can_be_off(page):
    answer = page().get("/api/alerts").json()
    assert answer["on"] is False
    assert answer["alerts"] == []


def test_the_dashboard_looks_without_a_page_and_reports_failed_looks(page, monkeypatch):
    """A look that fails ends no later one; the page and /metrics report it until a look succeeds."""
    errors = [ZeroDivisionError("token=s3cret")]

    def look(watch):
        if errors:
            raise errors[0]

    monkeypatch.setattr(AlertWatch, "look", look)
    monkeypatch.setattr(background, "AFTER_FAILURE_S", 0.01)
    client = page(alerts=AlertSettings())

    def problem():
        return client.get("/api/alerts").json()["problem"]

    wait_until(lambda: problem() == "ZeroDivisionError: token=•••")
    errors.clear()
    wait_until(lambda: problem() is None)
    text = client.get("/metrics").text
    assert float(re.search(r'^distrl_dashboard_failures\{work="alerts"\} (.+)$', text, re.MULTILINE)[1]) >= 1
    assert 'distrl_dashboard_failures{work="settings"} 0.0' in text
