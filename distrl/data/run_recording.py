"""Recording of a training: the unrolls that the learner takes become a data set, beside the training."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

from distrl.child import ending
from distrl.config import RunConfig
from distrl.data.minari_sets import Recorder
from distrl.data.recording_process import message_of, send, size_bytes
from distrl.data.unroll_recording import UnrollRecording
from distrl.errors import DistrlError, FencedError, failure, one_line
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.intake import Item
from distrl.process_group import end_group, has_ended
from distrl.types import EnvSpec, Unroll
from distrl.user_classes import search_path

if TYPE_CHECKING:
    from distrl.learner.preparation import Parts

log = logging.getLogger(__name__)
WAITING_BYTES = 2**28
"""Where unrolls of so many bytes wait to be recorded, further ones are left out: the learner waits for none."""

_PIPE_BYTES = 2**18
"""An unroll of many steps passes in few pieces: each costs two switches between processes."""


class RecordingHere(Attendant):
    """Records what the learner takes, at once, where the run is one deterministic process.

    A recording that fails costs a line, and the training goes on.

    Args:
        spec: Of the run's unrolls.
        notice: Called with one line at its end.
        recorder: The learner.
    """

    def __init__(
        self, config: RunConfig, spec: EnvSpec, notice: Callable[[str], None], recorder: Recorder | None = None
    ) -> None:
        self._make = partial(UnrollRecording, config, spec, recorder)
        self._notice = notice
        self._recording: UnrollRecording | None = None  # also once it is over

    def begin(self) -> None:
        self._guarded(self._begin)

    def take(self, items: Sequence[Item]) -> None:
        """Record unrolls, unless it is over."""
        for item in items:
            assert isinstance(item, Unroll)  # as `RecordingConfig.check` says
            self._guarded(partial(self._add, item))

    def saved(self, updates: int) -> None:
        if self._recording is not None:  # the actor abandons them too
            self._recording.abandon_open()

    def close(self, error: BaseException | None) -> None:
        self._guarded(self._finish)

    def _begin(self) -> None:
        self._recording = self._make()

    def _add(self, unroll: Unroll) -> None:
        if self._recording is not None:
            self._recording.add(unroll)
            if self._recording.is_full:
                self._finish()

    def _finish(self) -> None:
        if self._recording is not None:
            told = self._recording.finish(0)
            self._recording = None
            self._notice(told)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what may fail, after which the recording is over."""
        try:
            work()
        except Exception as error:  # of the environment, of a disk, of HDF5: none of them is the training's
            if not isinstance(error, DistrlError):
                log.warning("the recording has failed", exc_info=True)
            self._notice(f"nothing is recorded: {one_line(error)}")
            if self._recording is not None:
                self._recording.abandon()
                self._recording = None


class RecordingBeside(Attendant):
    """Hands what the learner takes to a process that records it; see `recording_process`.

    Splitting and writing would hold the learner's interpreter. A recording that fails, or whose process is killed,
    costs a line, and the training goes on. Further arguments and the notice are those of `RecordingHere`; the notice
    comes from another thread. Others of this launch that came before may have completed the data set.
    """

    def __init__(
        self, config: RunConfig, spec: EnvSpec, notice: Callable[[str], None], recorder: Recorder | None = None
    ) -> None:
        tree = config.model_dump_json(exclude_unset=True, include={*RunConfig.model_fields})
        self._request = {"config": tree, "spec": spec.to_json(), "recorder": recorder}
        self._notice = notice
        self._waiting: SimpleQueue[Mapping[str, Any] | Unroll] = SimpleQueue()
        self._waiting_bytes = self._left_out = 0
        self._counts = threading.Lock()
        self._is_over, self._is_given_up = True, False
        self._threads: list[threading.Thread] = []
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        answers, theirs = os.pipe()
        try:
            # A process group of its own, which Ctrl-C does not reach; the session is the learner's, within which
            # niceness counts.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "distrl.data.recording_process", str(theirs)],
                stdin=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": search_path(), "CUDA_VISIBLE_DEVICES": ""},
                process_group=0,
                pipesize=_PIPE_BYTES,
                pass_fds=[theirs],
            )
        except OSError as error:
            os.close(answers)
            self._notice(f"nothing is recorded: its process cannot be started: {one_line(error)}")
            return
        finally:
            os.close(theirs)
        assert self._process.stdin is not None
        self._is_over = False
        self._waiting.put(self._request)
        for name, work, file in (("sends", self._send, self._process.stdin), ("hears", self._hear, os.fdopen(answers))):
            self._threads.append(threading.Thread(target=work, args=(file,), name=f"recording {name}", daemon=True))
            self._threads[-1].start()

    def take(self, items: Sequence[Item]) -> None:
        """Hand unrolls over, unless too many bytes wait already; any thread may call this."""
        for item in items:
            assert isinstance(item, Unroll)  # as `RecordingConfig.check` says
            with self._counts:
                if self._is_over:
                    return
                if self._waiting_bytes >= WAITING_BYTES:
                    self._left_out += 1
                    continue
                self._waiting_bytes += size_bytes(item)
            self._waiting.put(item)

    def close(self, error: BaseException | None) -> None:
        """Wait until all is recorded; or give it up for a successor, which begins it anew."""
        with self._counts:
            self._is_over, self._is_given_up = True, _goes_on(error)
        self._waiting.put({"last": True, "left_out": self._left_out})
        for thread in self._threads:
            thread.join()

    def _send(self, file: IO[bytes]) -> None:
        """Send what waits, the last message included. `_hear` reports a process that has ended before."""
        with suppress(BrokenPipeError), file:
            message: Mapping[str, Any] | Unroll = {}
            while isinstance(message, Unroll) or "last" not in message:
                message = self._waiting.get()
                with suppress(BrokenPipeError):
                    if isinstance(message, Unroll):
                        self._send_unroll(file, message)
                    elif not self._is_given_up:
                        send(file, message)

    def _send_unroll(self, file: IO[bytes], unroll: Unroll) -> None:
        try:
            if not self._is_given_up:
                send(file, message_of(unroll, self._left_out))
        finally:
            with self._counts:
                self._waiting_bytes -= size_bytes(unroll)

    def _hear(self, file: IO[str]) -> None:
        """Report the line with which the process ends, or how it has ended without one."""
        assert self._process is not None
        with file:
            answer = file.readline()
        with self._counts:
            self._is_over = True
        has_ended(self._process, wait=True)
        end_group(self._process)
        if answer:
            self._notice(json.loads(answer)["notice"])
        elif self._process.returncode:
            self._notice(f"nothing is recorded: its process {ending(self._process.returncode, 'beside the run', 0.0)}")


def _goes_on(error: BaseException | None) -> bool:
    """Return whether the run goes on with another learner: one has taken over, or a fault has an end as no other."""
    return isinstance(error, FencedError) or (error is not None and failure(error)[0] == DistrlError.exit_code)


def recording(
    parts: "Parts", notice: Callable[[str], None]
) -> tuple[Callable[[Sequence[Item]], None], list[Attendant]]:
    """Return what takes the learner's unrolls, and its attendant: none, if nothing is to be recorded."""
    if parts.config.recording.name is None:
        return lambda _items: None, []
    recorder = Recorder(parts.state.run_id, parts.backend.launch, parts.backend.fence.number)
    kind = RecordingHere if parts.config.deterministic else RecordingBeside
    made = kind(parts.config, parts.spec, notice, recorder)
    return made.take, [made]
