"""Observations of a grid world's agent, and its pictures for people.

| state representation | space                        | what                                                     |
|----------------------|------------------------------|----------------------------------------------------------|
| discr                | Discrete(fields)             | the field's number, down the columns from the upper left |
| xy                   | Box float32 (2,)             | column and row, from 0                                   |
| cam                  | Box uint8 (rows, columns, 3) | one pixel per field, colours as in `COLOURS`             |

An agent that turns (`ftj`) must know where it faces: discr is then ``4 · field + orientation``, in
Discrete(4 · fields); xy has the direction as two more numbers, (0, -1) for up to (-1, 0) for left; and the camera
shows the agent in one of four colours.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from distrl.environments.worlds.grid_maps import FIRE, FREE, GOAL, HOLE, START, WALL, GridMap, Position

Image = NDArray[np.uint8]

DIRECTIONS = (Position(0, -1), Position(1, 0), Position(0, 1), Position(-1, 0))
"""By orientation, and by the action of an agent that does not turn: up, right, down, left."""

COLOURS: Mapping[str, tuple[int, int, int]] = {
    FREE: (224, 224, 224),
    START: (224, 224, 224),
    WALL: (96, 96, 96),
    HOLE: (0, 0, 0),
    FIRE: (255, 128, 0),
    GOAL: (0, 192, 0),
}
"""Field -> red, green, blue."""

AGENT_COLOURS = ((0, 0, 255), (0, 128, 255), (128, 0, 255), (0, 255, 255))
"""Colour of the agent by orientation; an agent that does not turn has the first."""

_AGENT_SIGNS = "^>v<"
_PIXELS_PER_FIELD = 32


class Pose(NamedTuple):
    """Where the agent is: `orientation` counts quarter turns to the right from up."""

    position: Position
    orientation: int = 0


class StateView(NamedTuple):
    """One state representation: the space of what the agent sees at a place, and the function that returns it."""

    space: Space[Any]
    observe: Callable[[Pose], Any]


def state_view(grid: GridMap, representation: str, *, turns: bool) -> StateView:
    """The representation of that name, of an agent that has an orientation if it `turns`."""
    makers = {"discr": _numbers, "xy": _coordinates, "cam": _camera}
    if representation not in makers:
        raise ValueError(f"there is no state representation '{representation}'; there are {', '.join(makers)}")
    return makers[representation](grid, turns)


def discrete_state(grid: GridMap, place: Pose, *, turns: bool) -> int:
    """The field's number, and with an orientation ``4 · number + orientation``."""
    number = grid.number(place.position)
    return 4 * number + place.orientation if turns else number


def place_of(grid: GridMap, state: int, *, turns: bool) -> Pose:
    """The inverse of `discrete_state`."""
    number, orientation = divmod(int(state), 4) if turns else (int(state), 0)
    return Pose(grid.position(number), orientation)


def camera_image(grid: GridMap, place: Pose) -> Image:
    """uint8 [rows, columns, 3], red first: one pixel per field, the agent's over its field's."""
    image = np.array([[COLOURS[field] for field in line] for line in grid.lines], np.uint8)
    image[place.position.y, place.position.x] = AGENT_COLOURS[place.orientation]
    return image


def large_image(grid: GridMap, place: Pose) -> Image:
    """The camera's image for people: uint8 [32 · rows, 32 · columns, 3]."""
    return camera_image(grid, place).repeat(_PIXELS_PER_FIELD, axis=0).repeat(_PIXELS_PER_FIELD, axis=1)


def text_image(grid: GridMap, place: Pose, *, turns: bool) -> str:
    """The map's rows, with the agent as X, or as an arrow where it has an orientation."""
    x, y = place.position
    sign = _AGENT_SIGNS[place.orientation] if turns else "X"
    lines = list(grid.lines)
    lines[y] = lines[y][:x] + sign + lines[y][x + 1 :]
    return "\n".join(lines)


def _numbers(grid: GridMap, turns: bool) -> StateView:
    count = grid.rows * grid.columns * (4 if turns else 1)
    return StateView(Discrete(count), lambda place: np.int64(discrete_state(grid, place, turns=turns)))


def _coordinates(grid: GridMap, turns: bool) -> StateView:
    low = [0, 0, *([-1, -1] if turns else [])]
    high = [grid.columns - 1, grid.rows - 1, *([1, 1] if turns else [])]

    def observe(place: Pose) -> NDArray[np.float32]:
        direction = DIRECTIONS[place.orientation] if turns else ()
        return np.array([*place.position, *direction], np.float32)

    return StateView(Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32), observe)


def _camera(grid: GridMap, turns: bool) -> StateView:
    return StateView(Box(0, 255, (grid.rows, grid.columns, 3), np.uint8), lambda place: camera_image(grid, place))
