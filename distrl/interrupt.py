"""Signals that end a training or a server in order: noted while it runs, instead of raised."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from distrl.errors import EXIT_INTERRUPTED

INTERRUPTS: Mapping[int, tuple[int, str]] = {
    signal.SIGINT: (EXIT_INTERRUPTED, "Ctrl-C"),
    signal.SIGTERM: (0, "SIGTERM"),
    signal.SIGHUP: (0, "SIGHUP"),
}
"""Signal -> exit code and stop reason."""


@dataclass
class Interrupt:
    """Set by a signal handler, or by the program; `code` is what the process then exits with."""

    code: int | None = None
    name: str = ""

    def set(self, code: int, name: str) -> None:
        """End the run, unless it has been ended before."""
        if self.code is None:
            self.name, self.code = name, code  # in this order: others read the code first


@contextmanager
def interruptible(sigterm_code: int | None = None, interrupt: Interrupt | None = None) -> Iterator[Interrupt]:
    """While inside, Ctrl-C, SIGTERM and a terminal that closes (SIGHUP) are noted instead of raised.

    Ctrl-C after any of them, and a second SIGTERM, raise. A second SIGHUP is as the first: shell and kernel send one
    each. Where it is ignored, as after nohup, the run goes on. Signals reach the main thread of a program alone; a run
    on another thread leaves them to the program.

    Args:
        sigterm_code: Exit code after SIGTERM; None: as in `INTERRUPTS`.
        interrupt: Where they are noted, which the program can set as well; None: a new one.
    """
    interrupt, codes = interrupt or Interrupt(), dict(INTERRUPTS)
    if sigterm_code is not None:
        codes[signal.SIGTERM] = (sigterm_code, INTERRUPTS[signal.SIGTERM][1])
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    seen: set[int] = set()

    def note(number: int, _: FrameType | None) -> None:
        if interrupt.code is not None and (number == signal.SIGINT or number in seen - {signal.SIGHUP}):
            raise KeyboardInterrupt
        seen.add(number)
        interrupt.set(*codes[number])

    ignored = {number for number in (signal.SIGHUP,) if signal.getsignal(number) == signal.SIG_IGN}
    before = {number: signal.signal(number, note) for number in codes.keys() - ignored}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError whenever `seconds` have passed inside; on another thread than the main one, never.

    An alarm of the program's own goes on afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"it has not ended within {seconds:g} s")

    began, before = time.monotonic(), signal.signal(signal.SIGALRM, late)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - began), 1e-6), every_s)
