"""Checkpoints on disk, written atomically and checked when read.

    checkpoints/
        ckpt-000000001200/          one checkpoint; the number is its step
            <group>.npz             arrays by name, one file per group (main.online, main.optimizer, ...); no pickle
            meta.json               counters and schedules: everything that is not an array
            manifest.json           schema version, step, library versions, size and sha256 of every other file, and of
                                    the replay memories
        replay-000000001200.npz     the replay memory as of that step, if it is saved; the newest alone is kept
        replay-000000001200-data.npz    likewise, how recorded items are drawn
        best                        the name of the best checkpoint, one line
        writer                      with a data store: the run, and its claim there; written by the thread that stores

A crash at any moment of a `save` leaves the earlier checkpoints as they were, and at most a temporary directory, which
the next save removes. One process writes a directory of checkpoints at a time; any number may read.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from io import BufferedReader
from pathlib import Path
from platform import python_version
from typing import IO, Any, TypeAlias

from distrl.data_store import atomic, npz
from distrl.errors import CheckpointError, ConfigError
from distrl.files import open_regular, read_small
from distrl.types import Array

SCHEMA_VERSION = 1
ACTING = "main.online"
"""The group of a learner's checkpoint with the weights that it publishes."""
WRITER = "writer"
REPLAY, RECORDED_REPLAY = REPLAYS = "replay", "replay-data"
"""A checkpoint's replay memories, by their names in its manifest: of actors' steps, and of recorded ones."""
JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_GROUP = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_CHECKPOINT = re.compile(r"ckpt-(\d{12,})(\.replaced)?")
_MANIFEST_BYTES = 2**20
"""Longest manifest that is read, as its length is not recorded."""
_LIBRARIES = ("distrl", "numpy", "keras", "tensorflow", "tensorflow-cpu", "jax")


@dataclass(frozen=True)
class Recorded:
    """Size and hash of a file, as a manifest has them."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint whose every file matched its manifest.

    Attributes:
        step: Number of the checkpoint.
        arrays: group -> name -> array.
        meta: Values saved beside the arrays.
        path: Its directory.
        rejected: (path, reason) of newer checkpoints that were not valid.
    """

    step: int
    arrays: dict[str, dict[str, Array]]
    meta: dict[str, JSON]
    path: Path
    rejected: list[tuple[Path, str]] = field(default_factory=list)


def save(
    directory: Path,
    step: int,
    arrays: Mapping[str, Mapping[str, Array]],
    meta: Mapping[str, JSON],
    *,
    keep: int,
    best: bool = False,
    replays: "Mapping[str, Recorded] | None" = None,
) -> Path:
    """Write one checkpoint, then remove all but the newest `keep` and the best.

    Args:
        directory: Directory of one run's checkpoints; created if missing.
        step: Number of the checkpoint, at least 0. A checkpoint of the same step is replaced.
        arrays: group -> name -> array of booleans or numbers. Groups are file names, such as `main.online`: lower-case
            words, joined by dots.
        meta: Values that JSON can hold.
        keep: Number of newest checkpoints to keep, at least 1.
        best: Mark this checkpoint as the best; it is kept until another one is marked.
        replays: What `save_replay` returned of the same step, by the memory's name.

    Returns:
        The checkpoint's directory.

    Raises:
        ValueError: A group or name is not allowed, an array holds objects, or `meta` holds NaN.
        OSError: The disk is full or fails; earlier checkpoints are untouched.
    """
    if step < 0 or keep < 1:
        raise ValueError(f"a checkpoint needs step >= 0 and keep >= 1, got step {step}, keep {keep}")
    if bad := [group for group in arrays if not _GROUP.fullmatch(group)]:
        raise ValueError(f"a group's name is lower-case words joined by dots, got {bad[0]!r}")
    files = {f"{group}.npz": npz.encode(named) for group, named in arrays.items()}
    files["meta.json"] = _json(dict(meta))
    manifest = _manifest(step, files) | {memory: saved.__dict__ for memory, saved in (replays or {}).items()}
    files["manifest.json"] = _json(manifest)
    directory.mkdir(parents=True, exist_ok=True)
    atomic.remove_temporaries(directory, spare=WRITER)
    path = directory / f"ckpt-{step:012d}"
    atomic.put_directory(path, files)
    if best:
        mark_best(path)
    _prune(directory, step, keep)
    return path


def replay_path(path: Path, memory: str = REPLAY) -> Path:
    """Return the file with a replay memory of a checkpoint."""
    return path.with_name(f"{REPLAY}-{step_of(path):012d}{memory.removeprefix(REPLAY)}.npz")


def replay_paths(path: Path) -> dict[str, Path]:
    """Return the files that may have replay memories of a checkpoint, by the memories' names."""
    return {memory: replay_path(path, memory) for memory in REPLAYS}


def save_replay(directory: Path, step: int, arrays: Mapping[str, Array], memory: str = REPLAY) -> Recorded:
    """Write a replay memory of a checkpoint that is yet to be written; return what its manifest must have of it."""
    directory.mkdir(parents=True, exist_ok=True)
    with atomic.file(replay_path(directory / f"ckpt-{step:012d}", memory)) as file:
        hashed = _Hashed(file)
        npz.write(hashed, arrays)
    return Recorded(hashed.bytes, hashed.hash.hexdigest())


@contextmanager
def opened_replay(path: Path, memory: str = REPLAY) -> Iterator[BufferedReader]:
    """Open a replay memory of a checkpoint, and check every byte of it.

    Args:
        path: The checkpoint's directory.
        memory: The memory's name.

    Raises:
        FileNotFoundError: There is none.
        CheckpointError: It is not the one that the checkpoint's manifest names, or cannot be read.
    """
    file_path = replay_path(path, memory)
    try:
        file = open_regular(file_path, links=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{file_path}: {error.strerror}") from error
    with file:
        if not is_recorded(read_manifest(path), hashlib.file_digest(file, "sha256").hexdigest(), memory):
            raise CheckpointError(f"{file_path} is not the one that the checkpoint's manifest names")
        file.seek(0)
        yield file


def names_replay(manifest: Mapping[str, Any], memory: str = REPLAY) -> bool:
    """Whether a manifest names a replay memory; those of earlier versions do not, even if there is one."""
    return memory in manifest


def is_recorded(manifest: Mapping[str, Any], sha256: str, memory: str = REPLAY) -> bool:
    """Whether a manifest names a replay memory of this hash."""
    found = manifest.get(memory)
    return isinstance(found, dict) and found.get("sha256") == sha256


class _Hashed:
    """Passes bytes on to a file, and hashes them meanwhile: a memory may have many GB."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes, self.hash = 0, hashlib.sha256()

    def write(self, content: Any, /) -> int:
        self.hash.update(content)
        self.bytes += memoryview(content).nbytes  # len() counts items
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def load(path: Path, groups: Collection[str] | None = None) -> LoadedCheckpoint:
    """Read one checkpoint and check every byte of it.

    Args:
        groups: Read only these and `meta`; missing ones are left out. None: all.

    Raises:
        CheckpointError: A file is missing, unreadable, cut short, changed, from another schema version, a link, or
            it holds something that a checkpoint must not (objects, unknown files).
    """
    try:
        manifest = read_manifest(path)
        files = {
            name: _read_file(path / name, entry)
            for name, entry in manifest["files"].items()
            if groups is None or name == "meta.json" or name.removesuffix(".npz") in groups
        }
        meta = json.loads(files.pop("meta.json"))
        if not isinstance(meta, dict):
            raise ValueError(f"meta.json holds a {type(meta).__name__}, not a mapping")
        arrays = {name.removesuffix(".npz"): npz.decode(content) for name, content in files.items()}
        return LoadedCheckpoint(manifest["step"], arrays, meta, path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # A manifest or a file that is not what `save` writes can fail in each of these ways.
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"checkpoint {path} is not valid: {' '.join(reason.split())}") from error


def load_newest(directory: Path) -> LoadedCheckpoint | None:
    """Load the newest valid checkpoint, and report the newer invalid ones; None if there is no checkpoint.

    Raises:
        CheckpointError: There are checkpoints, and none is valid; the message has every reason.
    """
    rejected: list[tuple[Path, str]] = []
    for _, path in _checkpoints(directory):
        try:
            return replace(load(path), rejected=rejected)
        except CheckpointError as error:
            rejected.append((path, str(error)))
    if rejected:
        raise CheckpointError("; ".join(reason for _, reason in rejected))
    return None


def newest_first(directory: Path) -> list[Path]:
    """Return the directories of all checkpoints, valid or not, newest first."""
    return [path for _, path in _checkpoints(directory)]


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint's directory.

    Raises:
        ValueError: It is not the name of a checkpoint.
    """
    match = _CHECKPOINT.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} does not have the name of a checkpoint")
    return int(match[1])


def mark_best(path: Path) -> None:
    """Mark a checkpoint as the best of its directory."""
    atomic.put_file(path.parent / "best", path.name.encode() + b"\n")


def best_path(directory: Path) -> Path | None:
    """Return the best checkpoint's directory; None if none is marked, or if the mark is damaged."""
    try:
        name = read_small(directory / "best", links=False).decode("ascii", errors="replace").strip()
    except (FileNotFoundError, IsADirectoryError, ConfigError):  # of no checkpoint's name, nor a file
        return None
    if not _CHECKPOINT.fullmatch(name):
        return None
    path = directory / name
    return path if path.is_dir() else atomic.replaced(path)


def _manifest(step: int, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "step": step,
        "libraries": {"python": python_version()} | dict(_library_versions()),
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        },
    }


def _library_versions() -> Iterator[tuple[str, str]]:
    """Yield (name, version) of installed libraries, without importing them."""
    for name in _LIBRARIES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a checkpoint's manifest.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError: It is not one that `save` writes.
    """
    if path.is_symlink():
        raise ValueError("it is a symbolic link")
    manifest: dict[str, Any] = json.loads(_read_own(path / "manifest.json", None))
    if manifest["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema version {manifest['schema_version']}, this distrl reads {SCHEMA_VERSION}")
    if f"ckpt-{manifest['step']:012d}" != path.name.removesuffix(".replaced"):
        raise ValueError(f"its manifest is that of step {manifest['step']}")
    for name in manifest["files"]:
        if name != "meta.json" and not (name.endswith(".npz") and _GROUP.fullmatch(name.removesuffix(".npz"))):
            raise ValueError(f"its manifest names a file that no checkpoint has: {name!r}")
    return manifest


def _read_file(path: Path, entry: Mapping[str, Any]) -> bytes:
    """Return the file's bytes if they match the manifest."""
    content = _read_own(path, entry["bytes"])
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ValueError(f"{path.name} does not match its sha256")
    return content


def _read_own(path: Path, size_bytes: int | None) -> bytes:
    """Read a regular file, and refuse links, pipes and devices.

    Args:
        size_bytes: Size in the manifest; None for the manifest itself.
    """
    with open_regular(path, links=False) as file:
        told = os.fstat(file.fileno())
        limit = _MANIFEST_BYTES if size_bytes is None else size_bytes
        if told.st_size > limit or (size_bytes is not None and told.st_size != size_bytes):
            longer = "more" if told.st_size > limit else f"{told.st_size}"
            raise ValueError(f"{path.name} has {longer} bytes instead of {limit}")
        return file.read(told.st_size)


def _checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of all checkpoints, newest first; a replaced one follows its successor."""
    if not directory.is_dir():
        return []
    found = [(match, path) for path in directory.iterdir() if (match := _CHECKPOINT.fullmatch(path.name))]
    found.sort(key=lambda item: (-int(item[0][1]), item[0][2] is not None))
    return [(int(match[1]), path) for match, path in found]


def _prune(directory: Path, step: int, keep: int) -> None:
    """Remove checkpoints older than the newest `keep` up to `step`; later ones were rejected and do not count."""
    best = best_path(directory)
    past = [path for number, path in _checkpoints(directory) if number <= step]
    kept = [path for path in past if not path.name.endswith(".replaced")][:keep]
    for path in past:
        if path != best and path not in kept:
            atomic.remove_directory(path)
