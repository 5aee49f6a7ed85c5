"""A Redis with replicas and Sentinels, whose master can be killed, with or without its replicas' knowledge."""

import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import redis

from distrl.memory_backend.embedded_redis import find_server
from tests.faults.tls_redis import Peers
from tests.waiting import wait_until

MASTER = "mymaster"
SENTINEL_PASSWORD = "of-all-sentinels"
DOWN_AFTER_MS = 2000
WAIT_S = 60.0


class Watched:
    """One master, two replicas and three Sentinels on ports of 127.0.0.1, none of which keeps anything on disk.

    Args:
        peers: Makes all of them speak TLS alone, and want passwords; that of the Sentinels is `SENTINEL_PASSWORD`.
    """

    def __init__(self, directory: Path, peers: Peers | None = None) -> None:
        self._directory, self._peers = directory, peers
        self._host = "127.0.0.1" if peers is None else "localhost"
        directory.mkdir()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.servers, self.sentinels = _free_ports(3), _free_ports(3)
        self._start(self.servers[0])
        for port in self.servers[1:]:
            self._start(port, "--replicaof", f"{self._host} {self.servers[0]}")
        for port in self.sentinels:
            self._start_sentinel(port)
        self.wait_for_replicas(2)
        wait_until(self._is_watched, "all Sentinels know each other and the replicas")

    @property
    def url(self) -> str:
        hosts = ",".join(f"{self._host}:{port}" for port in self.sentinels)
        return f"{'redis' if self._peers is None else 'rediss'}+sentinel://{hosts}/{MASTER}/0"

    @property
    def master(self) -> int:
        """Port of the master, as a Sentinel names it."""
        with self._client(self.sentinels[0]) as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return int(port)

    @property
    def switches(self) -> int:
        """Number of times that another server became the master; on a busy machine they may take one up for dead."""
        logs = (self._directory / f"{port}.log" for port in self.sentinels)
        return max(log.read_text().count("+switch-master") for log in logs)

    def kill_master(self) -> int:
        """Kill the master, and return its port when another server is the master."""
        killed = self.master
        self._end(killed)
        wait_until(lambda: self.master != killed, "a replica is promoted")
        wait_until(lambda: self._role(self.master) == "master", "it knows that")
        return killed

    def start_as_replica(self, port: int) -> None:
        """Start a killed server again, and wait until it has the master's data."""
        self._start(port, "--replicaof", f"{self._host} {self.master}")
        self.wait_for_replicas(2)

    def cut_replication(self) -> None:
        """Nothing that the master is told from now on reaches a replica."""
        with self._client(self.master) as client:
            client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            assert client.info("replication")["connected_slaves"] == 0

    def wait_for_replicas(self, count: int) -> None:
        def there() -> bool:
            with self._client(self.master if self.sentinels[0] in self._processes else self.servers[0]) as client:
                told = client.info("replication")
            return [told.get(f"slave{i}", {}).get("state") for i in range(count)] == ["online"] * count

        wait_until(there, f"{count} replicas have the data")

    def everywhere(self, change: Callable[[redis.Redis], object]) -> None:
        """Change each server that stores data; a replica takes over no users from its master."""
        for port in self.servers:
            with self._client(port) as client:
                change(client)

    def close(self) -> None:
        for port in [*self.sentinels, *self.servers]:
            self._end(port)

    def _is_watched(self) -> bool:
        for port in self.sentinels:
            with self._client(port) as client:
                told = client.execute_command("SENTINEL", "MASTERS")[0]
            known = dict(zip(told[::2], told[1::2], strict=True)) if isinstance(told, list) else told
            found = {str(_text(name)): _text(value) for name, value in known.items()}
            if (int(found["num-slaves"]), int(found["num-other-sentinels"])) != (2, 2):
                return False
        return True

    def _role(self, port: int) -> str:
        with self._client(port) as client:
            return str(client.info("replication")["role"])

    def _client(self, port: int) -> redis.Redis:
        if self._peers is None:
            return redis.Redis(port=port, socket_timeout=5.0)
        return self._peers.client(port, SENTINEL_PASSWORD if port in self.sentinels else None)

    def _start_sentinel(self, port: int) -> None:
        settings = {"port": str(port), "bind": "127.0.0.1"}
        if self._peers is not None:
            names = {"sentinel resolve-hostnames": "yes", "sentinel announce-hostnames": "yes"}
            settings = self._peers.settings(port, SENTINEL_PASSWORD) | names | {"sentinel announce-ip": "localhost"}
        settings |= {
            f"sentinel monitor {MASTER}": f"{self._host} {self.servers[0]} 2",
            f"sentinel down-after-milliseconds {MASTER}": str(DOWN_AFTER_MS),
            f"sentinel failover-timeout {MASTER}": "3000",
        }
        if self._peers is not None:
            settings[f"sentinel auth-pass {MASTER}"] = self._peers.password
        written = self._directory / f"sentinel-{port}.conf"
        written.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self._launch(port, str(written), "--sentinel")

    def _start(self, port: int, *more: str) -> None:
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0"]
        if self._peers is not None:
            settings += self._peers.arguments(port)
        self._launch(port, *settings, *more)

    def _launch(self, port: int, *arguments: str) -> None:
        with (self._directory / f"{port}.log").open("ab") as log:
            command = [str(find_server()), *arguments]
            self._processes[port] = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        wait_until(lambda: self._answers(port), f"the server at port {port} answers")

    def _answers(self, port: int) -> bool:
        try:
            with self._client(port) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _end(self, port: int) -> None:
        process = self._processes.pop(port, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=WAIT_S)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
