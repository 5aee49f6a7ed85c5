"""The memory backend as roles see it: five nouns over one engine, and the life of a run.

One `Backend` belongs to one run and one thread of one role; the learner's has a second lane for the thread that
receives unrolls. Actors push unrolls and pull weights; the learner takes unrolls, settles them after use and publishes
weights; the supervisor reads the registry and the ledger.

Every method raises `MemoryBackendError` when Redis stays unreachable for `give_up_s`.
"""

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from distrl.errors import MemoryBackendError, MissingRunError
from distrl.memory_backend.engine import Command, Engine, Fence, Reply, RunStore
from distrl.memory_backend.host_weights import HostWeights
from distrl.memory_backend.keys import (
    DEFAULT_NAMESPACE,
    GROUP,
    PROTOCOL_VERSION,
    RunKeys,
    split_namespace,
)
from distrl.memory_backend.ledger import Ledger
from distrl.memory_backend.local import PREFIX, LocalEngine
from distrl.memory_backend.meter import Meter
from distrl.memory_backend.redis_address import parse_address
from distrl.memory_backend.registry import Registry
from distrl.memory_backend.stream import UNBOUNDED, QueueCaps, UnrollStream
from distrl.memory_backend.tickets import TicketBox
from distrl.memory_backend.weights import WeightStore
from distrl.version import __version__

RENEW_EVERY_S = 10.0
"""Interval between two renewals of the keys' time to live."""
RENEWALS = 10
"""Number of times that the key `run` is renewed within its time to live: rarely, as each one has all roles repeat a
transaction."""


class Backend:
    """One run's memory. `create` makes the run, `become_learner` makes the caller its learner.

    Attributes:
        engine: The connection.
    """

    def __init__(self, run: RunStore, caps: QueueCaps = UNBOUNDED) -> None:
        self._run, self._caps = run, caps
        self.engine = run.engine
        self._lane: Backend | None = None
        self.unrolls = UnrollStream(run, caps)
        self.weights = WeightStore(run)
        self.tickets = TicketBox(run)
        self.registry = Registry(run)
        self.ledger = Ledger(run)
        self._renewed_at = self._run_renewed_at = -math.inf

    def create(self, config_json: str, signature: str = "", *, replaces: str | None = None) -> None:
        """Write the launch, its configuration and signature, versions and the consumer group, exactly once.

        Keys that an earlier run of this id has left behind are removed in the same transaction: roles that wait for the
        next launch never find the run gone.

        Args:
            replaces: Token of a dead launch whose run may exist.

        Raises:
            MemoryBackendError: The run exists, and is not of the launch that this one replaces.
        """
        keys, url = self._run.keys, self.engine.url
        launch = self._run.launch or new_launch()
        fixed = ("protocol", PROTOCOL_VERSION, "distrl_version", __version__, "launch", launch)

        def prepare(exists: Reply, replies: Sequence[Reply]) -> list[Command]:
            incarnations, standing = replies
            if exists and (replaces is None or standing != replaces.encode()):
                raise MemoryBackendError(
                    f"run {keys.run_id} exists already at {url}; resume it or choose another run id"
                )
            varying = ("config", config_json, "signature", signature, "history", self.engine.history)
            return [
                ("UNLINK", *keys.all(incarnations)),
                ("HSET", keys.run, *fixed, *varying),
                ("XGROUP", "CREATE", keys.unrolls, GROUP, "0", "MKSTREAM"),
            ]

        # With a read, so that the guard is asked anew: a run that was there before may have been deleted.
        reads: list[Command] = [("HGETALL", keys.incarnations), ("HGET", keys.run, "launch")]
        self.engine.exactly_once(("EXISTS", keys.run), prepare, "creating a run", applied=keys.applied, reads=reads)
        self._run.confirm(f"run {keys.run_id}")

    def config_json(self) -> str:
        """The run's configuration.

        Raises:
            MissingRunError: No such run.
            MemoryBackendError: It is of another protocol version.
            FencedError: The run was launched again.
        """
        return self.signed_config()[0]

    def signed_config(self) -> tuple[str, str | None]:
        """Return the configuration and the signature that `create` was given, read together.

        Raises:
            As `config_json`.
        """
        run = self._run
        fields = ("protocol", "distrl_version", "launch", "config", "signature")
        protocol, version, launch, config, signature = self.engine.call("HMGET", run.keys.run, *fields)
        if protocol is None or config is None:
            raise MissingRunError(
                f"no run {run.keys.run_id} at {self.engine.url}; check the run id, and host and namespace in the URL"
            )
        if protocol != b"%d" % PROTOCOL_VERSION:
            theirs = f"protocol {_text(protocol)}" + ("" if version is None else f" (distrl {_text(version)})")
            raise MemoryBackendError(
                f"run {run.keys.run_id} speaks {theirs}, this distrl {__version__} speaks {PROTOCOL_VERSION}; "
                "use one version of distrl for all roles"
            )
        if run.launch is not None:
            run.check_launch(launch)
        return _text(config), None if signature is None else _text(signature)

    def distrl_version(self) -> str:
        """Return the version of distrl that launched the run."""
        return _text(self.engine.call("HGET", self._run.keys.run, "distrl_version") or b"unknown")

    @property
    def launch(self) -> str:
        """Token of the launch to which this backend belongs; "" for any."""
        return self._run.launch or ""

    def of_standing_launch(self) -> "Backend":
        """Return a backend of the launch that Redis holds now; it refuses to write into a later one.

        Raises:
            MissingRunError: No such run.
        """
        found = self.engine.call("HGET", self._run.keys.run, "launch")
        self._run.check_launch(found)
        return Backend(replace(self._run, launch=_text(found)), self._caps)

    def check_launch(self) -> None:
        """Check that the run is there.

        Raises:
            MissingRunError: Its keys are gone: it has ended, or Redis has lost them.
            FencedError: The run was launched again.
        """
        self._run.check_launch(self.engine.call("HGET", self._run.keys.run, "launch"))

    @property
    def fence(self) -> Fence:
        """The learner's token.

        Raises:
            TypeError: This is no learner's backend.
        """
        if self._run.fence is None:
            raise TypeError("only what Backend.become_learner returns has a token")
        return self._run.fence

    def become_learner(self) -> "Backend":
        """Take over the run. From now on only the returned backend may settle unrolls, publish and issue tickets."""
        key, holder = self._run.keys.run, secrets.token_hex(8)
        number, _ = self._run.write([("HINCRBY", key, "fence", 1), ("HSET", key, "learner", holder)])
        self._run.confirm("this learner")
        learner = Backend(replace(self._run, fence=Fence(int(number), holder)), self._caps)
        if self._lane is not None:
            learner.add_lane(self._lane.engine)
        return learner

    def add_lane(self, connection: Engine) -> None:
        """Give the thread that receives unrolls a connection of its own, which this backend closes."""
        self._lane = Backend(replace(self._run, engine=connection), self._caps)

    @property
    def receiving(self) -> "Backend":
        """The lane of the thread that receives unrolls: this backend itself without `add_lane`."""
        return self._lane or self

    def share_weights(self, directory: Path) -> None:
        """From now on read weights that another role of this host has fetched, see `HostWeights`."""
        self.weights = HostWeights(self._run, directory)

    def keep(self, keep_s: int) -> None:
        """Let Redis remove all keys of the run `keep_s` seconds after the last call, and no earlier.

        Takes a transaction once in `RENEW_EVERY_S`. Keys that are made in between have no end before the next one.
        The key `run` may end earlier than the others, by a part of `keep_s` in `RENEWALS`.
        Does nothing on a server that evicts keys with an end before others, unless the keys have an end already.

        Raises:
            MissingRunError, FencedError: As all writes.
        """
        now = time.monotonic()
        begun = self._renewed_at > -math.inf  # perhaps on another server, before a fail-over
        if not (self.engine.keeps_expiring or begun) or now - self._renewed_at < RENEW_EVERY_S:
            return
        keys = self._run.keys.all(self.engine.call("HGETALL", self._run.keys.incarnations))
        if now - self._run_renewed_at < keep_s / RENEWALS:
            keys.remove(self._run.keys.run)
        else:
            self._run_renewed_at = now
        self._run.write([("EXPIRE", key, keep_s) for key in keys])
        self._renewed_at = now

    def delete(self) -> None:
        """Remove every key of the run in one transaction; no role writes another one afterwards.

        Raises:
            FencedError: The run was launched again; nothing was removed.
        """
        run = self._run
        # An actor takes its first ticket long after it has registered, so all held tickets are in this list.
        keys = run.keys.all(self.engine.call("HGETALL", run.keys.incarnations))

        def check(launch: Reply) -> None:
            if launch is not None:  # else the keys that a removed run may have left
                run.check_launch(launch)

        self.engine.guarded(("HGET", run.keys.run, "launch"), check, [("UNLINK", *keys)], applied=run.keys.applied)

    def close(self) -> None:
        self.engine.close()
        if self._lane is not None:
            self._lane.close()


def new_launch() -> str:
    """Return a token that no other launch has."""
    return secrets.token_hex(8)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def connect(
    url: str,
    run_id: str,
    caps: QueueCaps = UNBOUNDED,
    *,
    launch: str | None = None,
    name: str,
    give_up_s: float,
    meter: Meter | None = None,
) -> Backend:
    """Connect to a run's memory; the run need not exist yet.

    Args:
        url: A Redis, as `redis_address` reads it; `local:` for a private store in this process, `local:NAME` for one
            shared by name. The option `namespace` selects the run's namespace.
        run_id: Letters, digits, '.', '_' and '-'.
        caps: Bounds of the stream, by which this role judges admission.
        launch: Token of the launch to which the caller belongs, so that it cannot write into another one; None: any.
        name: Role and number, shown by CLIENT LIST as distrl:<name>.
        give_up_s: Time-out for an unreachable Redis once the connection has worked.
        meter: Bounds the bytes received from a server that is not trusted.

    Raises:
        ConfigError: `url` or `run_id` is malformed.
        MemoryBackendError: Redis is unreachable (after at most 3 s), too old, or would evict keys.
    """
    address, namespace = split_namespace(url)
    keys = RunKeys(run_id, namespace or DEFAULT_NAMESPACE)
    return Backend(RunStore(connect_engine(address, name=name, give_up_s=give_up_s, meter=meter), keys, launch), caps)


def connect_engine(url: str, *, name: str, give_up_s: float, meter: Meter | None = None) -> Engine:
    """Connect to the store of one or more runs: the one place that chooses the engine by the URL.

    Raises:
        ConfigError: `url` is malformed.
        MemoryBackendError: As `connect`.
    """
    address, _ = split_namespace(url)
    if address.startswith(PREFIX):
        return LocalEngine(address)
    # Imported here: a run in one process needs no Redis client.
    from distrl.memory_backend.redis_client import connect as connect_redis

    return connect_redis(parse_address(address), name=name, give_up_s=give_up_s, meter=meter)
