"""Makes gymnasium environments from a name in the configuration: one of them, or a vector.

A name is a gymnasium id (`CartPole-v1`), a gymnasium id behind the module that registers it
(`package.module:Name-v0`), a class of one's own (`package.module:Class`), which is called with `environment.kwargs`, or
an id of the old gym (`gym:CartPole-v1`). Gymnasium wraps what is registered in its time limit; a class has the limits
that it implements, and may state them as the attributes `max_episode_steps` and `reward_threshold`. Its attribute
`vector_entry_point`, if it has one of its own, makes `num_envs` of them at once: a `VectorEnv` that states the same. An
address (`tcp://host:port`) is an environment on another machine: `remote/`.

Vectors run in NEXT_STEP autoreset: the step after an episode's end ignores its action and resets.
"""

import difflib
import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from types import FunctionType, ModuleType
from typing import Any, Literal, TypeVar

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, iterate

from distrl.config.curriculum import ParameterValue
from distrl.config.environment import EnvironmentConfig
from distrl.environments import adjusting, attributes, observation_spaces, old_gym
from distrl.environments.action_repeat import ActionRepeat
from distrl.environments.extras import OF_MODULE, OF_NAMESPACE
from distrl.environments.info_metrics import as_array, reported
from distrl.environments.remote import vector as remote_vector
from distrl.environments.remote.connection import is_remote
from distrl.errors import ConfigError, MissingExtraError, one_line, require
from distrl.types import Array
from distrl.user_classes import imported

Result = TypeVar("Result")

VALID = "distrl/valid"
"""In `info` of a step: bool [rows], `Step.valid`. By default a row is not valid right after its episode's end."""

_OF_ONE = {"observation_space": Space, "action_space": Space, "metadata": Mapping}
_OF_VECTOR = {
    "single_observation_space": Space,
    "single_action_space": Space,
    "metadata": Mapping,
    "num_envs": Integral,
}

IS_SUCCESS = "is_success"
"""In `info` of an episode's last step, in many environments: whether the episode reached what it was for."""


def success_alone(info: Any) -> dict[str, bool]:
    """Return an environment's info without all but `IS_SUCCESS`, if that is a single number or truth value there."""
    value = as_array(info.get(IS_SUCCESS)) if isinstance(info, Mapping) else np.asarray(None)
    return {IS_SUCCESS: bool(value)} if value.ndim == 0 and value.dtype.kind in "biuf" else {}


def info_in_use(info: Any, metrics: Collection[str], *, ended: bool) -> dict[str, Any]:
    """Return an environment's info without all but the numbers of `metrics` and, at an episode's end, `IS_SUCCESS`."""
    numbers: dict[str, Any] = reported(info, metrics) if metrics else {}
    return success_alone(info) | numbers if ended else numbers


def succeeded(infos: Mapping[str, Any], rows: int) -> Array | None:
    """Return `IS_SUCCESS` of a vector's infos; None if it is not there, or not one value for each row.

    Returns:
        object [rows]: True, False, or None of a row that does not say it. Gymnasium fills such rows with zeros, and
        tells them by a mask.
    """
    values = as_array(infos.get(IS_SUCCESS))
    if values.shape != (rows,) or values.dtype.kind not in "biufO":
        return None
    values = values.astype(np.bool_)
    said = np.asarray(infos.get(f"_{IS_SUCCESS}", np.ones(rows)), np.bool_)
    found = values.astype(np.object_)
    found[~said] = None
    return found


def number_of(reward: Any) -> float:
    """Return a reward as a number; raise ValueError if it is none, or an array."""
    if isinstance(reward, float):
        return reward
    array = as_array(reward)
    if array.ndim:
        raise ValueError(f"the reward has shape {array.shape}, it must be one number")
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise ValueError(f"the reward is a {type(reward).__name__}, it must be one number") from None


def flag_of(name: str, value: Any) -> bool:
    """Return whether an end of the episode is meant; raise ValueError if it is no single truth value.

    Every text but the empty one, NaN, and a list of one False are true to Python.

    Args:
        name: "terminated" or "truncated".
        value: True, false, a number, None, or one of these in an array or a list.
    """
    if value is None or isinstance(value, bool | np.bool_):
        return bool(value)
    array = as_array(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or np.isnan(array).any():
        shown = one_line(repr(value))[:60]
        raise ValueError(f"{name} is {shown}, it must be true or false")
    return bool(array.item())


@dataclass(frozen=True)
class Made:
    """A vector in NEXT_STEP autoreset, and the properties of a single environment.

    Attributes:
        vector: Its `num_envs` rows are environments, or agents of environments, as many of each; these state `VALID`.
            Takes one seed for all with vectorization `own`, and a list of one for each environment with any other.
        adjustable: Names of keyword arguments that `vector.adjust` can change in one environment, between its episodes.
        notices: What the user should know about the choice of this vector.
    """

    vector: VectorEnv[Any, Any, Any]
    vectorization: Literal["own", "sync", "async", "mujoco", "envpool", "ale"]
    reward_threshold: float | None
    max_episode_steps: int | None
    frames: int = 1  # as in `ArraySpec`, of its one observation
    adjustable: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


class CheckedSyncVector(SyncVectorEnv[Any, Any]):
    """SyncVectorEnv that looks at nothing in infos but what is in use, and checks what it is shown and paid.

    Gymnasium joins all of each row's info: it fails where two rows have arrays of different lengths, and rounds the
    numbers of all rows to whole ones if the first row's is an int. It wraps numbers beyond the observation space's
    dtype.

    Attributes:
        seen: Takes the newest value of every key of the infos of steps, after `watch_infos`; None: before.

    Raises:
        ValueError: In `reset` and `step`, with the path of the observation, or for a reward that is no number.
    """

    def __init__(self, metrics: Collection[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._metrics = metrics
        self.seen: dict[Any, Any] | None = None
        self._check_range = observation_spaces.range_check(self.single_observation_space)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._checked(super().reset, seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._checked(self._step, actions)

    def adjust(self, number: int, values: Mapping[str, ParameterValue]) -> None:
        """Set attributes of one environment, beneath its wrappers."""
        adjusting.adjust(self.envs[number], values)

    def _step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        infos: dict[str, Any] = {}
        for row, action in enumerate(iterate(self.action_space, actions)):
            try:
                kept = self._step_one(row, action)
            except (Exception, SystemExit) as error:
                raise observation_spaces.of_environment(error, row)  # noqa: B904 (the same exception)
            if kept is not None:
                infos = super()._add_info(infos, kept, row)
        self._observations = concatenate(self.single_observation_space, self._env_obs, self._observations)
        self._autoreset_envs = self._terminations | self._truncations
        results = (self._rewards.copy(), self._terminations.copy(), self._truncations.copy())
        return self._observations, *results, infos

    def _step_one(self, row: int, action: Any) -> dict[str, Any] | None:
        """Step one environment and return what is in use of its info, or reset it where its episode is over: None."""
        single = self.envs[row]
        if self._autoreset_envs[row]:
            self._env_obs[row], _ = single.reset()
            self._rewards[row], self._terminations[row], self._truncations[row] = 0.0, False, False
            return None
        self._env_obs[row], reward, terminated, truncated, info = single.step(action)
        ends = flag_of("terminated", terminated), flag_of("truncated", truncated)
        self._rewards[row], (self._terminations[row], self._truncations[row]) = number_of(reward), ends
        if self.seen is not None and isinstance(info, Mapping):
            self.seen.update(info)
        return info_in_use(info, self._metrics, ended=any(ends))

    def _add_info(self, vector_infos: dict[str, Any], env_info: Any, env_num: int) -> dict[str, Any]:
        """Leave out the info of a reset."""
        return vector_infos

    def _checked(self, call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        try:
            result = call(*arguments, **named)
        except Exception:
            # Gymnasium says that a shape is wrong, but not of which observation.
            observation_spaces.check_shapes(self.single_observation_space, self._env_obs)
            raise
        if self._check_range is not None:
            self._check_range(self._env_obs)
        return result


class _OwnUnsuitableError(Exception):
    """The environment's own vector entry point cannot serve this configuration; the message says why.

    Args:
        rows: Whether its rows may be agents, which single environments lack.
    """

    def __init__(self, reason: str, *, rows: bool = False) -> None:
        super().__init__(reason)
        self.rows = rows


def make_one(config: EnvironmentConfig) -> gymnasium.Env[Any, Any]:
    """Make a single environment.

    Raises:
        ConfigError: The name is unknown (the message has the nearest names) or the environment refuses its kwargs.
        MissingExtraError: It needs an optional dependency.
    """
    config.refuse_given_spaces()
    if is_remote(config.id):
        return remote_vector.make_one(config)
    return _make_one(config, _resolve(config.id))


def make_vector(config: EnvironmentConfig, count: int) -> Made:
    """Make `count` environments that step together in this process: vectorizations `own`, `sync` and `auto`.

    With vectorization `auto` the own vector entry point is taken only if it accepts the kwargs, resets in NEXT_STEP and
    has the spaces of the single environment, so that `auto` never changes what is learned; and never with a curriculum,
    which it could not follow. Where it is not taken, `Made.notices` says why.

    Errors are those of `make_one`; also ConfigError with `own` where there is no suitable vector entry point, and with
    `auto` where an unsuitable one may have several rows for each environment, which single environments lack.
    """
    source = _resolve(config.id)
    entry_point = _vector_entry_point(source)
    single = config.vectorization != "auto" or config.action_repeat > 1  # which no vector's own maker knows
    if config.vectorization != "own" and (single or entry_point is None):
        return sync_vector(config, source, count)
    try:
        return _make_own(config, source, count, entry_point)
    except _OwnUnsuitableError as error:
        is_own = config.vectorization == "own"
        if is_own or error.rows or _is_only_vector(source):
            what = "environment.vectorization: own is impossible" if is_own else "its own vector cannot be used"
            hint = "" if _is_only_vector(source) else "; use sync, which steps single environments"
            raise ConfigError(f"environment {config.id}: {what}: {error}{hint}") from error.__cause__
        notice = f"environment {config.id} is stepped by sync: its own vector cannot be used: {error}"
    return replace(sync_vector(config, source, count), notices=(notice,))


def declared(name: str) -> tuple[str, Mapping[str, Any]]:
    """Return the meaning of a name: module:class, and the kwargs that it is registered with; errors as `make_one`."""
    source = _resolve(name)
    if isinstance(source, Registration):
        return str(source.entry_point), source.kwargs
    return f"{source.__module__}:{getattr(source, '__qualname__', '')}", {}


def limits(env_id: str, single: gymnasium.Env[Any, Any], repeat: int = 1) -> tuple[float | None, int | None]:
    """Return (reward threshold, maximum decisions of an episode) of an environment; None where it states none.

    Args:
        repeat: Its steps for each decision.
    """
    source = single.spec if isinstance(single.spec, Registration) else single.unwrapped
    threshold, steps = attributes.stated(env_id, source)
    return threshold, None if steps is None else -(-steps // repeat)


class WorkerError(Exception):
    """An error of an environment in its own process, in one line; its traceback there is a note of this error."""


def describe(error: BaseException) -> str:
    """Return type and message of an exception in one line of at most 300 characters."""
    if isinstance(error, WorkerError):
        return str(error)
    return f"{type(error).__name__}: {one_line(error)}"[:300]


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Turn an exception of an environment into a ConfigError that begins with this message."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{message}: {describe(error)}") from error


def _resolve(name: str) -> Registration | Callable[..., Any]:
    """Return a gymnasium registration, or the class or function that makes the environment."""
    module_name, colon, attribute = name.rpartition(":")
    if not colon:
        _register_on_demand(name)
        return _registered(name)
    if name.startswith(old_gym.PREFIX):
        return old_gym.maker(name, _import)
    module = _import(name, module_name)
    if attribute in gymnasium.registry and not hasattr(module, attribute):
        # The module registered it: gymnasium's own "module:EnvId".
        return gymnasium.registry[attribute]
    if old_gym.is_registered(attribute) and not hasattr(module, attribute):
        return old_gym.maker(f"{old_gym.PREFIX}{attribute}", _import)
    made_by = getattr(module, attribute, None)
    if made_by is None:
        raise ConfigError(
            f"unknown environment '{name}': {module_name} has no class {attribute}; {_nearest(attribute, module)}"
        )
    return _maker(name, made_by)


def _maker(name: str, made_by: Any) -> Callable[..., Any]:
    """Return `made_by` if it is an environment's class, a function that may make one, or a partial of these.

    The result of a function is known only once it has been called. The standard library makes no environments, and
    has functions that run commands.

    Raises:
        ConfigError: It is something else; it was not called.
    """
    if isinstance(made_by, functools.partial):
        _maker(name, made_by.func)
        return made_by
    if isinstance(made_by, type):
        if issubclass(made_by, gymnasium.Env) or old_gym.is_old_class(made_by):
            return made_by
        what = f"class {made_by.__module__}.{made_by.__qualname__}"
    elif not isinstance(made_by, FunctionType):
        what = f"{type(made_by).__name__}"
    elif made_by.__module__.partition(".")[0] in sys.stdlib_module_names:
        what = f"function of Python's module {made_by.__module__}"
    else:
        return made_by
    raise ConfigError(
        f"environment {name} is a {what}; name a subclass of gymnasium.Env, or a function of your own that makes one"
    )


def _register_on_demand(name: str) -> None:
    for begin, namespace in OF_NAMESPACE.items():
        if name.startswith(begin):
            for module in namespace.modules:
                require(module, f"what environment {name} needs", namespace.extra)
            registering = _import(name, namespace.modules[-1])
            if namespace.register is not None and not any(known.startswith(begin) for known in gymnasium.registry):
                getattr(registering, namespace.register)()


def _registered(env_id: str) -> Registration:
    # Only exact ids: gymnasium would turn "CartPole" into whichever version is newest on this machine.
    if env_id in gymnasium.registry:
        return gymnasium.registry[env_id]
    raise ConfigError(
        f"unknown environment '{env_id}'; {_nearest(env_id, None)}; a class of your own is package.module:Class"
    )


def _nearest(name: str, module: ModuleType | None) -> str:
    """Return the three nearest of the module's environment classes, or of all registered ids."""
    members = {} if module is None else vars(module)
    classes = [
        known for known, value in members.items() if isinstance(value, type) and issubclass(value, gymnasium.Env)
    ]
    folded = {known.lower(): known for known in classes or gymnasium.registry}
    nearest = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.0)]
    return f"the nearest {'classes' if classes else 'ids'} are {', '.join(nearest)}"


def _import(name: str, module_name: str) -> ModuleType:
    old_gym.silence()  # the module may import it, as Shimmy does
    return imported(module_name, f"environment {name}")


def _make_one(config: EnvironmentConfig, source: Registration | Callable[..., Any]) -> gymnasium.Env[Any, Any]:
    try:
        if isinstance(source, Registration):
            # The checker warns about style and costs time; the probe checks what training depends on.
            environment: Any = gymnasium.make(source, **{"disable_env_checker": True, **config.kwargs})
        else:
            environment = source(**config.kwargs)
    except Exception as error:
        raise _cannot_be_made(config, source, error) from error
    if old_gym.is_old(environment):
        attributes.check(config.id, environment, {"metadata": Mapping})
        return old_gym.OldGym(config.id, environment)
    if not isinstance(environment, gymnasium.Env):
        raise ConfigError(f"environment {config.id} made a {type(environment).__name__}, not a gymnasium.Env")
    attributes.check(config.id, environment, _OF_ONE)
    return environment if config.action_repeat == 1 else ActionRepeat(environment, config.action_repeat)


def _cannot_be_made(
    config: EnvironmentConfig, source: Registration | Callable[..., Any], error: Exception
) -> ConfigError:
    if isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled) and isinstance(source, Registration):
        for module, extra in OF_MODULE.items():
            if str(source.entry_point).startswith(module):
                return MissingExtraError(f"what environment {config.id} needs", extra)
    return ConfigError(f"environment {config.id} cannot be made with kwargs {config.kwargs}: {describe(error)}")


def _make_own(
    config: EnvironmentConfig, source: Registration | Callable[..., Any], count: int, entry_point: Any
) -> Made:
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
        reason = f"it refuses kwargs {config.kwargs}: {describe(error)}"
        raise _OwnUnsuitableError(reason, rows=not _is_gymnasiums(entry_point)) from error
    except Exception as error:
        raise _cannot_be_made(config, source, error) from error
    if not isinstance(vector, VectorEnv):
        raise ConfigError(
            f"environment {config.id}: its vector entry point made a {type(vector).__name__}, no VectorEnv"
        )
    try:
        _check_own(config, source, vector, count)
    except BaseException:
        vector.close()
        raise
    if isinstance(source, Registration):
        threshold, limit = attributes.stated(config.id, source)
        return Made(vector, "own", threshold, config.kwargs.get("max_episode_steps", limit))
    return Made(vector, "own", *attributes.stated(config.id, vector))


def _vector_entry_point(source: Any) -> Any:
    """Return the class's own maker of vectors, or None; an inherited one would make the parent's environments."""
    return source.vector_entry_point if "vector_entry_point" in getattr(source, "__dict__", {}) else None


def _check_own(
    config: EnvironmentConfig, source: Registration | Callable[..., Any], vector: VectorEnv[Any, Any, Any], count: int
) -> None:
    attributes.check(config.id, vector, _OF_VECTOR)
    rows = vector.num_envs != count
    if config.curriculum and config.vectorization == "auto":
        raise _OwnUnsuitableError("it cannot follow environment.curriculum", rows=rows)
    mode = vector.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise _OwnUnsuitableError(
            f"its metadata['autoreset_mode'] is {mode}, and distrl needs {AutoresetMode.NEXT_STEP}: the step after an "
            "episode's end ignores its action and resets",
            rows=rows,
        )
    if config.vectorization == "own" or _is_only_vector(source):
        return
    single = _make_one(config, source)
    try:
        spaces = (single.observation_space, single.action_space)
    finally:
        single.close()
    if spaces != (vector.single_observation_space, vector.single_action_space):
        raise _OwnUnsuitableError("it has other spaces than the single environment", rows=rows)


def _is_only_vector(source: Registration | Callable[..., Any]) -> bool:
    return isinstance(source, Registration) and source.entry_point is None


def _is_gymnasiums(entry_point: Any) -> bool:
    """Return whether gymnasium made the vector, whose rows are environments and never agents."""
    return isinstance(entry_point, str) and entry_point.startswith("gymnasium.")


def sync_vector(config: EnvironmentConfig, source: Registration | Callable[..., Any], count: int) -> Made:
    """Make gymnasium's vector of `count` environments, which step one after the other."""
    with refused(f"environment {config.id} cannot be stepped as a vector"):
        # copy=False: `spaces.observation_reader` copies.
        vector = CheckedSyncVector(
            tuple(config.metrics),
            [lambda: _make_one(config, source)] * count,
            copy=False,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
    names = adjusting.adjustable(vector.envs[0], config.kwargs)
    return Made(vector, "sync", *limits(config.id, vector.envs[0], config.action_repeat), adjustable=names)
