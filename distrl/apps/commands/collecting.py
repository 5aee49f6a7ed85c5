"""Collects what a command waits for, with its progress on a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from distrl.metrics.phrases import return_words

if TYPE_CHECKING:
    from distrl.serving.evaluation import Episode

PATIENCE_S = 2.0
"""Commands that take longer show their progress."""
Made = TypeVar("Made")


def collect(
    making: Iterator[Made], count: int, what: str, describe: Callable[[list[Made]], str] = lambda made: ""
) -> tuple[list[Made], bool]:
    """Return all that an iterator makes, and whether Ctrl-C came before its end; show progress if it takes long.

    Args:
        count: Their number; 0: endless.
        what: Its noun.
        describe: Returns a text on what has been made so far.
    """
    made: list[Made] = []
    try:
        with closing(making) as each, _progress(count, what) as show:  # type: ignore[type-var]
            for one in each:
                made.append(one)
                show(len(made), describe(made))
    except KeyboardInterrupt:
        return made, True
    return made, False


def mean_return_of(ended: "Sequence[Episode]") -> str:
    """Return the mean return of episodes in words."""
    return f"return {return_words(fmean(episode.total for episode in ended))}"


@contextmanager
def _progress(count: int, what: str) -> Iterator[Callable[[int, str], None]]:
    """Show a bar with the time to go after `PATIENCE_S`, on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda completed, description: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=count or None)
    patience = threading.Timer(PATIENCE_S, bar.start)
    patience.daemon = True
    patience.start()

    def show(completed: int, description: str) -> None:
        bar.update(task, completed=completed, description=description)

    try:
        yield show
    finally:
        patience.cancel()
        patience.join()
        bar.stop()
