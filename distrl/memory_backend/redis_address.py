"""The address of a Redis: a URL, parsed once into what a connection needs. No other module reads such URLs.

    redis://user@host:6379/0                            a server, or an address that follows its master
    unix:///run/redis.sock?db=0                         the same on this host
    redis+sentinel://user@host:26379,host/mymaster/0    the master that Sentinels name
    redis+cluster://user@host:6379,host                 the node of a Cluster that owns the run's slot

`rediss` in place of `redis` encrypts the connections (TLS); `valkey` and `valkeys` are `redis` and `rediss`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from distrl.config.secrets import PASSWORD_FILE_OPTION, refuse_password
from distrl.errors import ConfigError
from distrl.memory_backend import tls

REDIS_PORT, SENTINEL_PORT = 6379, 26379

Kind = Literal["server", "unix", "sentinel", "cluster"]
_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("server", False),
    "rediss": ("server", True),
    "valkey": ("server", False),
    "valkeys": ("server", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_FORMS = (
    "use redis://host:6379/0, rediss:// (TLS), unix:///path, redis+sentinel://host:26379,host/master/0 or "
    "redis+cluster://host:6379,host"
)


class Endpoint(NamedTuple):
    """A TCP port of a host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RedisAddress:
    """A parsed URL.

    Attributes:
        kind: How the server is found.
        url: As it was given. It holds no password.
        public: The URL without user and options.
        endpoints: The server, the Sentinels, or nodes of the Cluster; none for a unix socket.
        path: The unix socket.
        service: Name that the Sentinels have for the master.
        namespace: That of the runs, if the URL names one.
        encrypted: Whether connections use TLS.
        user: None for Redis' default user.
        sentinel_user: The same for connections to Sentinels.
        files: Those of TLS that are given, by `tls.FILES`.
    """

    kind: Kind
    url: str
    public: str
    endpoints: tuple[Endpoint, ...] = ()
    path: str = ""
    service: str = ""
    database: int = 0
    namespace: str | None = None
    user: str | None = None
    sentinel_user: str | None = None
    encrypted: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine for sure. Sentinels and Clusters may name one anywhere."""
        if self.kind == "server":
            return self.endpoints[0].host in ("localhost", "127.0.0.1", "::1")
        return self.kind == "unix"


def parse_address(url: str) -> RedisAddress:
    """Parse the URL of a Redis.

    Raises:
        ConfigError: It is malformed, holds a password, or has an option that has no meaning here. The message quotes
            nothing of it that may be a part of a password.
    """
    try:
        refuse_password(url, "the Redis URL")
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            # Without slashes the first part may be a user's name, or a password.
            raise _malformed(f"{parts.scheme}:// is no scheme of Redis" if "://" in url else "it has no scheme")
        if parts.fragment:
            raise _malformed("it has a '#', which is written %23")
        if "@" in parts.query:  # behind a '?' that is a part of a password
            raise _malformed("it has an '@' behind a '?', which is written %40")
        kind, encrypted = _SCHEMES[parts.scheme]
        user, _, hosts = parts.netloc.rpartition("@")
        options = _options(parts.query, kind, encrypted)
        service, database = _path(kind, parts, options)
        endpoints = _endpoints(kind, hosts)
    except ValueError as error:  # of urllib, whose words may quote a part of the password
        raise _malformed("a host or port is malformed; special characters in a user are %-encoded") from error
    return RedisAddress(
        kind,
        url,
        f"{parts.scheme}://{hosts}{parts.path}",
        endpoints,
        path=unquote(parts.path) if kind == "unix" else "",
        service=service,
        database=database,
        namespace=options.get("namespace"),
        user=unquote(user).removesuffix(":") or None,
        sentinel_user=options.get("sentinel_user"),
        encrypted=encrypted,
        files={name: options[name] for name in tls.FILES if name in options},
    )


def public_url(url: str) -> str:
    """Return the URL without user, password and options; 'the given URL' if it is malformed."""
    try:
        return parse_address(url).public
    except ConfigError:
        return "the given URL"


def with_user(url: str, user: str | None) -> str:
    """Return the URL with another user, or without one."""
    netloc = urlsplit(url).netloc
    hosts = netloc.rpartition("@")[2]
    return url.replace(f"//{netloc}", f"//{hosts}" if user is None else f"//{quote(user)}@{hosts}", 1)


def _options(query: str, kind: Kind, encrypted: bool) -> dict[str, str]:
    known = {
        "namespace",
        PASSWORD_FILE_OPTION,
        *(("db",) if kind in ("server", "unix") else ()),
        *(("sentinel_user",) if kind == "sentinel" else ()),
        *(tls.FILES if encrypted else ()),
    }
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(f"unknown option {name!r} of a Redis URL; its scheme has: {', '.join(sorted(known))}")
        if name in options:
            raise ConfigError(f"the Redis URL has the option {name!r} twice; give it once")
        options[name] = value
    return options


def _path(kind: Kind, parts: SplitResult, options: dict[str, str]) -> tuple[str, int]:
    """Return the Sentinels' name of the master, and the database."""
    path = parts.path.removeprefix("/")
    if kind == "unix":
        if not path:
            raise _malformed("it names no socket")
        return "", _database(options.get("db", ""))
    service = ""
    if kind == "sentinel":
        service, _, path = path.partition("/")
        if not service or "@" in service:  # '@': a part of a password that is not encoded
            raise _malformed("it names no master: the Sentinels' name for it follows the hosts")
    if path and "db" in options:
        raise _malformed("it names the database twice")
    database = _database(path or options.get("db", ""))
    if kind == "cluster" and database:
        raise _malformed("a Cluster has only database 0")
    return unquote(service), database


def _database(text: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise _malformed("the database behind the hosts is no number")
    return int(text or 0)


def _endpoints(kind: Kind, hosts: str) -> tuple[Endpoint, ...]:
    if kind == "unix":
        if hosts:
            raise _malformed("a unix socket has no host: write three slashes")
        return ()
    port = SENTINEL_PORT if kind == "sentinel" else REDIS_PORT
    found = []
    for text in hosts.split(","):
        one = urlsplit(f"//{text}")
        if not one.hostname and hosts:
            raise _malformed("a host has no name")
        found.append(Endpoint(one.hostname or "localhost", one.port or port))
    if len(found) > 1 and kind == "server":
        raise _malformed("only Sentinels and Clusters have several hosts")
    return tuple(found)


def _malformed(why: str) -> ConfigError:
    return ConfigError(f"the given URL is not a Redis URL ({why}); {_FORMS}")
