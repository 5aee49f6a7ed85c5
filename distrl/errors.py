"""The exception tree. Each message is one line: the problem, the value, the remedy.

    DistrlError                     1   unexpected
    ├── ConfigError                 2   usage or configuration; also an environment that cannot be started
    │   ├── MissingExtraError       2   an optional dependency is not installed
    │   └── RunKeyError             2   the key of the run is missing, or another launch's
    ├── EnvironmentFailedError      3   the environment keeps failing while training
    ├── StalledError                4   no progress for `learner.stall_timeout_s`
    ├── NonFiniteError              5   loss, gradient or weights are not finite
    ├── MemoryBackendError          6   Redis is unreachable or misbehaves
    │   ├── MissingRunError         6   Redis has no such run
    │   ├── OutageError             6   Redis cannot be reached, or accepts no commands for now
    │   ├── ForeignKeyError         6   another program has written a key of the run
    │   └── FencedError             6   another learner, or a later launch, has taken over this run
    ├── StoreError                  6   the data store cannot be reached, or refuses
    ├── UnsavedError                1   the run's directory does not take the last updates
    ├── ExitError                   1   code of the run has called sys.exit
    ├── VersionError                1   the version of weights is not above the published one
    ├── CheckpointError             2   no valid checkpoint where one is needed
    └── RejectedError               1   an unroll that must not be trained on; `reason` is counted in the ledger
        ├── DecodeError                 bytes that are not what the strict decoder allows
        ├── SchemaError                 arrays that do not have the run's shapes and dtypes
        ├── NonFiniteUnrollError        NaN or infinity in an unroll
        └── PoisonError                 learners have died while they decoded it

The number is `exit_code`, with which the command line exits.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_TEXT = 2000
"""Longest error that is printed, in characters; others, with their arrays and documents, would hide it."""
_ODD = re.compile(r"[^\x20-\x7e]")
_ODD_IN_LINES = re.compile(r"(\x1b\[(?:[0-2]|3[0-7]|9[0-7])m|[\n\t])|[^\x20-\x7e]")
EXIT_OK = 0
EXIT_INTERRUPTED = 130


class DistrlError(Exception):
    """Root of distrl's own errors."""

    exit_code = 1


class ConfigError(DistrlError):
    """Wrong usage or configuration; the message names the value and a right one."""

    exit_code = 2


class MissingExtraError(ConfigError):
    """An optional dependency is missing; the message names the extra that carries it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed: {how_to_install(extra)}")


class RunKeyError(ConfigError):
    """The run's key cannot be read, or has not signed the run's description."""


class EnvironmentFailedError(DistrlError):
    """The environment keeps failing beyond the restart budget."""

    exit_code = 3


class StalledError(DistrlError):
    """No progress for `learner.stall_timeout_s`."""

    exit_code = 4


class NonFiniteError(DistrlError):
    """NaN or infinity in loss, gradient or weights; never published."""

    exit_code = 5


class MemoryBackendError(DistrlError):
    """The memory backend is unreachable or refuses a command."""

    exit_code = 6


class MissingRunError(MemoryBackendError):
    """Redis has no run of that id: it has not begun, it has ended, or Redis has lost its data.

    Attributes:
        ended: The run was there before, and the connection has not broken since: it has ended.
    """

    def __init__(self, message: str, *, ended: bool = False) -> None:
        super().__init__(message)
        self.ended = ended


class OutageError(MemoryBackendError):
    """Redis could not be reached, or refused commands that it may accept later, for as long as the role waits."""


class ForeignKeyError(MemoryBackendError):
    """A key of the run holds a type that no role writes: another program has written it."""


class FencedError(MemoryBackendError):
    """A newer learner holds the run's fencing token, or the run was launched again."""


class StoreError(DistrlError):
    """The data store of checkpoints does not answer, or refuses a request."""

    exit_code = 6


class ExitError(DistrlError):
    """The user's code has called sys.exit where it should have raised, which would end distrl as if all were well."""

    def __init__(self, error: SystemExit) -> None:
        super().__init__(f"code of the run called sys.exit({error.code!r}), which only its end may; raise an error")


class UnsavedError(DistrlError):
    """The training has ended, and the run's directory does not take its last updates."""


class VersionError(DistrlError, ValueError):
    """The version of weights is not above the published one."""


class CheckpointError(DistrlError):
    """A checkpoint is needed and none is valid."""

    exit_code = 2


class RejectedError(DistrlError):
    """An unroll that must not be trained on."""

    reason = "schema"


class DecodeError(RejectedError):
    """Bytes outside the strict decoder's allow-list."""

    reason = "decode"


class SchemaError(RejectedError):
    """Arrays that do not match the run's spaces, unroll length or dtypes."""

    reason = "schema"


class NonFiniteUnrollError(RejectedError):
    """NaN or infinity in observations, rewards or log-probabilities of an unroll."""

    reason = "nonfinite"


class PoisonError(RejectedError):
    """An entry during whose decoding several learners have died."""

    reason = "poison"


def failure(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the line of text for an error that ended a command."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED, "interrupted"
    if isinstance(error, DistrlError):
        return error.exit_code, bounded(str(error))
    return DistrlError.exit_code, bounded(f"unexpected {type(error).__name__}: {error}")


def one_line(text: object) -> str:
    """Return a text, such as that of an error, as one line."""
    return " ".join(str(text).split())


def bounded(text: str, most: int = LONGEST_TEXT) -> str:
    """Return a text of at most about `most` characters: of a longer one, such as an array in an error, both ends."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {len(text) - most:,} characters … {text[-(most - most // 2) :]}"


def printable(text: str) -> str:
    """Replace characters that could command a terminal, such as escape sequences in a name or an error, by '?'.

    Bytes of file names that are no UTF-8 are shown as they are escaped: \\xff.
    """
    return _ODD.sub(lambda found: _shown(found[0]), text)


def printable_lines(text: str) -> str:
    """Do as `printable` in a text of several lines; tabs and the colours of distrl's own output stay."""
    return _ODD_IN_LINES.sub(lambda found: found[1] or _shown(found[0]), text)


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else "?"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an OSError that names no file, as those of `write`, `flush` and `close` do."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def require(module: str, what: str, extra: str) -> None:
    """Raise MissingExtraError unless `module` can be imported; do not import it."""
    from importlib.util import find_spec

    found = find_spec(module)
    if found is None or found.origin is None:  # a folder of that name, such as W&B's own wandb/, is no library
        raise MissingExtraError(what, extra)


def how_to_install(extra: str = "") -> str:
    """Return the pip command that adds an extra to this installation of distrl, from the same source."""
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file():
        source = str(checkout)
    else:
        try:
            # pip and uv write it unless the package came from an index (PEP 610).
            url = json.loads(distribution("distrl").read_text("direct_url.json") or "{}").get("url", "distrl")
        except PackageNotFoundError:
            url = "distrl"
        source = unquote(urlsplit(url).path) if url.startswith("file:") else url
    return f"pip install {shlex.quote(f'{source}[{extra}]' if extra else source)}"
