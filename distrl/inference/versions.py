"""The weights that a host's inference server computes with: the newest ones, and earlier ones that unrolls still need.

Each version is also a file in the host's directory: a server that replaces a killed one goes on with the versions in
which actors have begun their unrolls.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from distrl.actors.policy import ON_CPU, Policy
from distrl.config.schedules import Progress
from distrl.memory_backend.codec import decode_weights
from distrl.memory_backend.weights import Published
from distrl.types import PolicyBundle

INHERITED_S = 60.0
"""Time in which the actors of a killed server name the versions that they still need."""


class Versions:
    """Policies by the version of their weights.

    Args:
        fetch: Returns the newest published weights; None: there are none.
        directory: The host's private directory.
        threads: Numeric threads of each policy.
        providers: What ONNX Runtime is to compute with, the preferred one first.

    Attributes:
        provider: What it computes with.
        newest: The newest version here; 0 before the first.

    Raises:
        DistrlError: The bundle cannot be used.
    """

    def __init__(
        self,
        bundle: PolicyBundle,
        fetch: Callable[[], Published | None],
        directory: Path,
        threads: int = 1,
        providers: Sequence[str] = ON_CPU,
    ) -> None:
        self._make = partial(Policy, bundle, threads, providers)
        self._fetch, self._directory = fetch, directory
        self._policies: dict[int, tuple[Policy, Progress]] = {}
        self._spare = [self._make()]  # a bad bundle is refused here
        self.provider = self._spare[0].provider
        self._inherited = {*directory.glob("weights-*")}
        self._inherited_until = time.monotonic() + INHERITED_S
        self.newest = 0

    def follow(self, known: int, held: int, *, newest: bool) -> tuple[int, Progress] | None:
        """Return the version for an actor's next unroll, and the progress behind it; None: there are no weights.

        The actors of a host take one version after the other together, so that their rows make one batch and each
        version is prepared once. So an actor gets the newest version that is here, unless it has used that one or
        needs newer weights.

        Args:
            known: The newest version that the actor knows.
            held: The version of its last unroll.
            newest: Whether it needs one that is not older than `known`.
        """
        has_used = self.newest <= held  # smaller after a fail-over
        if not self.newest or (self.newest != known and (newest or has_used)):
            published = self._fetch()
            if published is None:
                return None
            if published.version not in self._policies:
                self._save(published)
                self._load(published)
            self.newest = published.version
        return self.newest, self._policies[self.newest][1]

    def policy(self, version: int) -> Policy | None:
        """Return the policy with these weights; None: they are not here, nor in the files of an earlier server."""
        if version not in self._policies:
            try:
                line, _, blob = self._file(version).read_bytes().partition(b"\n")
            except FileNotFoundError:
                return None
            self._load(Published(version, blob, Progress(*map(int, line.split()))))
        return self._policies[version][0]

    def keep(self, used: Collection[int]) -> None:
        """Forget all versions but these and the newest one; those of a killed server stay while its actors return."""
        for version in self._policies.keys() - {*used, self.newest}:
            self._spare.append(self._policies.pop(version)[0])
        needed = {*map(self._file, self._policies)}
        if time.monotonic() < self._inherited_until:
            needed |= self._inherited
        for path in {*self._directory.glob("weights-*")} - needed:
            path.unlink(missing_ok=True)

    def _load(self, published: Published) -> None:
        policy = self._spare.pop() if self._spare else self._make()
        policy.set_weights(decode_weights(published.blob))
        self._policies[published.version] = policy, published.progress

    def _save(self, published: Published) -> None:
        """Write the file as a whole; where there is no room, only a killed server would need it."""
        path, new = self._file(published.version), self._directory / "weights.new"
        try:
            with new.open("wb") as file:
                file.write(b"%d %d %d\n" % published.progress)
                file.write(published.blob)
            new.rename(path)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)

    def _file(self, version: int) -> Path:
        return self._directory / f"weights-{version}"
