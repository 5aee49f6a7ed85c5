"""Hop 4: an unroll or a version of the weights as bytes, and back with every array checked against the run's schema.

Checks run in the order of the ledger's drop reasons: `decode` (bytes), `schema` (names, dtypes, shapes, ranges,
agreement with the header), `nonfinite` (NaN or infinity). An unroll that leaves `decode_unroll` can be trained on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distrl import wire
from distrl.errors import DecodeError, NonFiniteUnrollError, SchemaError
from distrl.memory_backend import narrow
from distrl.memory_backend.layouts import Layouts
from distrl.memory_backend.narrow import WireDtype
from distrl.types import (
    ActionSpec,
    Array,
    ArraySpec,
    DiscreteSpec,
    EnvSpec,
    MultiBinarySpec,
    MultiDiscreteSpec,
    Unroll,
    UnrollHeader,
    Weights,
)

_GROUPS = ("observations", "actions", "recurrent_state", "reward_moments")
_FLOAT, _BOOL = np.dtype("float32"), np.dtype("bool")
_STEP_ARRAYS = {
    "rewards": _FLOAT,
    "terminated": _BOOL,
    "truncated": _BOOL,
    "valid": _BOOL,
    "behaviour_log_probabilities": _FLOAT,
}
_EPISODE_ARRAYS = {"episode_returns": _FLOAT, "episode_lengths_steps": np.dtype("int32")}
_FIELDS = frozenset({*_GROUPS, *_STEP_ARRAYS, *_EPISODE_ARRAYS})
_PRIORITIES = "priorities"


Form = tuple[np.dtype[Any], tuple[int, ...]]
"""dtype and shape of an array."""

MOMENTS: Mapping[str, Form] = {name: (np.dtype("float64"), ()) for name in ("count", "mean", "squares")}
"""Of one number."""


@dataclass(frozen=True)
class UnrollSchema:
    """What every unroll of a run must look like.

    Attributes:
        unroll_length_steps: T.
        environments: B, the environments of one actor.
        observations: name -> (dtype, shape [T+1, B, ...], or [T+n, B, *one frame] for stacks of n frames).
        frames: name -> n; observations of one frame are not in it.
        actions: name -> (dtype, shape [T, B, ...]).
        highest_choices: name -> highest number of each choice, the lowest being 0; one for all where they are equal.
            Actions that are real numbers are not in it: they need only be finite.
        recurrent_state: name -> (dtype, shape [B, ...]); empty for feed-forward policies.
        reward_moments: `MOMENTS`; empty where rewards are not normalised.
        tells_priorities: Unrolls tell first priorities for the replay memory; otherwise they must not.
        layouts: Of the unrolls that were decoded.
    """

    unroll_length_steps: int
    environments: int
    observations: Mapping[str, Form]
    frames: Mapping[str, int]
    actions: Mapping[str, Form]
    highest_choices: Mapping[str, tuple[int, ...]]
    recurrent_state: Mapping[str, Form]
    reward_moments: Mapping[str, Form]
    tells_priorities: bool = False
    layouts: Layouts = field(default_factory=Layouts, compare=False, repr=False)

    @property
    def max_items(self) -> int:
        """For `wire.unpack`, of one unroll."""
        named = (self.observations, self.actions, self.recurrent_state, self.reward_moments)
        return wire.items_of(sum(map(len, named)) + len(_FIELDS))

    @staticmethod
    def of(
        spec: EnvSpec,
        unroll_length_steps: int,
        environments: int,
        recurrent_state: Mapping[str, ArraySpec],
        *,
        normalizes_rewards: bool = False,
        tells_priorities: bool = False,
    ) -> "UnrollSchema":
        """The schema of a run: T = `unroll_length_steps`, B = `environments`, arrays of `spec` and the policy."""
        actions = {name: action.array for name, action in spec.actions.items()}
        highest = {name: _highest_choices(action) for name, action in spec.actions.items()}
        return UnrollSchema(
            unroll_length_steps=unroll_length_steps,
            environments=environments,
            observations={
                name: (np.dtype(array.dtype), (unroll_length_steps + array.frames, environments, *array.frame_shape))
                for name, array in spec.observations.items()
            },
            frames=spec.frames,
            actions=_forms(actions, (unroll_length_steps, environments)),
            highest_choices={name: numbers for name, numbers in highest.items() if numbers},
            recurrent_state=_forms(recurrent_state, (environments,)),
            reward_moments=MOMENTS if normalizes_rewards else {},
            tells_priorities=tells_priorities,
        )


def encode_unroll(unroll: Unroll) -> bytes:
    """The arrays of an unroll as bytes; its header travels as plain fields of the stream entry.

    Raises:
        TypeError: An array of a kind that has no encoding (objects, strings, structures).
    """
    told = {name: getattr(unroll, name) for name in (*_GROUPS, *_STEP_ARRAYS, *_EPISODE_ARRAYS)}
    return wire.pack(told if unroll.priorities is None else {**told, _PRIORITIES: unroll.priorities})


def decode_unroll(header: UnrollHeader, payload: bytes, schema: UnrollSchema) -> Unroll:
    """Decodes and checks; the arrays are read-only views of the payload, or of copies.

    Raises:
        DecodeError: The bytes are not on the strict decoder's allow-list.
        SchemaError: Names, dtypes, shapes, range of choices or episode lengths differ from the run's, a priority is
            below 0, or `header.env_steps` is not the number of valid steps.
        NonFiniteUnrollError: NaN or infinity in floating observations, actions, recurrent state, rewards,
            log-probabilities, priorities, episode returns or moments.
    """
    tree = schema.layouts.unpack(payload, max_items=schema.max_items)
    fields = _FIELDS | {_PRIORITIES} if schema.tells_priorities else _FIELDS
    if not isinstance(tree, dict) or tree.keys() != fields:
        raise SchemaError(f"an unroll has the fields {sorted(fields)}, not {named(tree)}")
    check_group("observations", tree["observations"], schema.observations)
    check_group("actions", tree["actions"], schema.actions)
    check_group("recurrent_state", tree["recurrent_state"], schema.recurrent_state)
    check_reward_moments(tree["reward_moments"], schema.reward_moments, header)
    shape = (schema.unroll_length_steps, schema.environments)
    for name, dtype in _STEP_ARRAYS.items():
        _check_array(name, tree[name], dtype, shape)
    if schema.tells_priorities:
        _check_array(_PRIORITIES, tree[_PRIORITIES], _FLOAT, shape)
    check_episodes(tree["episode_returns"], tree["episode_lengths_steps"], shape[0] * shape[1])
    unroll = Unroll(header=header, **tree)  # exactly its fields, checked above
    _check_values(unroll, schema)
    _check_unroll_finite(unroll)
    return unroll


def encode_weights(weights: Weights, dtypes: Mapping[str, WireDtype] | None = None) -> bytes:
    """One version of the weights as bytes; the order of the arrays is kept.

    Args:
        dtypes: What float32 arrays travel as, by name; those that are not in it stay as they are.

    Raises:
        NonFiniteError: A weight is beyond its dtype.
    """
    wanted = dtypes or {}
    arrays = {name: narrow.narrowed(name, array, wanted.get(name, "float32")) for name, array in weights.arrays.items()}
    halves = {name: wanted[name] for name, array in weights.arrays.items() if arrays[name] is not array}
    return wire.pack({"version": weights.version, "arrays": arrays, "halves": halves})


def decode_weights(blob: bytes) -> Weights:
    """The inverse of `encode_weights`; what travelled in 16 bits is float32 again. Other arrays are read-only views.

    Raises:
        DecodeError: `blob` is not an encoded version of weights.
    """
    tree = wire.unpack(blob)
    if not isinstance(tree, dict) or tree.keys() != {"version", "arrays", "halves"}:
        raise DecodeError(f"weights have the fields version, arrays and halves, not {named(tree)}")
    version, arrays, halves = tree["version"], tree["arrays"], tree["halves"]
    if type(version) is not int or version < 0:
        raise DecodeError(
            f"weights version must be a non-negative integer, not {version if type(version) is int else named(version)}"
        )
    if not isinstance(arrays, dict) or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise DecodeError("weights must be named arrays")
    if not isinstance(halves, dict) or not halves.keys() <= arrays.keys():
        raise DecodeError("the 16-bit arrays of weights must be among their arrays")
    if not all(isinstance(dtype, str) for dtype in halves.values()):  # comparing an array with text gives an array
        raise DecodeError("the dtypes of 16-bit weights must be text")
    widened = {name: narrow.widened(name, arrays[name], dtype) for name, dtype in halves.items()}
    return Weights(version, {**arrays, **widened})


def _forms(specs: Mapping[str, ArraySpec], leading: tuple[int, ...]) -> dict[str, Form]:
    return {name: (np.dtype(spec.dtype), (*leading, *spec.shape)) for name, spec in specs.items()}


def _highest_choices(action: ActionSpec) -> tuple[int, ...]:
    """Highest number of each choice, counted from 0; empty for real numbers."""
    if isinstance(action, DiscreteSpec):
        return (action.n - 1,)
    if isinstance(action, MultiDiscreteSpec):
        return tuple(n - 1 for n in action.choices)
    return (1,) if isinstance(action, MultiBinarySpec) else ()


def named(tree: Any) -> str:
    """What a foreign tree turned out to be, short enough for a message."""
    return str(sorted(name[:200] for name in tree) if isinstance(tree, dict) else type(tree).__name__)[:200]


def check_group(name: str, arrays: Any, expected: Mapping[str, Form]) -> None:
    """Raises SchemaError unless `arrays` are exactly those expected, in dtype and shape."""
    if not isinstance(arrays, dict) or arrays.keys() != expected.keys():
        raise SchemaError(f"{name} must be {sorted(expected)}, not {named(arrays)}")
    for key, (dtype, shape) in expected.items():
        _check_array(f"{name}/{key}", arrays[key], dtype, shape)


def check_reward_moments(moments: Any, expected: Mapping[str, Form], header: UnrollHeader) -> None:
    """Raises SchemaError unless these can be moments of as many steps as the header says; NaN is left to others."""
    check_group("reward_moments", moments, expected)
    if not expected:
        return
    if moments["count"] != header.env_steps:
        raise SchemaError(f"reward_moments are of {moments['count']} steps, the header says {header.env_steps}")
    if moments["squares"] < 0.0:
        raise SchemaError("reward_moments/squares is below 0")


def _check_array(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SchemaError(f"{name} must be {dtype} {shape}, not {found}")


def check_episodes(returns: Any, lengths: Any, steps: int) -> None:
    """Raises SchemaError unless these are returns and lengths of episodes that can end within `steps` steps."""
    for name, array in (("episode_returns", returns), ("episode_lengths_steps", lengths)):
        if not isinstance(array, np.ndarray) or array.dtype != _EPISODE_ARRAYS[name] or array.ndim != 1:
            raise SchemaError(f"{name} must be {_EPISODE_ARRAYS[name]} [E]")
    if len(returns) != len(lengths) or len(returns) > steps:
        raise SchemaError(f"{len(returns)} episode returns and {len(lengths)} lengths in {steps} steps")
    if lengths.size and lengths.min() < 1:
        raise SchemaError(f"episode_lengths_steps must be positive, not {lengths.min()}")


def _check_values(unroll: Unroll, schema: UnrollSchema) -> None:
    for name, highest in schema.highest_choices.items():
        actions = unroll.actions[name]  # [T, B] or [T, B, n]
        # One by one only where the highest of all does not settle it: comparing takes three times as long.
        if actions.min() < 0 or (actions.max() > min(highest) and (actions > highest).any()):
            allowed = ", ".join(f"0…{number}" for number in highest)[:200]
            raise SchemaError(f"actions/{name} are {actions.min()}…{actions.max()}, allowed are {allowed}")
    if unroll.priorities is not None and (unroll.priorities < 0.0).any():  # NaN is left to others
        raise SchemaError(f"priorities must be at least 0, not {unroll.priorities.min()}")
    valid_steps = int(np.count_nonzero(unroll.valid))
    if valid_steps != unroll.header.env_steps:
        raise SchemaError(f"the header says {unroll.header.env_steps} steps, {valid_steps} are valid")


def _check_unroll_finite(unroll: Unroll) -> None:
    arrays: list[tuple[str, Array]] = [
        ("rewards", unroll.rewards),
        ("behaviour_log_probabilities", unroll.behaviour_log_probabilities),
        ("episode_returns", unroll.episode_returns),
        *((f"{group}/{name}", array) for group in _GROUPS for name, array in getattr(unroll, group).items()),
    ]
    if unroll.priorities is not None:
        arrays.append((_PRIORITIES, unroll.priorities))
    check_finite(arrays)


def check_finite(arrays: Iterable[tuple[str, Array]]) -> None:
    """Raises NonFiniteUnrollError at the first of the named arrays that holds NaN or infinity."""
    for name, array in arrays:
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise NonFiniteUnrollError(f"{name} is not finite")
