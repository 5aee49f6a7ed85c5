"""The page in a real browser: a dashboard in a process of its own, a browser, and waiting for what the page shows."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.arguments import environment

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
PATIENCE_S = 60.0


@contextlib.contextmanager
def serving(root: Path, port: int, *options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A dashboard in a process of its own, and its address."""
    command = [sys.executable, "-m", "distrl", "dashboard", str(root), "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment() | variables) as process:
        assert process.stdout is not None
        url = re.search(r"http://\S+", process.stdout.readline())
        assert url is not None
        try:
            yield process, url[0]
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def until(tab: Any, expression: str) -> None:
    """Wait until an expression holds in the page.

    Playwright's `wait_for_function` repeats it by eval, which the page's content security policy forbids.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while not tab.evaluate(expression):
        assert time.monotonic() < give_up_at, f"{expression} does not hold"
        tab.wait_for_timeout(20)
