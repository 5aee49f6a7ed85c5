"""Conversion of an environment's own observations and actions, one or many at once, for serving a policy.

`environments/spaces.py` does the same for training, with gymnasium's spaces. Here an `EnvSpec` is enough, so that
serving needs neither gymnasium nor the environment.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distrl.errors import DistrlError
from distrl.types import ActionSpec, Array, ArraySpec, BoxSpec, DiscreteSpec, MultiBinarySpec, MultiDiscreteSpec, OneHot

OBSERVATION = "observation"
ACTION = "action"


def batched_arrays(observation: Any, specs: Mapping[str, ArraySpec]) -> tuple[dict[str, Array], bool]:
    """Return observations by name with a batch axis, in the dtypes of `specs`.

    Args:
        observation: An array where the environment shows one; a mapping or a sequence, nested as its spaces are, where
            it shows several; or a flat mapping of the names of `specs`. A Discrete or a MultiDiscrete is the whole
            numbers that the environment shows, or one-hot in real numbers.
        specs: The environment's own observations; categories as they travel, or one-hot as in earlier versions.

    Returns:
        arrays: name -> [B, ...]; B is 1 for a single observation.
        single: There was no batch axis.

    Raises:
        DistrlError: Something is missing, of another shape or not finite, or does not fit its dtype; names it.
    """
    arrays = {}
    for name, spec in specs.items():
        shown = _part(observation, name, len(specs))
        arrays[name] = _array(
            name, shown if spec.one_hot is None else _categories(name, shown, spec, spec.one_hot), spec
        )
    counts: set[int | None] = set()
    for name, spec in specs.items():
        shape = arrays[name].shape
        if shape == spec.shape:
            counts.add(None)
        elif shape[1:] == spec.shape and len(shape) == len(spec.shape) + 1 and shape[0] > 0:
            counts.add(shape[0])
        else:
            many = ", ".join(map(str, ("B", *spec.shape)))
            raise DistrlError(
                f"observation '{name}' has shape {shape}; the policy takes {spec.shape}, or ({many}) for B at once"
            )
    if len(counts) > 1:
        shapes = {name: array.shape for name, array in arrays.items()}
        raise DistrlError(f"observations differ in how many they are: {shapes}")
    if counts != {None}:
        return arrays, False
    return {name: array[np.newaxis] for name, array in arrays.items()}, True


def stacked_arrays(observations: Sequence[Any], specs: Mapping[str, ArraySpec]) -> dict[str, Array]:
    """Convert single observations to arrays with a batch axis, all at once.

    Args:
        observations: Each as of `batched_arrays`, without a batch axis.

    Raises:
        DistrlError: One of them, or all, do not fit.
    """
    stacks = {name: [_part(observation, name, len(specs)) for observation in observations] for name in specs}
    arrays, single = batched_arrays(stacks, specs)
    if single or any(len(array) != len(observations) for array in arrays.values()):
        raise DistrlError("the observations do not have the shapes of single ones")
    return arrays


def action_writer(specs: Mapping[str, ActionSpec]) -> Callable[[Mapping[str, Array], bool], Any]:
    """Return the function from actions, name -> [B, ...] as `ActionSpec.array`, to what `env.step` takes.

    Its second argument says whether to take the batch axis away. Choices are int64 counted from the space's own start,
    switches int8; numbers are cut to their bounds, and float32 unless a bound needs more. Several actions are nested by
    their names: what is named 0 … n - 1 is a tuple's, anything else a dict's. Choices that the environment has in an
    array of several axes come flat.
    """
    writers = {name: _writer(spec) for name, spec in specs.items()}

    def write(actions: Mapping[str, Array], single: bool) -> Any:
        arrays = {name: write_array(actions[name]) for name, write_array in writers.items()}
        if single:
            arrays = {name: array[0] for name, array in arrays.items()}
        return arrays[ACTION] if [*arrays] == [ACTION] else _nested(arrays)

    return write


def _part(observation: Any, name: str, count: int) -> Any:
    """Return the part of the observation at this path."""
    if isinstance(observation, Mapping) and name in observation:
        return observation[name]
    if count == 1 and name == OBSERVATION:
        return observation
    part = observation
    try:
        for key in name.split("/"):
            part = part[key] if isinstance(part, Mapping) else part[int(key)]
    except (LookupError, ValueError, TypeError) as error:
        raise DistrlError(f"observation '{name}' is missing") from error
    return part


def _categories(name: str, shown: Any, spec: ArraySpec, space: OneHot) -> Any:
    """Return whole numbers [...] of the space, [B, ...] of them, or one-hot rows [B, width], as `spec` says.

    What is none of these is returned as it is where `spec` is one-hot, and refused otherwise.
    """
    try:
        given = np.asarray(shown)
    except ValueError:
        return shown  # refused with its reason as any other array
    batch = given.shape[: given.ndim - len(space.shape)]
    if given.dtype.kind in "iu" and len(batch) <= 1 and given.shape == (*batch, *space.shape):
        numbers = given.astype(np.int64).reshape(*batch, len(space.choices)) - np.array(space.starts, np.int64)
        if (numbers < 0).any() or (numbers >= np.array(space.choices, np.int64)).any():
            bounds = dict.fromkeys(f"{low} … {low + n - 1}" for low, n in zip(space.starts, space.choices, strict=True))
            raise DistrlError(f"observation '{name}' is {given.tolist()}; the environment shows {', '.join(bounds)}")
        return space.rows(numbers) if spec.categories is None else numbers
    if spec.categories is None:
        return shown
    if given.dtype.kind == "f" and given.ndim in (1, 2) and given.shape[-1] == space.width:
        parts = np.split(given, np.cumsum(space.choices)[:-1], axis=-1)
        numbers = np.stack([part.argmax(axis=-1) for part in parts], axis=-1)
        if np.array_equal(space.rows(numbers), given):
            return numbers
    many = ", ".join(map(str, ("B", *space.shape)))
    raise DistrlError(
        f"observation '{name}' is {given.dtype} {given.shape}; the policy takes whole numbers {space.shape}, "
        f"or ({many}) for B at once, or one-hot rows of {space.width} real numbers"
    )


def _array(name: str, value: Any, spec: ArraySpec) -> Array:
    dtype = np.dtype(spec.dtype)
    try:
        given = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise DistrlError(f"observation '{name}' is no array: {error}") from error
    if given.dtype.kind not in "biuf" or (dtype.kind != "f" and given.dtype.kind == "f"):
        raise DistrlError(f"observation '{name}' is {given.dtype}, the policy takes {dtype}")
    if dtype.kind in "iu" and given.size:
        limits = np.iinfo(dtype.name)
        if given.min() < limits.min or given.max() > limits.max:
            raise DistrlError(f"observation '{name}' holds {given.min()} … {given.max()}, which {dtype} cannot")
    with np.errstate(over="ignore"):  # it is an error below
        array: Array = given.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise DistrlError(f"observation '{name}' is not finite")
    return array


def _writer(spec: ActionSpec) -> Callable[[Array], Array]:
    match spec:
        case DiscreteSpec():
            return lambda actions: actions.astype(np.int64) + spec.start
        case MultiDiscreteSpec():
            shape = (len(spec.choices),) if spec.shape is None else spec.shape
            starts = np.array(spec.starts, np.int64)
            return lambda actions: (actions.astype(np.int64) + starts).reshape(len(actions), *shape)
        case MultiBinarySpec():
            return lambda actions: actions.astype(np.int8).reshape(len(actions), *spec.shape)
        case BoxSpec():
            return _box_writer(spec)


def _box_writer(spec: BoxSpec) -> Callable[[Array], Array]:
    low = np.array([-math.inf if bound is None else bound for bound in spec.low])
    high = np.array([math.inf if bound is None else bound for bound in spec.high])
    exact = all(np.array_equal(bounds, bounds.astype(np.float32)) for bounds in (low, high))
    dtype = np.float32 if exact else np.float64
    return lambda actions: np.clip(actions, low, high).astype(dtype).reshape(len(actions), *spec.shape)


def _nested(arrays: Mapping[str, Any]) -> Any:
    """{"a": x, "b/0": y, "b/1": z} -> {"a": x, "b": (y, z)}."""
    children: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        first, _, rest = name.partition("/")
        children.setdefault(first, {})[rest] = array
    tree = {key: below[""] if [*below] == [""] else _nested(below) for key, below in children.items()}
    indices = [str(index) for index in range(len(tree))]
    return tuple(tree[index] for index in indices) if sorted(tree) == sorted(indices) else tree
