"""State representations: every state is in the space, no two are alike, colours are those of the table."""

import numpy as np
import pytest

from distrl.environments.worlds.grid_maps import MAPS, WALL, GridMap, Position
from distrl.environments.worlds.grid_views import (
    AGENT_COLOURS,
    COLOURS,
    DIRECTIONS,
    Pose,
    camera_image,
    discrete_state,
    large_image,
    place_of,
    state_view,
    text_image,
)


def places(grid: GridMap, turns: bool) -> list[Pose]:
    """Wherever the agent can be."""
    return [
        Pose(position, orientation)
        for number in range(grid.rows * grid.columns)
        if grid.at(position := grid.position(number)) != WALL
        for orientation in range(4 if turns else 1)
    ]


@pytest.mark.row("M07")
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("representation", ["discr", "xy", "cam"])
@pytest.mark.parametrize("name", sorted(MAPS))
def test_every_state_is_in_the_space_and_none_is_like_another(name, representation, turns):
    grid = GridMap.of(name)
    view = state_view(grid, representation, turns=turns)
    states = [view.observe(place) for place in places(grid, turns)]
    assert all(view.space.contains(state) for state in states)
    assert len({np.asarray(state).tobytes() for state in states}) == len(states)


@pytest.mark.row("M07", "T13")
def test_the_8x16_map_has_128_states_and_the_last_is_127():
    grid = GridMap.of("8x16")
    view = state_view(grid, "discr", turns=False)
    assert view.space.n == 128
    assert view.observe(Pose(Position(15, 7))) == 127
    assert view.observe(Pose(Position(0, 7))) == 7  # down the columns
    assert view.observe(Pose(Position(1, 0))) == 8


def test_numbers_with_an_orientation():
    grid = GridMap.of(["S ", " G", "  "])
    view = state_view(grid, "discr", turns=True)
    assert view.space.n == 24
    assert view.observe(Pose(Position(1, 2), 3)) == 4 * 5 + 3
    for state in range(24):
        assert discrete_state(grid, place_of(grid, state, turns=True), turns=True) == state
    assert place_of(grid, 5, turns=False) == Pose(Position(1, 2))


def test_coordinates():
    grid = GridMap.of("8x16")
    plain, turning = (state_view(grid, "xy", turns=turns) for turns in (False, True))
    assert plain.observe(Pose(Position(15, 7))).tolist() == [15, 7]
    assert (plain.space.low.tolist(), plain.space.high.tolist()) == ([0, 0], [15, 7])
    seen = [turning.observe(Pose(Position(2, 3), orientation)).tolist() for orientation in range(4)]
    assert seen == [[2, 3, 0, -1], [2, 3, 1, 0], [2, 3, 0, 1], [2, 3, -1, 0]]
    assert (turning.space.low.tolist(), turning.space.high.tolist()) == ([0, 0, -1, -1], [15, 7, 1, 1])
    assert [tuple(direction) for direction in DIRECTIONS] == [(0, -1), (1, 0), (0, 1), (-1, 0)]


@pytest.mark.row("M07")
def test_the_camera_s_colours():
    grid = GridMap.of(["S WH", "F G "])
    image = camera_image(grid, Pose(Position(1, 1)))
    assert (image.dtype, image.shape) == (np.uint8, (2, 4, 3))
    free, wall, hole, fire, goal = (COLOURS[field] for field in " WHFG")
    agent = (0, 0, 255)
    assert image.tolist() == [list(map(list, row)) for row in ((free, free, wall, hole), (fire, agent, goal, free))]
    assert (free, wall, hole, fire, goal) == ((224,) * 3, (96,) * 3, (0,) * 3, (255, 128, 0), (0, 192, 0))
    assert len({*COLOURS.values(), *AGENT_COLOURS}) == 5 + 4  # start and free look alike


def test_images_for_people():
    grid = GridMap.of(["S G", " W "])
    place = Pose(Position(1, 0), 3)
    large = large_image(grid, place)
    assert large.shape == (64, 96, 3)
    np.testing.assert_array_equal(large[::32, ::32], camera_image(grid, place))
    np.testing.assert_array_equal(large[31::32, 31::32], camera_image(grid, place))
    assert text_image(grid, place, turns=False) == "SXG\n W "
    assert text_image(grid, place, turns=True) == "S<G\n W "


def test_an_unknown_representation_is_refused():
    with pytest.raises(ValueError, match="no state representation 'camera'; there are discr, xy, cam"):
        state_view(GridMap.of("2x2"), "camera", turns=False)
