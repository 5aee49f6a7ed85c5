"""Classes of the user's own, which the configuration names as package.module:Class."""

import importlib
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from distrl.errors import ConfigError


def own_class(path: str, what: str) -> Any:
    """Import what a name means; the caller checks that it is a class of the right kind.

    Args:
        path: package.module:Class.
        what: Its kind, for messages.

    Raises:
        ConfigError: In one line: the module cannot be imported, or has nothing of that name.
    """
    module_name, _, name = path.partition(":")
    module = imported(module_name, f"{what} {path}")
    if not hasattr(module, name):
        classes = [known for known, value in vars(module).items() if isinstance(value, type)]
        close = get_close_matches(name, classes, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"{what} {path}: module '{module_name}' has no attribute '{name}'{hint}")
    return getattr(module, name)


def imported(module_name: str, what: str) -> ModuleType:
    """Import a module from `sys.path` and then from the working directory.

    A console script does not have that directory on its path. It comes last, so that nothing is shadowed.

    Raises:
        ConfigError: In one line that begins with `what`; its cause is the error, unless there is no such module.
    """
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        raise ConfigError(f"{what}: module '{module_name}' cannot be imported: {reason}") from (
            None if absent else error
        )  # the traceback of a name that is not there says no more


_command: list[str] = []


def hide_arguments() -> list[str]:
    """Take the arguments of a command of distrl's own out of `sys.argv`, and return them.

    Modules that parse `sys.argv` when they are imported then find a program without arguments.
    """
    _command[:], sys.argv = sys.argv, sys.argv[:1]
    return _command[1:]


def command_line() -> list[str]:
    """Return the command line of this process, also after `hide_arguments`."""
    return _command or sys.argv


def search_path() -> str:
    """Return PYTHONPATH for a child with this process's modules, the working directory last where Python implies it."""
    implied = [os.getcwd()] if "" in sys.path else []
    return os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path), *implied])
