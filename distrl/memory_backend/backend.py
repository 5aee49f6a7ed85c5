"""The memory backend as roles see it: five nouns over one engine, and the life of a run.

One `Backend` belongs to one run and one thread of one role. Actors push unrolls and pull weights; the learner takes
unrolls, acknowledges them after use and publishes weights; the supervisor reads the registry and the ledger.

Every method raises `MemoryBackendError` when Redis stays unreachable for `give_up_s`.
"""

from dataclasses import replace
from pathlib import Path

from distrl.errors import MemoryBackendError
from distrl.memory_backend.engine import Command, Engine, Reply, RunStore
from distrl.memory_backend.host_weights import HostWeights
from distrl.memory_backend.keys import (
    DEFAULT_NAMESPACE,
    GROUP,
    PROTOCOL_VERSION,
    RunKeys,
    first_protocol_run,
    split_namespace,
)
from distrl.memory_backend.ledger import Ledger
from distrl.memory_backend.local import PREFIX, LocalEngine
from distrl.memory_backend.meter import Meter
from distrl.memory_backend.registry import Registry
from distrl.memory_backend.stream import UNBOUNDED, QueueCaps, UnrollStream
from distrl.memory_backend.tickets import TicketBox
from distrl.memory_backend.weights import WeightStore


class Backend:
    """One run's memory. `create` makes the run, `become_learner` makes the caller its learner.

    Attributes:
        engine: The connection.
    """

    def __init__(self, run: RunStore, caps: QueueCaps = UNBOUNDED) -> None:
        self._run, self._caps = run, caps
        self.engine = run.engine
        self.unrolls = UnrollStream(run, caps)
        self.weights = WeightStore(run)
        self.tickets = TicketBox(run)
        self.registry = Registry(run)
        self.ledger = Ledger(run)

    def create(self, config_json: str, signature: str = "") -> None:
        """Write configuration, its signature, protocol version and consumer group, exactly once.

        Raises:
            MemoryBackendError: The run exists.
        """
        keys, url = self._run.keys, self.engine.url

        def prepare(exists: Reply, _replies: object) -> list[Command]:
            if exists:
                raise MemoryBackendError(
                    f"run {keys.run_id} exists already at {url}; resume it or choose another run id"
                )
            return [
                ("HSET", keys.run, "protocol", PROTOCOL_VERSION, "config", config_json, "signature", signature),
                ("XGROUP", "CREATE", keys.unrolls, GROUP, "0", "MKSTREAM"),
            ]

        # With a read, so that the guard is asked anew: a run that was there before may have been deleted.
        reads: list[Command] = [("HGET", keys.run, "protocol")]
        self.engine.exactly_once(("EXISTS", keys.run), prepare, "creating a run", applied=keys.applied, reads=reads)

    def config_json(self) -> str:
        """The run's configuration.

        Raises:
            MemoryBackendError: No such run, or of another protocol version.
        """
        keys, url = self._run.keys, self.engine.url
        protocol, config = self.engine.call("HMGET", keys.run, "protocol", "config")
        if protocol is None or config is None:
            # By a scan: a user of one namespace may not read keys outside it.
            if not self.engine.keys(first_protocol_run(keys.run_id)):
                raise MemoryBackendError(f"no run {keys.run_id} at {url}; check the run id and the URL")
            protocol = b"1"
        if protocol != b"%d" % PROTOCOL_VERSION:
            raise MemoryBackendError(
                f"run {keys.run_id} speaks protocol {protocol.decode(errors='replace')}, this distrl "
                f"{PROTOCOL_VERSION}; use one version of distrl for all roles"
            )
        return str(config.decode(errors="replace"))

    def signature(self) -> str | None:
        """Return the signature that `create` was given; None if the run has none."""
        signature: bytes | None = self.engine.call("HGET", self._run.keys.run, "signature")
        return None if signature is None else signature.decode(errors="replace")

    @property
    def fence(self) -> int:
        """The learner's token; 0 where this is not the learner's."""
        return self._run.fence or 0

    def become_learner(self) -> "Backend":
        """Take over the run. From now on only the returned backend may acknowledge, publish and issue tickets."""
        return self.as_learner(int(self._run.write_one("HINCRBY", self._run.keys.run, "fence", 1)))

    def as_learner(self, fence: int) -> "Backend":
        """Return the backend of another connection of the learner that holds `fence`."""
        return Backend(replace(self._run, fence=fence), self._caps)

    def share_weights(self, directory: Path) -> None:
        """From now on read weights that another role of this host has fetched, see `HostWeights`."""
        self.weights = HostWeights(self._run, directory)

    def delete(self) -> None:
        """Remove every key of the run: first the key `run`, without which no role writes another one."""
        self.engine.call("UNLINK", self._run.keys.run)
        for key in self.engine.keys(self._run.keys.all):
            self.engine.call("UNLINK", key)

    def close(self) -> None:
        self.engine.close()


def connect(
    url: str, run_id: str, caps: QueueCaps = UNBOUNDED, *, name: str, give_up_s: float, meter: Meter | None = None
) -> Backend:
    """Connect to a run's memory; the run need not exist yet.

    Args:
        url: `redis://`, `rediss://` or `unix://` of a Redis; `local:` for a private store in this process, `local:NAME`
            for one shared by name. The option `namespace` selects the run's namespace.
        run_id: Letters, digits, '.', '_' and '-'.
        caps: Bounds of the stream, by which this role judges admission.
        name: Role and number, shown by CLIENT LIST as distrl:<name>.
        give_up_s: Time-out for an unreachable Redis once the connection has worked.
        meter: Bounds the bytes received from a server that is not trusted.

    Raises:
        ConfigError: `url` or `run_id` is malformed.
        MemoryBackendError: Redis is unreachable (after at most 3 s), too old, or would evict keys.
    """
    address, namespace = split_namespace(url)
    keys = RunKeys(run_id, namespace or DEFAULT_NAMESPACE)
    return Backend(RunStore(connect_engine(address, name=name, give_up_s=give_up_s, meter=meter), keys), caps)


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

    return connect_redis(address, name=name, give_up_s=give_up_s, meter=meter)
