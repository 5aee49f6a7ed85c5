"""Import Keras and its framework into one of distrl's own processes, without packages that no role uses.

If certain packages are installed, TensorFlow and Keras import them for conversions, plots and file formats that no role
makes: a third of the time and a fifth of the memory of `import tensorflow`. The garbage collector, which scans an
ever-growing number of objects during the import, takes another fifth of the time.
"""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

UNUSED = {
    "tensorflow": ("jax", "matplotlib", "cv2", "pandas"),
    "jax": ("matplotlib", "cv2", "pandas", "requests"),
}
"""Framework -> packages that it, or Keras on it, imports only if they are installed."""


def import_keras(framework: str) -> None:
    """Import Keras on a framework, tensorflow or jax, that KERAS_BACKEND already names.

    Use it only in processes without users' code so far: modules that did not find an unused package stay without it.
    Later imports of these packages work.
    """
    if "keras" in sys.modules:
        return
    with _absent(UNUSED[framework]), collector_at_rest():
        import keras  # noqa: F401


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Suspend garbage collection inside, and exempt all objects that exist at the end from later collections."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextmanager
def _absent(packages: Sequence[str]) -> Iterator[None]:
    """Let imports of `packages` fail inside as if they were not installed, unless they have been imported before."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: ModuleNotFoundError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
