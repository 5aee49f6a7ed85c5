"""Importing Keras and the framework under it into a process of our own, without what they would bring and nobody uses.

TensorFlow and Keras import some packages where these are installed, for conversions, plots and file formats that no
role makes: on a machine that has them they are a third of the time and a fifth of the memory of `import tensorflow`.
The garbage collector, which passes over every object again and again while these only ever become more, is another
fifth of the time.
"""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

UNUSED = {"tensorflow": ("jax", "matplotlib", "cv2"), "jax": ("matplotlib", "cv2")}
"""Framework -> packages that it, or Keras on it, imports only if they are there."""


def import_keras(framework: str) -> None:
    """Imports Keras, whose framework must have been chosen.

    For processes that nobody else's code shares by then: modules that looked for an unused package in vain go without
    it from now on. Whoever wants one of these packages later can import it.

    Args:
        framework: tensorflow or jax.
    """
    if "keras" in sys.modules:
        return
    with _absent(UNUSED[framework]), collector_at_rest():
        import keras  # noqa: F401


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """While inside, there is no garbage collection; what is there at the end is never looked at by one again."""
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
    """While inside, importing one of `packages` fails as if it were not installed, unless it has been imported."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None there means: not to be found
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
