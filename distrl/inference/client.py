"""An `Acting` that asks the inference server of its host, so that an actor carries no graph and no weights."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import numpy as np

from distrl.actors.acting import Acting, Fetch, Perturb, PolicyOutput
from distrl.actors.admission import ActorProgress
from distrl.config.schedules import Progress
from distrl.errors import DistrlError
from distrl.inference.layout import Layout, make_memory, map_memory, write
from distrl.inference.messages import REPLY_BYTES, Answer, Hello, Kind, MessageError, Reply, Request
from distrl.inference.place import socket_path
from distrl.inference.states import WAITING
from distrl.networks.policy.description import BundleDescription
from distrl.types import Array

POLL_S = 0.2
"""Longest time that the actor does not look whether it is to stop."""
CONNECT_S = 0.02
PATIENCE_S = 1.0
"""Time without an answer after which the actor's state is that it waits."""
STOPPING_S = 3.0
"""Time for which an actor that is to stop waits for the outputs that its unroll needs."""


class ServerGoneError(DistrlError):
    """The actor is to stop, and the server of its host does not answer: its unroll cannot be finished."""


class SharedPolicy(Acting):
    """The policy of one actor, computed by the server of its host.

    If the server ends or hangs, the actor waits for the next one and asks again: observations and recurrent state are
    in the actor's own memory. An unroll has one version of the weights, which the actor names with every step.

    Args:
        rows: B.
        directory: The host's private directory, see `place.py`.
        newest: Whether each unroll needs the newest weights: staleness is bounded.
        stop: Whether the actor is to stop.
        progress: Its `state` says that the actor waits for the server.

    Raises:
        DistrlError: The description is not valid.
    """

    def __init__(
        self,
        description: str,
        rows: int,
        directory: Path,
        stop: Callable[[], bool],
        progress: ActorProgress,
        *,
        newest: bool = False,
    ) -> None:
        self._description = BundleDescription.from_json(description)
        self.spec = self._description.environment
        self.distributions = self._description.action_distributions
        self.exploration = self._description.exploration
        self.version = 0
        self._rows, self._path, self._newest = rows, socket_path(directory), newest
        self._stop, self._progress = stop, progress
        layout = Layout(self._description, rows)
        self._memory = make_memory(layout.size)
        self._block = layout.block(map_memory(self._memory, layout.size))
        self._server: socket.socket | None = None
        self._number = 0

    def initial_state(self, batch: int) -> dict[str, Array]:
        specs = self._description.recurrent_state
        return {name: np.zeros((batch, *spec.shape), spec.dtype) for name, spec in specs.items()}

    def follow(self, newest: int, fetch: Fetch, rate: float) -> Progress | None:
        reply = self._ask(Kind.FOLLOW, newest)
        if reply.answer is Answer.NO_WEIGHTS:
            return None
        self.version = reply.version
        return reply.progress

    def step(self, observations: Mapping[str, Array], recurrent_state: Mapping[str, Array]) -> PolicyOutput:
        if not self.version:
            raise DistrlError("the policy has no weights yet")
        write(self._block.observations, observations)
        write(self._block.recurrent_state, recurrent_state)
        self._ask(Kind.STEP, self.version)
        outputs, state = (_copied(group) for group in (self._block.outputs, self._block.next_state))
        return PolicyOutput(outputs, state)

    def forget_weights(self) -> None:
        self.version = 0

    def perturb(self, perturb: Perturb) -> None:
        raise DistrlError("a shared policy cannot be perturbed; set actors.inference: own")  # the configuration does

    def close(self) -> None:
        """Leave the server, and free the memory."""
        self._leave()
        os.close(self._memory)

    def _ask(self, kind: Kind, version: int) -> Reply:
        """Send one request and return its answer, from another server if need be.

        Raises:
            ServerGoneError: The actor is to stop, and there is no answer.
            DistrlError: The server refuses this actor, or has lost the weights of its unroll.
        """
        self._number += 1
        request = Request(kind, self._number, version, self.version, self._newest)
        with _Wait(self._stop, self._progress) as wait:
            while True:
                try:
                    if self._server is None:
                        self._server = self._connect(wait)
                    self._server.send(request.encode())
                    reply = _receive(self._server, request.number, wait)
                    break
                except (OSError, MessageError):  # it has ended
                    self._leave()
        if reply.answer is Answer.FORGOTTEN:
            raise DistrlError(f"the inference server of this host has lost weights {version}, in which an unroll began")
        return reply

    def _connect(self, wait: "_Wait") -> socket.socket:
        hello = Hello(bytes.fromhex(self._description.sha256), self._rows)
        while True:
            server = socket.socket(socket.AF_UNIX)
            server.settimeout(POLL_S)
            try:
                server.connect(str(self._path))
                socket.send_fds(server, [hello.encode()], [self._memory])
                reply = _receive(server, 0, wait)
            except (FileNotFoundError, ConnectionError, BlockingIOError, TimeoutError, MessageError):
                # There is none, or it ends.
                server.close()
                wait.look()
                time.sleep(CONNECT_S)
                continue
            except BaseException:
                server.close()
                raise
            if reply.answer is Answer.REFUSED:
                server.close()
                raise DistrlError(
                    f"the inference server of this host refuses {self._rows} rows of {self.spec.id}: it is of another "
                    "version of distrl, or its log says why"
                )
            return server

    def _leave(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class _Wait:
    """The wait for one answer: it shows in the state of the actor when it is long, and ends when the actor is to stop.

    Meanwhile the actor is not taken for one whose environment hangs.
    """

    def __init__(self, stop: Callable[[], bool], progress: ActorProgress) -> None:
        self._stop, self._progress = stop, progress
        self._state, self._since = progress.state, time.monotonic()
        self._stop_by: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress.state == WAITING:
            # Before the state: a heartbeat in between would be of a hung actor.
            self._progress.last_step_at = time.monotonic()
            self._progress.state = self._state

    def look(self) -> None:
        """Look whether to go on waiting.

        Raises:
            ServerGoneError: Not, as the actor is to stop.
        """
        now = time.monotonic()
        if now - self._since >= PATIENCE_S:
            self._progress.state = WAITING
        if self._stop():
            self._stop_by = now + STOPPING_S if self._stop_by is None else self._stop_by
            if now >= self._stop_by:
                raise ServerGoneError("stopped while the inference server of this host does not answer")


def _receive(server: socket.socket, number: int, wait: _Wait) -> Reply:
    """Return the server's reply with this number.

    Raises:
        OSError, MessageError: The connection is at its end.
    """
    while True:
        try:
            reply = Reply.decode(server.recv(REPLY_BYTES))
        except TimeoutError:
            wait.look()
            continue
        if reply.number != number:
            raise MessageError(f"an answer to request {reply.number}, not {number}")
        return reply


def _copied(group: Mapping[str, Array]) -> dict[str, Array]:
    return {name: view.copy() for name, view in group.items()}
