"""The stacks of all threads of this process, to find out why a run makes no progress."""

import sys
import threading
import traceback

LONGEST = 32_768
"""Characters; the middle of a longer text is left out."""


def stacks() -> str:
    """Return every thread's name and stack, the newest call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    texts = [
        f"thread {names.get(number, number)}:\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    ]
    text = "".join(texts)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n  [...]\n{text[-LONGEST // 2 :]}"
