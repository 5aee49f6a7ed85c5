"""The process of one tracker. It reads messages from standard input, a line each, and answers each with a line.

The first message is `{"tracker", "options", "run"}`, others are `{"row", "step"}`, and the last one is `{"ending"}`.
Answers are `{}`, `{"note"}` to the first message, or `{"error"}`, after which the process ends. They go to the open
file whose number is the argument. If standard input ends without an ending, the training has died. What a tracker has
started and left behind ends with its process.
"""

import atexit
import inspect
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distrl.apps.trackers.tracker import Ending, TrackedRun, Tracker
from distrl.child import Parent
from distrl.config.secrets import masked, masked_text
from distrl.errors import ConfigError, DistrlError, one_line
from distrl.process_group import end_own_group
from distrl.user_classes import hide_arguments, own_class

NICENESS = 10
METHODS = {"begin": 1, "record": 2, "end": 1}
"""Method -> number of its arguments."""
MOST_LETTERS = 300
"""Letters of a note or error that are shown."""
_DIED = Ending(exit_code=1, stop_reason="died", error="the process of the training has died")


def made(name: str, options: Mapping[str, Any]) -> Tracker:
    """Return the tracker of that name: wandb, mlflow, or package.module:Class."""
    if name == "wandb":
        from distrl.apps.trackers.wandb_tracker import WandbTracker

        return WandbTracker(**options)
    if name == "mlflow":
        from distrl.apps.trackers.mlflow_tracker import MlflowTracker

        return MlflowTracker(**options)
    tracker: Tracker = own_class(name, "tracker")(**options)
    return tracker


def first_message(name: str, options: Mapping[str, Any], run: TrackedRun) -> dict[str, Any]:
    """Return the message that begins a tracker."""
    return {"tracker": name, "options": options, "run": {**asdict(run), "run_dir": str(run.run_dir)}}


def try_out(request: Mapping[str, Any], parent: Parent) -> None:
    """Check that trackers can begin, as far as that can be known; runs in a child process.

    Args:
        request: Name of a tracker -> its options.

    Raises:
        ConfigError: A class cannot be imported, lacks a method or does not take its arguments; or W&B has no key.
    """
    for name, options in request.items():
        if name == "wandb":
            from distrl.apps.trackers.wandb_tracker import require_login

            require_login(options["mode"])
        elif ":" in name:
            _check_class(name, own_class(name, "tracker"), options)


def _check_class(name: str, given: Any, options: Mapping[str, Any]) -> None:
    if not inspect.isclass(given):
        raise ConfigError(f"tracker {name} is no class")
    try:
        inspect.signature(given).bind(**options)
    except TypeError as error:
        given_options = json.dumps(masked("own", dict(options)), ensure_ascii=False)
        raise ConfigError(f"tracker {name} does not take its arguments {given_options}: {error}") from None
    for method, arguments in METHODS.items():
        if not callable(getattr(given, method, None)):
            raise ConfigError(f"tracker {name} has no method {method}; it needs {', '.join(METHODS)}")
        if inspect.iscoroutinefunction(getattr(given, method)):
            raise ConfigError(f"tracker {name}: {method} is an async def, which nothing would await; make it a def")
        is_bound = isinstance(inspect.getattr_static(given, method), staticmethod | classmethod)
        try:
            inspect.signature(getattr(given, method)).bind(*([] if is_bound else [None]), *range(arguments))
        except TypeError as error:
            raise ConfigError(f"tracker {name}: {method} gets {arguments} argument(s): {error}") from None


def _calls() -> Any:
    """Call the tracker for each message, and yield (what was called, its result)."""
    first = json.loads(sys.stdin.readline())
    tracker = made(first["tracker"], first["options"])
    run = first["run"]
    yield tracker.begin(TrackedRun(**{**run, "run_dir": Path(run["run_dir"])}))
    for line in sys.stdin:
        message = json.loads(line)
        if "ending" in message:
            tracker.end(Ending(**message["ending"]))
            yield None
            return
        tracker.record(message["row"], message["step"])
        yield None
    tracker.end(_DIED)


def _one_line(text: str) -> str:
    """Return a tracker's own words without secrets, as the terminal and logs show them."""
    return masked_text(one_line(text))[:MOST_LETTERS]


def _main(descriptor: str) -> int:
    # After the libraries' own ends, as it is registered first. The run does it, too, if it still lives.
    atexit.register(end_own_group, os.getpid())
    os.set_inheritable(int(descriptor), False)
    answers = os.fdopen(int(descriptor), "w", buffering=1)
    os.nice(NICENESS)
    try:
        for result in _calls():
            print(json.dumps({"note": _one_line(result)} if isinstance(result, str) else {}), file=answers)
    except BaseException as error:  # also SystemExit of a user's class
        print(masked_text(traceback.format_exc()), file=sys.stderr, end="")
        text = str(error) if isinstance(error, DistrlError) else f"{type(error).__name__}: {error}"
        print(json.dumps({"error": _one_line(text)}), file=answers)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*hide_arguments()))
