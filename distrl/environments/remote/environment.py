"""Environments on other machines: a game or robot that speaks TensorForce's protocol over TCP.

`RemoteEnvironment` is one of them as a gymnasium environment, over one connection of its own. Where the connection
breaks in the middle of an episode, the result of the last action is unknown: the step ends the episode as truncated,
with reward 0 and the last known observation as the final one, so that nothing is learned across the gap. The reset that
follows makes a new connection, for `give_up_s` seconds at most. An environment that answers with an error, or with
something that is not of its spaces, has failed like one in this process: EnvironmentFailedError.
"""

import logging
import math
import time
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium
import numpy as np

from distrl.config.remote_environment import Spaces
from distrl.environments.info_metrics import reported
from distrl.environments.remote.connection import Route, back_off
from distrl.environments.remote.protocol import Channel, ConnectionLostError, Message, RemoteError
from distrl.environments.remote.spaces import decoded, encoded, read_spaces, space_of
from distrl.errors import ConfigError, DecodeError, EnvironmentFailedError

LOSSES_IN_A_ROW = 3
"""An environment whose connection breaks so often without one step between has failed, however well it reconnects."""

_OBSERVATION, _ACTION = "observation", "action"
# TensorForce's documentation has the first name of each; its Unreal plug-in the second.
_REWARD, _TERMINAL = ("reward", "_reward"), ("is_terminal", "_is_terminal", "terminal")

log = logging.getLogger("distrl")


class RemoteEnvironment(gymnasium.Env[Any, Any]):
    """One environment at the other end of one connection.

    Attributes:
        lost_episodes: Episodes that a broken connection has ended.
        connected: Whether there is a connection.
    """

    def __init__(self, route: Route, *, connect: bool = True) -> None:
        """Connect, and request the spaces unless they are given; with `connect` False, that method does it later."""
        self._route = route
        self._channel: Channel | None = None
        self._pending: Literal["reset", "step"] | None = None
        self._described: Spaces | None = None
        self._observation: Any = None
        self._losses_in_a_row = 0
        self._call_began: float | None = None
        self._sent_at = 0.0  # of what is pending
        self.lost_episodes = 0
        self.max_episode_steps: int | None = None
        self.reward_threshold: float | None = None
        if connect:
            self.connect()

    @property
    def connected(self) -> bool:
        return self._channel is not None

    @property
    def current_state(self) -> Any:
        """The newest observation; None before the first."""
        return self._observation

    def connect(self) -> None:
        """Connect within `connect_timeout_s`.

        Raises:
            EnvironmentFailedError: There is a connection already, none can be made, or it is refused.
            ConfigError: The spaces are impossible, or others than before.
        """
        if self._channel is not None:
            raise EnvironmentFailedError(f"{self._channel.peer} is connected already; disconnect comes first")
        self._connect_by(self._began() + self._route.first_connection_s)

    def disconnect(self) -> None:
        self._connection()
        self.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._pending = None, None

    def seed(self, value: int) -> None:
        """Seed the next reset."""
        self._ask({"cmd": "seed", "value": int(value)})

    def set_state(self, **state: Any) -> Any:
        """Pass arguments to the environment's own `set_state`; return and remember the observation there."""
        self._observation = self._observed(self._ask({"cmd": "set_state", "state": state}))
        return self._observation

    def call_began(self, at: float) -> None:
        """Count the time of the next `connect`, `reset` or `step`, part of a call for several environments, from `at`
        (`time.monotonic`)."""
        self._call_began = at

    def begin_reset(self) -> None:
        """Send the request, so that several environments work at once; `reset` takes the reply."""
        self._begin("reset", {"cmd": "reset"})

    def begin_step(self, action: Any) -> None:
        """Likewise for `step`, whose own argument is then ignored."""
        request = {"cmd": "step", "action": encoded(self.action_space, action, _ACTION)}
        if self._route.metrics:
            request["info"] = [*self._route.metrics]
        self._begin("step", request)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, on a new connection if the old one is broken."""
        super().reset(seed=seed)
        if options:
            raise ConfigError(f"a remote environment takes no reset options: {sorted(options)}")
        if self._pending == "step" or (self._pending is not None and seed is not None):
            self.close()  # its reply was not taken, and would be read as the next one
        deadline = self._began() + self._route.parameters.give_up_s
        last = deadline + self._route.parameters.message_timeout_s  # of attempts that began before the deadline
        fresh, attempt = self._channel is None, 0
        while True:
            try:
                if self._channel is None:
                    self._connect_by(deadline)
                if seed is not None or fresh:  # the other side may start from the same seed whenever it is started
                    value = int(self.np_random.integers(2**31)) if seed is None else seed
                    self._ask({"cmd": "seed", "value": value}, last)
                self._observation = self._observed(self._answer("reset", {"cmd": "reset"}, last))
                return self._observation, {}
            except ConnectionLostError as error:
                self._lost(error)
                fresh = True
                if time.monotonic() >= deadline:
                    raise EnvironmentFailedError(f"{error}; gave up (environment.kwargs.give_up_s)") from error
                time.sleep(max(min(back_off(attempt), deadline - time.monotonic()), 0.0))
                attempt += 1

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            if self._pending != "step":
                self.begin_step(action)
            self._began()
            reply = self._answer("step", {}, math.inf)
        except ConnectionLostError as error:
            self.lost_episodes += 1
            self._losses_in_a_row += 1
            self._lost(error)
            if self._losses_in_a_row > LOSSES_IN_A_ROW:
                raise EnvironmentFailedError(
                    f"{error}, {self._losses_in_a_row} times without a step between"
                ) from error
            return self._observation, 0.0, False, True, {"connection_lost": True}
        self._observation = self._observed(reply)
        self._losses_in_a_row = 0
        terminated, truncated = _ends(reply)
        info = reported(reply.get("info"), self._route.metrics)
        return self._observation, _number(reply, _REWARD), terminated, truncated, info

    def _begin(self, kind: Literal["reset", "step"], request: Message) -> None:
        if self._pending is not None:  # its reply was not taken, and would be read as the next one
            self.close()
        if self._channel is None:
            return  # `reset` and `step` notice it
        try:
            self._sent_at = time.monotonic() if self._call_began is None else self._call_began
            self._channel.send(request, by=self._sent_at + self._route.parameters.message_timeout_s)
            self._pending = kind
        except ConnectionLostError:
            self.close()

    def _began(self) -> float:
        """When the present call began: as `call_began` said, else now."""
        began, self._call_began = self._call_began, None
        return time.monotonic() if began is None else began

    def _answer(self, kind: Literal["reset", "step"], request: Message, by: float) -> Message:
        """The reply to the request that `_begin` has sent, or else to `request`."""
        if self._pending == kind:
            self._pending = None
            return self._reply(self._connection(), self._sent_at, by)
        if self._pending is not None or kind == "step":
            self.close()
            raise ConnectionLostError(f"the connection to {self._route.address} is broken")
        return self._ask(request, by)

    def _ask(self, request: Message, by: float = math.inf) -> Message:
        channel = self._connection()
        if self._pending is not None:
            raise EnvironmentFailedError(f"{channel.peer} is busy with a {self._pending}")
        channel.send(request, by=by)
        return self._reply(channel, time.monotonic(), by)

    def _reply(self, channel: Channel, sent_at: float, by: float) -> Message:
        """`message_timeout_s` from `sent_at` until it begins, twice that until it is whole, and never after `by`."""
        limit_s = self._route.parameters.message_timeout_s
        first_byte_s = min(sent_at + limit_s, by) - time.monotonic()
        try:
            return channel.reply(first_byte_s=first_byte_s, by=min(sent_at + 2 * limit_s, by))
        except DecodeError as error:  # a new connection would speak no other protocol
            self.close()
            raise EnvironmentFailedError(str(error)) from error

    def _connection(self) -> Channel:
        if self._channel is None:
            raise ConnectionLostError(f"{self._route.address} is not connected; connect comes first")
        return self._channel

    def _connect_by(self, deadline: float) -> None:
        """Try until a connection stands and the spaces are known; attempts begin before the deadline.

        The last one has `message_timeout_s` longer for its messages.
        """
        last, attempt = deadline + self._route.parameters.message_timeout_s, 0
        while True:
            try:
                self._channel = self._route.connect(max(deadline - time.monotonic(), 0.1), last)
                self._learn_spaces(last)
                return
            except ConnectionLostError:
                self.close()
                pause_s = back_off(attempt)
                if time.monotonic() + pause_s >= deadline:
                    raise
                time.sleep(pause_s)
                attempt += 1
            except BaseException:
                self.close()
                raise

    def _learn_spaces(self, by: float) -> None:
        """Read the spaces from the parameters, else from the environment; they are the same on every connection."""
        given = self._route.parameters
        if given.observation_space is not None:
            told = Spaces.model_validate(given.model_dump())
        else:
            channel = self._connection()
            try:
                told = read_spaces(self._ask({"cmd": "describe"}, by), channel.peer)
            except RemoteError as error:  # not a ConfigError: the refusal may pass
                if "unknown" not in str(error).lower():
                    raise
                raise RemoteError(
                    f"{error}; where an environment does not know the command describe, its spaces are given as "
                    "environment.kwargs.observation_space and action_space"
                ) from error
        if self._described is None:
            self.observation_space = space_of(told.observation_space, _OBSERVATION)
            self.action_space = space_of(told.action_space, _ACTION)
            self.max_episode_steps, self.reward_threshold = told.max_episode_steps, told.reward_threshold
            self._described = told
        elif told != self._described:
            raise ConfigError(f"{self._route.address} has come back with other spaces or limits than before")

    def _observed(self, reply: Message) -> Any:
        """TensorForce's `obs_dict`: observations by name; one that has no name of its own may have any."""
        observations = reply.get("obs_dict")
        if not isinstance(observations, Mapping):
            raise EnvironmentFailedError(f"{self._route.address} sent a reply without obs_dict, a map")
        if not isinstance(self.observation_space, gymnasium.spaces.Dict):
            if len(observations) != 1:
                raise EnvironmentFailedError(f"{self._route.address} sent {len(observations)} observations, not one")
            observations = next(iter(observations.values()))
        return decoded(self.observation_space, observations, _OBSERVATION)

    def _lost(self, error: ConnectionLostError) -> None:
        self.close()
        log.warning("remote environment: %s (%d episodes lost so far)", error, self.lost_episodes)


def _number(reply: Message, names: tuple[str, ...]) -> float:
    value = next((reply[name] for name in names if name in reply), None)
    number = np.asarray(value)
    if number.shape not in ((), (1,)) or number.dtype.kind not in "biuf":
        raise EnvironmentFailedError(f"a reply to step has no {names[0]} that is a number: {str(value)[:50]}")
    return float(number.reshape(()))


def _ends(reply: Message) -> tuple[bool, bool]:
    """(terminated, truncated). A server that knows one kind of end only means termination by it."""
    if "terminated" in reply or "truncated" in reply:
        return _number(reply, ("terminated",)) != 0.0, _number(reply, ("truncated",)) != 0.0
    return _number(reply, _TERMINAL) != 0.0, False
