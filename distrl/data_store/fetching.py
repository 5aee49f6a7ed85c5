"""Fetch a run from a data store into a run's directory, and check every byte of its checkpoints.

`checkpoints/writer` in the directory names the run and the writer (see `stored_run`) that its checkpoints are of.
"""

import re
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from distrl.data_store import atomic, checkpoints
from distrl.data_store.stored_run import FOLDER, REPLAY_FILES, CheckpointPosition, Listing, StoredRun
from distrl.errors import CheckpointError
from distrl.files import read_small

PATIENCE_S = 2.0
"""A download that takes longer reports its progress, and again each time that this has passed."""
RUN_FILES = ("config.yaml", "manifest.json", "metrics.csv", "evaluations.jsonl", "data.json", "policy/", "logs/")
"""Files, and folders of files, that a run takes along to another host."""
MOST_FILE_BYTES = 2**31
"""Largest of them that is fetched."""
_FILE = re.compile(r"([a-z]+/)?[A-Za-z0-9_][A-Za-z0-9_.-]*")  # a name that leads nowhere else
_CHECKPOINT_FILE = re.compile(r"[a-z][a-z0-9_.]*")
"""A file of a checkpoint, which has no folders."""
_PLACE = f"{atomic.TEMPORARY}store"
Report = Callable[[str], None]


@dataclass
class Fetched:
    """Result of `fetch_newest`.

    Attributes:
        writer: Highest claim in the store.
        position: The checkpoint that was fetched; None: the directory's own is at least as new, or there is none.
        held: The directory's newest valid checkpoint, whether it was fetched or not; None: it has none of the run.
        rejected: (URL, reason) of newer checkpoints in the store, or of the best one, that are not valid.
    """

    writer: int
    position: CheckpointPosition | None = None
    held: CheckpointPosition | None = None
    rejected: list[tuple[str, str]] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Lines about what was fetched and what was not, for operators."""
        notes = [f"passed over {url}: {reason}" for url, reason in self.rejected]
        return (
            notes if self.position is None else [*notes, f"fetched checkpoint {self.position.name} from the data store"]
        )


def fetch_newest(run: StoredRun, run_dir: Path, files: Collection[str], report: Report) -> Fetched:
    """Fetch the newest valid checkpoint, and the best one, unless the directory has one that is at least as new.

    Checkpoints of an older writer with the same or later steps are moved to `checkpoints.of-writer-N`.

    Args:
        files: Files of the run, and folders of files with a slash at their end, that come with it.
        report: Takes lines about the progress of what takes long.

    Raises:
        StoreError: The store does not answer.
        CheckpointError: The store has checkpoints, none of them is valid, and the directory has none.
    """
    own = own_position(run_dir, run.run_id)
    listing = run.look()
    fetched = Fetched(listing.writer, held=own)
    while True:
        passed_over = {url.rpartition("/")[2] for url, _ in fetched.rejected}
        position = next((found for found in listing.complete if found.name not in passed_over), None)
        if position is None or (own is not None and position <= own):
            if fetched.rejected and own is None:
                reasons = "; ".join(reason for _, reason in fetched.rejected)
                raise CheckpointError(f"{run.url} holds checkpoints, and none is valid: {reasons}")
            return fetched
        try:
            place = _fetch(run, position, listing, run_dir / FOLDER, report)
        except CheckpointError as error:
            fetched.rejected.append((f"{run.url}/{FOLDER}/{position.name}", str(error)))
            listing = run.look()  # its writer may have removed it meanwhile
            continue
        _settle(run, run_dir, place, position, own)
        fetched.position = fetched.held = position
        if (without := _fetch_best(run, listing, run_dir, position, report)) is not None:
            fetched.rejected.append(without)
        fetch_files(run, run_dir, files)
        return fetched


def own_position(run_dir: Path, run_id: str) -> CheckpointPosition | None:
    """Return the position of a directory's newest valid checkpoint; None without one, or if it is of another run."""
    try:
        loaded = checkpoints.load_newest(run_dir / FOLDER)
    except CheckpointError:
        return None
    if loaded is None:
        return None
    written_by, writer = written(run_dir)
    return None if written_by not in ("", run_id) else CheckpointPosition(writer, loaded.step)


def written(run_dir: Path) -> tuple[str, int]:
    """Return the run and the writer of a directory's checkpoints; ("", 0) if no store was in use."""
    try:
        text = read_small(run_dir / FOLDER / checkpoints.WRITER).decode()
        run_id, _, number = text.strip().rpartition(" ")
        return run_id, int(number)
    except (FileNotFoundError, ValueError):
        return "", 0


def write_writer(run_dir: Path, run_id: str, writer: int) -> None:
    """Record whose the checkpoints of a directory are from now on."""
    (run_dir / FOLDER).mkdir(parents=True, exist_ok=True)
    atomic.put_file(run_dir / FOLDER / checkpoints.WRITER, f"{run_id} {writer}\n".encode())


def fetch_files(run: StoredRun, directory: Path, files: Collection[str]) -> None:
    """Fetch files of the run into a directory, and replace those that are there; missing ones are passed over."""
    names: list[str] = []
    for name in files:
        names += [*run.objects.sizes(f"{run.run_id}/{name[:-1]}")] if name.endswith("/") else [f"{run.run_id}/{name}"]
    for name in names:
        content = run.objects.get(name, MOST_FILE_BYTES)
        relative = name.removeprefix(f"{run.run_id}/")
        if content is None or not _FILE.fullmatch(relative):
            continue
        (directory / relative).parent.mkdir(parents=True, exist_ok=True)
        atomic.put_file(directory / relative, content, private=relative == "config.yaml")


def fetch_checkpoint(
    run: StoredRun, position: CheckpointPosition, folder: Path, report: Report, groups: Collection[str] | None = None
) -> Path:
    """Fetch one checkpoint into a folder of checkpoints, which has none of its step; return its directory.

    Args:
        groups: Fetch only these and what is no array; None: all, without the replay memories.

    Raises:
        CheckpointError: It is not valid, or is gone.
    """
    place = _fetch(run, position, run.look(), folder, report, groups, without=REPLAY_FILES)
    path = folder / place.name
    place.rename(path)
    shutil.rmtree(folder / _PLACE)
    return path


def _fetch(
    run: StoredRun,
    position: CheckpointPosition,
    listing: Listing,
    folder: Path,
    report: Report,
    groups: Collection[str] | None = None,
    without: Collection[str] = (),
) -> Path:
    """Fetch a checkpoint into a temporary place in `folder`, and check it."""
    sizes = {name: size for name, size in listing.all.get(position, {}).items() if name not in without}
    if groups is not None:
        needed = {"manifest.json", "meta.json", *(f"{group}.npz" for group in groups)}
        sizes = {name: size for name, size in sizes.items() if name in needed}
    place = folder / _PLACE / f"ckpt-{position.step:012d}"
    shutil.rmtree(folder / _PLACE, ignore_errors=True)
    place.mkdir(parents=True)
    progress = _Progress(f"fetching checkpoint {position.name}", sum(sizes.values()), report)
    try:
        for name, size_bytes in sizes.items():
            if name not in REPLAY_FILES and not _CHECKPOINT_FILE.fullmatch(name):
                continue
            path = checkpoints.replay_path(place, REPLAY_FILES[name]) if name in REPLAY_FILES else place / name
            _fetch_file(run, f"{run.run_id}/{FOLDER}/{position.name}/{name}", size_bytes, path, progress)
        checkpoints.load(place, groups)
        for memory, path in checkpoints.replay_paths(place).items():
            _check_replay(place, memory, path, lambda why: report(f"checkpoint {position.name}: {why}"))
    except BaseException:
        shutil.rmtree(folder / _PLACE, ignore_errors=True)
        raise
    return place


def _check_replay(place: Path, memory: str, path: Path, report: Report) -> None:
    """Check a replay memory that has been fetched; remove it if the checkpoint's manifest does not name it.

    Raises:
        CheckpointError: It is not the one that the manifest names.
    """
    if path.exists() and not checkpoints.names_replay(checkpoints.read_manifest(place), memory):
        path.unlink()
        report("its replay memory is left out; an earlier version saved it unverified")
    with suppress(FileNotFoundError), checkpoints.opened_replay(place, memory):
        pass


def _fetch_file(run: StoredRun, name: str, size_bytes: int, path: Path, progress: "_Progress") -> None:
    with path.open("wb") as file:
        for block in run.objects.blocks(name, size_bytes):
            file.write(block)
            progress.add(len(block))


def _settle(
    run: StoredRun, run_dir: Path, place: Path, position: CheckpointPosition, own: CheckpointPosition | None
) -> None:
    """Make a fetched checkpoint the newest one of the directory."""
    folder = run_dir / FOLDER
    if any(checkpoints.step_of(path) >= position.step for path in checkpoints.newest_first(folder)):
        fetched = run_dir / _PLACE
        shutil.rmtree(fetched, ignore_errors=True)
        (folder / _PLACE).rename(fetched)
        folder.rename(_free(run_dir, f"{FOLDER}.of-writer-{0 if own is None else own.writer}"))
        folder.mkdir()
        fetched.rename(folder / _PLACE)
    for replay in filter(Path.exists, checkpoints.replay_paths(place).values()):
        replay.rename(folder / replay.name)
    place.rename(folder / place.name)
    shutil.rmtree(folder / _PLACE)
    write_writer(run_dir, run.run_id, position.writer)


def _free(folder: Path, name: str) -> Path:
    paths = (folder / f"{name}{f'-{number}' if number else ''}" for number in range(1000))
    return next(path for path in paths if not path.exists())


def _fetch_best(
    run: StoredRun, listing: Listing, run_dir: Path, newest: CheckpointPosition, report: Report
) -> tuple[str, str] | None:
    """Fetch and mark the best checkpoint; return its URL and the reason if it is not valid."""
    best = run.best(listing)
    if best is None:
        return None
    path = run_dir / FOLDER / f"ckpt-{best.step:012d}"
    if best != newest and not path.exists():
        try:
            fetch_checkpoint(run, best, run_dir / FOLDER, report)
        except CheckpointError as error:
            return f"{run.url}/{FOLDER}/{best.name}", str(error)
    atomic.put_file(run_dir / FOLDER / "best", path.name.encode() + b"\n")
    return None


class _Progress:
    """Reports how much of a download is there, and how long the rest will take."""

    def __init__(self, what: str, size_bytes: int, report: Report) -> None:
        self._what, self._size, self._report = what, max(size_bytes, 1), report
        self._done = 0
        self._began = self._reported = time.monotonic()

    def add(self, count: int) -> None:
        """Count bytes that have arrived."""
        self._done += count
        now = time.monotonic()
        if now - self._reported >= PATIENCE_S:
            self._reported = now
            left_s = (now - self._began) * (self._size - self._done) / self._done
            whole = f"{self._size / 1e6:,.0f} MB"
            self._report(f"{self._what}: {self._done / self._size:.0%} of {whole}, {left_s:.0f} s left")
