"""`distrl env check`: an environment is looked at in processes of their own, which may hang, crash or take long.

One process looks at it closely; each back end is then measured in another, so that one that hangs is a line of the
report and not its end.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, get_args

from distrl.config.environment import EnvironmentConfig
from distrl.environments.check import FINDING, Episode, Failure, Finding, Processed, Request, Seen, Spaces, Speed, Stage
from distrl.errors import ConfigError, DistrlError, EnvironmentFailedError
from distrl.user_classes import search_path

__all__ = ["BACK_ENDS", "Episode", "Finding", "Processed", "Seen", "Spaces", "Speed", "check_environment"]

BACK_ENDS: tuple[str, ...] = tuple(
    name for name in get_args(EnvironmentConfig.model_fields["vectorization"].annotation) if name != "auto"
)
SLOW_S = 2.0
"""A stage that takes longer is told of."""
START_S = 60.0
"""How long the process may take to be there at all; nothing of the environment has run by then."""
_POLL_S = 0.05
_DETAIL_BYTES = 20_000


def check_environment(
    config: EnvironmentConfig,
    *,
    environments: int,
    pictures: Path | None,
    timeout_s: float,
    progress: Callable[[str], None],
    action_mask: str | None = None,
) -> Iterator[Finding]:
    """Find spaces, the first observation, three episodes, and the speed of every back end, in this order.

    Args:
        config: The environment, as actors would make it.
        environments: How many step together where speed is measured.
        pictures: Directory of image files, which are named after the environment; None: no files.
        timeout_s: Of one stage, such as a reset or an episode; then its process is killed.
        progress: Is told what takes longer than two seconds, once.
        action_mask: `NetworkParameters.action_mask`: random actions are drawn from what it allows.

    Raises:
        ConfigError: The environment cannot be made.
        EnvironmentFailedError: It raises, hangs or crashes once it is made. A back end that does so is no error.
    """
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in config.id)
    prefix = None if pictures is None else pictures / name

    def request(vectorization: str, count: int | None) -> Request:
        chosen = config.model_copy(update={"vectorization": vectorization})
        return Request(config=chosen, action_mask=action_mask, count=count, pictures=prefix, stage_timeout_s=timeout_s)

    yield from _findings(request(config.vectorization, None), progress)
    for back_end in BACK_ENDS:
        try:
            yield from _findings(request(back_end, environments), progress)
        except DistrlError as error:
            yield Speed(vectorization=back_end, reason=str(error).removeprefix(f"environment {config.id}: "))


def _findings(request: Request, progress: Callable[[str], None]) -> Iterator[Finding]:
    """Runs one examining process and yields what it finds, but for stages.

    Raises:
        DistrlError: It ended with a failure, on its own, or because a stage took too long.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        process = _start(request, answer, output)
        try:
            yield from _watch(request, process, answer, output, progress)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(request: Request, answer: IO[bytes], output: IO[bytes]) -> subprocess.Popen[bytes]:
    # -P: the working directory must not shadow the standard library. Files, not pipes: a process that the environment
    # left behind would hold a pipe open. A session of its own: so that such a process can be killed with it.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "distrl.environments.check"],
        stdin=subprocess.PIPE,
        stdout=answer,
        stderr=output,
        env={**os.environ, "PYTHONPATH": search_path()},
        start_new_session=True,
    )
    assert process.stdin is not None
    # One that is dead already has not read it all; its end is told of where it is noticed.
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(request.model_dump_json().encode())
    return process


def _watch(
    request: Request,
    process: subprocess.Popen[bytes],
    answer: IO[bytes],
    output: IO[bytes],
    progress: Callable[[str], None],
) -> Iterator[Finding]:
    stage, since, told, made, offset = "starting", time.monotonic(), False, False, 0
    limit_s = START_S
    while True:
        # Asked first: what it wrote before it ended is read below.
        exit_code = process.poll()
        lines, offset = _new_lines(answer, offset)
        for finding in map(FINDING.validate_json, lines):
            if isinstance(finding, Failure):
                raise _failed(finding.message, finding.detail, finding.exit_code == ConfigError.exit_code)
            if isinstance(finding, Stage):
                stage, since, told, limit_s = finding.doing, time.monotonic(), False, request.stage_timeout_s
                continue
            made = True
            yield finding
        if exit_code == 0:
            return
        waited_s = time.monotonic() - since
        if exit_code is not None or waited_s > limit_s:
            text = _ended(request, stage, exit_code, limit_s)
            raise _failed(text, _read(output)[-_DETAIL_BYTES:], not made)
        if not told and waited_s > SLOW_S:
            progress(f"{stage} …")
            told = True
        time.sleep(_POLL_S)


def _new_lines(answer: IO[bytes], offset: int) -> tuple[list[bytes], int]:
    """Whole lines beyond `offset`, and where they end. The child writes at the same file's position: hence pread."""
    new = os.pread(answer.fileno(), os.fstat(answer.fileno()).st_size - offset, offset)
    whole = new[: new.rfind(b"\n") + 1]
    return whole.splitlines(), offset + len(whole)


def _ended(request: Request, stage: str, exit_code: int | None, limit_s: float) -> str:
    """In words: None for a process that is to be killed."""
    name = f"environment {request.config.id}"
    if exit_code is None:
        return f"{name} hung while {stage}: killed after {limit_s:g} s; --timeout gives it longer"
    if exit_code < 0:
        return f"{name} crashed while {stage}: {signal.Signals(-exit_code).name}"
    return f"{name} ended its process while {stage}, with exit code {exit_code}"


def _failed(message: str, detail: str, cannot_be_made: bool) -> DistrlError:
    error = ConfigError(message) if cannot_be_made else EnvironmentFailedError(message)
    if detail:
        error.add_note(detail)
    return error


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
