"""MemoryConfig: where the memory backend is, and what it keeps."""

import os
from typing import Literal

from pydantic import Field, field_validator

from distrl.config.algorithms import AlgorithmSection
from distrl.config.secrets import refuse_password
from distrl.config.section import Section

TLS_SCHEMES = ("rediss", "valkeys")
"""First letters of the schemes of TLS, also of Sentinels and Clusters."""


class TlsConfig(Section):
    """Certificates for a Redis named by rediss://; each file is on every host that connects, under the same path.

    With `memory.listen`, certificate and key are those of the server, which the learner's host alone needs.
    """

    ca_file: str | None = None
    """PEM file of the authority that has signed the server's certificate; null: those that the system trusts."""
    cert_file: str | None = None
    """PEM file of this client's certificate, where the server wants one."""
    key_file: str | None = None
    """PEM file of its private key, without a passphrase; only its owner may read it."""

    @field_validator("*")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        """Make a path count from the current directory of the launch, not of each role."""
        return None if path is None else os.path.abspath(os.path.expanduser(path))


class MemoryConfig(Section):
    """The memory backend."""

    url: str | None = None
    """redis://, unix://, redis+sentinel:// or redis+cluster://, with rediss for TLS; null starts an embedded
    redis-server. actors.count: 0 uses none. It holds no password: that is in the environment variable
    DISTRL_REDIS_PASSWORD, or in the file that DISTRL_REDIS_PASSWORD_FILE names."""
    listen: str | None = None
    """Where the embedded redis-server listens for other hosts, with a password in the run directory's redis.password.
    auto: this host's address on its default route; a network like 10.1.0.0/16: this host's address there; or HOST,
    HOST:PORT. null: it has a unix socket alone."""
    tls: TlsConfig = TlsConfig()
    namespace: str = Field("default", pattern=r"^[A-Za-z0-9-]{1,50}$")
    """Part of every Redis key of the run, so that access rules can tell the runs of several teams apart. A role that
    joins by hand adds `?namespace=…` to its URL."""
    queue_batches: int = Field(2, ge=1)
    """Actors wait while this many batches are queued: fresh data matters more than a full queue."""
    queue_bytes: int = Field(67108864, ge=65536)
    """Actors also wait while this many bytes are queued."""
    compression: Literal["none", "zstd", "lz4"] = "none"
    """How actors compress unrolls on their way to the learner: worth it for images over a network, not for vectors or
    over a unix socket (docs/performance.md). `zstd` and `lz4` need the extra `compression` on every host of the run."""
    give_up_s: float = Field(60.0, gt=0.0)
    """How long a role retries when Redis is unreachable or refuses commands, before it exits with code 6."""
    keep_s: int = Field(86400, ge=600)
    """How long the Redis of `memory.url` keeps a run's keys after its supervisor and learner have died; these renew
    the time every ten seconds. At least twice `give_up_s`, as they cannot renew it in an outage. A Redis that evicts
    keys with a time to live first (maxmemory-policy volatile-…) keeps them until `distrl runs --redis-url URL --remove
    ID`."""

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str | None) -> str | None:
        # Its ConfigError passes through pydantic, whose own error would show the value.
        if url is not None:
            refuse_password(url, "memory.url")
        return url

    def check(self, algorithm: AlgorithmSection, *, deterministic: bool) -> None:
        """Refuse settings that the run would not use."""
        for field in ("url", "listen", "namespace", "tls", "compression", "keep_s"):
            if deterministic and self.is_changed(field):
                raise ValueError(f"memory.{field} has no use in one process (launch.mode), which keeps everything")
        if self.url is not None and self.listen is not None:
            raise ValueError(
                "memory.listen is for the embedded Redis, and memory.url names another one; set one of them"
            )
        self._check_tls()
        if self.is_changed("keep_s") and self.url is None:
            raise ValueError("memory.keep_s has no use without memory.url: the embedded Redis ends with the run")
        if self.url is not None and self.keep_s < 2.0 * self.give_up_s:
            raise ValueError(
                f"memory.keep_s: {self.keep_s} is too short: in an outage of memory.give_up_s: {self.give_up_s:g} the "
                f"keys are not renewed; set it to {2.0 * self.give_up_s:g} or more"
            )
        if self.compression != "none" and algorithm.ships != "unrolls":
            raise ValueError(
                f"memory.compression: {self.compression} is for unrolls; actors of {algorithm.name} ship gradients, "
                "which hardly get shorter"
            )
        if algorithm.rounds and (self.is_changed("queue_batches") or self.is_changed("queue_bytes")):
            raise ValueError(
                f"memory.queue_batches, memory.queue_bytes: {algorithm.name} queues one gradient of every worker"
            )

    @property
    def reachable(self) -> bool:
        """Whether roles on other hosts reach the run's Redis."""
        return self.url is not None or self.listen is not None

    def _check_tls(self) -> None:
        """Refuse files of TLS that no connection would use, and a server's certificate without its key."""
        if not self.is_changed("tls"):
            return
        if self.listen is not None:
            if self.tls.cert_file is None or self.tls.key_file is None:
                raise ValueError("memory.listen with memory.tls needs the server's memory.tls.cert_file and key_file")
        elif self.url is None or not self.url.startswith(TLS_SCHEMES):
            raise ValueError(
                "memory.tls has no use without a memory.url that asks for TLS: rediss://…, or memory.listen"
            )
