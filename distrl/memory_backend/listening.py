"""An embedded redis-server that other hosts reach: its port, its password, and what the password allows.

The password lies in the run's directory, in `redis.password`, and stays the same when the run is resumed. The server
gets its hash, in a file that only this user may read.
"""

import hashlib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from distrl.config.memory import TlsConfig
from distrl.config.secrets import PASSWORD_FILE_OPTION, read_secret
from distrl.errors import ConfigError
from distrl.memory_backend import tls
from distrl.memory_backend.embedded_redis import quoted

_FORM = re.compile(r"(?P<host>[^:\[\]]+|[0-9A-Fa-f:.]+/\d+|\[[0-9A-Fa-f:.]+\])(:(?P<port>\d{1,5}))?")
_ELSEWHERE = "192.0.2.1"  # set aside for documentation: no host has it, so that the default route leads there
_RIGHTS = "~* &* +@all -@admin -@dangerous -@scripting +info +client|setname"
"""The password must not open the learner's host. distrl needs INFO of the commands that are refused, and CLIENT
SETNAME, which Redis 6.2 refuses with them."""


@dataclass(frozen=True)
class Port:
    """A port of this host.

    Attributes:
        host: Name or address by which other hosts find this one.
        address: The address of this host that the server binds.
    """

    host: str
    address: str
    number: int


def find_port(listen: str) -> Port:
    """Return the port that `memory.listen` asks for, which is free; without a number, any free one.

    Raises:
        ConfigError: It is malformed, names no address of this host, or the port is taken.
    """
    form = _FORM.fullmatch(listen)
    if form is None:
        raise ConfigError(
            f"memory.listen {listen!r} is malformed; use auto, a network like 10.1.0.0/16, HOST or HOST:PORT"
        )
    host = form["host"].strip("[]")
    try:
        if host == "auto":
            host = address = _own_address()
        elif "/" in host:
            host = address = _address_in(host)
        else:
            address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        if ip_address(address).is_unspecified:
            raise ConfigError(
                f"memory.listen {listen}: other hosts need an address to connect to; use auto, or name one"
            )
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, int(form["port"] or 0)))
            return Port(host, address, probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"memory.listen {listen}: this host cannot listen there: {why}") from error


def server_settings(port: Port, password_file: Path, files: TlsConfig) -> Mapping[str, str]:
    """Return the settings of redis-server that make it listen, as lines of its configuration have them.

    Args:
        files: With `cert_file` and `key_file` it speaks TLS alone at this port; it wants no certificate of clients.
    """
    hashed = hashlib.sha256(read_secret(str(password_file), PASSWORD_FILE_OPTION).encode()).hexdigest()
    settings = {"bind": port.address, "user": f"default on #{hashed} {_RIGHTS}"}
    if files.cert_file is None or files.key_file is None:
        return settings | {"port": str(port.number)}
    return settings | {
        "tls-port": str(port.number),
        "tls-cert-file": quoted(files.cert_file),
        "tls-key-file": quoted(files.key_file),
        "tls-auth-clients": "no",
    }


def port_url(port: Port, files: TlsConfig) -> str:
    """Return the URL by which other hosts reach the server, without its password's file."""
    host = f"[{port.host}]" if ":" in port.host else port.host
    if files.cert_file is None:
        return f"redis://{host}:{port.number}"
    return tls.with_files(f"rediss://{host}:{port.number}", TlsConfig(ca_file=files.ca_file))


def _own_address() -> str:
    """Return the address that this host has on its default route, or else by its name."""
    found = []
    try:
        found.append(_address_towards(_ELSEWHERE))
    except OSError:  # no default route
        found += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)]
    for address in found:
        if not ip_address(address).is_loopback:
            return address
    raise ConfigError(
        "memory.listen auto: this host has no default route, and its name has no address but its loopback; name its "
        "network or its address"
    )


def _address_in(network: str) -> str:
    try:
        found = ip_network(network)
    except ValueError as error:
        raise ConfigError(f"memory.listen {network}: {error}") from error
    address = _address_towards(str(found[min(1, found.num_addresses - 1)]))
    if ip_address(address) not in found:
        raise ConfigError(f"memory.listen {network}: this host has no address in this network")
    return address


def _address_towards(address: str) -> str:
    """Return the address of this host from which packets to `address` leave; none is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
