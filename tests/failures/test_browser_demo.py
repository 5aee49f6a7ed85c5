"""The game of `distrl serve --learn --demo` in a browser: the page teaches a real run while it is shown."""

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.failures.browsing import until
from tests.failures.test_browser_accessible import findings
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def demo(tmp_path):
    """The address of the game, whose run is in a folder of its own."""
    command = [sys.executable, "-m", "distrl", "serve", tmp_path / "catch", "--learn", "--demo", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        lines = iter(process.stdout.readline, "")
        address = next(filter(None, (re.search(r"open (http://\S+/demo/) in a browser", line) for line in lines)))
        yield address[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_visitor_watches_it_learn_and_plays(demo, tab):
    tab.goto(demo)
    tab.get_by_text("the policy plays its best moves").wait_for()
    first = tab.locator("#version").text_content()
    until(tab, "Number(document.getElementById('balls').textContent.replace(/,/g, '')) >= 200")
    until(tab, f"document.getElementById('version').textContent !== '{first}'")
    assert findings(tab) == []
    tab.get_by_role("button", name="Play yourself").click()
    tab.get_by_text("you play").wait_for()
    tab.keyboard.press("ArrowLeft")
    until(tab, "/ of [1-9]/.test(document.getElementById('you').textContent)")
    tab.get_by_role("button", name="Play yourself").click()
    tab.get_by_text("the policy plays its best moves").wait_for()
    assert (tab.complaints, tab.asked) == ([], {"127.0.0.1"})
