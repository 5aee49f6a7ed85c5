"""A real browser on a real training: what is shown is what happens, and what is clicked does."""

import os
import re
import shutil
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from distrl.metrics.summary import Summary
from tests.faults.arguments import environment, sets

pytestmark = [pytest.mark.slow, pytest.mark.redis]

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
PATIENCE_MS = 60_000


@pytest.fixture
def browser():
    path = shutil.which("chromium")
    if path is None:
        problem = "no chromium on PATH: sudo apt-get install chromium"
        if "CI" in os.environ:
            pytest.fail(problem)
        pytest.skip(problem)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def dashboard(tmp_path, free_port):
    command = [sys.executable, "-m", "distrl", "dashboard", str(tmp_path), "--port", str(free_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url is not None
        yield url[0]
        process.terminate()


@pytest.fixture
def tab(browser):
    """A page, and what it complained of, and whom it asked."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.complaints, page.asked = [], set()
    page.on(
        "console", lambda message: page.complaints.append(message.text) if message.type in ("error", "warning") else 0
    )
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.asked.add(urlsplit(request.url).hostname))
    yield page
    page.close()


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
        said = tab.get_by_role("img", name=re.compile("^Mean return 100: Mean return 100")).get_attribute("aria-label")
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
    assert tab.locator(".pill").first.inner_text() == "paused"
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
    tab.get_by_role("tab", name="Film").click()
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
