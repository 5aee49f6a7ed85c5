"""RandomEnv: random observations and rewards for any spaces, to try a space on networks, codec and memory.

    distrl train --env distrl.environments.worlds.random_env:RandomEnv \\
        --set 'environment.kwargs={state_space: {kind: box, low: 0, high: 255, shape: [84, 84, 4], dtype: uint8}}'
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces

DETERMINISTIC_SEED = 10

SpaceDescription = Space[Any] | Mapping[str, Any] | int
"""A gymnasium space; n for Discrete(n); or, as files have it, a map of its `kind` and its arguments: box (null is an
infinite bound), discrete, multi_discrete, multi_binary, text, and dict and tuple of `spaces`."""

_KINDS: Mapping[str, Callable[..., Space[Any]]] = {
    "box": spaces.Box,
    "discrete": spaces.Discrete,
    "multi_discrete": spaces.MultiDiscrete,
    "multi_binary": spaces.MultiBinary,
    "text": spaces.Text,
}
_FOUR_NUMBERS = {"kind": "box", "low": -1.0, "high": 1.0, "shape": (4,)}
_ONE_NUMBER = {"kind": "box", "low": -1.0, "high": 1.0, "shape": ()}


class RandomEnv(gymnasium.Env[Any, Any]):
    """Observations and rewards are drawn from their spaces; actions have no effect.

    Every step terminates the episode with the probability `terminal_prob`, so that its mean length is
    ``1 / terminal_prob`` steps.

    Args:
        state_space: Of observations; by default a Box of four numbers in [-1, 1].
        action_space: Actions are checked against it and otherwise ignored.
        reward_space: A Discrete, or a Box of one number; by default reals in [-1, 1].
        terminal_prob: In [0, 1].
        deterministic: Every seed is 10: all environments, and all resets with a seed, go the same way.
    """

    def __init__(
        self,
        state_space: SpaceDescription | None = None,
        action_space: SpaceDescription = 2,
        reward_space: SpaceDescription | None = None,
        terminal_prob: float = 0.1,
        deterministic: bool = False,
    ) -> None:
        if not 0.0 <= terminal_prob <= 1.0:
            raise ValueError(f"terminal_prob is a probability, not {terminal_prob}")
        self.observation_space = _space(_FOUR_NUMBERS if state_space is None else state_space)
        self.action_space = _space(action_space)
        # Copies: a draw from the public space must not change the next observation.
        self._states = copy.deepcopy(self.observation_space)
        self._rewards = _space(_ONE_NUMBER if reward_space is None else reward_space)
        if not isinstance(self._rewards, spaces.Discrete | spaces.Box) or self._rewards.shape not in ((), (1,)):
            raise ValueError(f"a reward is one number, and {self._rewards} is not")
        self._terminal_prob = terminal_prob
        self._deterministic = deterministic
        if deterministic:
            self._seed(DETERMINISTIC_SEED)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(options=options)
        if seed is not None:
            self._seed(DETERMINISTIC_SEED if self._deterministic else seed)
        return self._states.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r} lies outside {self.action_space}")
        reward = float(np.asarray(self._rewards.sample()).item())
        terminated = bool(self.np_random.random() < self._terminal_prob)
        return self._states.sample(), reward, terminated, False, {}

    def _seed(self, seed: int) -> None:
        """The three sources of randomness, independent of each other."""
        super().reset(seed=seed)
        for space in (self._states, self._rewards):
            space.seed(int(self.np_random.integers(2**31)))


def _space(description: SpaceDescription) -> Space[Any]:
    if isinstance(description, Space):
        return description
    if isinstance(description, int):
        return spaces.Discrete(description)
    arguments = dict(description)
    kind = arguments.pop("kind", None)
    if kind == "dict":
        return spaces.Dict({name: _space(part) for name, part in arguments["spaces"].items()})
    if kind == "tuple":
        return spaces.Tuple([_space(part) for part in arguments["spaces"]])
    if kind not in _KINDS:
        raise ValueError(f"there is no kind of space {kind!r}; there are {', '.join([*_KINDS, 'dict', 'tuple'])}")
    for bound, infinite in (("low", -np.inf), ("high", np.inf)):  # a file cannot say infinity
        if kind == "box" and arguments.get(bound, 0) is None:
            arguments[bound] = infinite
    return _KINDS[kind](**arguments)
