"""Classes of the user's own, which the configuration names as package.module:Class."""

import importlib
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from distrl.errors import ConfigError


def own_class(path: str, what: str) -> Any:
    """Import what a name means; the caller checks that it is a class of the right kind.

    Modules are found on `sys.path` and then in the working directory, which a console script does not have on it; last,
    so that nothing is shadowed.

    Args:
        path: package.module:Class.
        what: Its kind, for messages.

    Raises:
        ConfigError: In one line: the module cannot be imported, or has nothing of that name.
    """
    module_name, _, name = path.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{what} {path}: {_one_line(error)}") from None  # a traceback adds nothing
        raise ConfigError(f"{what} {path}: {_one_line(error)}") from error
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(f"{what} {path}: {type(error).__name__}: {_one_line(error)}") from error
    if not hasattr(module, name):
        classes = [known for known, value in vars(module).items() if isinstance(value, type)]
        close = get_close_matches(name, classes, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"{what} {path}: module '{module_name}' has no attribute '{name}'{hint}")
    return getattr(module, name)


def search_path() -> str:
    """Return PYTHONPATH for a child with this process's modules, the working directory last where Python implies it."""
    implied = [os.getcwd()] if "" in sys.path else []
    return os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path), *implied])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
