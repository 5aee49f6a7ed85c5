"""One connection to the server that holds a run: found, logged in and checked anew whenever the last one has broken.

Sockets, TLS, logging in and reading replies are redis-py's. Its own resolvers of Sentinels and Clusters are not used:
they do not look again where a fail-over needs it, and a run lies in one hash slot, so that one plain connection to the
slot's owner is enough.
"""

import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis._parsers import _RESP2Parser
from redis.backoff import NoBackoff
from redis.retry import Retry

from distrl.errors import MemoryBackendError
from distrl.memory_backend import credentials, tls
from distrl.memory_backend.engine import Command, Reply
from distrl.memory_backend.meter import Meter, metered
from distrl.memory_backend.packing import packed
from distrl.memory_backend.redis_address import Endpoint, RedisAddress
from distrl.memory_backend.redis_errors import ReplicaError, UnknownMasterError, code, is_outage, key_of, line

BLOCK_S = 1.0
"""Longest single blocking command; longer waits are made of several."""

_SOCKET_TIMEOUT_S = BLOCK_S + 5.0
_CONNECT_TIMEOUT_S = 3.0
_SENTINEL_TIMEOUT_S = 1.0
_OLDEST_SERVER = (6, 2)
_READ_BYTES = 2**18
"""Most bytes read from the socket at once."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _History:
    """Names of a server's data: servers with the same replication id agree up to some write.

    Attributes:
        earlier_id: Replication id of the master that this server followed before; zeros if there was none.
        process: Random name that the server has given itself at its start.
    """

    replication_id: str
    process: str
    earlier_id: str = ""

    def goes_on_from(self, earlier: "_History") -> bool:
        """Return whether nothing was lost between `earlier` and this history.

        A master changes its replication id also when its first replica comes and an hour after the last one has gone.
        It then forgets the earlier id; a replica that is promoted keeps that of its master.
        """
        renamed = self.process == earlier.process != "" and not self.earlier_id.strip("0")
        return renamed or self.replication_id == earlier.replication_id


class RedisConnection:
    """The connection of one role.

    Attributes:
        history_changed: Whether the newest exchange was the first with another history of the data, see `Engine`.
        keeps_expiring: See `Engine`.
    """

    def __init__(self, address: RedisAddress, name: str, meter: Meter | None = None) -> None:
        self._address, self._meter = address, meter
        self._name = f"distrl:{name}".replace(" ", "-")  # Redis allows no spaces
        self._route = _Route(address.endpoints)
        self._line: Any = None  # redis-py's connection
        self._translate_info = redis.Redis(protocol=2).response_callbacks["INFO"]
        self._told: set[str] = set()
        self._history: _History | None = None  # of the server that answered last; None where INFO is not allowed
        self._unproven: _History | None = None  # of a new connection that has not answered for the run's keys yet
        self._slot_moved = False
        self.history_changed = False
        self.keeps_expiring = True

    def exchange(self, commands: Sequence[Command]) -> list[Reply]:
        """Send all commands, then read all replies; a refusal is an exception object among them.

        Raises:
            redis.RedisError: The connection cannot be opened, or breaks; `leave` must follow.
            ConfigError: A file of TLS or of a password cannot be used.
            MemoryBackendError: The server is none that a run can use.
        """
        self.history_changed = False
        try:
            self.open()
            replies = _sent(self._line, commands)
        except OSError as error:
            raise redis.ConnectionError(f"Error while reading from {self._address.public}: {error}") from error
        if self._unproven is not None:
            self._compare_histories(self._unproven, commands, replies)
        return replies

    @property
    def history(self) -> str:
        """See `Engine`."""
        return "" if self._history is None else f"{self._history.replication_id}:{self._history.process}"

    def goes_on_from(self, history: str) -> bool:
        """Return what `Engine.goes_on_from` says."""
        if self._history is None or not history:
            return True
        earlier = _History(*history.partition(":")[::2])
        moved = self._address.kind == "cluster" and self._history.earlier_id != earlier.replication_id
        return moved or self._history.goes_on_from(earlier)

    def leave(self, error: BaseException | None = None) -> None:
        """Close the connection; the next `exchange` opens another one, elsewhere if `error` says so."""
        connection, self._line = self._line, None
        if connection is not None:
            connection.disconnect()
        if self._address.kind != "cluster" or not isinstance(error, redis.RedisError):
            return
        if isinstance(error, redis.exceptions.MovedError):
            self._slot_moved |= self._unproven is None
            self._route.turn_to(Endpoint(error.host or self._route.endpoint.host, error.port))
        elif code(error) in ("ASK", "TRYAGAIN"):
            self._slot_moved = True  # it is about to be
        else:
            self._slot_moved = False
            if code(error) == "CLUSTERDOWN":
                self._route.advance()

    def nodes(self) -> tuple[Endpoint, ...]:
        """Return a Cluster's masters, or the nodes that the URL names if CLUSTER is not allowed; () if it is none.

        Raises:
            redis.RedisError: As `exchange`.
        """
        if self._address.kind != "cluster":
            return ()
        (told,) = self.exchange([("CLUSTER", "SLOTS")])
        if not self.allows(told, "CLUSTER SLOTS: runs are looked for on the nodes that the URL names"):
            return self._address.endpoints
        masters = (master for _first, _last, master, *_replicas in told)
        here = self._route.endpoint.host  # for a node that does not know its own
        return tuple(dict.fromkeys(Endpoint(host.decode() if host else here, port) for host, port, *_ in masters))

    def allows(self, reply: Reply, what: str) -> bool:
        """Return whether `reply` is no refusal for good; log one once. Raise an outage."""
        if not isinstance(reply, redis.RedisError):
            return True
        if is_outage(reply):
            raise reply
        if what not in self._told:
            self._told.add(what)
            log.warning("Redis at %s does not allow %s (%s)", self._address.public, what, line(reply))
        return False

    def open(self) -> None:
        """Connect unless connected; raises as `exchange`."""
        if self._line is not None:
            return
        address = self._address
        where = None
        if address.kind == "sentinel":
            where = self._ask_sentinels()
        elif address.kind != "unix":
            where = self._route.endpoint
        self._line = self._make_line(where)
        try:
            self._greet(where)
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            if address.kind == "cluster":
                self._route.advance()
            raise

    def _greet(self, where: Endpoint | None) -> None:
        """Name the connection, and check the server, as far as it allows that."""
        named, told = _sent(self._line, [("CLIENT", "SETNAME", self._name), ("INFO",)])
        self.allows(named, "CLIENT SETNAME: its list of clients does not name the roles")
        allowed = self.allows(told, "INFO: its version, role and eviction policy are not checked")
        info = self._translate_info(told) if allowed else {}
        self._check(info)
        if self._address.kind == "cluster" and info.get("redis_mode") == "standalone":
            self._require_cluster()
        if info.get("role") == "slave" and self._address.kind != "cluster":  # a Cluster's replica names the master
            raise ReplicaError(f"{where or self._address.path} is a replica")
        known = (str(info.get(field, "")) for field in ("master_replid", "run_id", "master_replid2"))
        self._unproven = _History(*known)

    def _check(self, info: dict[str, Any]) -> None:
        """Raise unless the server is new enough and never evicts keys that have no time to live."""
        where = f"Redis at {self._address.public}"
        mode = info.get("redis_mode")
        if mode == "sentinel":
            raise MemoryBackendError(
                f"{where} is a Sentinel; use redis+sentinel://host:port/NAME with its master's name"
            )
        if mode == "cluster" and self._address.kind != "cluster":
            raise MemoryBackendError(f"{where} is a node of a Cluster; use redis+cluster://host:port")
        version = str(info.get("redis_version", ""))
        if version and tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
            raise MemoryBackendError(f"{where} is {version}; 6.2 or newer is needed")
        policy = str(info.get("maxmemory_policy", "noeviction"))
        volatile = policy.startswith("volatile-")
        if int(info.get("maxmemory", 0)) and policy != "noeviction" and not volatile:
            raise MemoryBackendError(f"{where} evicts keys when full (maxmemory-policy {policy}); set it to noeviction")
        self.keeps_expiring = not volatile

    def _require_cluster(self) -> None:
        """Raise if the server says that it is none of a Cluster. A proxy of one may report itself as standalone."""
        (told,) = _sent(self._line, [("CLUSTER", "SLOTS")])
        if isinstance(told, redis.RedisError) and "cluster support disabled" in str(told):
            raise MemoryBackendError(f"Redis at {self._address.public} is no node of a Cluster; use redis://host:port")

    def _compare_histories(self, new: _History, commands: Sequence[Command], replies: Sequence[Reply]) -> None:
        """Count a fail-over if this server does not go on where the last one ended.

        Of a Cluster only a node that serves a key of the run counts: others answer to PING, or say that the Cluster is
        down. Where the slot's owner has said that the slot was moved, another history is none of a replica that took
        over.
        """
        if self._address.kind == "cluster" and (
            any(isinstance(reply, redis.RedisError) and is_outage(reply) for reply in replies)
            or not any(key_of(command) for command in commands)
        ):
            return
        self._unproven = None
        if not new.replication_id:
            return
        known, self._history = self._history, new
        moved, self._slot_moved = self._slot_moved, False
        gone_on = known is None or new.goes_on_from(known) or (moved and new.earlier_id != known.replication_id)
        self.history_changed = not gone_on

    def _ask_sentinels(self) -> Endpoint:
        """Return the master's address as the first Sentinel that answers names it; another one is asked next time."""
        service, silent = self._address.service, []
        kind: type[redis.ConnectionError] = redis.ConnectionError
        for _ in self._address.endpoints:
            sentinel = self._route.endpoint
            self._route.advance()
            asked = self._make_line(sentinel, is_sentinel=True)
            try:
                (found,) = _sent(asked, [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)])
                if isinstance(found, redis.RedisError):
                    raise found
                if found is not None:
                    host, port = found
                    return Endpoint(host.decode(), int(port))
                silent.append(f"{sentinel} knows no master {service!r}")
                kind = UnknownMasterError
            except (redis.AuthenticationError, redis.ResponseError) as error:
                if isinstance(error, redis.AuthenticationError) or not is_outage(error):
                    raise MemoryBackendError(
                        f"the Sentinel at {sentinel} refuses: {line(error)}; check its port, sentinel_user and "
                        f"{credentials.SENTINEL_VARIABLE}"
                    ) from error
                silent.append(f"{sentinel}: {line(error)}")
            except (redis.RedisError, OSError) as error:
                silent.append(f"{sentinel}: {line(error)}")
            finally:
                asked.disconnect()
        raise kind(f"no Sentinel names the master: {'; '.join(silent)}")

    def _make_line(self, where: Endpoint | None, *, is_sentinel: bool = False) -> Any:
        """Return a connection of redis-py, which connects when it is first used.

        Passwords and certificates are read now, so that they may be changed while roles run.
        """
        address = self._address
        password = credentials.sentinel_password() if is_sentinel else credentials.password(address.url)
        user = address.sentinel_user if is_sentinel else address.user
        options: dict[str, Any] = {
            "protocol": 2,
            "username": user or ("default" if password else None),  # servers without passwords accept any of `default`
            "password": password,
            "db": 0 if is_sentinel else address.database,
            "socket_timeout": _SENTINEL_TIMEOUT_S if is_sentinel else _SOCKET_TIMEOUT_S,
            "socket_connect_timeout": _SENTINEL_TIMEOUT_S if is_sentinel else _CONNECT_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
            "driver_info": None,  # CLIENT SETINFO is unknown to Redis 6.2 and often denied
            "socket_read_size": _READ_BYTES,
        }
        connection_class: type[Any] = redis.Connection
        if where is None:
            connection_class = redis.UnixDomainSocketConnection
            options["path"] = address.path
        else:
            options |= {"host": where.host, "port": where.port}
        if address.encrypted:
            connection_class = _secured(tls.context(address.files))
        if self._meter is not None:
            options["parser_class"] = _RESP2Parser  # hiredis makes room for all items that a reply announces
            connection_class = metered(connection_class, self._meter)
        return connection_class(**options)


class _Route:
    """The order in which servers are tried: the address' own, behind the one that a redirection has named."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._named = self._order = tuple(endpoints)
        self._at = 0

    @property
    def endpoint(self) -> Endpoint:
        """The server to try."""
        return self._order[self._at]

    def advance(self) -> None:
        """Try the next one from now on."""
        self._at = (self._at + 1) % len(self._order)

    def turn_to(self, endpoint: Endpoint) -> None:
        """Try `endpoint` first."""
        self._order = (endpoint, *(named for named in self._named if named != endpoint))
        self._at = 0


def _secured(context: ssl.SSLContext) -> type[redis.SSLConnection]:
    """Return redis-py's connection with distrl's rules for certificates."""

    class Secured(redis.SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            return context.wrap_socket(sock, server_hostname=self.host)

    return Secured


def _sent(connection: Any, commands: Sequence[Command]) -> list[Reply]:
    connection.send_packed_command(packed(commands), check_health=False)
    # The connection's own method would prepare for the errors of each reply apart.
    read = connection._parser.read_response
    return [read() for _ in commands]
