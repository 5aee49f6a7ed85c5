"""Helpers of tests of the page in a real browser."""

import time
from typing import Any

PATIENCE_S = 60.0


def until(tab: Any, expression: str) -> None:
    """Wait until an expression holds in the page.

    Playwright's `wait_for_function` repeats it by eval, which the page's content security policy forbids.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while not tab.evaluate(expression):
        assert time.monotonic() < give_up_at, f"{expression} does not hold"
        tab.wait_for_timeout(20)
