"""Actions that a person types, in a window that shows the environment."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from distrl.environments import spaces
from distrl.environments.films import first_of, frames_per_s, rendered
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, one_line, require
from distrl.types import Array

LEAST_HEIGHT = 400
"""Pixels: smaller pictures are enlarged."""
NO_KEY = "none"
"""Key of `--keys` whose action is taken while no key is held down."""

Keys = frozenset[int]


class Keyboard:
    """An `ActingPolicy` of one environment: takes the action of the keys that are held down, at the environment's pace.

    Where no key has no action, it waits for a key. Escape, or closing the window, raises KeyboardInterrupt.

    Args:
        environment: Made as `films.renderable` says, of one row, without preprocessing.
        keys: Names of keys, joined by +, or `NO_KEY` -> the environment's action; None: the environment's own map,
            `get_keys_to_action`.

    Raises:
        MissingExtraError: pygame is not installed.
        ConfigError: There is no display, the environment has no map, or a key or an action does not exist.
    """

    def __init__(self, environment: VectorEnvironment, keys: Mapping[str, Any] | None) -> None:
        require("pygame", "pygame, which opens the window of record human,", "video")
        import pygame

        self._id, self._vector = environment.spec.id, environment.vector
        try:
            pygame.display.init()
        except pygame.error as error:
            raise ConfigError(f"record human needs a display for its window: {one_line(error)}") from error
        found = self._own_keys() if keys is None else {_codes(name): action for name, action in keys.items()}
        read = spaces.action_reader(self._id, self._vector.single_action_space)
        self._actions: dict[Keys, dict[str, Array]] = {}
        for codes, action in found.items():
            try:
                self._actions[codes] = read(np.asarray(action)[None])
            except ValueError as error:
                raise ConfigError(f"the keys of {self._id}: {error}") from error
        self._known: Keys = frozenset().union(*self._actions)
        self._held: Keys = frozenset()
        self._clock = pygame.time.Clock()
        self._window: pygame.Surface | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import pygame

        pygame.display.quit()

    def initial_state(self, batch: int) -> dict[str, Array]:
        """Return nothing: a person remembers."""
        return {}

    def choose(
        self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Show the environment, and return the action of the keys, name -> [1, ...]."""
        self._show()
        while True:
            self._clock.tick(frames_per_s(self._id, self._vector))
            pressed = self._pressed()
            action = self._actions.get(pressed, self._actions.get(frozenset()))
            if action is not None:
                return {name: array.copy() for name, array in action.items()}, {}

    def _own_keys(self) -> dict[Keys, Any]:
        """Return the environment's map; as gymnasium's `play`, action 0 is of no key where the map does not say."""
        single = first_of(self._vector)
        if not single.has_wrapper_attr("get_keys_to_action"):
            raise ConfigError(f"environment {self._id} has no map of keys; write one: --keys '{{left: 0, right: 1}}'")
        found: dict[Keys, Any] = {frozenset(): 0}
        for keys, action in single.get_wrapper_attr("get_keys_to_action")().items():
            each = (keys,) if isinstance(keys, int) else keys
            found[frozenset(ord(key) if isinstance(key, str) else key for key in each)] = action
        return found

    def _show(self) -> None:
        import pygame

        picture = rendered(self._id, self._vector)
        height, width = picture.shape[:2]
        zoom = max(1, -(-LEAST_HEIGHT // height))
        if self._window is None:
            try:
                self._window = pygame.display.set_mode((width * zoom, height * zoom))
            except pygame.error as error:
                raise ConfigError(f"record human needs a display for its window: {one_line(error)}") from error
            pygame.display.set_caption(f"{self._id}: Escape ends")
        surface = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
        self._window.blit(pygame.transform.scale(surface, self._window.get_size()), (0, 0))
        pygame.display.flip()

    def _pressed(self) -> Keys:
        """Return the keys that are held down, and those that were pressed since the last call."""
        import pygame

        tapped: Keys = frozenset()
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                raise KeyboardInterrupt
            if event.type == pygame.KEYDOWN:
                tapped |= self._known & {event.key}
                self._held |= tapped
            elif event.type == pygame.KEYUP:
                self._held -= {event.key}
        return self._held | tapped


def _codes(names: str) -> Keys:
    """Return the codes of keys whose names are joined by +; none of `NO_KEY`."""
    import pygame

    try:
        return frozenset() if names == NO_KEY else frozenset(map(pygame.key.key_code, names.split("+")))
    except ValueError as error:
        raise ConfigError(
            f"--keys: no key is called {names!r}; write a, 1, space, return, left, left+space, or {NO_KEY}"
        ) from error
