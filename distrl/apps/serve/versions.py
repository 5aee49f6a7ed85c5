"""Versions of a served policy: the newest one of each track, and earlier ones while sessions act with them.

A track is a source of versions and its share of new sessions: usually one, with a canary two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from distrl.apps.serve.answering import Answered, Asked, answers
from distrl.errors import ConfigError
from distrl.serving.exported_policy import ExportedPolicy
from distrl.types import EnvSpec

MAIN, CANARY = "main", "canary"
MOST_KEPT = 4
"""Most versions of a track that are in memory; sessions of an older one change at once."""
WARM_ROWS = (1, 32)


class PolicySource(Protocol):
    """Where versions come from.

    Attributes:
        name: For messages.
        follows: Whether newer versions may come.
    """

    name: str
    follows: bool

    def newer(self) -> ExportedPolicy | None:
        """Return the newest version, or None if the previous call has returned it already.

        Raises:
            DistrlError, OSError: It cannot be read.
        """


@dataclass(eq=False)
class Version:
    """A policy of one version of the weights.

    Attributes:
        number: Version of the weights, as the learner counts.
        track: "main" or "canary".
        is_over: Newer versions have taken its place in memory; its sessions change at once.
    """

    number: int
    track: str
    policy: ExportedPolicy
    is_over: bool = False

    def answers(self, questions: Sequence[Asked], rng: np.random.Generator) -> list[Answered]:
        """Answer questions in one batch; see `Answerer`."""
        names: dict[str, int | str] = {"version": self.number}
        if self.track == CANARY:
            names["policy"] = CANARY
        return answers(self.policy, names, questions, rng)


@dataclass
class PolicyTrack:
    """A source, its share of new sessions and its versions, the newest last."""

    name: str
    source: PolicySource
    share: float
    versions: list[Version] = field(default_factory=list)

    @property
    def newest(self) -> Version:
        return self.versions[-1]


class PolicyVersions:
    """All versions in memory. Only the event loop changes them.

    Args:
        sources: The policy, and possibly a canary.
        canary_share: Share of new sessions that act with the canary, 0 to 1.

    Raises:
        ConfigError: The two policies are of different environments.
    """

    def __init__(self, sources: Sequence[PolicySource], canary_share: float = 0.0) -> None:
        shares = [1.0] if len(sources) == 1 else [1.0 - canary_share, canary_share]
        self.tracks = [PolicyTrack(*one) for one in zip((MAIN, CANARY), sources, shares, strict=False)]
        for track in self.tracks:
            policy = warmed(track.source)
            assert policy is not None, "a source has a first version"
            track.versions.append(Version(policy.exported.weights_version, track.name, policy))
        self.spec: EnvSpec = self.tracks[0].newest.policy.spec
        self.changes = 0
        for track in self.tracks[1:]:
            if difference := self.spec.unlike(track.newest.policy.spec):
                raise ConfigError(f"{track.source.name} does not fit {self.tracks[0].source.name}: {difference}")

    @property
    def remembers(self) -> bool:
        """Whether any version needs the state of earlier steps."""
        return any(version.policy.remembers for track in self.tracks for version in track.versions)

    def pick(self, draw: Callable[[], float]) -> Version:
        """Return the version for a new session, or for a request without one."""
        if len(self.tracks) == 1:
            return self.tracks[0].versions[-1]
        return self.tracks[draw() < self.tracks[1].share].newest

    def newest_of(self, version: Version) -> Version:
        """Return the newest version of the same track."""
        return self.tracks[version.track == CANARY].newest

    def add(self, track: PolicyTrack, policy: ExportedPolicy) -> Version:
        """Make a warmed policy the newest version of its track.

        Raises:
            ConfigError: It is of another environment.
        """
        if difference := self.spec.unlike(policy.spec):
            raise ConfigError(f"{track.source.name} now has a policy of another environment: {difference}")
        version = Version(policy.exported.weights_version, track.name, policy)
        track.versions.append(version)
        for old in track.versions[:-MOST_KEPT]:
            old.is_over = True
        del track.versions[:-MOST_KEPT]
        self.changes += 1
        return version


def warmed(source: PolicySource) -> ExportedPolicy | None:
    """Return a source's newer version after it has acted, so that its first request takes no longer; or None."""
    policy = source.newer()
    if policy is not None:
        for rows in WARM_ROWS:
            specs = policy.spec.observations
            zeros = {name: np.zeros((rows, *spec.shape), spec.dtype) for name, spec in specs.items()}
            policy.choose(zeros, policy.fresh(rows))
    return policy
