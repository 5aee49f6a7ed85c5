"""Work that the dashboard repeats beside its answers, and that a failure does not end."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from distrl.apps.dashboard import files
from distrl.config.secrets import masked_text
from distrl.errors import one_line

AFTER_FAILURE_S = 5.0
_LOG = logging.getLogger(__name__)


class Background:
    """Repeats work in threads.

    Attributes:
        failures: Work -> number of its failures since the dashboard began; 0 before the first.
        failing: Work whose last repetition failed -> its error in one line.
    """

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.failing: dict[str, str] = {}

    async def repeat(self, name: str, work: Callable[[], float]) -> None:
        """Call `work` for ever; it returns the seconds until its next call."""
        self.failures[name] = 0
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                wait_s = await asyncio.to_thread(work)
            except Exception as error:
                _LOG.exception("%s: failed; repeated after %g s", name, AFTER_FAILURE_S)
                self.failures[name] += 1
                self.failing[name] = files.shown(masked_text(one_line(f"{type(error).__name__}: {error}")))
                wait_s = AFTER_FAILURE_S
            else:
                self.failing.pop(name, None)
