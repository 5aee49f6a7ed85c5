"""The state of an environment that is set from outside, for environments in this process and behind a socket."""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium

from distrl.errors import ConfigError, EnvironmentFailedError


def set_state(single: gymnasium.Env[Any, Any], state: Mapping[str, Any]) -> Any:
    """Put an environment into a state, by the method `set_state` that it has beneath its wrappers.

    Args:
        state: Keyword arguments of that method.

    Returns:
        The observation of that state. An episode goes on from there.

    Raises:
        ConfigError: The environment has no such method, or the method takes other arguments.
        EnvironmentFailedError: The method returned nothing.
    """
    settable = getattr(single.unwrapped, "set_state", None)
    if not callable(settable):
        raise ConfigError("this environment has no set_state")
    signature = inspect.signature(settable)
    try:
        signature.bind_partial(**state)  # so that an unknown name is reported before a missing one
        signature.bind(**state)
    except TypeError as error:
        raise ConfigError(f"set_state: {error}; it takes {', '.join(signature.parameters) or 'nothing'}") from None
    observation = settable(**state)
    if observation is None:
        raise EnvironmentFailedError("the environment's set_state returned nothing; it must return the observation")
    return observation
