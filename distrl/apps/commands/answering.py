"""A sign of life on a terminal while a target is asked: a job server may take seconds to answer."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(target: str) -> Iterator[None]:
    """Show on a terminal, while inside, that the answer of a target is waited for."""
    # Imported here: rich costs time that other commands need not pay.
    from rich.console import Console

    with Console(stderr=True).status(f"waiting for {target} …"):
        yield
