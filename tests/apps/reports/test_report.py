import json
import re
from html.parser import HTMLParser

import pytest

from distrl.apps.reports.report import report
from distrl.errors import ConfigError
from distrl.runs.directories import open_run
from tests.run_folders import make_run

HOSTILE = "<script>alert(1)</script>"
ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "p",
    "div",
    "b",
    "figure",
    "figcaption",
}
ALLOWED |= {"small", "span", "table", "thead", "tbody", "tr", "th", "td", "pre"}
ALLOWED |= {"svg", "g", "defs", "clippath", "rect", "path", "use", "text"}


class Reader(HTMLParser):
    """A page as a browser parses it: its elements, attributes and text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts, self._open = [], [], [], []
        self.feed(page.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value) for name, value in attrs]
        self._open.append(tag)

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self):
        return "\n".join(self.texts)


def read(folder):
    return Reader(report(open_run(folder)))


def described(folder, environment):
    (folder / "policy").mkdir()
    (folder / "policy/description.json").write_text(json.dumps({"environment": environment}))


def test_a_run_that_ended(tmp_path):
    run = make_run(tmp_path / "first", sets=("stop.minutes=5",), manifest={})
    (run / "logs/events.log").write_text("2026-01-02 03:04:05 actor 1 started again\n")
    described(run, {"id": "CartPole-v1", "actions": {"action": {"n": 2, "kind": "discrete"}}, "reward_threshold": None})
    page = read(run)
    for told in (
        "first",
        "impala · CartPole-v1 · seed 1",
        "solved: the mean return asked for is reached (exit code 0)",
        "62,057",
        "31 produced = 30 trained + 1 queued + 0 in flight + 0 dropped · exact",
        "stop.minutes",
        "flag --set",
        "n 2, kind discrete",
        "2 cores of AMD EPYC",
        "25.3 GB",
        "0.1.0, commit 0123abcd+",
        "numpy 2.4.6",
        "distrl train --env Acrobot-v1",
        f"distrl train {run}/config.yaml --run-dir {run}-again",
        "actor 1 started again",
    ):
        assert told in page.text, told
    assert "None" not in page.text
    assert "nan" not in page.text


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    page = read(make_run(tmp_path / "a", manifest={}))
    assert set(page.tags) <= ALLOWED
    names = {name for name, _ in page.attributes}
    assert not names & {"src", "action", "srcset", "data", "background", "poster"}
    assert not {name for name in names if name.startswith("on")}
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")
    urls = re.findall(r"url\(([^)]*)\)|@import", report(open_run(tmp_path / "a")).decode())
    assert all(url.startswith("#") for url in urls)
    ids = [value for name, value in page.attributes if name == "id"]
    assert {value[1:] for name, value in page.attributes if name == "href"} <= {*ids}


def test_hostile_names_stay_text(tmp_path):
    run = make_run(
        tmp_path / "<script>alert(1)<",
        sets=(f"environment.kwargs={{name: '{HOSTILE}'}}",),
        summary={"stop_reason": HOSTILE, "exit_code": 1, "error": HOSTILE, "env": HOSTILE, "peak_rss_mb": {HOSTILE: 1}},
        manifest={"command": [HOSTILE], "host": HOSTILE, "packages": {HOSTILE: HOSTILE}, "directory": HOSTILE},
    )
    (run / "logs/events.log").write_bytes(HOSTILE.encode() + b"\xff\x1b[2J\n")
    described(run, {HOSTILE: {HOSTILE: {HOSTILE: HOSTILE}}})
    page = read(run)
    assert set(page.tags) <= ALLOWED
    assert page.text.count(HOSTILE) >= 12
    assert "<script>alert(1)<" in page.text
    assert "\x1b" not in page.text


def test_secrets_are_masked(tmp_path):
    run = make_run(
        tmp_path / "a",
        sets=("environment.kwargs={api_key: k3y, size: 4, url: 'tcp://me:pa55@host:6379/0'}",),
        summary={"error": "redis://me:pa55@host:6379 is gone", "exit_code": 6},
        manifest={"command": ["distrl", "--redis-url", "redis://me:pa55@host:6379"]},
    )
    (run / "logs/events.log").write_text("password=pa55 refused\n")
    page = report(open_run(run)).decode()
    assert "pa55" not in page
    assert "k3y" not in page
    assert "tcp://•••@host:6379/0" in page


def test_a_run_that_goes_on(tmp_path):
    page = read(make_run(tmp_path / "a", summary=None, manifest={}))
    assert "running, as of the last row of its metrics" in page.text
    assert "Where every unroll went" not in page.text


def test_a_run_without_a_manifest_and_one_that_failed(tmp_path):
    page = read(make_run(tmp_path / "a", summary={"stop_reason": "stalled", "exit_code": 4, "error": "nothing moved"}))
    assert "ended early: stalled (exit code 4)" in page.text
    assert "nothing moved" in page.text
    assert "left no manifest.json" in page.text


def test_of_many_events_the_last_are_told(tmp_path):
    run = make_run(tmp_path / "a")
    (run / "logs/events.log").write_text("".join(f"event {place} happened\n" for place in range(600)))
    text = read(run).text
    assert "100 earlier ones are in logs/events.log" in text
    assert "event 99 happened" not in text
    assert "event 100 happened\n" in text


def test_a_run_without_a_row_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a has no numbers yet; wait for its first updates"):
        report(open_run(make_run(tmp_path / "a", rows=())))


@pytest.mark.parametrize("text", ["{", "[]", '{"no": 1}'])
def test_a_damaged_description_is_told(tmp_path, text):
    run = make_run(tmp_path / "a")
    (run / "policy").mkdir()
    (run / "policy/description.json").write_text(text)
    with pytest.raises(ConfigError, match=r"description.json is damaged"):
        report(open_run(run))


def test_returns_in_other_environments_have_figures_of_eight_lines_at_most(tmp_path):
    names = [f"evaluation_in_e{number}_mean_return" for number in range(9)]
    rows = [
        {"updates": 1, "env_steps": at, **dict.fromkeys(names, 2.0), "evaluation_in_e0_info_x": 1.0} for at in (1, 2)
    ]
    page = read(make_run(tmp_path / "a", rows=rows))
    assert page.text.count("Return of evaluations in other environments") == 2
    for name in names:
        assert f"{name} " in page.texts
    assert "evaluation_in_e0_info_x" not in page.text
