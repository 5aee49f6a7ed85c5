"""The maps of the grid world: what is read, what is refused, and that every goal can be reached."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.environments.worlds.grid_maps import ENDS, MAPS, REWARDS, GridMap, Position

RIGHT, DOWN = Position(1, 0), Position(0, 1)


def shortest_way(grid: GridMap) -> int:
    """Steps from the start to the nearest goal, through no hole and no fire."""
    distances, queue = {grid.start: 0}, deque([grid.start])
    while queue:
        here = queue.popleft()
        if grid.at(here) in ENDS:
            return distances[here]
        for direction in (RIGHT, DOWN, Position(-1, 0), Position(0, -1)):
            there = grid.moved(here, direction, 1)
            if there not in distances and grid.at(there) not in "HF":
                distances[there] = distances[here] + 1
                queue.append(there)
    raise AssertionError("no way")


@pytest.mark.row("M06")
@pytest.mark.parametrize(
    ("name", "size", "way"),
    [
        ("chain", (1, 11), 5),
        ("2x2", (2, 2), 2),
        ("4x4", (4, 4), 6),
        ("8x8", (8, 8), 14),
        ("8x16", (8, 16), 28),
        ("16x16", (16, 16), 30),
    ],
)
@pytest.mark.parametrize("save_mode", [False, True])
def test_every_map_has_its_size_and_a_safe_way_to_the_goal(name, size, way, save_mode):
    grid = GridMap.of(name, save_mode=save_mode)
    assert (grid.rows, grid.columns) == size
    assert shortest_way(grid) == way
    assert set(MAPS) == {"chain", "2x2", "4x4", "8x8", "8x16", "16x16"}


@pytest.mark.row("M06", "T13")
def test_in_save_mode_holes_are_walls_and_fires_stay():
    """As the documentation that the row quotes says; the ancestor made fires of them."""
    own = ["S HF", "WHG "]
    assert GridMap.of(own, save_mode=True).lines == ("S WF", "WWG ")
    assert GridMap.of(own).lines == tuple(own)


def test_what_a_map_of_one_s_own_holds():
    grid = GridMap.of(["G W", "FSG"])
    assert (grid.start, grid.goals) == (Position(1, 1), (Position(0, 0), Position(2, 1)))
    assert [grid.at(Position(x, y)) for y in range(2) for x in range(3)] == list("G WFSG")
    assert {grid.at(Position(x, y)) for x, y in ((-1, 0), (0, -1), (3, 0), (0, 2))} == {"W"}


@pytest.mark.parametrize(
    ("world", "message"),
    [
        ("3x3", "no map '3x3'; there are chain, 2x2, 4x4, 8x8, 8x16, 16x16, or a list of rows"),
        ([], "the map is empty"),
        ([""], "the map is empty"),
        (["S G", "  "], "row 0 has 3, row 1 has 2"),
        (["S G", " x "], "row 1 of the map has 'x'"),
        ([" G"], "one S, where the agent starts; this one has 0"),
        (["SSG"], "one S, where the agent starts; this one has 2"),
        (["S H"], "a G, where the agent is to go; this one has none"),
    ],
)
def test_what_is_no_map_is_refused(world, message):
    with pytest.raises(ValueError, match=message):
        GridMap.of(world)


@pytest.mark.row("M07")
@given(name=st.sampled_from(sorted(MAPS)), data=st.data())
def test_numbers_and_positions_are_one_to_one_on_every_map(name, data):
    """Also where rows and columns differ: the ancestor's ``x · columns + y`` left the space of an 8x16 map."""
    grid = GridMap.of(name)
    count = grid.rows * grid.columns
    number = data.draw(st.integers(0, count - 1))
    assert grid.number(grid.position(number)) == number
    every = [grid.number(Position(x, y)) for x in range(grid.columns) for y in range(grid.rows)]
    assert every == list(range(count))


@pytest.mark.parametrize("number", [-1, 128])
def test_there_is_no_field_beyond_the_last(number):
    with pytest.raises(ValueError, match=f"no field {number} on a map of 128 fields"):
        GridMap.of("8x16").position(number)


def test_moves():
    grid = GridMap.of(["S WG", "H   "])
    start = grid.start
    assert grid.moved(start, RIGHT, 1) == (1, 0)
    assert grid.moved(start, RIGHT, 2) == start  # onto a wall
    assert grid.moved(Position(1, 0), RIGHT, 2) == (3, 0)  # over it
    assert grid.moved(start, DOWN, 1) == (0, 1)
    assert grid.moved(start, DOWN, 2) == start  # off the map
    assert grid.moved(start, DOWN, -1) == start


@pytest.mark.row("M06", "T13")
def test_the_rewards_of_every_field():
    """The row's own test (a step -1, the goal 1) decides between the ancestor's code and its documentation."""
    assert {name: [table[field] for field in "HFG S"] for name, table in REWARDS.items()} == {
        "sparse": [-5, -3, 1, -1, -1],
        "rich": [-10, -10, 50, -1, -1],
    }
