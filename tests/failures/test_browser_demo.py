"""The game of `distrl serve --learn --demo` in a browser: the page teaches a real run while it is shown."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from distrl.apps.web.access import Access
from tests.apps.serve.conftest import serving
from tests.failures.browsing import until
from tests.failures.test_browser_accessible import findings
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow
TOKEN, READ_ONLY = "token-of-many-letters", "another-token-of-letters"
LEARNS = "the policy learns from 16 games beside the one shown"


@contextlib.contextmanager
def serving_demo(run_dir):
    """Serve the game while inside, with its run in a folder; yields its address."""
    command = [sys.executable, "-m", "distrl", "serve", run_dir, "--learn", "--demo", "--port", "0"]
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        lines = iter(process.stdout.readline, "")
        address = next(filter(None, (re.search(r"open (http://\S+/demo/) in a browser", line) for line in lines)))
        yield address[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_a_visitor_watches_it_learn_and_plays_and_the_page_outlives_its_server(tab, tmp_path):
    run_dir = tmp_path / "catch"
    with serving_demo(run_dir) as address:
        tab.goto(address.removesuffix("/"))
        tab.get_by_text("the policy plays its best moves").wait_for()
        tab.get_by_text(LEARNS).wait_for()
        first = tab.locator("#version").text_content()
        until(tab, "Number(document.getElementById('balls').textContent.replace(/,/g, '')) >= 200")
        until(tab, f"document.getElementById('version').textContent !== '{first}'")
        assert findings(tab) == []
        tab.get_by_role("button", name="Play yourself").click()
        tab.get_by_text("you play").wait_for()
        tab.evaluate(
            "() => { window.written = 0;"
            " new MutationObserver((all) => (window.written += all.length)).observe(who, { childList: true }) }"
        )
        tab.keyboard.press("ArrowLeft")
        until(tab, "/ of [1-9]/.test(document.getElementById('you').textContent)")
        assert tab.evaluate("window.written") == 0  # for a screen reader, only what is new
        assert (tab.complaints, tab.asked) == ([], {"127.0.0.1"})
        os.kill(json.loads((run_dir / "run.json").read_text())["pid"], signal.SIGTERM)
        tab.get_by_text("nothing is learned now: the run has ended").wait_for()
    tab.get_by_text("the server has gone").wait_for()
    tab.get_by_text("no game without the server").wait_for()
    with serving(run_dir, access=Access("127.0.0.1", TOKEN, READ_ONLY), port=urlsplit(address).port, demo=True):
        tab.get_by_text("the server needs a token: write #token=TOKEN").wait_for()
        tab.goto(f"{address}#token=a-wrong-one")
        tab.get_by_text("the server refuses: that is not the token; write #token=TOKEN").wait_for()
        tab.goto(f"{address}#token={READ_ONLY}")
        tab.get_by_text("the server refuses: this token may only look; write #token=TOKEN").wait_for()
        tab.goto(f"{address}#token={TOKEN}")
        tab.get_by_text("nothing is learned now").wait_for()
        tab.get_by_role("button", name="Play yourself").click()
        tab.get_by_text("the policy plays its best moves").wait_for()
