"""A Redis that speaks TLS alone, and authorities that sign certificates."""

import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
import redis

from distrl.memory_backend.embedded_redis import find_server
from tests.faults.arguments import environment
from tests.waiting import wait_until

PASSWORD = f"not-to-be-seen-{uuid.uuid4().hex}"


class Authority:
    """An authority with a key and a certificate of its own, by the program openssl.

    Attributes:
        file: Its certificate.
    """

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no program openssl")
        self._directory = directory
        directory.mkdir()
        self.file, self._key = directory / "authority.crt", directory / "authority.key"
        files = ("-keyout", self._key, "-out", self.file)
        # Python refuses authorities without a key usage from 3.13 on.
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._run("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", "/CN=authority", *usage, *files)

    def sign(self, name: str, host: str = "localhost", days: int = 2) -> tuple[Path, Path]:
        """Return the files of a certificate for `host` and of its key; negative days: it has expired."""
        files = [self._directory / f"{name}.{kind}" for kind in ("crt", "key", "csr", "names")]
        certificate, key, request, names = files
        names.write_text(f"subjectAltName=DNS:{host}\nauthorityKeyIdentifier=keyid\n")
        self._run("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signed_by = ("-CA", self.file, "-CAkey", self._key, "-CAcreateserial")
        self._run("x509", "-req", "-in", request, *signed_by, "-days", days, "-extfile", names, "-out", certificate)
        return certificate, key

    def _run(self, *words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Peers:
    """Several servers at localhost that speak TLS alone, with clients and with each other, by one certificate.

    Attributes:
        password: Of their user `default`.
    """

    password = "of-all-peers"

    def __init__(self, authority: Authority) -> None:
        self.authority, self._certificate = authority, authority.sign("peer")

    def settings(self, port: int, password: str = password) -> dict[str, str]:
        """Return the settings of the one at a port, whose user `default` has this password."""
        more = {"tls-replication": "yes", "requirepass": password}
        return tls_settings(port, self._certificate, self.authority) | more

    def arguments(self, port: int) -> list[str]:
        """Return the settings of one that stores data, as arguments."""
        settings = self.settings(port) | {
            "tls-cluster": "yes",
            "masterauth": self.password,
            "replica-announce-ip": "localhost",  # a name, as certificates have
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    def client(self, port: int, password: str | None = None) -> redis.Redis:
        """Return an operator's client of the server at a port."""
        trusted = {"ssl": True, "ssl_ca_certs": str(self.authority.file)}
        return redis.Redis("localhost", port, password=password or self.password, socket_timeout=10.0, **trusted)


def tls_settings(port: int, certificate: tuple[Path, Path], authority: Authority) -> dict[str, str]:
    """Return the settings of a server that speaks TLS alone, and wants no certificates of its clients."""
    return {
        "port": "0",
        "tls-port": str(port),
        "bind": "127.0.0.1",
        "tls-cert-file": str(certificate[0]),
        "tls-key-file": str(certificate[1]),
        "tls-ca-cert-file": str(authority.file),
        "tls-auth-clients": "no",
    }


class TlsRedis:
    """A redis-server on a port of localhost, with a password and TLS, until it is stopped.

    Args:
        certificate: Files of its certificate and key.
        clients: Authority that must have signed its clients' certificates; None: they need none.
    """

    def __init__(
        self, authority: Authority, certificate: tuple[Path, Path], *, clients: Authority | None = None
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._directory = tempfile.TemporaryDirectory()
        settings = tls_settings(self.port, certificate, clients or authority) | {
            "tls-auth-clients": "no" if clients is None else "yes",
            "requirepass": PASSWORD,
            "dir": self._directory.name,
            "logfile": f"{self._directory.name}/log",
            "save": "",
        }
        written = Path(self._directory.name, "redis.conf")  # not arguments, which have no password
        written.write_text("".join(f'{name} "{value}"\n' for name, value in settings.items()))
        self._process = subprocess.Popen([find_server(), str(written)], stdin=subprocess.DEVNULL)
        self._await_start()

    @property
    def url(self) -> str:
        return f"rediss://localhost:{self.port}/0"

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait(timeout=60.0)
        self._directory.cleanup()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except ConnectionRefusedError:
            return False
        return True

    def _await_start(self) -> None:
        wait_until(lambda: self._process.poll() is not None or self._listens(), "Redis listens or has ended")
        if self._process.poll() is None:
            return
        log = Path(self._directory.name, "log").read_text()
        self.stop()
        pytest.skip(f"the redis-server of this machine was built without TLS: {log[-300:]}")


def places_of_password(folders: Iterable[Path]) -> list[Path]:
    """Return command lines of all processes, and files below `folders` but `password`, that hold the password."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if PASSWORD.encode() in file.read_bytes():
                found.append(file)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found + [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.name != "password" and PASSWORD.encode() in path.read_bytes()
    ]


def without_password(**variables: str) -> dict[str, str]:
    """Return the environment of a process that knows no password but by `variables`."""
    kept = {name: value for name, value in environment().items() if not name.startswith("DISTRL_REDIS")}
    return kept | variables
