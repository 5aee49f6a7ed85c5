"""A training as something to iterate over: it runs on a thread, and what it tells comes out where it is asked for."""

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

from distrl.interrupt import Interrupt
from distrl.metrics.snapshot import Snapshot
from distrl.runs.summary import Summary
from distrl.terminal.listeners import Listener

ASKED = "asked"


def iterate(train: Callable[[Listener, Interrupt], Summary]) -> Generator[Snapshot, None, Summary]:
    """Yields every snapshot of `train`, which is called on a thread; returns what it returns, raises what it raises.

    Whoever leaves the loop, by `break` or by an exception, stops the training in order and waits for its end, as soon
    as nobody holds the generator any more; the end of the program stops it, too.

    Args:
        train: Tells snapshots to its first argument, and stops as its second one says.
    """
    told: SimpleQueue[Snapshot | Summary | BaseException] = SimpleQueue()
    interrupt = Interrupt()

    def work() -> None:
        try:
            told.put(train(told.put, interrupt))
        except BaseException as error:  # raised where the loop is
            told.put(error)

    def stop() -> None:
        if interrupt.code is None:
            interrupt.name, interrupt.code = ASKED, 0

    def stop_with_the_program() -> None:
        """A loop that was left while somebody still holds the generator: the program must be able to end."""
        threading.main_thread().join()
        stop()

    thread = threading.Thread(target=work, name="training")
    thread.start()
    threading.Thread(target=stop_with_the_program, name="end of the program", daemon=True).start()
    try:
        while True:
            item = told.get()
            if isinstance(item, Summary):
                return item
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop()
        thread.join()
