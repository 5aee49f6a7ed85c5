"""A real browser on a real training: what is shown is what happens, and what is clicked does."""

import http.server
import json
import re
import signal
import threading

import pytest

from distrl.apps.config.configuration import load
from distrl.apps.dashboard.files import id_of
from distrl.config.load import dump
from distrl.runs.summary import Summary
from tests.failures.browsing import PATIENCE_S, serving, until
from tests.faults.arguments import sets
from tests.faults.failover import promote, replica_of
from tests.forging import add_to_ledger
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis]


@pytest.mark.row("P08")
def test_a_training_is_watched_and_steered(start_run, unhurried, distrl_command, dashboard, tab):
    constant = ("network.learning_rate_decay_rate=0", "network.learning_rate_decay_steps=0")
    run = start_run(*unhurried, *sets(*constant))
    run.wait_for_updates(3)
    tab.goto(dashboard)
    tab.get_by_role("link", name="run", exact=True).click()
    tab.get_by_role("heading", name="run", exact=True).wait_for()

    def steps():
        """Where the return curve ends, as a screen reader is told."""
        said = tab.get_by_role("img", name=re.compile("^Return: Return")).get_attribute("aria-label")
        return float(re.search(r"at ([\d.,]+)", said)[1].replace(",", ""))

    def until(condition, what):
        run.wait_until(lambda: tab.wait_for_timeout(50) or condition(), what)

    def actors():
        return tab.get_by_role("rowheader", name=re.compile("^actor ")).count()

    def rate():
        return tab.locator(".tile", has_text="Throughput").locator("dd").first.inner_text()

    before = steps()
    until(lambda: steps() > before, "the curve has grown")
    assert actors() == 2

    tab.get_by_role("button", name="One actor more").click()
    tab.get_by_role("button", name="One actor more").click()
    until(lambda: actors() == 4, "four actors are listed")
    assert run.backend.registry.control().target_actors == 4

    tab.get_by_text("Change parameters").click()
    tab.get_by_label("network.learning_rate").fill("0.000123")
    tab.locator(".row", has_text="network.learning_rate").get_by_role("button", name="Apply").click()
    until(lambda: run.snapshot.get("learning_rate") == pytest.approx(0.000123), "updates take the new rate")
    tab.get_by_label("network.learning_rate").fill("-1")
    tab.locator(".row", has_text="network.learning_rate").get_by_role("button", name="Apply").click()
    tab.get_by_text("must be greater than 0").first.wait_for()
    tab.get_by_role("button", name="Checkpoint now").click()
    until(lambda: run.backend.registry.control().checkpoint.done == 1, "the checkpoint is there")

    tab.get_by_role("button", name="Pause").click()
    until(lambda: rate().split()[0] == "0", "the rate is zero")
    tab.locator(".pill", has_text="paused").first.wait_for()
    named = tab.locator("h3", has_text="The actors, by name").locator("+ dl")
    until(lambda: re.search(r"paused\s+\d+ ?%", named.inner_text()), "the actors' time goes into the pause")
    paused_at = run.updates
    tab.get_by_role("button", name="Resume").click()
    until(lambda: rate().split()[0] != "0", "it goes on")
    run.wait_for_updates(paused_at + 3)

    tab.get_by_role("button", name="Stop …").click()
    tab.get_by_role("button", name="Keep it running").click()
    assert run.backend.registry.control().stop is None
    tab.get_by_role("button", name="Stop …").click()
    tab.get_by_role("button", name="Stop the run").click()
    requests = run.backend.registry.requests("0")
    summary: Summary = run.finish()
    assert (summary.stop_reason, summary.exit_code, summary.imbalance) == ("asked", 0, 0)

    tab.locator(".pill", has_text="stopped").wait_for()
    film = ["evaluate", "--env", "CartPole-v1", "--baseline", "random", "--episodes", "1"]
    assert distrl_command(*film, "--video", str(run.run_dir / "random.webm")).returncode == 0
    tab.reload()
    tab.get_by_role("tab", name="Films").click()
    ready = "(video) => video.readyState >= 3 && video.videoWidth > 0"
    until(lambda: tab.get_by_label("Film of an evaluation").evaluate(ready), "the film can be played")
    until(lambda: steps() == float(summary.env_steps), "the curve ends where the summary does")
    tab.get_by_role("link", name="Runs", exact=True).first.click()
    row = tab.locator("tr[data-run]")
    row.locator(".pill", has_text="stopped").wait_for()
    assert "stopped as asked" in row.inner_text()
    # The one that was refused is told of by the browser, too.
    assert [text for text in tab.complaints if "status of 400" not in text] == []
    assert len(tab.complaints) == 1
    by = {request.by.partition(", ")[2] for _, request in requests}
    assert by == {"dashboard"}
    assert tab.asked == {"127.0.0.1"}


@pytest.mark.row("P12", "P13")
def test_compared_runs_are_grouped_unloaded_and_zoomed_into(tmp_path, dashboard, tab):
    for name, discount in (("a", 0.9), ("b", 0.99)):
        directory = tmp_path / name
        directory.mkdir()
        record = {"run_id": name, "redis_url": None, "pid": 1, "process": "gone", "started": 1000.0}
        (directory / "run.json").write_text(json.dumps(record))
        (directory / "config.yaml").write_text(dump(load("cartpole-impala", sets=[f"algorithm.discount={discount}"])))
        rows = "".join(f"{n},{100 * n},{n},{n / 2},{10 * n}\n" for n in range(1, 30))
        (directory / "metrics.csv").write_text(f"updates,env_steps,episodes,wall_s,mean_return_100\n{rows}")
    wait_until(
        lambda: all(id_of(name) in tab.request.get(f"{dashboard}api/runs").text() for name in "ab"),
        "the dashboard has both runs, which were made after its start",
    )
    tab.goto(f"{dashboard}#/compare?id={id_of('a')}&id={id_of('b')}")
    legend = tab.locator(".legend button")
    legend.nth(1).wait_for()
    tab.get_by_label("Group", exact=True).select_option("algorithm.discount")
    tab.get_by_role("button", name=re.compile(r"^discount=0\.9 ")).wait_for()
    assert legend.count() == 2
    for pressed in ("false", "true"):
        legend.first.click()
        assert legend.first.get_attribute("aria-pressed") == pressed
    tab.get_by_role("button", name="Unload b").click()
    legend.nth(1).wait_for(state="detached")
    assert legend.count() == 1

    plot = tab.locator(".u-over").bounding_box()
    assert plot is not None

    def move_to(share):
        tab.mouse.move(plot["x"] + share * plot["width"], plot["y"] + plot["height"] / 2)

    def value_at_the_right():
        move_to(0.98)
        return float(legend.first.locator(".value").inner_text())

    assert value_at_the_right() == pytest.approx(284, abs=6)
    move_to(0.25)
    tab.mouse.down()
    move_to(0.5)
    tab.mouse.up()
    tab.get_by_role("button", name="Reset zoom").wait_for()
    zoomed = value_at_the_right()
    assert zoomed == pytest.approx(150, abs=15)
    tab.get_by_label("Axis", exact=True).select_option("updates")
    tab.get_by_role("img", name=re.compile("at 29 updates")).wait_for()
    assert value_at_the_right() == zoomed


class Unavailable(http.server.BaseHTTPRequestHandler):
    """Answers as a proxy does whose server is away."""

    timeout = 0.5  # connections that a browser opens in advance

    def do_GET(self):
        self.send_error(503)

    def log_message(self, *_):
        pass


@pytest.mark.long
def test_a_page_outlives_its_server(job, tmp_path, free_port, browser):
    """A server that is frozen, gone, replaced by errors, back, and back with a token: nothing stale looks new."""
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE_S)
    page, token = f"#/run/{id_of('job')}", "token-of-many-letters"
    with serving(tmp_path, free_port) as (process, url):
        tabs = [context.new_page() for _ in range(7)]  # a browser has six connections to a server
        tabs[0].route("**/settable", lambda route: route.fulfill(status=503), times=1)  # it is asked again
        for tab in tabs:
            tab.goto(url + page)
        for tab in tabs:
            tab.get_by_role("heading", name="job", exact=True).wait_for()
            tab.get_by_role("button", name="Pause").wait_for()
        for tab in tabs[1:]:
            tab.close()
        tab = tabs[0]
        lost, said = tab.locator("#connection"), tab.locator(".said")
        actors = tab.get_by_label("Actors", exact=True)

        for typed, told in (
            ("", "nothing is not a number of actors"),
            ("0", "0 is not a number"),
            ("-3", "-3 is not a number"),
        ):
            actors.fill(typed)
            actors.press("Tab")
            said.filter(has_text=told).wait_for()
        actors.fill("12")
        actors.press("Tab")
        tab.get_by_role("button", name="Cancel").click()
        tab.get_by_text("Change parameters").click()
        rate = tab.get_by_label("network.learning_rate", exact=True)
        rate.fill("")
        rate.press("Enter")
        said.filter(has_text="network.learning_rate: enter a number").wait_for()
        job.registry.set_control(settings={"network.learning_rate": 0.0625})  # by another page, say
        until(tab, "() => document.getElementById('set-network.learning_rate').value === '0.0625'")
        assert job.registry.control().target_actors is None

        process.send_signal(signal.SIGSTOP)
        tab.get_by_text("Connection lost, trying again …").wait_for()
        tab.get_by_text(re.compile(r"last heard of \d+ s ago")).wait_for()
        for faded in (".tiles", ".flow"):
            style = tab.locator(faded).evaluate("(part) => [getComputedStyle(part).filter, part.offsetHeight > 0]")
            assert style == ["grayscale(1)", True]
        tab.get_by_role("button", name="Pause").click()
        said.filter(has_text="has not answered for 10 s").wait_for()
        process.send_signal(signal.SIGCONT)
        lost.filter(has_text=re.compile("^$")).wait_for(state="attached")
        assert not job.registry.control().paused  # nothing is carried out late
        tab.get_by_role("button", name="Pause").click()
        tab.locator(".pill", has_text="paused").wait_for()
        assert [request.what for _, request in job.registry.requests("0")] == ["pause"]

    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port), Unavailable) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            tab.wait_for_event("response", lambda response: response.status == 503)
            tab.get_by_text(re.compile(r"last heard of \d+ s ago")).wait_for()
        finally:
            proxy.shutdown()
    with serving(tmp_path, free_port):
        lost.filter(has_text=re.compile("^$")).wait_for(state="attached")
        job.registry.add_snapshot({"updates": 31, "env_steps": 3100, "mean_return_100": 310.0})
        tab.locator(".tile", has_text="310").wait_for()
        learner = job.become_learner()
        promote(replica_of(job), [job])
        learner.ledger.recover(0)
        add_to_ledger(job, {"produced": 5, "lost": 5, "lost_to_failover": 3})
        account = "5 unrolls produced = .* 5 lost · exact, fail-overs of Redis: 1, lost to a fail-over: 3"
        tab.locator(".ledger").get_by_text(re.compile(account)).wait_for()

    with serving(tmp_path, free_port, DISTRL_DASHBOARD_TOKEN=token):
        tab.get_by_label("Token").fill(token)
        tab.get_by_role("button", name="Sign in").click()
        tab.get_by_role("button", name="Sign out").click()
        tab.get_by_label("Token").wait_for()
        tab.goto(url)
        tab.get_by_label("Token").wait_for()
    context.close()
