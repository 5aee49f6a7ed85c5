"""`Backend` on Redis: the five nouns over one connection, and the life of a run."""

from distrl.errors import MemoryBackendError
from distrl.memory_backend.backend import Backend, QueueCaps
from distrl.memory_backend.keys import GROUP, PROTOCOL_VERSION, RunKeys
from distrl.memory_backend.ledger import RedisLedger
from distrl.memory_backend.redis_client import RedisClient, connect
from distrl.memory_backend.registry import RedisRegistry
from distrl.memory_backend.resp import Command
from distrl.memory_backend.stream import RedisUnrollStream
from distrl.memory_backend.tickets import RedisTicketBox
from distrl.memory_backend.weights import RedisWeightStore


class RedisBackend(Backend):
    """One run, seen from one thread of one role."""

    def __init__(self, client: RedisClient, keys: RunKeys, caps: QueueCaps) -> None:
        self._client = client
        self._keys = keys
        self.unrolls = RedisUnrollStream(client, keys, caps)
        self.weights = RedisWeightStore(client, keys)
        self.tickets = RedisTicketBox(client, keys)
        self.registry = RedisRegistry(client, keys)
        self.ledger = RedisLedger(client, keys)

    @staticmethod
    def open(url: str, run_id: str, caps: QueueCaps, *, name: str, give_up_s: float) -> "RedisBackend":
        """Connects to Redis and checks it; the run need not exist yet.

        Args:
            url: redis://, rediss:// or unix://.
            run_id: Letters, digits, '.', '_' and '-'.
            caps: Bounds of the stream, as this role judges admission.
            name: Role and number, shown by CLIENT LIST as distrl:<name>.
            give_up_s: How long an unreachable Redis is retried once the connection has worked.

        Raises:
            ConfigError: `url` or `run_id` is malformed.
            MemoryBackendError: Redis is unreachable (after at most 3 s), too old, or would evict keys.
        """
        keys = RunKeys(run_id)
        return RedisBackend(connect(url, name=name, give_up_s=give_up_s), keys, caps)

    def create(self, config_json: str, signature: str = "") -> None:
        """Write configuration, its signature, protocol version and consumer group in one transaction.

        Raises:
            MemoryBackendError: The run exists.
        """
        keys = self._keys
        commands: list[Command] = [
            ("HSET", keys.run, "protocol", PROTOCOL_VERSION, "config", config_json, "signature", signature),
            ("XGROUP", "CREATE", keys.unrolls, GROUP, "0", "MKSTREAM"),
        ]
        self._client.create_once(keys.run, commands, f"run {keys.run_id}")

    def config_json(self) -> str:
        """The run's configuration.

        Raises:
            MemoryBackendError: No such run, or of another protocol version.
        """
        protocol, config = self._client.call("HMGET", self._keys.run, "protocol", "config")
        if protocol is None or config is None:
            raise MemoryBackendError(f"no run {self._keys.run_id} at {self._client.url}; check the run id and the URL")
        if protocol != b"%d" % PROTOCOL_VERSION:
            raise MemoryBackendError(
                f"run {self._keys.run_id} speaks protocol {protocol.decode(errors='replace')}, this distrl "
                f"{PROTOCOL_VERSION}; use one version of distrl for all roles"
            )
        return str(config.decode(errors="replace"))

    def signature(self) -> str | None:
        """Return the signature that `create` was given; None if the run has none."""
        signature: bytes | None = self._client.call("HGET", self._keys.run, "signature")
        return None if signature is None else signature.decode(errors="replace")

    def acquire_fence(self) -> int:
        """A fencing token above all earlier ones."""
        (fence,) = self._client.in_run(self._keys, [("HINCRBY", self._keys.run, "fence", 1)])
        return int(fence)

    def delete(self) -> None:
        """Remove every key of the run: first the one that says it exists, without which no role writes another."""
        self._client.call("UNLINK", self._keys.run)
        for key in self._client.keys(self._keys.all):
            self._client.call("UNLINK", key)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()
