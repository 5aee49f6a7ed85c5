"""The inference server of one host: it evaluates the policy for all its actors, as many rows at once as it can.

It has no state but weights: recurrent state is in the memory of each actor, beside the observations. So a killed server
loses nothing, and rows stay exact: its successor computes the steps that had no answer.
"""

import logging
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path

import numpy as np

from distrl.errors import DistrlError
from distrl.inference.layout import Block, Layout, map_memory
from distrl.inference.messages import (
    HELLO_BYTES,
    REQUEST_BYTES,
    Answer,
    Hello,
    Kind,
    MessageError,
    Reply,
    Request,
)
from distrl.inference.place import is_awaited, socket_path
from distrl.inference.states import FETCHING, IDLE, SERVING
from distrl.inference.versions import Versions
from distrl.networks.policy.description import BundleDescription
from distrl.types import Array

WINDOW_S = 0.002
"""Longest time that a request waits for those of other actors."""
IDLE_S = 0.1
log = logging.getLogger(__name__)


class _Actor:
    """One connected actor.

    Attributes:
        block: None before its greeting.
        asked: Its request for a step that has no answer yet.
        steps: Whether it is likely to ask for its next step soon.
        held: Version of the weights of its unroll.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.block: Block | None = None
        self.rows = 0
        self.asked: Request | None = None
        self.steps = False
        self.held = 0

    def answer(self, reply: Reply) -> None:
        """Send a reply; an actor that has ended meanwhile is noticed by its closed connection."""
        with suppress(OSError):
            self.connection.send(reply.encode())


class InferenceServer:
    """Serves the actors that connect in a directory, until it is stopped and no longer needed.

    Args:
        directory: The host's private directory, in which it is the only server.
        enter: Takes the server's state whenever it changes.

    Attributes:
        actors: Those that are connected.
        batches, batched_rows: What it has computed so far.
    """

    def __init__(
        self,
        description: BundleDescription,
        versions: Versions,
        directory: Path,
        enter: Callable[[str], None] = lambda state: None,
    ) -> None:
        self._description, self._versions, self._directory = description, versions, directory
        self._selector = selectors.DefaultSelector()
        self._batch_until: float | None = None  # monotonic seconds until which requests wait for others
        self.batches, self.batched_rows = 0, 0
        self.actors: set[_Actor] = set()
        self._enter = enter

    def serve(self, stop: Callable[[], bool]) -> None:
        """Answer requests; once `stop` returns True, only as long as there are actors, which end their unrolls.

        If another server of this host waits, it serves them: actors reconnect, and name their versions.

        Raises:
            DistrlError: The run has ended, Redis is away for too long, or published weights do not fit.
        """
        path = socket_path(self._directory)
        path.unlink(missing_ok=True)  # of a killed server
        with closing(self._selector), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(128)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
            self._enter(IDLE)
            try:
                self._round(listener)  # before the first look at `stop`: actors of an earlier server may be there
                while not stop() or (self.actors and not is_awaited(self._directory)):
                    self._round(listener)
            finally:
                for actor in [*self.actors]:
                    self._drop(actor)

    def _round(self, listener: socket.socket) -> None:
        for key, _ in self._selector.select(self._pause_s()):
            if key.data is None:
                self._accept(listener)
            else:
                self._receive(key.data)
        self._compute()

    def _pause_s(self) -> float:
        return IDLE_S if self._batch_until is None else max(self._batch_until - time.monotonic(), 0.0)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            actor = _Actor(connection)
            self.actors.add(actor)
            self._selector.register(connection, selectors.EVENT_READ, actor)

    def _receive(self, actor: _Actor) -> None:
        try:
            if actor.block is None:
                self._welcome(actor)
            elif not (message := actor.connection.recv(REQUEST_BYTES)):
                self._drop(actor)
            else:
                self._take(actor, Request.decode(message))
        except MessageError as error:
            log.warning("refused a connection: %s", error)
            actor.answer(Reply(Answer.REFUSED, 0))
            self._drop(actor)
        except BlockingIOError:
            return
        except OSError:
            self._drop(actor)

    def _welcome(self, actor: _Actor) -> None:
        """Map the memory of an actor that greets.

        Raises:
            MessageError: It is no greeting, or does not fit the policy.
        """
        message, descriptors, _, _ = socket.recv_fds(actor.connection, HELLO_BYTES, 1)
        try:
            hello = Hello.decode(message)
            if hello.graph != bytes.fromhex(self._description.sha256):
                raise MessageError("its policy has another graph")
            if len(descriptors) != 1:
                raise MessageError("it brings no memory")
            layout = Layout(self._description, hello.rows)
            actor.block = layout.block(map_memory(descriptors[0], layout.size))
        except DistrlError as error:
            raise MessageError(str(error)) from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        actor.rows = hello.rows
        actor.answer(Reply(Answer.DONE, 0))

    def _drop(self, actor: _Actor) -> None:
        self._selector.unregister(actor.connection)
        actor.connection.close()
        self.actors.discard(actor)

    def _take(self, actor: _Actor, request: Request) -> None:
        actor.steps = True
        if request.kind is Kind.STEP:
            actor.asked, actor.held = request, request.version
            if self._batch_until is None:
                self._batch_until = time.monotonic() + WINDOW_S
            return
        self._enter(FETCHING)
        followed = self._versions.follow(request.version, request.held, newest=request.newest)
        self._enter(IDLE)
        if followed is None:
            actor.answer(Reply(Answer.NO_WEIGHTS, request.number))
            return
        actor.held = followed[0]
        self._versions.keep({actor.held for actor in self.actors})
        actor.answer(Reply(Answer.DONE, request.number, *followed))

    def _compute(self) -> None:
        """Answer all requests for steps, once every actor that steps has asked or the window is over."""
        if self._batch_until is None:
            return
        late = [actor for actor in self.actors if actor.steps and actor.asked is None]
        if late and time.monotonic() < self._batch_until:
            return
        for actor in late:
            actor.steps = False
        self._batch_until = None
        self._enter(SERVING)
        for version, actors in self._asked_by_version():
            self._answer(version, actors)
        self._enter(IDLE)

    def _asked_by_version(self) -> Iterator[tuple[int, Sequence[_Actor]]]:
        asked = sorted((actor for actor in self.actors if actor.asked is not None), key=lambda actor: actor.held)
        for version, actors in groupby(asked, lambda actor: actor.held):
            yield version, [*actors]

    def _answer(self, version: int, actors: Sequence[_Actor]) -> None:
        """Compute one batch of the rows of all these actors."""
        policy = self._versions.policy(version)
        if policy is not None:
            blocks = [actor.block for actor in actors if actor.block is not None]
            output = policy.step(
                _joined([block.observations for block in blocks]), _joined([block.recurrent_state for block in blocks])
            )
            _split(output.outputs, [block.outputs for block in blocks])
            _split(output.recurrent_state, [block.next_state for block in blocks])
            self.batches += 1
            self.batched_rows += sum(actor.rows for actor in actors)
        for actor in actors:
            request, actor.asked = actor.asked, None
            assert request is not None
            answer = Answer.FORGOTTEN if policy is None else Answer.DONE
            actor.answer(Reply(answer, request.number, version))


def _joined(groups: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Return name -> [rows of all, ...]; of one group its own arrays."""
    first, *others = groups
    return {name: np.concatenate([group[name] for group in groups]) for name in first} if others else first


def _split(arrays: dict[str, Array], groups: Sequence[dict[str, Array]]) -> None:
    """Write name -> [rows of all, ...] into the arrays of each group, in their order."""
    for name, array in arrays.items():
        row = 0
        for group in groups:
            views = group[name]
            views[...] = array[row : row + len(views)]
            row += len(views)
