"""Gymnasium spaces as distrl's own: what is supported, how batched observations become arrays by name, and how such
arrays become the actions that a vector of environments takes.

| gymnasium                            | distrl                                                              |
|--------------------------------------|---------------------------------------------------------------------|
| **observations**                     |                                                                     |
| Box, any shape, numeric              | the array as it is                                                  |
| Discrete(n, start)                   | whole number (1,), counted from 0; one-hot only in the network      |
| MultiDiscrete(choices, start=starts) | whole numbers (k,), each counted from 0; likewise                   |
| MultiBinary(shape)                   | the array as it is, int8 of 0 and 1                                 |
| Text                                 | tokens int32 (length_tokens,) as `environment.text` says            |
| **actions**                          |                                                                     |
| Discrete(n, start)                   | int32 (), counted from 0; `start` is added on the way back          |
| MultiDiscrete(choices, start=starts) | int32 (k,), each counted from 0; arrays of choices travel flat      |
| MultiBinary(shape)                   | int32 (n,) of 0 and 1, flat                                         |
| Box, any shape, of real numbers      | float32 (n,), flat; cut to the bounds on the way back, as a         |
|                                      | Gaussian has none                                                   |
| **both**                             |                                                                     |
| Dict, Tuple, nested to any depth     | one array for each space inside that holds no others                |

An array's name is the path to it: keys of a Dict in gymnasium's order, which sorts them, and items of a Tuple by
index, joined by "/": `a`, `b/0`, `b/1/c`. What is neither Dict nor Tuple is named "observation" or "action". Names and
their order are the same everywhere: in the actor, on the wire, in the learner's batch, in the network and its bundle.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from gymnasium import Space
from gymnasium.spaces import Dict, Text, Tuple

from distrl.config.environment import TextParameters
from distrl.environments import action_spaces, observation_spaces
from distrl.errors import ConfigError
from distrl.types import Array, EnvSpec

OBSERVATION = "observation"
ACTION = "action"

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a space; empty for one that is in no other."""

Described = TypeVar("Described")


def env_spec(
    env_id: str,
    observation_space: Space[Any],
    action_space: Space[Any],
    reward_threshold: float | None,
    max_episode_steps: int | None,
    text: TextParameters | None = None,
) -> EnvSpec:
    """Describe one environment, whose spaces have no batch axis, without gymnasium.

    Raises:
        ConfigError: A space is not supported; the message names its path, the reason and what is supported. Or `text`
            is set and the environment shows none.
    """
    text_parameters = text or TextParameters()
    observed = _leaves(env_id, OBSERVATION, observation_space)
    if text_parameters != TextParameters() and not any(isinstance(space, Text) for _, space in observed):
        raise ConfigError(f"environment {env_id}: environment.text is set, but nothing that it shows is a Text")

    def array_spec(space: Space[Any]) -> Any:
        return observation_spaces.array_spec(space, text_parameters)

    return EnvSpec(
        id=env_id,
        observations=_described(env_id, OBSERVATION, observed, array_spec),
        actions=_described(env_id, ACTION, _leaves(env_id, ACTION, action_space), action_spaces.action_spec),
        reward_threshold=reward_threshold,
        max_episode_steps=max_episode_steps,
    )


def observation_reader(
    env_id: str, observation_space: Space[Any], count: int, text: TextParameters | None = None
) -> Callable[[Any], dict[str, Array]]:
    """Return the function from a vector environment's observations to fresh arrays, name -> [count, ...].

    The function takes what gymnasium's vector environments return: an array for a plain space, a tuple of str for a
    Text, and dicts and tuples of those. It raises ValueError, with the name, where that is not what the space says.
    """
    parameters = text or TextParameters()
    return _reader(
        *(env_id, OBSERVATION, observation_space),
        lambda space: observation_spaces.array_reader(space, parameters, count),
    )


def action_writer(env_id: str, action_space: Space[Any]) -> Callable[[Mapping[str, Array]], Any]:
    """Return the function from actions, name -> [B, ...] as `ActionSpec.array`, to the form a vector environment takes.

    That is an array [B, ...] for a plain space, and dicts and tuples of those: a sample of `batch_space(action_space)`
    but for its dtype. The arrays are fresh, so that an environment which writes into its action changes nothing else.
    """
    return _writer(env_id, ACTION, action_space, action_spaces.array_writer)


def observation_writer(env_id: str, observation_space: Space[Any]) -> Callable[[Mapping[str, Array]], Any]:
    """Return the inverse of `observation_reader`: from arrays, name -> [N, ...], to N observations.

    Raises:
        ConfigError: A space is a Text, of which tokens do not tell the words.
    """
    for path, space in _leaves(env_id, OBSERVATION, observation_space):
        if isinstance(space, Text):
            name = _name(OBSERVATION, path)
            raise ConfigError(f"environment {env_id}: observation '{name}' is text, and tokens do not tell its words")
    return _writer(env_id, OBSERVATION, observation_space, observation_spaces.array_writer)


def action_reader(env_id: str, action_space: Space[Any]) -> Callable[[Any], dict[str, Array]]:
    """Return the inverse of `action_writer`: from N actions as an environment takes them to arrays, name -> [N, ...].

    It raises ValueError, with the name, for what is not in the space.
    """
    return _reader(env_id, ACTION, action_space, action_spaces.array_reader)


def _writer(
    env_id: str, root: str, space: Space[Any], array_writer: Callable[[Space[Any]], Callable[[Array], Array]]
) -> Callable[[Mapping[str, Array]], Any]:
    """Return the function from arrays by name to nested dicts and tuples; `root` is OBSERVATION or ACTION."""
    _leaves(env_id, root, space)  # refuses what cannot be named

    def writer(path: Path, space: Space[Any]) -> Callable[[Mapping[str, Array]], Any]:
        if isinstance(space, Dict):
            by_key = {key: writer((*path, key), child) for key, child in space.spaces.items()}
            return lambda arrays: {key: write(arrays) for key, write in by_key.items()}
        if isinstance(space, Tuple):
            by_index = [writer((*path, index), child) for index, child in enumerate(space.spaces)]
            return lambda arrays: tuple(write(arrays) for write in by_index)
        name, write_array = _name(root, path), array_writer(space)
        return lambda arrays: write_array(arrays[name])

    return writer((), space)


def _reader(
    env_id: str, root: str, space: Space[Any], array_reader: Callable[[Space[Any]], Callable[[Any], Array]]
) -> Callable[[Any], dict[str, Array]]:
    """Return the function from nested dicts and tuples to arrays by name; `root` is OBSERVATION or ACTION."""
    leaves = [(_name(root, path), path, array_reader(leaf)) for path, leaf in _leaves(env_id, root, space)]

    def read(raw: Any) -> dict[str, Array]:
        arrays = {}
        for name, path, read_array in leaves:
            part = raw
            try:
                for key in path:
                    part = part[key]
                arrays[name] = read_array(part)
            except LookupError as error:
                raise ValueError(f"{root} '{name}' is missing") from error
            except (ValueError, TypeError) as error:
                raise ValueError(f"{root} '{name}': {error}") from error
        return arrays

    return read


def _leaves(env_id: str, root: str, space: Space[Any]) -> list[tuple[Path, Space[Any]]]:
    """(path, space) of every space that holds no others, in wire order; `root` is OBSERVATION or ACTION."""

    def visit(path: Path, space: Space[Any]) -> Iterator[tuple[Path, Space[Any]]]:
        if not isinstance(space, Dict | Tuple):
            yield path, space
            return
        children = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        if not space.spaces:
            raise _unsupported(env_id, root, path, f"it is an empty {type(space).__name__}")
        for key, child in children:
            # "/" separates the levels of a name.
            if isinstance(space, Dict) and (not isinstance(key, str) or not key or "/" in key):
                supported = "non-empty names without '/' are supported"
                raise _unsupported(env_id, root, (*path, key), f"its key is {key!r}", supported)
            yield from visit((*path, key), child)

    return list(visit((), space))


def _described(
    env_id: str, root: str, leaves: list[tuple[Path, Space[Any]]], describe: Callable[[Space[Any]], Described]
) -> dict[str, Described]:
    described = {}
    for path, space in leaves:
        try:
            described[_name(root, path)] = describe(space)
        except ValueError as error:
            raise _unsupported(env_id, root, path, str(error)) from error
    return described


def _name(root: str, path: Path) -> str:
    return "/".join(map(str, path)) or root


def _unsupported(env_id: str, root: str, path: Path, reason: str, supported: str | None = None) -> ConfigError:
    supported = supported or (observation_spaces if root == OBSERVATION else action_spaces).SUPPORTED
    where = "/".join(map(str, (root, *path)))
    return ConfigError(f"environment {env_id}: the space at '{where}' cannot be used: {reason}; {supported}")
