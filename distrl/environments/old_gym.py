"""Adapter for environments of the old gym (0.26): `gym:CartPole-v1`, or a subclass of gym.Env.

Gym is unmaintained and its own checker fails under NumPy 2, so that environments are made without it.
"""

import difflib
import functools
import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium import spaces

from distrl.errors import ConfigError, require

PREFIX = "gym:"


class OldGym(gymnasium.Env[Any, Any]):
    """An environment of gym 0.26 as one of gymnasium: the same calls on other base classes and spaces.

    It states the reward threshold and maximum steps of its registration, else its own.
    """

    def __init__(self, name: str, environment: Any) -> None:
        self._name = name
        self._environment = environment
        self.observation_space = _converted(name, "observation", environment.observation_space)
        self.action_space = _converted(name, "action", environment.action_space)
        self.metadata = dict(environment.metadata)
        self.render_mode = environment.render_mode
        registration = environment.spec
        stated = environment.unwrapped if registration is None else registration
        self.reward_threshold = getattr(stated, "reward_threshold", None)
        self.max_episode_steps = _time_limit(environment)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        result = self._environment.reset(seed=seed, options=options)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise ValueError(f"reset gave no (observation, info): {self._before_026()}")
        return result

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = self._environment.step(action)
        if len(result) != 5:
            raise ValueError(f"step gave {len(result)} values, not 5: {self._before_026()}")
        observation, reward, terminated, truncated, info = result
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        return self._environment.render()

    def close(self) -> None:
        self._environment.close()

    def _before_026(self) -> str:
        return f"{self._name} is older than gym 0.26; register it with gym and apply_api_compatibility=True"


def maker(name: str, import_module: Callable[[str, str], ModuleType]) -> Callable[..., Any]:
    """Return the function that makes the environment from its kwargs.

    Args:
        name: `gym:Id`, or `gym:package.module:Id` where the module registers it.
        import_module: From the name, for messages, and a module's name to the module; raises ConfigError.

    Raises:
        MissingExtraError: gym is not installed.
        ConfigError: gym has no environment of that id; the message has the nearest ones.
    """
    module, _, env_id = name.removeprefix(PREFIX).rpartition(":")
    require("gym", f"what environment {name} needs", "gym")
    silence()
    gym = importlib.import_module("gym")
    if module:
        import_module(name, module)
    registry = gym.envs.registration.registry
    # Only exact ids: gym would turn "CartPole" into whichever version is newest.
    if env_id not in registry:
        folded = {known.lower(): known for known in registry}
        nearest = [PREFIX + folded[match] for match in difflib.get_close_matches(env_id.lower(), folded, 3, 0.0)]
        raise ConfigError(f"unknown environment '{name}'; the nearest ids are {', '.join(nearest)}")
    gym.logger.set_level(gym.logger.ERROR)  # else it says at every turn that gymnasium is newer
    return functools.partial(gym.make, env_id, disable_env_checker=True)


def is_registered(env_id: str) -> bool:
    """Return whether gym is imported and knows the id."""
    gym = sys.modules.get("gym")
    return gym is not None and env_id in gym.envs.registration.registry


def is_old(environment: object) -> bool:
    """Whether that is an instance of gym.Env. The process may never have imported gym."""
    gym = sys.modules.get("gym")
    return gym is not None and isinstance(environment, gym.Env)


def is_old_class(class_: type) -> bool:
    """Whether that is a subclass of gym.Env, likewise."""
    gym = sys.modules.get("gym")
    return gym is not None and issubclass(class_, gym.Env)


def silence() -> None:
    """Keep gym from printing at import that it is unmaintained."""
    if "gym" not in sys.modules and find_spec("gym_notices") is not None:
        importlib.import_module("gym_notices.notices").notices.clear()


def _time_limit(environment: Any) -> int | None:
    """Return the limit of gym's TimeLimit among the wrappers, or else the environment's own."""
    while environment is not environment.unwrapped:
        limit = vars(environment).get("_max_episode_steps")
        if limit is not None:
            return int(limit)
        environment = environment.env
    return getattr(environment, "max_episode_steps", None)


def _converted(name: str, path: str, space: Any) -> spaces.Space[Any]:
    """Return the equivalent space of gymnasium."""
    old = importlib.import_module("gym.spaces")
    kinds: dict[Any, Callable[[], spaces.Space[Any]]] = {
        old.Box: lambda: spaces.Box(space.low, space.high, space.shape, space.dtype.type),
        old.Discrete: lambda: spaces.Discrete(space.n, start=space.start),
        old.MultiDiscrete: lambda: spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type),
        old.MultiBinary: lambda: spaces.MultiBinary(space.n),
        old.Text: lambda: spaces.Text(space.max_length, min_length=space.min_length, charset=space.characters),
        old.Dict: lambda: spaces.Dict(
            {key: _converted(name, f"{path}/{key}", part) for key, part in space.spaces.items()}
        ),
        old.Tuple: lambda: spaces.Tuple(
            [_converted(name, f"{path}/{number}", part) for number, part in enumerate(space.spaces)]
        ),
    }
    for kind, convert in kinds.items():
        if isinstance(space, kind):
            return convert()
    raise ConfigError(f"environment {name}: the space at '{path}' cannot be used: gym's {type(space).__name__}")
