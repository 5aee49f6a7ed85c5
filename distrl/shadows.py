"""Find a module of the user's that stands in for a library or for a part of Python, such as a file redis.py."""

import sys
import sysconfig
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from distrl.errors import ConfigError

LIBRARIES = frozenset(
    {
        *("redis", "msgpack", "msgpack_numpy", "numpy", "pydantic", "pydantic_core", "yaml", "typer", "click", "rich"),
        *("gymnasium", "onnx", "onnxruntime", "keras", "tensorflow", "jax", "ray", "starlette", "uvicorn", "optuna"),
        *("tensorboardX", "matplotlib", "cv2", "setproctitle", "scipy", "typing_extensions"),
    }
)
"""Names under which distrl, or what it uses, imports libraries."""


def require_no_shadow() -> None:
    """Raise ConfigError if a module of the user's would be imported in place of a library; import none."""
    if (imported := shadow()) is not None:
        raise ConfigError(imported)
    for name in sorted(LIBRARIES - sys.modules.keys()):
        found = find_spec(name)
        if found is not None and found.has_location and (text := _shadow(name, found.origin)) is not None:
            raise ConfigError(text)


def shadow() -> str | None:
    """Return in one line which imported module stands in for another one; None if none does."""
    for name, module in sys.modules.copy().items():
        if name in LIBRARIES | sys.stdlib_module_names:
            text = _shadow(name, getattr(module, "__file__", None))
            if text is not None:
                return text
    return None


def _shadow(name: str, file: str | None) -> str | None:
    """Return what to say of a module's file if the interpreter's own folders have another module of that name.

    A library that is installed elsewhere alone, in another folder or from its source, stands in for nothing.
    """
    if not file:
        return None
    places, path = sysconfig.get_paths(), Path(file).resolve()
    own = [places[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    if any(Path(place).resolve() in path.parents for place in own) or PathFinder.find_spec(name, own) is None:
        return None
    kind = "module of Python" if name in sys.stdlib_module_names else "library"
    return f"{path} stands in for the {kind} {name}; rename it, or take its folder from PYTHONPATH"
