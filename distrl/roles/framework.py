"""The numeric framework of this process: chosen before Keras is imported, and never changed after."""

import os
import sys
import threading

from distrl.errors import ConfigError, require

_one_at_a_time = threading.Lock()


def require_framework(backend: str) -> None:
    """Raises MissingExtraError unless Keras and `backend`, "tensorflow" or "jax", are installed."""
    if backend == "jax":
        require("jax", "JAX, the learner's framework (learner.backend: jax),", "jax")
    else:
        require("tensorflow", "the learner's framework, TensorFlow,", "cpu")
    require("keras", "Keras, which networks are made of,", "cpu")


def select_framework(backend: str) -> None:
    """Makes Keras run on `backend` in this process.

    Raises:
        MissingExtraError: It is not installed.
        ConfigError: Keras runs on the other one already, in a process that somebody else began.
    """
    require_framework(backend)
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    elif (running := sys.modules["keras"].config.backend()) != backend:
        raise ConfigError(
            f"learner.backend: {backend}, but Keras runs on {running} in this process already; "
            f"set KERAS_BACKEND={backend} before anything imports Keras"
        )


def import_framework(backend: str) -> None:
    """`select_framework`, and imports it, in a process of distrl's own: see `lean_import`.

    Where another thread has begun with that, waits for it.

    Raises:
        MissingExtraError, ConfigError: As `select_framework`.
    """
    from distrl.networks.framework.lean_import import import_keras

    with _one_at_a_time:
        select_framework(backend)
        import_keras(backend)
