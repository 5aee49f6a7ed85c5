"""GridWorld: find the goal on a map of fields, by steps in four directions or by walking, turning and jumping.

    distrl train --env distrl.environments.worlds.grid_world:GridWorld \\
        --set 'environment.kwargs={world: 8x8, save_mode: true}'

Fields, rewards and maps are described in `grid_maps`, state representations and colours in `grid_views`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
from gymnasium.spaces import Dict, Discrete

from distrl.environments.worlds.grid_maps import ENDS, FIRE, FREE, REWARDS, START, GridMap, Position
from distrl.environments.worlds.grid_views import (
    DIRECTIONS,
    Image,
    Pose,
    discrete_state,
    large_image,
    place_of,
    state_view,
    text_image,
)


class GridWorld(gymnasium.Env[Any, Any]):
    """A deterministic maze. An episode terminates on a goal or in a hole, and is truncated at `max_episode_steps`.

    Actions are one of two kinds:

    - ``udlr``: Discrete(4): 0 up, 1 right, 2 down, 3 left
    - ``ftj``: Dict of `turn` in -1 (left), 0, 1 (right), then `forward` in -1 (backward), 0, 1, unless `jump` is 1: a
      jump goes two fields ahead, whatever lies between, and nowhere if it cannot land. The agent starts facing up.

    Args:
        world: The name of a map (chain, 2x2, 4x4, 8x8, 8x16, 16x16), or the rows of one's own.
        save_mode: Holes are walls.
        reward_function: The table of that name in `grid_maps`.
        state_representation: The space of that name in `grid_views`.
        action_type: Which actions.
        randomize_start: Episodes start on any free field, facing anywhere, instead of on the S facing up.
        max_episode_steps: None: there is no limit.
        render_mode: What `render` returns: an image, or text.
    """

    # No ClassVar: gymnasium declares it without.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        world: str | Sequence[str] = "4x4",
        save_mode: bool = False,
        reward_function: Literal["sparse", "rich"] = "sparse",
        state_representation: Literal["discr", "xy", "cam"] = "discr",
        action_type: Literal["udlr", "ftj"] = "udlr",
        randomize_start: bool = False,
        max_episode_steps: int | None = 200,
        render_mode: Literal["rgb_array", "ansi"] | None = None,
    ) -> None:
        for value, known in ((reward_function, REWARDS), (action_type, ("udlr", "ftj")), (render_mode, _RENDERED)):
            if value not in known:
                raise ValueError(f"there is no '{value}'; there are {', '.join(map(str, known))}")
        self.grid = GridMap.of(world, save_mode=save_mode)
        self.render_mode = render_mode
        self.max_episode_steps = max_episode_steps
        self._rewards = REWARDS[reward_function]
        self._turns = action_type == "ftj"
        self._view = state_view(self.grid, state_representation, turns=self._turns)
        self.observation_space = self._view.space
        self.action_space = _walking() if self._turns else Discrete(4)
        self._randomize_start = randomize_start
        self._starts = [
            Position(x, y)
            for y, line in enumerate(self.grid.lines)
            for x, field in enumerate(line)
            if field in (FREE, START)
        ]
        self._place = Pose(self.grid.start)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Put the agent on a start.

        Args:
            options: ``{"randomize": True}`` or False overrules `randomize_start` for this episode.
        """
        super().reset(seed=seed, options=options)
        self._steps = 0
        self._place = Pose(self.grid.start)
        if (options or {}).get("randomize", self._randomize_start):
            position = self._starts[self.np_random.integers(len(self._starts))]
            self._place = Pose(position, int(self.np_random.integers(4)) if self._turns else 0)
        return self._view.observe(self._place), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} lies outside {self.action_space}")
        self._place = self._after(self._place, action)
        self._steps += 1
        field = self.grid.at(self._place.position)
        truncated = self.max_episode_steps is not None and self._steps >= self.max_episode_steps
        return self._view.observe(self._place), self._rewards[field], field in ENDS, truncated, {}

    def get_position(self) -> Position:
        """Column and row of the agent."""
        return self._place.position

    def get_discrete_pos(self) -> int:
        """The agent's place in the representation discr: with the orientation, if it turns."""
        return discrete_state(self.grid, self._place, turns=self._turns)

    def set_discrete_pos(self, state: int) -> Any:
        """Put the agent elsewhere in the middle of an episode, and return its observation there."""
        place = place_of(self.grid, state, turns=self._turns)
        if (field := self.grid.at(place.position)) not in _PASSABLE:
            raise ValueError(f"state {state} is at {tuple(place.position)}, where a '{field}' is: no agent acts there")
        self._place = place
        return self._view.observe(place)

    def get_possible_next_positions(self, state: int, action: Any) -> list[tuple[int, float]]:
        """Where an action leads from a state of `get_discrete_pos`, with probabilities.

        That is one state, as the world is deterministic. A state in which the episode has ended leads to itself.
        """
        place = place_of(self.grid, state, turns=self._turns)
        if self.grid.at(place.position) in _PASSABLE:
            place = self._after(place, action)
        return [(discrete_state(self.grid, place, turns=self._turns), 1.0)]

    def get_dist_to_goal(self) -> float:
        """Euclidean distance from the agent to the nearest goal, in fields."""
        return min(math.dist(self._place.position, goal) for goal in self.grid.goals)

    def render(self) -> Image | str | None:
        """uint8 [32 · rows, 32 · columns, 3] for "rgb_array", the rows of the map for "ansi"."""
        if self.render_mode == "rgb_array":
            return large_image(self.grid, self._place)
        return text_image(self.grid, self._place, turns=self._turns) if self.render_mode == "ansi" else None

    def _after(self, place: Pose, action: Any) -> Pose:
        if not self._turns:
            return Pose(self.grid.moved(place.position, DIRECTIONS[int(action)], 1))
        moves: Mapping[str, int] = {name: int(value) for name, value in action.items()}
        orientation = (place.orientation + moves["turn"]) % 4
        fields = 2 if moves["jump"] else moves["forward"]
        return Pose(self.grid.moved(place.position, DIRECTIONS[orientation], fields), orientation)


_PASSABLE = frozenset({START, FREE, FIRE})
_RENDERED = (None, *GridWorld.metadata["render_modes"])


def _walking() -> Dict:
    return Dict({"forward": Discrete(3, start=-1), "turn": Discrete(3, start=-1), "jump": Discrete(2)})
