"""One remote environment against games that are written by hand, byte by byte where it matters."""

import contextlib
import logging
import socket
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from distrl.config.environment import EnvironmentConfig
from distrl.environments.remote.connection import Route
from distrl.environments.remote.environment import LOSSES_IN_A_ROW, RemoteEnvironment
from distrl.environments.remote.protocol import Channel, ConnectionLostError, RemoteError
from distrl.environments.remote.session import RemoteSession
from distrl.environments.worlds.toy import Identity, StepCounter
from distrl.errors import ConfigError, EnvironmentFailedError, SchemaError

LONG_S = 50.0
SWITCH = {"type": "Discrete", "n": 2}
COUNTER = {"observation_space": {"type": "Box", "shape": [1], "low": 0.0}, "action_space": SWITCH}
HANG_UP = object()


class Game:
    """The other side, on a thread: `play` gets every request and returns the reply, or HANG_UP."""

    def __init__(self, play: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self.connections = 0
        self._play = play
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._channels: list[Channel] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def environment(self, *, connect: bool = True, **kwargs: Any) -> RemoteEnvironment:
        return RemoteEnvironment(self.route(**kwargs), connect=connect)

    def route(self, **kwargs: Any) -> Route:
        return Route.of(EnvironmentConfig(id=f"tcp://127.0.0.1:{self.port}", kwargs=kwargs, step_timeout_s=1000.0))

    def close(self) -> None:
        if self._server.fileno() == -1:
            return  # a second time
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for channel in self._channels:
            channel.interrupt()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            channel = Channel(connected, message_timeout_s=LONG_S)
            self._channels.append(channel)
            self._threads.append(threading.Thread(target=self._serve, args=(channel,)))
            self._threads[-1].start()

    def _serve(self, channel: Channel) -> None:
        with contextlib.closing(channel), contextlib.suppress(ConnectionLostError):
            while True:
                request = channel.receive(first_byte_s=None)
                self.requests.append(request)
                reply = self._play(request)
                if reply is HANG_UP:
                    return
                channel.send(reply)


@pytest.fixture
def game():
    """Starts games."""
    with contextlib.ExitStack() as cleanup:

        def start(play: Any) -> Game:
            started = Game(play)
            cleanup.callback(started.close)
            return started

        yield start


@pytest.fixture
def open_():
    """Closes environments at the end."""
    with contextlib.ExitStack() as cleanup:

        def opened(environment: RemoteEnvironment) -> RemoteEnvironment:
            cleanup.callback(environment.close)
            return environment

        yield opened


def tensorforce(request):
    """A game that knows the four commands of TensorForce, and its names."""
    match request["cmd"]:
        case "seed":
            return {"status": "ok", "value": request["value"]}
        case "reset":
            return {"status": "ok", "obs_dict": {"speed": [0.0]}}
        case "step":
            return {
                "status": "ok",
                "obs_dict": {"speed": [1.5]},
                "reward": -10.0,
                "is_terminal": request["action"] == 1,
            }
        case "set_state":
            if set(request["state"]) != {"x"}:
                return {"status": "error", "message": f"unknown property {sorted(request['state'])}"}
            return {"status": "ok", "obs_dict": {"speed": [request["state"]["x"]]}}
    return {"status": "error", "message": f"unknown command {request['cmd']}"}


@pytest.mark.row("N30", "M16", "M02")
def test_the_four_commands(game, open_):
    other = game(tensorforce)
    environment = open_(other.environment(**COUNTER))
    assert environment.observation_space == Box(0.0, np.inf, (1,), np.float32)
    assert environment.action_space == Discrete(2)
    assert environment.current_state is None
    observation, _ = environment.reset(seed=200)
    np.testing.assert_array_equal(observation, np.float32([0.0]))
    observation, reward, terminated, truncated, _ = environment.step(np.int64(0))
    assert (observation.tolist(), reward, terminated, truncated) == ([1.5], -10.0, False, False)
    assert environment.step(np.int64(1))[2:4] == (True, False)
    assert environment.set_state(x=3).tolist() == [3.0]
    assert environment.current_state.tolist() == [3.0]
    with pytest.raises(RemoteError, match=r"unknown property \['y'\]"):
        environment.set_state(y=3)
    assert environment.current_state.tolist() == [3.0]
    environment.seed(5)
    assert other.requests == [
        {"cmd": "seed", "value": 200},
        {"cmd": "reset"},
        {"cmd": "step", "action": 0},
        {"cmd": "step", "action": 1},
        {"cmd": "set_state", "state": {"x": 3}},
        {"cmd": "set_state", "state": {"y": 3}},
        {"cmd": "seed", "value": 5},
    ]


@pytest.mark.row("N30")
def test_connections_are_made_and_ended_once(game):
    environment = game(tensorforce).environment(connect=False, **COUNTER)
    assert not environment.connected
    for call in (environment.disconnect, lambda: environment.seed(1), lambda: environment.set_state(x=1)):
        with pytest.raises(EnvironmentFailedError, match="is not connected; connect comes first"):
            call()
    environment.connect()
    assert environment.connected
    with pytest.raises(EnvironmentFailedError, match="is connected already; disconnect comes first"):
        environment.connect()
    environment.disconnect()
    assert not environment.connected
    with pytest.raises(EnvironmentFailedError, match="is not connected"):
        environment.disconnect()
    environment.close()  # in any state
    environment.connect()
    environment.close()


@pytest.mark.row("N30")
def test_a_server_that_is_down_is_an_error_after_the_time_out(game):
    other = game(tensorforce)
    other.close()
    with pytest.raises(EnvironmentFailedError, match=f"127.0.0.1:{other.port} cannot be reached: Connection refused"):
        other.environment(connect_timeout_s=0.2, **COUNTER)


def test_spaces_are_asked_for(game, open_):
    session = RemoteSession(StepCounter(None, truncate_at_steps=2))
    environment = open_(game(session.handle).environment())
    assert environment.observation_space == StepCounter().observation_space
    assert (environment.max_episode_steps, environment.reward_threshold) == (2, None)
    environment.reset(seed=0)
    assert environment.step(0)[1:4] == (1.0, False, False)
    assert environment.step(0)[1:4] == (2.0, False, True)


def test_a_game_that_describes_nothing_needs_its_spaces_given(game):
    with pytest.raises(RemoteError, match=r"unknown command describe; .* environment\.kwargs\.observation_space"):
        game(tensorforce).environment()


def test_a_game_that_refuses_to_describe_itself_is_no_matter_of_the_configuration(game):
    """A ConfigError would end a run for good whose server refuses us after a restart."""
    refused = game(lambda request: {"status": "error", "message": "does not know the token"})
    with pytest.raises(RemoteError, match=r"does not know the token$"):
        refused.environment()


def test_a_server_that_is_full_is_tried_again(game, open_):
    session, refusals = RemoteSession(StepCounter()), [HANG_UP, {"status": "error", "message": "full", "retry": True}]
    other = game(lambda request: refusals.pop() if refusals else session.handle(request))
    environment = open_(other.environment(connect_timeout_s=LONG_S))
    assert (environment.reset(seed=1)[0].tolist(), other.connections) == ([0.0], 3)


def test_a_server_that_stays_full_says_so(game):
    other = game(lambda request: {"status": "error", "message": "64 are the most", "retry": True})
    with pytest.raises(ConnectionLostError, match="64 are the most"):
        other.environment(connect_timeout_s=0.1)


def replying(reset=None, step=None):
    return lambda request: {"step": step, "reset": reset}.get(request["cmd"]) or tensorforce(request)


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        ({"terminated": True, "truncated": False}, (True, False)),
        ({"terminated": False, "truncated": True, "is_terminal": True}, (False, True)),
        ({"terminated": 1, "truncated": 1}, (True, True)),
        ({"is_terminal": True}, (True, False)),
        ({"_is_terminal": True}, (True, False)),
        ({"terminal": False}, (False, False)),
    ],
)
def test_ends_of_episodes_by_any_of_their_names(game, open_, flags, ends):
    step = {"status": "ok", "obs_dict": {"x": [1]}, "_reward": np.float32(2.5), **flags}
    environment = open_(game(replying(step=step)).environment(**COUNTER))
    environment.reset()
    assert environment.step(0)[1:4] == (2.5, *ends)


OK = {"status": "ok", "obs_dict": {"x": [1]}, "reward": 1.0, "is_terminal": False}


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        ({"status": "error", "message": "the motor is hot"}, RemoteError, "the motor is hot"),
        ({"obs_dict": {}}, EnvironmentFailedError, "status 'None'"),
        ({**OK, "obs_dict": None}, EnvironmentFailedError, "without obs_dict"),
        ({**OK, "obs_dict": {"x": [1], "y": [2]}}, EnvironmentFailedError, "2 observations, not one"),
        ({**OK, "obs_dict": {"x": [1, 2]}}, SchemaError, r"'observation' has shape \(2,\), its space says \(1,\)"),
        ({**OK, "reward": "much"}, EnvironmentFailedError, "no reward that is a number: much"),
        ({**OK, "reward": None}, EnvironmentFailedError, "no reward that is a number: None"),
        ({"status": "ok", "obs_dict": {"x": [1]}, "reward": 1.0}, EnvironmentFailedError, "no is_terminal"),
        ({**OK, "terminated": True}, EnvironmentFailedError, "no truncated"),
    ],
)
def test_what_a_game_says_wrongly_is_an_error_and_no_step(game, open_, reply, error, message):
    environment = open_(game(replying(step=reply)).environment(**COUNTER))
    environment.reset()
    with pytest.raises(error, match=message):
        environment.step(0)


def test_reset_takes_no_options(game, open_):
    environment = open_(game(tensorforce).environment(**COUNTER))
    with pytest.raises(ConfigError, match=r"takes no reset options: \['level'\]"):
        environment.reset(options={"level": 2})


class Fragile:
    """A StepCounter that hangs up at its `at`-th request of a kind, once."""

    def __init__(self, kind: str, at: int) -> None:
        self._session = RemoteSession(StepCounter(None, truncate_at_steps=100))
        self._kind, self._left = kind, at

    def __call__(self, request):
        if request["cmd"] == self._kind:
            self._left -= 1
            if self._left == 0:
                return HANG_UP
        return self._session.handle(request)


def test_a_broken_connection_ends_the_episode_as_truncated_and_the_next_reset_connects_again(game, open_, caplog):
    other = game(Fragile("step", 3))
    environment = open_(other.environment())
    environment.reset(seed=1)
    assert [environment.step(0)[1] for _ in range(2)] == [1.0, 2.0]
    with caplog.at_level(logging.WARNING, "distrl"):
        observation, reward, terminated, truncated, info = environment.step(0)
    # The last known observation, no reward, no termination: nothing is learned from the unknown step.
    assert (observation.tolist(), reward, terminated, truncated) == ([2.0], 0.0, False, True)
    assert info == {"connection_lost": True}
    assert environment.lost_episodes == 1
    assert "closed the connection between messages (1 episodes lost so far)" in caplog.text
    assert not environment.connected
    assert environment.reset()[0].tolist() == [0.0]
    assert environment.step(0)[1] == 1.0
    assert other.connections == 2
    kinds = [request["cmd"] for request in other.requests]
    # A game may start from one seed whenever it is started: a new connection gets a new one.
    assert kinds[-4:] == ["describe", "seed", "reset", "step"]
    assert other.requests[-3]["value"] != 1


@pytest.mark.parametrize("kind", ["seed", "reset", "describe"])
def test_a_connection_that_breaks_in_a_reset_is_made_again(game, open_, kind):
    other = game(Fragile(kind, 1))
    environment = open_(other.environment(connect=False))
    assert environment.reset(seed=1)[0].tolist() == [0.0]
    assert (other.connections, environment.lost_episodes) == (2, 0)


def test_a_game_that_answers_too_late_is_a_broken_connection(game, open_):
    wake = threading.Event()
    session = RemoteSession(StepCounter())

    def play(request):
        if request["cmd"] == "step":
            wake.wait(LONG_S)
        return session.handle(request)

    environment = open_(game(play).environment(message_timeout_s=0.1, **COUNTER))
    environment.reset()
    step = environment.step(0)
    assert step[3:] == (True, {"connection_lost": True})
    wake.set()


def test_a_game_that_breaks_off_at_every_step_has_failed(game, open_):
    environment = open_(game(replying(step=HANG_UP)).environment(**COUNTER))
    for _ in range(LOSSES_IN_A_ROW):
        environment.reset()
        assert environment.step(0)[3]
    environment.reset()
    with pytest.raises(EnvironmentFailedError, match="4 times without a step between"):
        environment.step(0)


def test_a_game_that_stays_away_has_failed_after_give_up_s(game, open_):
    environment = open_(game(replying(reset=HANG_UP)).environment(give_up_s=0.3, **COUNTER))
    with pytest.raises(EnvironmentFailedError, match=r"gave up \(environment.kwargs.give_up_s\)"):
        environment.reset()


def test_a_game_that_comes_back_as_another_one_has_failed(game, open_):
    sessions = [RemoteSession(StepCounter()), RemoteSession(Identity())]

    def play(request):
        if request["cmd"] == "step":
            sessions.pop(0)
            return HANG_UP
        return sessions[0].handle(request)

    environment = open_(game(play).environment())
    environment.reset()
    environment.step(0)
    with pytest.raises(ConfigError, match="has come back with other spaces or limits than before"):
        environment.reset()


def test_what_was_begun_is_not_asked_for_again(game, open_):
    other = game(tensorforce)
    environment = open_(other.environment(**COUNTER))
    environment.reset(seed=0)
    environment.begin_step(1)
    assert environment.step(0)[2]
    environment.begin_reset()
    environment.reset()
    assert [request["cmd"] for request in other.requests] == ["seed", "reset", "step", "reset"]


def test_a_reply_that_nobody_took_is_never_taken_for_another(game, open_):
    other = game(RemoteSession(StepCounter()).handle)
    environment = open_(other.environment())
    environment.reset(seed=0)
    environment.begin_step(0)
    with pytest.raises(EnvironmentFailedError, match="is busy with a step"):
        environment.seed(1)
    assert environment.reset(seed=1)[0].tolist() == [0.0]
    assert other.connections == 2
    environment.begin_reset()
    assert environment.step(0)[4] == {"connection_lost": True}
