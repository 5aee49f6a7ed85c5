"""The process that records a training: it splits unrolls into episodes and writes them, beside the learner.

It reads messages from standard input, each with its length before it: a `request`, unrolls, and `last` at the end. It
answers with at most one line, the JSON of a notice, in the open file whose number is the argument. If the input ends
without `last`, the learner has died or has a successor: then nothing is left of the recording.
"""

import json
import logging
import os
import signal
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from distrl import wire
from distrl.config import RunConfig
from distrl.data.episodes import TakenError
from distrl.data.minari_sets import Recorder
from distrl.data.unroll_recording import UnrollRecording
from distrl.errors import DistrlError, one_line
from distrl.types import EnvSpec, Unroll, UnrollHeader
from distrl.user_classes import hide_arguments

log = logging.getLogger(__name__)
_LENGTH = struct.Struct("<Q")
_GROUPS = ("observations", "actions")
"""Fields that hold arrays by name."""
_FIELDS = ("rewards", "terminated", "valid", "behaviour_log_probabilities")
"""Fields of an unroll that a recording needs, beside the header and `_GROUPS`."""


def size_bytes(unroll: Unroll) -> int:
    """Return the bytes of the arrays that are sent."""
    grouped = sum(array.nbytes for group in _GROUPS for array in getattr(unroll, group).values())
    return int(grouped + sum(getattr(unroll, name).nbytes for name in _FIELDS))


def send(file: IO[bytes], tree: Mapping[str, Any]) -> None:
    """Write a message; arrays go from where they are."""
    parts = wire.pieces(dict(tree))
    file.write(_LENGTH.pack(sum(memoryview(part).nbytes for part in parts)))
    for part in parts:
        file.write(part)
    file.flush()


def message_of(unroll: Unroll, left_out: int) -> dict[str, Any]:
    """Return the message of an unroll.

    Args:
        left_out: Unrolls before it that are not sent.
    """
    arrays = {name: getattr(unroll, name) for name in (*_GROUPS, *_FIELDS)}
    return {"header": asdict(unroll.header), "arrays": arrays, "left_out": left_out}


def _unroll_of(message: Mapping[str, Any]) -> Unroll:
    """Return the unroll of a message, without what recordings do not need."""
    arrays, none = message["arrays"], np.zeros(0, np.float32)
    return Unroll(
        header=UnrollHeader(**message["header"]),
        truncated=np.zeros_like(arrays["valid"]),
        recurrent_state={},
        episode_returns=none,
        episode_lengths_steps=none.astype(np.int32),
        **arrays,
    )


def _messages(file: IO[bytes]) -> Iterator[Any]:
    while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        data = file.read(size)
        if len(data) < size:
            return
        yield wire.unpack(data, max_bytes=size, max_items=wire.MAX_ITEMS)


def _recorded(recording: UnrollRecording, messages: Iterator[Any]) -> str | None:
    """Record unrolls until the last message or `most_steps`, and return the notice; None: the learner gave it up."""
    for message in messages:
        if "last" not in message:
            recording.add(_unroll_of(message))
        if "last" in message or recording.is_full:
            return recording.finish(message["left_out"])
    return None


def _notice(request: Mapping[str, Any], messages: Iterator[Any]) -> str | None:
    """Return the line with which the recording ends; None: nothing is to be said."""
    recorder = Recorder(*request["recorder"]) if request["recorder"] else None
    recording = None
    try:
        recording = UnrollRecording(
            RunConfig.model_validate(json.loads(request["config"])), EnvSpec.from_json(request["spec"]), recorder
        )
        told = _recorded(recording, messages)
        if told is not None:
            return told
    except Exception as error:  # of the environment, of a disk, of HDF5, of memory: none of them is the training's
        if isinstance(error, TakenError) and recorder is not None and recorder.number > 1:
            return None  # a predecessor has completed it: the launch had made sure of the name
        if not isinstance(error, DistrlError):
            log.warning("the recording has failed", exc_info=True)
        told = f"nothing is recorded: {one_line(error)}"
    if recording is not None:
        recording.abandon()
    return told


def _main(descriptor: str) -> int:
    # The learner says when it ends, also after Ctrl-C and SIGTERM, which may reach every process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(19)  # not the idle class: the end of the run waits for this process, also on a busy host
    os.set_inheritable(int(descriptor), False)
    logging.basicConfig(level=logging.INFO)
    messages = _messages(sys.stdin.buffer)
    request = next(messages, None)
    notice = None if request is None else _notice(request, messages)
    if notice is not None:
        with os.fdopen(int(descriptor), "w") as answer:
            print(json.dumps({"notice": notice}), file=answer)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*hide_arguments()))
