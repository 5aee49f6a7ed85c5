"""The page of one run in a real browser: its sentence, and its details."""

import itertools
import re
import shlex

import pytest

from distrl.apps.dashboard.files import id_of
from distrl.runs.directories import RunRecord
from tests.failures.browsing import until
from tests.faults.arguments import sets
from tests.run_folders import make_run

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.redis]


def opened(tab, dashboard, run, query=""):
    tab.goto(f"{dashboard}#/run/{id_of(run)}{query}")
    tab.locator(".sentence").wait_for()


def sentence(tab, words):
    tab.locator(".sentence", has_text=re.compile(words)).wait_for()


def test_a_training_is_told_from_its_first_update_to_its_loss(start_run, unhurried, dashboard, tab):
    run = start_run(*unhurried, *sets("stop.updates=1000000"))
    run.wait_for_updates(3)
    opened(tab, dashboard, "run")
    sentence(tab, r"^Running: 0 % of 1,000,000 updates \([\d,]+\), about .* to go$")
    tab.get_by_role("progressbar").wait_for(state="attached")

    tab.get_by_role("tab", name="Checkpoints").click()
    tab.get_by_role("button", name="Checkpoint now").click()
    tab.locator(".said", has_text="checkpoint written, ").wait_for()
    row = tab.locator(".checkpoints tbody tr").first
    row.locator(".tag.newest").wait_for()
    step = int(row.get_by_role("rowheader").inner_text().replace("newest", "").replace("best", "").replace(",", ""))
    assert (run.run_dir / "checkpoints" / f"ckpt-{step:012}").is_dir()
    row.get_by_role("button", name=re.compile("^Copy: resume")).click()
    line = tab.get_by_label("The command that was copied last").inner_text()
    assert shlex.split(line) == ["distrl", "train", "--resume", f"{run.run_dir.resolve()}@{step}"]

    tab.get_by_role("button", name="Pause").click()
    sentence(tab, r"^Paused since \d{4}-\d\d-\d\d ")
    tab.get_by_role("button", name="Resume", exact=True).first.click()
    sentence(tab, "^Running")

    run.kill("actor", 1)
    tab.locator("#tab-events .badge", has_text="1").wait_for()
    tab.get_by_role("tab", name="Events").click()
    tab.get_by_label("Show", exact=True).select_option("bad")
    tab.locator(".events li.bad", has_text="actor 1 ended (signal 9)").wait_for()
    assert tab.locator(".events li").count() == 1
    assert tab.locator("#tab-events .badge").is_hidden()

    tab.reload()  # the view is in the address
    tab.locator(".events li.bad", has_text="actor 1 ended (signal 9)").wait_for()
    run.end()
    (run.run_dir / "summary.json").unlink(missing_ok=True)
    record = RunRecord.read(run.run_dir / "run.json")
    assert not run.alive(record.pid)
    sentence(tab, r"^Its process is gone after [\d,]+ steps, without a summary; resume it from its newest checkpoint$")
    command = tab.locator(".headline code").inner_text()
    assert shlex.split(command) == ["distrl", "train", "--resume", str(run.run_dir.resolve())]
    assert [text for text in tab.complaints if "Failed to load" not in text] == []


def test_a_training_that_fails_shows_why(start_run, slow_steps, dashboard, tab, tmp_path):
    pace = tmp_path / "pace"
    pace.write_text("0.005")
    environment = ["--env", "tests.faults.environments:Paced", "--set", f"environment.kwargs={{file: {pace}}}"]
    run = start_run(*slow_steps, *environment, *sets("actors.count=1", "actors.restart_budget=0"))
    run.wait_for_updates(2)
    opened(tab, dashboard, "run")
    pace.unlink()
    summary = run.finish()
    assert summary.exit_code != 0
    sentence(tab, r"^Failed after .*: actor 0 .*FileNotFoundError")
    tab.locator(".headline pre .error", has_text="FileNotFoundError").first.wait_for()
    tab.get_by_role("tab", name="Logs").click()
    assert tab.get_by_label("Role", exact=True).input_value() == "actor-0"
    tab.get_by_label("Search this log", exact=True).fill("filenotfounderror pace")
    tab.locator(".log mark", has_text="FileNotFoundError").first.wait_for()
    tab.get_by_text(re.compile(r"^\d+ matching lines?$")).wait_for()
    with tab.expect_download() as download:
        tab.get_by_role("link", name="Download").click()
    assert "FileNotFoundError" in download.value.path().read_text()
    tab.get_by_label("Search this log", exact=True).fill("")
    tab.get_by_label("Level", exact=True).select_option("error")
    tab.locator(".log .error", has_text="FileNotFoundError").first.wait_for()
    assert tab.complaints == []


def test_details_by_keyboard_and_films_by_steps(dashboard, tab, tmp_path, distrl_command):
    folder = make_run(tmp_path / "a", sets=("stop.mean_return=40", "network.learning_rate=0.0625"), pid=1)
    film = ["evaluate", "--env", "CartPole-v1", "--baseline", "random", "--episodes", "1", "--video"]
    assert distrl_command(*film, str(folder / "best.webm")).returncode == 0
    (folder / "films").mkdir()
    for name in ("steps-000000100.webm", "steps-000000900.webm", "best.webm"):
        (folder / "films" / name).write_bytes((folder / "best.webm").read_bytes())
    opened(tab, dashboard, "a", "?tab=films")
    sentence(tab, r"^Solved after 9\.8 s$")  # the return of its last episodes is below the target
    tab.get_by_role("button", name="Film at 900 steps").click()
    ready = "(video) => video.readyState >= 3 && video.videoWidth > 0 && video.src.includes('steps-000000900')"
    until(tab, f"() => ({ready})(document.querySelector('video'))")
    assert "film=films" in tab.url
    for name in ("Film best", "Film best.webm"):
        tab.get_by_role("button", name=name, exact=True).click()
        assert tab.get_by_role("button", name=name, exact=True).get_attribute("aria-pressed") == "true"

    tab.locator("#tab-films").focus()
    for key, name in (("Home", "Roles"), ("End", "Logs"), ("ArrowRight", "Roles"), ("ArrowLeft", "Logs")):
        tab.keyboard.press(key)
        assert tab.evaluate("document.activeElement.textContent") == name
        assert tab.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
    tab.get_by_role("tab", name="Configuration").click()
    tab.get_by_label("Search the configuration").fill("learning 0.0625")
    tab.locator("mark", has_text="0.0625").wait_for()
    assert tab.locator(".keys tbody tr").count() == 1
    tab.get_by_role("button", name="Copy the value of network.learning_rate").click()
    tab.locator(".keys button", has_text=re.compile("^(Copied|Press Ctrl-C)$")).wait_for()
    regions = tab.locator(".details [role=region]")
    assert {regions.nth(at).get_attribute("tabindex") for at in range(regions.count())} == {"0"}
    levels = [
        int(name[1])
        for name in tab.locator("main :is(h1, h2, h3, h4)").evaluate_all("(all) => all.map((one) => one.tagName)")
    ]
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    assert tab.complaints == []


def test_charts_of_a_live_run_are_drawn_however_late_the_answers_are(job, dashboard, tab):
    """Answers about curves are held back until the run has grown by more than the page waits between two rounds."""
    held = []
    tab.clock.install()
    tab.route("**/curve?**", lambda route: held.append(route))
    opened(tab, dashboard, "job")
    tab.locator(".chart .none", has_text="Loading …").first.wait_for()
    for updates in (30, 31, 32):
        job.registry.add_snapshot({"updates": updates, "env_steps": 100 * updates, "mean_return_100": 1.0})
        tab.locator(".tile dd", has_text=re.compile(f"^{updates}$")).wait_for()
        tab.clock.fast_forward(11_000)
    asked = [route.request.url for route in held]
    assert len(set(asked)) == len(asked)  # one round
    with tab.expect_request(re.compile(r"/curve\?.*since=")):  # the next one, of new points alone
        for route in [*held]:
            route.continue_()
        tab.unroute("**/curve?**")
        tab.get_by_role("button", name="Return").first.wait_for()
        tab.clock.fast_forward(11_000)
    assert tab.locator(".u-over").count() >= 1
    assert tab.complaints == []
