"""The newest weights, encoded once and pulled by actors, and the policy bundle that they belong to."""

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from distrl.config.schedules import Progress
from distrl.errors import MemoryBackendError, VersionError
from distrl.memory_backend.engine import Command, Reply, RunStore
from distrl.memory_backend.keys import checked_number
from distrl.types import PolicyBundle

FIELDS = ("version", "blob", *Progress._fields)
"""Fields of the hash `weights` from which `Published` is read."""


class Published(NamedTuple):
    """The newest weights, read together.

    Attributes:
        progress: How far the training was when the learner published them.
    """

    version: int
    blob: bytes
    progress: Progress


def bundle_sha256(bundle: PolicyBundle) -> str:
    """Return the hex digest over graph and description."""
    return hashlib.sha256(hashlib.sha256(bundle.graph).digest() + bundle.description.encode()).hexdigest()


class WeightStore:
    """The hashes `weights` and `bundle`."""

    def __init__(self, run: RunStore) -> None:
        self._run, self._engine, self._keys = run, run.engine, run.keys
        self._what = f"the version of the weights of {run.keys.run_id}"
        self._what_progress = f"the progress behind the weights of {run.keys.run_id}"

    def publish(self, version: int, blob: bytes, progress: Progress) -> None:
        """Replace the published weights, exactly once and in one transaction.

        Args:
            version: Above the published one.
            blob: Encoded weights (`codec.encode_weights`).
            progress: How far the training is.

        Raises:
            FencedError: Another learner has taken over.
            VersionError: `version` is not above the published one.
        """
        key = self._keys.weights

        def prepare(replies: Sequence[Reply]) -> list[Command]:
            published, (seconds, microseconds) = replies
            newest = checked_number(published, self._what)
            if version <= newest:  # versions never go back: a restarted learner publishes the published version + 1
                raise VersionError(
                    f"weights version {version} is not above the published version {newest}: another program has "
                    "published; the next learner goes on above it"
                )
            server_time_s = f"{seconds}.{microseconds:06d}"
            fields = ("version", version, "blob", blob, "server_time_s", server_time_s)
            return [("HSET", key, *fields, *chain.from_iterable(progress._asdict().items()))]

        reads: list[Command] = [("HGET", key, "version"), ("TIME",)]
        self._run.fenced(prepare, "publishing weights", reads)

    def version(self) -> int:
        """Return the newest version; 0 before the first."""
        return checked_number(self._engine.call("HGET", self._keys.weights, "version"), self._what)

    def progress(self) -> Progress:
        """Return the training's progress behind the newest version; all 0 before the first."""
        return self._progress(self._engine.call("HMGET", self._keys.weights, *Progress._fields))

    def fetch(self) -> Published | None:
        """Return the newest weights, read together; None before the first."""
        return self._published(*self._engine.call("HMGET", self._keys.weights, *FIELDS))

    def _published(self, version: bytes | None, blob: bytes | None, *progress: bytes | None) -> Published | None:
        if version is None:
            return None
        if blob is None:
            raise MemoryBackendError(f"the weights of {self._keys.run_id} are gone from Redis; start a new run")
        return Published(checked_number(version, self._what), blob, self._progress(progress))

    def _progress(self, counts: Sequence[bytes | None]) -> Progress:
        return Progress(*(checked_number(count, self._what_progress) for count in counts))

    def has_bundle(self) -> bool:
        """Return whether the learner has put the run's bundle."""
        return bool(self._engine.call("HEXISTS", self._keys.bundle, "sha256"))

    def put_bundle(self, bundle: PolicyBundle) -> None:
        fields = ("graph", bundle.graph, "description", bundle.description, "sha256", bundle_sha256(bundle))
        self._run.write_one("HSET", self._keys.bundle, *fields)

    def get_bundle(self) -> PolicyBundle | None:
        """Return the run's bundle; None before the learner has put it.

        Raises:
            MemoryBackendError: The run is gone, or the bundle's bytes do not have the recorded sha256.
        """
        if not self._run.write_one("HEXISTS", self._keys.bundle, "sha256"):
            return None
        graph, description, digest = self._engine.call("HMGET", self._keys.bundle, "graph", "description", "sha256")
        if graph is None:
            return None
        bundle = PolicyBundle(graph, (description or b"").decode(errors="replace"))
        if digest != bundle_sha256(bundle).encode():
            raise MemoryBackendError(
                f"the policy bundle of {self._keys.run_id} does not have its sha256; start the run anew"
            )
        return bundle
