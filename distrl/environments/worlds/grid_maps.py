"""Maps of the grid world: its fields, their rewards, and the maps that come with distrl.

| letter | field | what happens there                                                        |
|--------|-------|---------------------------------------------------------------------------|
| S      | start | as free; the agent starts here                                            |
| space  | free  | nothing                                                                   |
| W      | wall  | cannot be entered: an agent that walks into it, or off the map, stays     |
| H      | hole  | ends the episode; in save-mode every hole is a wall instead               |
| F      | fire  | costs, and the episode goes on                                            |
| G      | goal  | ends the episode                                                          |

A step pays for the field on which it ends, also where the agent has not moved:

| reward function | hole | fire | goal | free or start |
|-----------------|------|------|------|---------------|
| sparse          |   -5 |   -3 |    1 |            -1 |
| rich            |  -10 |  -10 |   50 |            -1 |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

START, FREE, WALL, HOLE, FIRE, GOAL = "S WHFG"
ENDS = frozenset({HOLE, GOAL})

REWARDS: Mapping[str, Mapping[str, float]] = {
    "sparse": {HOLE: -5.0, FIRE: -3.0, GOAL: 1.0, FREE: -1.0, START: -1.0},
    "rich": {HOLE: -10.0, FIRE: -10.0, GOAL: 50.0, FREE: -1.0, START: -1.0},
}

MAPS: Mapping[str, tuple[str, ...]] = {
    "chain": ("G    S F  G",),
    "2x2": (
        "SH",
        " G",
    ),
    "4x4": (
        "S  H",
        " H  ",
        "   H",
        "HF G",
    ),
    "8x8": (
        "S    F  ",
        "  H     ",
        "    WWW ",
        " H  W   ",
        "    W H ",
        "FF  W   ",
        " H    H ",
        "   H   G",
    ),
    "8x16": (
        "S    W    H     ",
        "  H  W  F   WW  ",
        "     W    H  W  ",
        "WW      F    W  ",
        "   H W  F  H W H",
        "     W       W  ",
        " F H WWWW WWWW  ",
        "   H        H  G",
    ),
    "16x16": (
        "S     H   W     ",
        "   W      W  H  ",
        "   W  F         ",
        " H W  F   W     ",
        "   WWWWWW W  FF ",
        "        W W     ",
        "  FF    W WWWW  ",
        "     H       W  ",
        "WWW  WWWWWW  W H",
        "       H  W     ",
        "  H       W  H  ",
        "     FF        F",
        " WWWWWWWW WWWW  ",
        "     H    W     ",
        "  H    F     HW ",
        "    H     F   WG",
    ),
}


class Position(NamedTuple):
    """A field: `x` columns from the left, `y` rows from the top, both from 0."""

    x: int
    y: int


@dataclass(frozen=True)
class GridMap:
    """A map that has been checked.

    Attributes:
        lines: The rows, top to bottom, all of one length.
        start: Where the letter S stands.
        goals: Every goal, at least one.
    """

    lines: tuple[str, ...]
    start: Position
    goals: tuple[Position, ...]

    @classmethod
    def of(cls, world: str | Sequence[str], *, save_mode: bool = False) -> "GridMap":
        """Read the map of that name in `MAPS`, or its rows; in `save_mode` every hole becomes a wall.

        Raises:
            ValueError: There is no map of that name, or the rows are not a map; the message says why.
        """
        if isinstance(world, str):
            if world not in MAPS:
                raise ValueError(f"there is no map '{world}'; there are {', '.join(MAPS)}, or a list of rows")
            world = MAPS[world]
        lines = tuple(world)
        _check(lines)
        if save_mode:
            lines = tuple(line.replace(HOLE, WALL) for line in lines)
        places = {
            letter: tuple(
                Position(x, y) for y, line in enumerate(lines) for x, field in enumerate(line) if field == letter
            )
            for letter in (START, GOAL)
        }
        if len(places[START]) != 1:
            raise ValueError(f"a map has one S, where the agent starts; this one has {len(places[START])}")
        if not places[GOAL]:
            raise ValueError("a map has a G, where the agent is to go; this one has none")
        return cls(lines, places[START][0], places[GOAL])

    @property
    def rows(self) -> int:
        return len(self.lines)

    @property
    def columns(self) -> int:
        return len(self.lines[0])

    def at(self, position: Position) -> str:
        """The field's letter; beyond the map's edge all is wall."""
        if 0 <= position.x < self.columns and 0 <= position.y < self.rows:
            return self.lines[position.y][position.x]
        return WALL

    def number(self, position: Position) -> int:
        """The field's number; fields are numbered down the columns: 0 is the upper left one, 1 the one below it."""
        return position.x * self.rows + position.y

    def position(self, number: int) -> Position:
        """The inverse of `number`."""
        if not 0 <= number < self.rows * self.columns:
            raise ValueError(f"there is no field {number} on a map of {self.rows * self.columns} fields")
        return Position(*divmod(int(number), self.rows))

    def moved(self, position: Position, direction: Position, fields: int) -> Position:
        """So many fields ahead, whatever lies between; the same place if that is a wall or off the map."""
        ahead = Position(position.x + fields * direction.x, position.y + fields * direction.y)
        return position if self.at(ahead) == WALL else ahead


def _check(lines: tuple[str, ...]) -> None:
    if not lines or not lines[0]:
        raise ValueError("the map is empty")
    for row, line in enumerate(lines):
        if len(line) != len(lines[0]):
            raise ValueError(f"all rows of a map have one length; row 0 has {len(lines[0])}, row {row} has {len(line)}")
        if odd := sorted(set(line) - set(REWARDS["sparse"]) - {WALL}):
            raise ValueError(f"row {row} of the map has {odd[0]!r}; fields are S, space, W, H, F and G")
