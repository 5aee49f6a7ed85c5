"""A training as an iterator: it runs on a thread, and its snapshots are yielded to the caller."""

import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue

from distrl.interrupt import Interrupt
from distrl.metrics.snapshot import Snapshot
from distrl.runs.summary import Summary
from distrl.terminal.console import Listener

ASKED = "asked"


def iterate(train: Callable[[Listener, Interrupt], Summary]) -> Generator[Snapshot, None, Summary]:
    """Yield every snapshot of `train`, which runs on a thread; return its result, raise its error.

    Leaving the loop, by `break` or by an exception, stops the training in order and waits for its end, as soon as the
    generator is closed or collected; the end of the program stops it, too.

    Args:
        train: Calls its first argument with snapshots; its second one ends it.
    """
    told: SimpleQueue[Snapshot | Summary | BaseException] = SimpleQueue()
    interrupt = Interrupt()

    def work() -> None:
        try:
            told.put(train(told.put, interrupt))
        except BaseException as error:  # raised where the loop is
            told.put(error)

    def stop() -> None:
        interrupt.set(0, ASKED)

    def stop_with_the_program() -> None:
        """Let the program end although it still holds the generator of a loop that it has left."""
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
