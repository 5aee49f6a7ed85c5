"""The environment's side of the protocol: requests in, replies out, no sockets."""

from collections.abc import Callable
from typing import Any

import gymnasium

from distrl.environments.gym_adapter import describe, flag_of, limits, number_of
from distrl.environments.info_metrics import reported
from distrl.environments.remote.protocol import Message
from distrl.environments.remote.spaces import decoded, described, encoded
from distrl.environments.settable_state import set_state
from distrl.errors import DistrlError


class RequestError(DistrlError):
    """The request cannot be done; the message says why, and the connection goes on."""


class RemoteSession:
    """One environment and one client's requests to it.

    Attributes:
        steps: Taken so far.
        episodes: Ended so far.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        self._environment = environment
        reward_threshold, max_episode_steps = limits(type(environment.unwrapped).__name__, environment)
        description = {
            "observation_space": described(environment.observation_space, "observation"),
            "action_space": described(environment.action_space, "action"),
            "max_episode_steps": max_episode_steps,
            "reward_threshold": reward_threshold,
        }
        self._commands: dict[str, Callable[[Message], Message]] = {
            "hello": lambda request: {},  # the server has let the client in
            "describe": lambda request: description,
            "seed": self._seed_next,
            "reset": self._reset,
            "step": self._step,
            "set_state": self._set_state,
        }
        self._seed: int | None = None
        self._in_episode = False
        self.steps = 0
        self.episodes = 0

    def handle(self, request: Message) -> Message:
        """The reply to one request. Any failure becomes a reply with status "error"."""
        command = request.get("cmd")
        try:
            known = self._commands.get(command) if type(command) is str else None
            if known is None:
                raise RequestError(f"unknown cmd {str(command)[:50]!r}; there are {', '.join(self._commands)}")
            return {"status": "ok", **known(request)}
        except DistrlError as error:
            return {"status": "error", "message": str(error)}
        except (Exception, SystemExit) as error:  # the environment's own, of any kind: for the client
            return {"status": "error", "message": f"{command}: {describe(error)}"}

    def close(self) -> None:
        self._environment.close()

    def _seed_next(self, request: Message) -> Message:
        value = request.get("value")
        if type(value) is not int or value < 0:
            raise RequestError(f"seed needs a value that is a whole number from 0, not {str(value)[:50]}")
        self._seed = value
        return {"value": value}

    def _reset(self, request: Message) -> Message:
        observation, _ = self._environment.reset(seed=self._seed)
        self._seed = None  # one seed is for one reset; else all episodes would be the same
        self._in_episode = True
        return self._shown(observation)

    def _step(self, request: Message) -> Message:
        if not self._in_episode:
            raise RequestError("step outside an episode; reset comes first")
        if "action" not in request:
            raise RequestError("step needs an action")
        space = self._environment.action_space
        action = decoded(space, request["action"], "action")
        if not space.contains(action):
            raise RequestError(f"the action {str(action)[:100]} is not in {str(space)[:100]}")
        wanted = request.get("info", ())
        if not isinstance(wanted, tuple) or not all(isinstance(name, str) for name in wanted):
            raise RequestError("the info that a step names must be a list of texts")
        observation, reward, terminated, truncated, info = self._environment.step(action)
        self.steps += 1
        ends = flag_of("terminated", terminated), flag_of("truncated", truncated)
        if any(ends):
            self._in_episode = False
            self.episodes += 1
        return {
            **self._shown(observation),
            "reward": number_of(reward),
            "terminated": ends[0],
            "truncated": ends[1],
            "is_terminal": any(ends),
            **({"info": reported(info, wanted)} if wanted else {}),
        }

    def _set_state(self, request: Message) -> Message:
        state = request.get("state")
        if not isinstance(state, dict):
            raise RequestError("set_state needs a state, a map")
        observation = set_state(self._environment, state)
        self._in_episode = True
        return self._shown(observation)

    def _shown(self, observation: Any) -> Message:
        space = self._environment.observation_space
        tree = encoded(space, observation, "observation")
        return {"obs_dict": tree if isinstance(space, gymnasium.spaces.Dict) else {"observation": tree}}
