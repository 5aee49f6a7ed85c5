"""The numeric framework of a process: chosen before Keras is imported, and never changed after."""

import os
import sys
import threading
from collections.abc import Mapping

from distrl.errors import ConfigError, require

_one_at_a_time = threading.Lock()


def require_framework(backend: str) -> None:
    """Raise MissingExtraError unless Keras and `backend`, "tensorflow" or "jax", are installed."""
    name, extra = {"jax": ("JAX", "jax"), "tensorflow": ("TensorFlow", "cpu")}[backend]
    require(backend, f"{name}, the learner's framework (learner.backend: {backend}),", extra)
    require("keras", "Keras, which networks are made of,", extra)


def select_framework(backend: str) -> None:
    """Make Keras run on `backend` in this process.

    Raises:
        MissingExtraError: It is not installed.
        ConfigError: Keras runs on the other one already, which something else imported first.
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
    """Select the framework and import it, in a process of distrl's own (see `lean_import`)."""
    from distrl.networks.framework.lean_import import import_keras

    with _one_at_a_time:
        select_framework(backend)
        import_keras(backend)


def role_variables(threads: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables of a role: those that bound its numeric threads, and those of its environments.

    GPUs are not hidden from roles: an environment may need one. A role's own networks are kept off them by
    `configure(device="cpu")` and ONNX Runtime's CPU provider.

    Args:
        environment: `EnvironmentConfig.variables` if it steps environments, else none.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    variables = dict.fromkeys(names, str(threads))
    variables["TF_CPP_MIN_LOG_LEVEL"] = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2")
    return {**variables, **environment}
