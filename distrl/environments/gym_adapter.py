"""From a name in the configuration to gymnasium environments: one of them, or a vector.

A name is a gymnasium id (`CartPole-v1`), a gymnasium id behind the module that registers it
(`package.module:Name-v0`), or a class of one's own (`package.module:Class`), which is called with
`environment.kwargs`. Gymnasium wraps what is registered in its time limit; a class has the limits that it
implements, and may state them as the attributes `max_episode_steps` and `reward_threshold`. Its attribute
`vector_entry_point`, if it has one of its own, makes `num_envs` of them at once: a `VectorEnv` that states the same.

Vectors run in NEXT_STEP autoreset: the step after an episode's end ignores its action and resets.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from distrl.config.environment import EnvironmentConfig
from distrl.errors import ConfigError, MissingExtraError, require

# What a registered environment's module needs, by the extra of distrl that carries it.
_EXTRAS = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco"}


@dataclass(frozen=True)
class Made:
    """A vector of environments and what is known of a single one."""

    vector: VectorEnv[Any, Any, Any]
    vectorization: Literal["own", "sync"]
    reward_threshold: float | None
    max_episode_steps: int | None


class _OwnUnsuitableError(Exception):
    """The environment's own vector entry point cannot serve this configuration; the message says why."""


def make_one(config: EnvironmentConfig) -> gymnasium.Env[Any, Any]:
    """Makes a single environment.

    Raises:
        ConfigError: The name is unknown (the message has the nearest names) or the environment refuses its kwargs.
        MissingExtraError: It needs an optional dependency.
    """
    return _make_one(config, _resolve(config.id))


def make_vector(config: EnvironmentConfig, count: int) -> Made:
    """Makes `count` environments that step together, in NEXT_STEP autoreset.

    With vectorization `auto` the own vector entry point is taken only if it accepts the kwargs, resets in NEXT_STEP and
    has the spaces of the single environment, so that `auto` never changes what is learned.

    Raises:
        ConfigError: As `make_one`; also `own` where there is no suitable vector entry point.
    """
    source = _resolve(config.id)
    if config.vectorization != "sync":
        try:
            return _make_own(config, source, count)
        except _OwnUnsuitableError as error:
            if config.vectorization == "own":
                raise ConfigError(
                    f"environment {config.id}: environment.vectorization: own is impossible: {error}; use sync or auto"
                ) from error.__cause__
    return _make_sync(config, source, count)


def describe(error: BaseException) -> str:
    """Type and message of an exception in one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _resolve(name: str) -> Registration | Callable[..., Any]:
    """A gymnasium registration, or the class or function that makes the environment."""
    module_name, colon, attribute = name.rpartition(":")
    if not colon:
        if name.startswith("ALE/"):
            require("ale_py", f"what environment {name} needs", "atari")
            _import(name, "ale_py")
        return _registered(name)
    module = _import(name, module_name)
    if attribute in gymnasium.registry and not hasattr(module, attribute):
        # The module registered it: gymnasium's own "module:EnvId".
        return gymnasium.registry[attribute]
    made_by = getattr(module, attribute, None)
    if made_by is None:
        raise ConfigError(
            f"unknown environment '{name}': {module_name} has no class {attribute}; {_nearest(attribute, module)}"
        )
    if not callable(made_by):
        raise ConfigError(f"environment {name}: {attribute} is a {type(made_by).__name__}, not a class")
    environment_class: Callable[..., Any] = made_by
    return environment_class


def _registered(env_id: str) -> Registration:
    # Only exact ids: gymnasium would turn "CartPole" into whichever version is newest on this machine.
    if env_id in gymnasium.registry:
        return gymnasium.registry[env_id]
    raise ConfigError(
        f"unknown environment '{env_id}'; {_nearest(env_id, None)}; a class of your own is package.module:Class"
    )


def _nearest(name: str, module: ModuleType | None) -> str:
    """The three nearest of the module's environment classes, or of all registered ids."""
    members = {} if module is None else vars(module)
    classes = [
        known for known, value in members.items() if isinstance(value, type) and issubclass(value, gymnasium.Env)
    ]
    folded = {known.lower(): known for known in classes or gymnasium.registry}
    nearest = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.0)]
    return f"the nearest {'classes' if classes else 'ids'} are {', '.join(nearest)}"


def _import(name: str, module_name: str) -> ModuleType:
    # A console script has its own directory on sys.path, not the user's; last, so that nothing is shadowed.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"environment {name}: module '{module_name}' cannot be imported: {describe(error)}"
        ) from error


def _make_one(config: EnvironmentConfig, source: Registration | Callable[..., Any]) -> gymnasium.Env[Any, Any]:
    try:
        if isinstance(source, Registration):
            # The checker warns about style and costs time; the probe checks what training depends on.
            return gymnasium.make(source, **{"disable_env_checker": True, **config.kwargs})
        environment = source(**config.kwargs)
    except Exception as error:
        raise _cannot_be_made(config, source, error) from error
    if not isinstance(environment, gymnasium.Env):
        raise ConfigError(f"environment {config.id} made a {type(environment).__name__}, not a gymnasium.Env")
    return environment


def _cannot_be_made(
    config: EnvironmentConfig, source: Registration | Callable[..., Any], error: Exception
) -> ConfigError:
    if isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled) and isinstance(source, Registration):
        for module, extra in _EXTRAS.items():
            if str(source.entry_point).startswith(module):
                return MissingExtraError(f"what environment {config.id} needs", extra)
    return ConfigError(f"environment {config.id} cannot be made with kwargs {config.kwargs}: {describe(error)}")


def _make_own(config: EnvironmentConfig, source: Registration | Callable[..., Any], count: int) -> Made:
    entry_point = _vector_entry_point(source)
    if entry_point is None:
        raise _OwnUnsuitableError("it has no vector entry point")
    if config.kwargs.get("max_episode_steps") == -1:
        # gymnasium.make reads -1 as "no limit"; vector entry points take it for a limit.
        raise _OwnUnsuitableError("max_episode_steps: -1 is known to single environments only")
    vector: VectorEnv[Any, Any, Any]
    try:
        if isinstance(source, Registration):
            vector = gymnasium.make_vec(source, count, "vector_entry_point", **config.kwargs)
        else:
            vector = entry_point(num_envs=count, **config.kwargs)
    except (TypeError, gymnasium.error.Error) as error:
        raise _OwnUnsuitableError(
            f"its vector entry point refuses kwargs {config.kwargs}: {describe(error)}"
        ) from error
    except Exception as error:
        raise _cannot_be_made(config, source, error) from error
    try:
        _check_own(config, source, vector)
    except BaseException:
        vector.close()
        raise
    if isinstance(source, Registration):
        limit = config.kwargs.get("max_episode_steps", source.max_episode_steps)
        return Made(vector, "own", source.reward_threshold, limit)
    return _made(vector, "own", vector)


def _vector_entry_point(source: Any) -> Any:
    """What makes many at once, or None. A class's own, not an inherited one: that would step the parent's kind."""
    return source.vector_entry_point if "vector_entry_point" in getattr(source, "__dict__", {}) else None


def _made(vector: VectorEnv[Any, Any, Any], vectorization: Literal["own", "sync"], stated: Any) -> Made:
    """With the limits that `stated` has as attributes."""
    return Made(
        vector,
        vectorization,
        getattr(stated, "reward_threshold", None),
        getattr(stated, "max_episode_steps", None),
    )


def _check_own(
    config: EnvironmentConfig, source: Registration | Callable[..., Any], vector: VectorEnv[Any, Any, Any]
) -> None:
    mode = vector.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise _OwnUnsuitableError(f"its vector entry point resets in {mode}, not in {AutoresetMode.NEXT_STEP}")
    if config.vectorization == "own" or (isinstance(source, Registration) and source.entry_point is None):
        return
    single = _make_one(config, source)
    try:
        spaces = (single.observation_space, single.action_space)
    finally:
        single.close()
    if spaces != (vector.single_observation_space, vector.single_action_space):
        raise _OwnUnsuitableError("its vector entry point has other spaces than the single environment")


def _make_sync(config: EnvironmentConfig, source: Registration | Callable[..., Any], count: int) -> Made:
    vector: SyncVectorEnv[Any, Any]
    try:
        # copy=False: `spaces.observation_reader` copies.
        vector = SyncVectorEnv(
            [lambda: _make_one(config, source)] * count, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP
        )
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"environment {config.id} cannot be stepped as a vector: {describe(error)}") from error
    single = vector.envs[0]
    return _made(vector, "sync", single.unwrapped if single.spec is None else single.spec)
