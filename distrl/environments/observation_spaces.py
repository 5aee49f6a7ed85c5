"""Simple observation spaces: the array that travels, and how observations are read and checked."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from distrl.config.environment import TextParameters
from distrl.environments.text import text_reader
from distrl.types import Array, ArraySpec, OneHot

MOST_CHOICES = 2**24
"""Most choices of one observation: below it float32, in which networks compare them, holds every whole number."""

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Text, and Dict and Tuple of those at any depth are supported"

_NUMBER = "_distrl_environment"
"""Attribute of an exception: not a name that an exception of the user's has for something else."""

Reader = Callable[[Any], Array]

Failed = TypeVar("Failed", bound=BaseException)


def array_spec(space: Space[Any], text: TextParameters) -> ArraySpec:
    """Return the spec of the array that an observation of this space becomes."""
    match space:
        case Discrete():
            return _categories(OneHot((), (int(space.n),), (int(space.start),)))
        case MultiDiscrete() if space.nvec.size > 0:
            choices, starts = (tuple(map(int, array.flat)) for array in (space.nvec, space.start))
            return _categories(OneHot(tuple(map(int, space.shape)), choices, starts))
        case MultiBinary():
            return ArraySpec(tuple(map(int, space.shape)), space.dtype.name, 0.0, 1.0)
        case Text():
            highest = float(text.vocabulary - 1)
            return ArraySpec((text.length_tokens,), "int32", 0.0, highest, vocabulary=text.vocabulary)
        case Box() if 0 not in space.shape:
            return ArraySpec(tuple(map(int, space.shape)), space.dtype.name, _uniform(space.low), _uniform(space.high))
        case Box() | MultiDiscrete():
            raise ValueError(f"its shape {space.shape} holds no number")
    raise ValueError(f"it is a {type(space).__name__}")


def _categories(shown: OneHot) -> ArraySpec:
    """Return the spec of whole numbers [k], in the smallest dtype that holds the highest of them."""
    check_choices(shown.width)
    highest = max(shown.choices) - 1
    dtype = next(name for name in ("uint8", "uint16", "int32") if highest <= np.iinfo(name).max)
    return ArraySpec((len(shown.choices),), dtype, 0.0, float(highest), one_hot=shown)


def check_choices(number: int) -> None:
    """Raise ValueError if a space has more choices than a network can take or give."""
    if number > MOST_CHOICES:
        raise ValueError(f"its {number:,} choices are more than the {MOST_CHOICES:,} that a network takes one-hot")


def array_reader(space: Space[Any], text: TextParameters, count: int) -> Reader:
    """Return the function from the observations of `count` rows to a fresh array [count, ...] as `array_spec` says.

    Fresh, because vector environments may write the next step into the buffer that they returned. It raises ValueError,
    as NumPy does, or TypeError where it is given what the space cannot hold: another shape, numbers that would be cut
    to fit the dtype, or a choice out of range. Bounds of a Box are not checked: many environments leave them.
    """
    if isinstance(space, Text):
        return text_reader(text, count)
    if isinstance(space, Discrete):
        return _category_reader(space, np.array([space.n], np.int64), np.array([space.start], np.int64), (count,))
    if isinstance(space, MultiDiscrete):
        # int64: what is unsigned cannot be below its start
        choices, starts = (array.ravel().astype(np.int64) for array in (space.nvec, space.start))
        return _category_reader(space, choices, starts, (count, *space.shape))
    as_declared = _plain_reader(space, (count, *_shape(space)))
    if isinstance(space, Box):
        return as_declared

    def switches(raw: Any) -> Array:
        array = as_declared(raw)
        if array.min() < 0 or array.max() > 1:
            raise ValueError(f"{array} lies outside {space}")
        return array

    return switches


def array_writer(space: Space[Any]) -> Callable[[Array], Array]:
    """Return the inverse of `array_reader`, but for Text: from arrays [N, ...] to [N, *space.shape] of its dtype."""
    dtype, shape, start = space.dtype, _shape(space), getattr(space, "start", None)

    def write(arrays: Array) -> Array:
        shaped = arrays.reshape(len(arrays), *shape)
        return shaped.astype(dtype) if start is None else np.add(shaped, start, dtype=dtype, casting="unsafe")

    return write


def check_range(what: str, dtype: np.dtype[Any], given: Array) -> None:
    """Raise ValueError if whole numbers do not fit this dtype; as int8, 300 would silently become 44."""
    if dtype.kind not in "iu" or given.dtype == dtype or np.can_cast(given.dtype, dtype):
        return
    limits = np.iinfo(cast("Any", dtype))
    if given.size and (given.min() < limits.min or given.max() > limits.max):
        raise ValueError(f"{what} holds {given.min()} … {given.max()}, which {dtype} of its space cannot")


def check_observation(path: str, space: Space[Any], observation: Any) -> None:
    """Check one observation: gymnasium would broadcast one number over a whole array, and wrap 300 to a byte."""
    for name, dtype, given in _checked_shapes(path, space, observation):
        if not np.can_cast(given.dtype, dtype, "same_kind"):
            raise ValueError(f"'{name}' is {given.dtype}, its space says {dtype}")
        check_range(f"'{name}'", dtype, given)


def check_shapes(space: Space[Any], shown: Sequence[Any]) -> None:
    """Check the shapes of what each environment shows; None: it has shown nothing yet."""
    for number, observation in enumerate(shown):
        try:
            for _ in () if observation is None else _checked_shapes("observation", space, observation):
                pass
        except ValueError as error:
            raise of_environment(error, number) from None


def _checked_shapes(path: str, space: Space[Any], observation: Any) -> Iterator[tuple[str, np.dtype[Any], Array]]:
    """Yield (path, dtype of the space, array) of each array; raise ValueError as `check_observation`."""
    if isinstance(space, Dict | Tuple):
        for key, part in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
            try:
                inside = observation[key]
            except (LookupError, TypeError) as error:
                raise ValueError(f"'{path}/{key}' is missing") from error
            yield from _checked_shapes(f"{path}/{key}", part, inside)
    elif space.dtype is not None and space.shape is not None and not np.issubdtype(space.dtype, np.str_):
        given = np.asarray(observation)
        if given.shape != space.shape:
            raise ValueError(f"'{path}' has shape {given.shape}, its space says {space.shape}")
        yield path, space.dtype, given


def of_environment(error: Failed, number: int) -> Failed:
    """Add the environment's index in its vector to the exception, for `environment_of`."""
    object.__setattr__(error, _NUMBER, number)  # an exception of the user's may be a frozen dataclass
    return error


def environment_of(error: BaseException) -> int | None:
    """Return the index that `of_environment` added to the exception, or None."""
    number: int | None = vars(error).get(_NUMBER)
    return number


def range_check(space: Space[Any]) -> Callable[[Sequence[Any]], None] | None:
    """Return the function that takes each row's observation, and raises as `check_range`; None: nothing to check.

    It costs an attribute each where they show arrays in the space's own dtype.
    """
    leaves = list(_whole_numbers((), space))
    if not leaves:
        return None

    def check(shown: Sequence[Any]) -> None:
        for path, dtype in leaves:
            for number, part in enumerate(shown):
                for key in path:
                    part = part[key]
                if getattr(part, "dtype", None) is not dtype:
                    name = f"'{'/'.join(map(str, ('observation', *path)))}'"
                    try:
                        check_range(name, dtype, np.asarray(part))
                    except ValueError as error:
                        raise of_environment(error, number) from None

    return check


def _whole_numbers(path: tuple[Any, ...], space: Space[Any]) -> Iterator[tuple[tuple[Any, ...], np.dtype[Any]]]:
    """Yield (path, dtype) of each space whose observations are arrays of whole numbers."""
    if isinstance(space, Dict | Tuple):
        for key, child in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
            yield from _whole_numbers((*path, key), child)
    elif isinstance(space, Box | MultiBinary | MultiDiscrete) and space.dtype is not None and space.dtype.kind in "iu":
        yield path, space.dtype


def _plain_reader(space: Space[Any], shape: tuple[int, ...]) -> Reader:
    """Read arrays of this shape in the space's dtype."""
    dtype = space.dtype
    assert dtype is not None

    def read(raw: Any) -> Array:
        if getattr(raw, "dtype", None) is dtype:
            array: Array = raw.copy("K")  # what follows takes twice as long
        else:
            # same_kind: 0.5 would silently be 0 in a space of whole numbers.
            given = np.asarray(raw)
            array = given.astype(dtype, casting="same_kind")
            check_range("it", dtype, given)
        if array.shape != shape:
            raise ValueError(f"its shape is {array.shape}, the space of {shape[0]} environments says {shape}")
        return array

    return read


def _category_reader(space: Space[Any], choices: Array, starts: Array, shape: tuple[int, ...]) -> Reader:
    """Read whole numbers [count, ...], the k-th of them in starts[k] … starts[k] + choices[k] - 1.

    Each is counted from 0: [count, k] in the dtype of `array_spec`.
    """
    dtype = array_spec(space, TextParameters()).dtype

    def read(raw: Any) -> Array:
        given = np.asarray(raw)
        if given.shape != shape:
            raise ValueError(f"its shape is {given.shape}, the space of {shape[0]} environments says {shape}")
        if given.dtype.kind not in "iu":
            raise ValueError(f"{given.dtype} is no kind of whole numbers, which {space} takes")
        # [count, ...] -> [count, k]
        numbers = given.reshape(shape[0], -1).astype(np.int64) - starts
        if (numbers < 0).any() or (numbers >= choices).any():
            raise ValueError(f"{given} lies outside {space}")
        array: Array = numbers.astype(dtype)
        return array

    return read


def _shape(space: Space[Any]) -> tuple[int, ...]:
    return tuple(map(int, space.shape or ()))


def _uniform(bounds: Array) -> float | None:
    """Return the one finite value that all bounds share, or None."""
    first = bounds.flat[0]
    return float(first) if np.isfinite(first) and bool(np.all(bounds == first)) else None
