"""The messages between actors and the inference server of their host: each has one fixed size, and only numbers.

An actor opens a connection with `Hello`, beside which travels the descriptor of its memory. Then it sends one
`Request` at a time, and the server answers each with one `Reply` of the same number.
"""

import struct
from enum import IntEnum
from typing import Any, NamedTuple, Self

from distrl.config.schedules import Progress

_MAGIC = b"distrl-inference-1"


class MessageError(Exception):
    """Bytes that are no such message."""


class Hello(NamedTuple):
    """The first message of an actor.

    Attributes:
        graph: sha256 of the policy's graph, 32 bytes.
        rows: B.
    """

    graph: bytes
    rows: int

    def encode(self) -> bytes:
        return _HELLO.pack(_MAGIC, self.graph, self.rows)

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Invert `encode`; raise MessageError for anything else."""
        magic, graph, rows = _unpack(_HELLO, message)
        if magic != _MAGIC:
            raise MessageError("not a greeting of this version of distrl")
        return cls(graph, rows)


class Kind(IntEnum):
    """The kinds of requests."""

    FOLLOW = 1
    """The weights of its next unroll."""
    STEP = 2
    """The outputs for the observations in its memory."""


class Request(NamedTuple):
    """One request of an actor.

    Attributes:
        number: Repeated after a new connection.
        version: STEP: of the weights to compute with. FOLLOW: of the newest weights that the actor knows.
        held: Version of the actor's last unroll; 0 before the first.
        newest: FOLLOW: whether it needs the newest weights, and no earlier ones that the server has.
    """

    kind: Kind
    number: int
    version: int
    held: int
    newest: bool = False

    def encode(self) -> bytes:
        return _REQUEST.pack(*self)

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Invert `encode`; raise MessageError for anything else."""
        kind, number, version, held, newest = _unpack(_REQUEST, message)
        if kind not in {*Kind}:
            raise MessageError(f"no request of kind {kind}")
        return cls(Kind(kind), number, version, held, newest)


class Answer(IntEnum):
    """The outcome of a request."""

    DONE = 1
    REFUSED = 2
    """The greeting is of another policy or version of distrl, or its memory does not fit."""
    NO_WEIGHTS = 3
    """FOLLOW: there are no published weights."""
    FORGOTTEN = 4
    """STEP: the server has no weights of that version."""


class Reply(NamedTuple):
    """One answer of the server.

    Attributes:
        number: That of the request; 0 for `Hello`.
        version, progress: FOLLOW: the weights of the next unroll, and the training's progress behind them.
    """

    answer: Answer
    number: int
    version: int = 0
    progress: Progress = Progress(0, 0, 0)

    def encode(self) -> bytes:
        return _REPLY.pack(self.answer, self.number, self.version, *self.progress)

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Invert `encode`; raise MessageError for anything else."""
        answer, number, version, *progress = _unpack(_REPLY, message)
        if answer not in {*Answer}:
            raise MessageError(f"no answer {answer}")
        return cls(Answer(answer), number, version, Progress(*progress))


_HELLO = struct.Struct(f"<{len(_MAGIC)}s32sI")
_REQUEST = struct.Struct("<BQQQ?")
_REPLY = struct.Struct("<BQQ3Q")
HELLO_BYTES, REQUEST_BYTES, REPLY_BYTES = _HELLO.size, _REQUEST.size, _REPLY.size


def _unpack(form: struct.Struct, message: bytes) -> tuple[Any, ...]:
    if len(message) != form.size:
        raise MessageError(f"{len(message)} bytes, not {form.size}")
    return form.unpack(message)
