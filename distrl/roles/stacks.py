"""What every thread of this process is doing: for whoever wants to know why nothing goes on."""

import sys
import threading
import traceback

LONGEST = 32_768
"""Characters; a stack that recurses has its middle left out."""


def stacks() -> str:
    """Every thread's name and stack, the newest call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    told = [
        f"thread {names.get(number, number)}:\n{''.join(traceback.format_stack(frame))}"
        for number, frame in sys._current_frames().items()
    ]
    text = "".join(told)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n  [...]\n{text[-LONGEST // 2 :]}"
