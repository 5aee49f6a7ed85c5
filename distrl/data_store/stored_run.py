"""A run's folder in a data store: its checkpoints, their one writer, and copies of the run's files.

    <run id>/
        checkpoints/
            writer-000000                   made by the launch that began the run: only one can
            writer-000002                   claim of the second learner: its launch, and the checkpoint it goes on from
            000002-000000001200/            a checkpoint: number of its writer, step
                <group>.npz, meta.json      as in the run's directory
                replay.npz, replay-data.npz the replay memories, where checkpoints hold them
                manifest.json               written last: without it there is no checkpoint
            best                            name of the best checkpoint
        policy/, config.yaml, metrics.csv, logs/, ...

A store has no rename and no locks. So the launch of a new run creates the claim 0, and every learner that trains
creates the next claim, which only one can do. A writer looks for a higher claim before it writes a manifest and before
it removes anything; if there is one, it stops. It may still write a manifest just after another learner has claimed.
Therefore readers pass over every checkpoint that is newer than the one from which the next writer claims to go on: a
learner that was taken for dead never makes its checkpoint the newest one. Its claim comes before the newer writer's
first checkpoint, and the newest two checkpoints are never removed, so the one before stays.
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

from distrl.data_store.checkpoints import REPLAYS, is_recorded, names_replay, read_manifest
from distrl.data_store.objects import Objects
from distrl.errors import CheckpointError, FencedError, StoreError
from distrl.files import open_regular

FOLDER = "checkpoints"
REPLAY_FILES = {f"{memory}.npz": memory for memory in REPLAYS}
_MANIFEST = "manifest.json"
_BEST = "best"
_LEAST_KEPT = 2
_BEGUN = 0
"""Number of the claim of the launch that began the run; those of learners are higher."""
_POSITION = re.compile(r"(\d{6,})-(\d{12,})")
_CHECKPOINT = re.compile(_POSITION.pattern + "/(.+)")
_CLAIM = re.compile(r"writer-(\d{6,})")


class CheckpointPosition(NamedTuple):
    """A checkpoint's place in the order of a run's checkpoints: the number of its writer, then its step."""

    writer: int
    step: int

    @property
    def name(self) -> str:
        """Name of the checkpoint's folder."""
        return f"{self.writer:06d}-{self.step:012d}"


class GoingBack(NamedTuple):
    """A run's return to an earlier checkpoint, which counts until a learner claims the run to go on from there.

    Attributes:
        after: Highest claim when the return was planned.
        to: The checkpoint. Those that are newer are passed over.
    """

    after: int
    to: CheckpointPosition


@dataclass(frozen=True)
class Listing:
    """The checkpoints that one look has found.

    Attributes:
        complete: File -> size in bytes of every checkpoint that has a manifest and counts; newest first.
        writer: Highest claim of a learner; 0: none.
        is_begun: Whether a launch or a learner has claimed the run.
        all: File -> size of every folder, complete or not.
        has_best: Whether a checkpoint is marked as the best.
    """

    complete: Mapping[CheckpointPosition, Mapping[str, int]]
    writer: int
    is_begun: bool
    all: Mapping[CheckpointPosition, Mapping[str, int]]
    has_best: bool

    @property
    def newest(self) -> CheckpointPosition | None:
        return next(iter(self.complete), None)


class StoredRun:
    """One run's folder.

    Args:
        run_id: As `checked_run_id` accepts it.
        back: The return that its next learner is to make; None: it goes on from the newest checkpoint.
    """

    def __init__(self, objects: Objects, run_id: str, back: GoingBack | None = None) -> None:
        if not run_id.strip("."):
            raise ValueError(f"{run_id!r} is no name of a folder")
        self.objects, self.run_id, self._back = objects, run_id, back
        self._claims: dict[int, Mapping[str, Any]] = {}  # a claim never changes

    @property
    def url(self) -> str:
        return f"{self.objects.url}/{self.run_id}"

    def look(self) -> Listing:
        """List claims and checkpoints, with one request for each thousand files, and one for each claim not yet read.

        Raises:
            StoreError: The store does not answer, or a claim is damaged.
        """
        claims, has_best, found = set[int](), False, dict[CheckpointPosition, dict[str, int]]()
        prefix = f"{self.run_id}/{FOLDER}/"
        for path, size_bytes in self.objects.sizes(f"{self.run_id}/{FOLDER}").items():
            name = path.removeprefix(prefix)
            if (claim := _CLAIM.fullmatch(name)) is not None:
                claims.add(int(claim[1]))
            elif (part := _CHECKPOINT.fullmatch(name)) is not None:
                found.setdefault(CheckpointPosition(int(part[1]), int(part[2])), {})[part[3]] = size_bytes
            elif name == _BEST:
                has_best = True
        complete = [position for position in sorted(found, reverse=True) if _MANIFEST in found[position]]
        writer = max(claims, default=0)
        counting = {position: found[position] for position in self._counting(complete, writer)}
        return Listing(counting, writer, bool(claims), found, has_best)

    def _counting(self, complete: list[CheckpointPosition], highest: int) -> Iterator[CheckpointPosition]:
        """Yield the checkpoints that are no newer than the one from which the next writer goes on."""
        bound, number = CheckpointPosition(highest + 1, 0), highest
        if self._back is not None and self._back.after == highest:
            bound = self._back.to
        for position in complete:
            while number > position.writer:
                bound, number = min(bound, self._base(number)), number - 1
            if position <= bound:
                yield position

    def _base(self, number: int) -> CheckpointPosition:
        base = self.claim(number).get("base")
        if base is None:
            return CheckpointPosition(0, 0)
        found = _POSITION.fullmatch(str(base))
        if found is None:
            raise StoreError(f"{self.url}: the claim {_claim(number)} is damaged: base {base!r}")
        return CheckpointPosition(int(found[1]), int(found[2]))

    def claim(self, number: int) -> Mapping[str, Any]:
        """Return a claim: `base`, the name of a checkpoint or None, and `launch`, the token of the launch."""
        if number not in self._claims:
            name = _claim(number)
            content = self.objects.get(f"{self.run_id}/{FOLDER}/{name}")
            try:
                found = json.loads(content or b"")
            except ValueError as error:
                raise StoreError(f"{self.url}: the claim {name} is damaged: {error}") from error
            if not isinstance(found, dict):
                raise StoreError(f"{self.url}: the claim {name} is damaged")
            self._claims[number] = found
        return self._claims[number]

    def best(self, listing: Listing) -> CheckpointPosition | None:
        """Return the best checkpoint that still exists."""
        content = self.objects.get(f"{self.run_id}/{FOLDER}/{_BEST}") if listing.has_best else None
        name = (content or b"").decode(errors="replace").strip()
        return next((position for position in listing.complete if position.name == name), None)

    def manifest(self, position: CheckpointPosition) -> bytes | None:
        """Return the manifest of a checkpoint; None if it is gone."""
        return self.objects.get(f"{self.run_id}/{FOLDER}/{position.name}/{_MANIFEST}")

    def begin(self) -> bool:
        """Claim the folder for a new run, before its first learner does; return False if it holds a run."""
        content = {"base": None, "launch": "", "token": secrets.token_hex(8)}
        return not self.look().is_begun and self.create_claim(_BEGUN, content)

    def withdraw(self) -> None:
        """Take `begin` back: the launch is refused."""
        self.objects.remove([f"{self.run_id}/{FOLDER}/{_claim(_BEGUN)}"])
        self._claims.pop(_BEGUN, None)

    def create_claim(self, number: int, content: Mapping[str, Any]) -> bool:
        """Create a claim; return False if another one has the number."""
        created = self.objects.create(f"{self.run_id}/{FOLDER}/{_claim(number)}", json.dumps(content).encode())
        # The libraries repeat a request whose answer was lost.
        token = content["token"]
        return created or (token is not None and self.claim(number).get("token") == token)


def _claim(number: int) -> str:
    return f"writer-{number:06d}"


class Writer:
    """The writer of a run's checkpoints, until another learner claims a higher number."""

    def __init__(self, run: StoredRun, number: int) -> None:
        self.run, self.number = run, number

    @classmethod
    def claim(
        cls, run: StoredRun, after: int, launch: str, base: CheckpointPosition | None = None, token: str | None = None
    ) -> "Writer":
        """Claim the number after the highest known one.

        Args:
            after: The highest claim when the learner's state was chosen.
            base: The checkpoint from which the learner goes on. If there is none, or the store does not have it yet,
                the claim names the newest one in the store.
            token: Names this writer, so that it knows its own claim again if the store's answer was lost.

        Raises:
            FencedError: Another learner has claimed meanwhile.
        """
        listing, number = run.look(), after + 1
        if token is not None and listing.writer == number and run.claim(number).get("token") == token:
            return cls(run, number)
        if listing.writer > after:
            raise _fenced(run, listing.writer)
        known = [position for position in (base, listing.newest) if position is not None and listing.newest is not None]
        text = {"base": min(known).name if known else None, "launch": launch, "token": token}
        if not run.create_claim(number, text):
            raise _fenced(run, number)
        return cls(run, number)

    def store(self, path: Path, step: int, replays: Mapping[str, Path], *, best: bool, keep: int) -> None:
        """Store a checkpoint of the run's directory, then remove all but the newest `keep` and the best.

        Args:
            path: Its directory; read while it exists, so that later ones may replace it meanwhile.
            replays: The files of its replay memories by name; those are stored that the manifest names.
            best: Mark it as the best.

        Raises:
            FencedError: Another learner has claimed; nothing that readers look at has been changed.
            StoreError: The store has lost the claim, or does not take the checkpoint.
            FileNotFoundError: The checkpoint has been removed before it was opened.
            CheckpointError: It is not as its manifest says, so that readers pass over it.
        """
        folder = f"{self.run.run_id}/{FOLDER}/{CheckpointPosition(self.number, step).name}"
        with ExitStack() as opened:
            manifest = opened.enter_context(open_regular(path / _MANIFEST, links=False)).read()
            files = {name: opened.enter_context(open_regular(path / name, links=False)) for name in _named_files(path)}
            memories = {
                name: opened.enter_context(open_regular(replay, links=False))
                for name, replay in replays.items()
                if names_replay(json.loads(manifest), name)
            }
            for name, file in files.items():
                self.run.objects.put(f"{folder}/{name}", _checked(path, name, file.read(), manifest))
            for name, memory in memories.items():
                # Read twice, so that what is stored is what was checked: `put_stream` may read in any way.
                if not is_recorded(json.loads(manifest), file_digest(memory, "sha256").hexdigest(), name):
                    raise CheckpointError(f"{replays[name]} is not as the manifest of {path.name} says")
                memory.seek(0)
                self.run.objects.put_stream(f"{folder}/{name}.npz", memory)
            self.require_own()
            self.run.objects.put(f"{folder}/{_MANIFEST}", manifest)
        self._tidy(CheckpointPosition(self.number, step), best=best, keep=keep)

    def require_own(self) -> Listing:
        """Return a look at the checkpoints.

        Raises:
            FencedError: Another learner has claimed.
            StoreError: The store has lost the claim: its content was removed, or its disk is not there.
        """
        listing = self.run.look()
        if listing.writer > self.number:
            raise _fenced(self.run, listing.writer)
        if listing.writer < self.number:
            raise StoreError(
                f"{self.run.url} has lost {_claim(self.number)}, this learner's claim: what the run had stored was "
                "removed, or its disk is not mounted"
            )
        return listing

    def _tidy(self, position: CheckpointPosition, *, best: bool, keep: int) -> None:
        """Move the mark of the best, and remove what is not kept; folders without a manifest are remains of crashes."""
        listing = self.require_own()
        if best:
            self.run.objects.put(f"{self.run.run_id}/{FOLDER}/{_BEST}", position.name.encode())
        kept = {*[*listing.complete][: max(keep, _LEAST_KEPT)]}
        doomed = [found for found in listing.all if found not in kept]
        if not doomed:
            return
        marked = position if best else self.run.best(listing)
        for found in doomed:
            if found == marked:
                continue
            # The manifest first: half of a checkpoint is none.
            names = sorted(listing.all[found], key=lambda name: name != _MANIFEST)
            self.run.objects.remove([f"{self.run.run_id}/{FOLDER}/{found.name}/{name}" for name in names])


def _named_files(path: Path) -> list[str]:
    """Return the names of a checkpoint's files, as its manifest has them."""
    try:
        return [*read_manifest(path)["files"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: its manifest is not valid: {error}") from error


def _checked(path: Path, name: str, content: bytes, manifest: bytes) -> bytes:
    """Return the content of a checkpoint's file, if it is the one that the manifest names."""
    try:
        expected = json.loads(manifest)["files"][name]["sha256"]
    except (ValueError, KeyError, TypeError):
        expected = None
    if sha256(content).hexdigest() != expected:
        raise CheckpointError(f"{path}: {name} is not as its manifest says")
    return content


def _fenced(run: StoredRun, number: int) -> FencedError:
    return FencedError(
        f"another learner has taken over the run in {run.url} (writer {number}); this one stops, and its later "
        "checkpoints are in its own directory alone"
    )
