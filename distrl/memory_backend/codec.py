"""Hop 4: an unroll or a version of the weights as bytes, and back with every array checked against the run's schema.

Checks run in the order of the ledger's drop reasons: `decode` (bytes), `schema` (names, dtypes, shapes, ranges,
agreement with the header), `nonfinite` (NaN or infinity). An unroll that leaves `decode_unroll` can be trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl import wire
from distrl.errors import DecodeError, NonFiniteUnrollError, SchemaError
from distrl.types import Array, ArraySpec, EnvSpec, Unroll, UnrollHeader, Weights

_GROUPS = ("observations", "recurrent_state")
_STEP_ARRAYS = {
    "actions": "int32",
    "rewards": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "valid": "bool",
    "behaviour_log_probabilities": "float32",
}
_EPISODE_ARRAYS = {"episode_returns": "float32", "episode_lengths_steps": "int32"}
_FIELDS = frozenset({*_GROUPS, *_STEP_ARRAYS, *_EPISODE_ARRAYS})


@dataclass(frozen=True)
class UnrollSchema:
    """What every unroll of a run must look like.

    Attributes:
        unroll_length_steps: T.
        environments: B, the environments of one actor.
        actions_n: A. Actions lie in 0 … A - 1.
        observations: name -> (dtype, shape [T+1, B, ...]).
        recurrent_state: name -> (dtype, shape [B, ...]); empty for feed-forward policies.
    """

    unroll_length_steps: int
    environments: int
    actions_n: int
    observations: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    recurrent_state: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]

    @staticmethod
    def of(
        spec: EnvSpec, unroll_length_steps: int, environments: int, recurrent_state: Mapping[str, ArraySpec]
    ) -> "UnrollSchema":
        """The schema of a run: T = `unroll_length_steps`, B = `environments`, arrays of `spec` and the policy."""
        rows = (unroll_length_steps + 1, environments)
        return UnrollSchema(
            unroll_length_steps=unroll_length_steps,
            environments=environments,
            actions_n=spec.action.n,
            observations={name: (np.dtype(of.dtype), (*rows, *of.shape)) for name, of in spec.observations.items()},
            recurrent_state={
                name: (np.dtype(of.dtype), (environments, *of.shape)) for name, of in recurrent_state.items()
            },
        )


def encode_unroll(unroll: Unroll) -> bytes:
    """The arrays of an unroll as bytes; its header travels as plain fields of the stream entry.

    Raises:
        TypeError: An array of a kind that has no encoding (objects, strings, structures).
    """
    return wire.pack({name: getattr(unroll, name) for name in (*_GROUPS, *_STEP_ARRAYS, *_EPISODE_ARRAYS)})


def decode_unroll(header: UnrollHeader, payload: bytes, schema: UnrollSchema) -> Unroll:
    """Decodes and checks; the arrays are read-only views of the decoded bytes.

    Raises:
        DecodeError: The bytes are not on the strict decoder's allow-list.
        SchemaError: Names, dtypes, shapes, action range or episode lengths differ from the run's, or `header.env_steps`
            is not the number of valid steps.
        NonFiniteUnrollError: NaN or infinity in floating observations, recurrent state, rewards, log-probabilities or
            episode returns.
    """
    tree = wire.unpack(payload)
    if not isinstance(tree, dict) or tree.keys() != _FIELDS:
        raise SchemaError(f"an unroll has the fields {sorted(_FIELDS)}, not {_names(tree)}")
    _check_group("observations", tree["observations"], schema.observations)
    _check_group("recurrent_state", tree["recurrent_state"], schema.recurrent_state)
    shape = (schema.unroll_length_steps, schema.environments)
    for name, dtype in _STEP_ARRAYS.items():
        _check_array(name, tree[name], dtype, shape)
    _check_episodes(tree["episode_returns"], tree["episode_lengths_steps"], shape[0] * shape[1])
    unroll = Unroll(header=header, **tree)  # exactly `_FIELDS`, checked above
    _check_values(unroll, schema.actions_n)
    _check_finite(unroll)
    return unroll


def encode_weights(weights: Weights) -> bytes:
    """One version of the weights as bytes; the order of the arrays is kept."""
    return wire.pack({"version": weights.version, "arrays": weights.arrays})


def decode_weights(blob: bytes) -> Weights:
    """The inverse of `encode_weights`; arrays are read-only views.

    Raises:
        DecodeError: `blob` is not an encoded version of weights.
    """
    tree = wire.unpack(blob)
    if not isinstance(tree, dict) or tree.keys() != {"version", "arrays"}:
        raise DecodeError(f"weights have the fields version and arrays, not {_names(tree)}")
    version, arrays = tree["version"], tree["arrays"]
    if type(version) is not int or version < 0:
        raise DecodeError(f"weights version must be a non-negative integer, not {str(version)[:50]}")
    if not isinstance(arrays, dict) or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise DecodeError("weights must be named arrays")
    return Weights(version, arrays)


def _names(tree: Any) -> str:
    return str(sorted(tree) if isinstance(tree, dict) else type(tree).__name__)[:200]


def _check_group(name: str, arrays: Any, expected: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
    if not isinstance(arrays, dict) or arrays.keys() != expected.keys():
        raise SchemaError(f"{name} must be {sorted(expected)}, not {_names(arrays)}")
    for key, (dtype, shape) in expected.items():
        _check_array(f"{name}/{key}", arrays[key], dtype, shape)


def _check_array(name: str, array: Any, dtype: np.dtype[Any] | str, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SchemaError(f"{name} must be {dtype} {shape}, not {found}")


def _check_episodes(returns: Any, lengths: Any, steps: int) -> None:
    for name, array in (("episode_returns", returns), ("episode_lengths_steps", lengths)):
        if not isinstance(array, np.ndarray) or array.dtype != _EPISODE_ARRAYS[name] or array.ndim != 1:
            raise SchemaError(f"{name} must be {_EPISODE_ARRAYS[name]} [E]")
    if len(returns) != len(lengths) or len(returns) > steps:
        raise SchemaError(f"{len(returns)} episode returns and {len(lengths)} lengths in {steps} steps")
    if lengths.size and lengths.min() < 1:
        raise SchemaError(f"episode_lengths_steps must be positive, not {lengths.min()}")


def _check_values(unroll: Unroll, actions_n: int) -> None:
    lowest, highest = int(unroll.actions.min()), int(unroll.actions.max())
    if lowest < 0 or highest >= actions_n:
        raise SchemaError(f"actions {lowest}…{highest} leave 0…{actions_n - 1}")
    valid_steps = int(np.count_nonzero(unroll.valid))
    if valid_steps != unroll.header.env_steps:
        raise SchemaError(f"the header says {unroll.header.env_steps} steps, {valid_steps} are valid")


def _check_finite(unroll: Unroll) -> None:
    named: list[tuple[str, Array]] = [
        ("rewards", unroll.rewards),
        ("behaviour_log_probabilities", unroll.behaviour_log_probabilities),
        ("episode_returns", unroll.episode_returns),
        *unroll.observations.items(),
        *unroll.recurrent_state.items(),
    ]
    for name, array in named:
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise NonFiniteUnrollError(f"{name} is not finite")
