"""The layout of pages in a real browser: long names, notes and errors, links to tabs, and the box at the cursor."""

import re
from dataclasses import asdict
from urllib.parse import quote

import pytest

from distrl.apps.dashboard.files import id_of
from distrl.memory_backend.records import Evaluation
from distrl.runs.evaluations import write_evaluation
from distrl.runs.labels import Labels
from tests.failures.browsing import serving
from tests.run_folders import make_run

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.row("P08")]

LONG = "W" * 80
FAILURE = "actor 0 ended with 1: " + "unbroken" * 60
ROWS = [{"updates": n, "env_steps": 100 * n, "episodes": n, "wall_s": n, "mean_return_100": n} for n in range(1, 41)]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of one dashboard for all tests; they change nothing."""
    root = tmp_path_factory.mktemp("runs")
    Labels(note="a line of the note\n" * 60).write(make_run(root / "noted", pid=1, started=3000.0))
    failed = make_run(root / LONG, pid=1, summary={"exit_code": 1, "stop_reason": "failed", "error": FAILURE})
    (failed / "logs" / "actor-0.log").write_text("".join(f"line {n}\n{'word ' * 200}\n" for n in range(20)) + "last\n")
    rate = ("network.learning_rate=0.00012345678901234567",)
    rows = [row | {f"a long name of a metric {at} {'x' * 40}": 1e30 for at in range(6)} for row in ROWS]
    evaluated = make_run(root / "evaluated", pid=1, rows=rows, sets=rate, summary={"mean_return_100": 1e30})
    Labels(tags=("paper",)).write(evaluated)
    for steps, mean in ((1000, 10.0), (2000, 50.0), (3000, 30.0)):
        write_evaluation(evaluated / "evaluations.jsonl", asdict(Evaluation(1, steps, 5, mean, 1.0, 0.0, 60.0, 1, 1)))
    with serving(root, 0) as (_, url):
        yield url


def sized(tab, width):
    tab.set_viewport_size({"width": width, "height": 844})


def shown(tab, url, first):
    tab.goto(url)
    tab.locator(first).first.wait_for()


def within(element, frame):
    """Whether an element lies within a place of the window: {x, y, width, height}."""
    box = element.bounding_box()
    across = frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]
    return across and frame["y"] <= box["y"] and box["y"] + box["height"] <= frame["y"] + frame["height"]


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_long_name_keeps_pages_within_the_window(served, tab, width):
    sized(tab, width)
    for page, first in (
        ("", f'a.name:has-text("{LONG}")'),
        (f"#/run/{id_of(LONG)}", ".sentence"),
        (f"#/compare?id={id_of(LONG)}&id={id_of('noted')}", ".legend button"),
    ):
        shown(tab, f"{served}{page}", first)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, page
    assert tab.complaints == []


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", ["films", "logs"])
def test_a_link_to_a_tab_leads_to_it(served, tab, name, width):
    sized(tab, width)
    shown(tab, f"{served}#/run/{id_of('noted')}?tab={name}", ".sentence")
    below_the_bar = {"x": 0, "y": 52, "width": width, "height": 844 - 52}
    assert within(tab.locator(f"#tab-{name}"), below_the_bar)


def test_the_tab_that_is_open_at_first_is_in_view_on_a_phone(served, tab):
    sized(tab, 390)
    shown(tab, f"{served}#/run/{id_of('noted')}", ".sentence")
    opened = tab.get_by_role("tab", name="Configuration", selected=True)
    assert within(opened, tab.get_by_role("tablist").bounding_box())
    assert tab.evaluate("scrollY") == 0


def test_rows_of_the_list_stay_low(served, tab):
    sized(tab, 1440)
    shown(tab, served, 'a.name:has-text("noted")')
    for name, said in (("noted", ".note-line"), (LONG, "td.wide > span")):
        row = tab.locator("tbody tr", has=tab.get_by_role("link", name=name))
        lines = row.locator(said).evaluate("(one) => one.clientHeight / parseFloat(getComputedStyle(one).lineHeight)")
        assert 2 <= lines <= 4  # enough to tell what it is
        assert row.bounding_box()["height"] <= 7 * 21  # seven lines


def test_the_log_of_a_failure_shows_its_end(served, tab):
    shown(tab, f"{served}#/run/{id_of(LONG)}", ".log.short")
    log, last = tab.locator(".log.short"), tab.locator(".log.short span").last
    assert last.inner_text() == "last\n"
    assert log.evaluate("(one) => one.scrollHeight > one.clientHeight")
    assert within(last, log.bounding_box())


@pytest.mark.parametrize(
    ("steps", "name", "value"), [(1000, "Evaluation", 10), (1500, "Evaluation at 1,000", 10), (2000, "Evaluation", 50)]
)
def test_the_box_at_the_cursor_tells_where_an_evaluation_was(served, tab, steps, name, value):
    shown(tab, f"{served}#/run/{id_of('evaluated')}", ".legend button")
    plot = tab.locator(".u-over").first.bounding_box()
    tab.mouse.move(plot["x"] + plot["width"] * (steps - 100) / 3900, plot["y"] + 50)
    row = tab.locator(".tip .row", has_text="Evaluation").first
    row.wait_for()
    assert row.locator(".name").inner_text() == name
    assert float(re.match("[0-9.]+", row.locator(".value").inner_text())[0]) == value
    legend = tab.locator(".legend button", has_text="Evaluation").locator(".value").inner_text()
    assert float(legend) == value


def test_numbers_are_short_and_tags_of_a_chosen_row_are_seen(served, tab):
    sized(tab, 1440)
    shown(tab, f"{served}#/?column=network.learning_rate&column=mean_return_100", 'a.name:has-text("evaluated")')
    row = tab.locator("tbody tr", has=tab.get_by_role("link", name="evaluated"))
    cells = [cell.inner_text() for cell in row.locator("td.setting, td.n").all()]
    assert cells == ["0.000123457", "1.00e+30"]
    assert row.locator("td.setting").get_attribute("title") == "network.learning_rate: 0.00012345678901234567"
    row.get_by_role("checkbox").check()
    colours = row.evaluate(
        "(one) => [one, one.querySelector('.tag')].map((each) => getComputedStyle(each).backgroundColor)"
    )
    assert len({*colours}) == 2
    tab.get_by_role("button", name="Clear").click()


def test_a_long_title_of_a_panel_has_two_lines_and_all_of_it_as_a_tip(served, tab):
    names = [f"a long name of a metric {at} {'x' * 40}" for at in range(6)]
    shown(tab, f"{served}#/run/{id_of('evaluated')}?panel={quote(','.join(map(quote, names)))}", ".panels-grid h2")
    title = tab.locator(".panels-grid h2")
    assert title.get_attribute("title") == ", ".join(name.capitalize() for name in names)
    assert title.evaluate("(one) => one.clientHeight / parseFloat(getComputedStyle(one).lineHeight)") == 2
    assert "," not in tab.locator(".panels-grid .legend .value").first.inner_text()


def test_what_runs_is_not_among_what_is_deleted(served, tab):
    """That it runs is the server's answer here, which is made up."""
    tab.route("**/api/selection?*", lambda route: route.fulfill(json={"ids": [id_of("noted")], "at": 1.0}))
    shown(tab, served, 'a.name:has-text("noted")')
    for name in ("noted", "evaluated"):
        tab.get_by_role("checkbox", name=f"Choose {name}").check()
    tab.get_by_role("button", name="Delete …").click()
    dialog = tab.get_by_role("dialog", name="Delete evaluated?")
    dialog.get_by_text("1 run that is running stays.").wait_for()
    dialog.get_by_role("button", name="Close").click()
    tab.get_by_role("checkbox", name="Choose evaluated").uncheck()
    tab.get_by_role("button", name="Delete …").click()
    tab.get_by_text("All chosen runs are running; stop them first.").wait_for()
    tab.get_by_role("button", name="Clear").click()


def test_a_run_without_a_directory_has_no_pencil(served, tab):
    """That it has none is made up, too."""

    def changed(route):
        answer = route.fetch()
        told = answer.text().replace('"has_directory":true', '"has_directory":false', 1)
        route.fulfill(response=answer, body=told)

    tab.route("**/api/changes?*", changed)
    shown(tab, served, 'a.name:has-text("noted")')
    assert tab.locator(".pencil").count() == 3
    assert tab.locator(".pencil:visible").count() == 2
