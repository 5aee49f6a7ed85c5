"""A Redis Cluster of three masters, whose slots move, and whose replicas take over, while clients write."""

import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import redis

from distrl.memory_backend.embedded_redis import find_server
from tests.faults.tls_redis import Peers
from tests.waiting import wait_until

NODES = 3
SLOTS = 16_384
WAIT_S = 60.0
_KEYS_AT_ONCE = 10


class RedisCluster:
    """Three servers on ports of 127.0.0.1, each with a third of the slots; none keeps anything on disk.

    Args:
        peers: Makes all of them speak TLS alone, and want its password.
        names: Whether they announce the name localhost instead of their IP address.
    """

    def __init__(self, directory: Path, peers: Peers | None = None, *, names: bool = False) -> None:
        self._peers, self._names = peers, names
        self._host = "127.0.0.1" if peers is None else "localhost"
        directory.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._clients: list[redis.Redis] = []
        self.moves = 0
        self._directory, self._replicas, self._dead = directory, set[int](), set[int]()
        ports = _free_ports(2 * NODES)
        self.ports, buses = ports[:NODES], ports[NODES:]
        try:
            for port, bus in zip(self.ports, buses, strict=True):
                self._start(directory, port, bus)
            self._join(buses)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        hosts = ",".join(f"{self._host}:{port}" for port in self.ports)
        return f"{'redis' if self._peers is None else 'rediss'}+cluster://{hosts}"

    def slot_of(self, key: str) -> int:
        return int(self._clients[0].execute_command("CLUSTER", "KEYSLOT", key))

    def at_owner_of(self, slot: int, *command: object) -> object:
        return self._clients[self.owner_of(slot)].execute_command(*command)

    def everywhere(self, *command: object) -> None:
        for client in self._clients:
            client.execute_command(*command)

    def owner_of(self, slot: int) -> int:
        """Number of the node that owns the slot, by its own word."""
        alive = set(range(len(self._clients))) - self._replicas - self._dead
        (owner,) = (node for node in alive if slot in self._slots_of(node))
        return owner

    def add_replicas(self) -> None:
        """Start a replica of each node. They take over after two seconds."""
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in self._clients]
        ports = _free_ports(2 * NODES)
        for port, bus, master in zip(ports[:NODES], ports[NODES:], ids, strict=True):
            self._start(self._directory, port, bus)
            replica = self._clients[-1]
            self._replicas.add(len(self._clients) - 1)
            self._clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
            wait_until(lambda replica=replica, master=master: _knows(replica, master), "the replica knows its master")
            replica.execute_command("CLUSTER", "REPLICATE", master)
            wait_until(
                lambda replica=replica: replica.info("replication").get("master_link_status") == "up",
                "the replica has the data",
            )
        nodes = 2 * NODES
        wait_until(lambda: all(_is_whole(client, nodes) for client in self._clients), "all nodes know the replicas")
        self.everywhere("CONFIG", "SET", "cluster-node-timeout", 2000)

    def kill_owner_of(self, slot: int) -> None:
        """Kill the node that owns the slot, and return when its replica owns it and all others know that."""
        owner = self.owner_of(slot)
        self._processes[owner].kill()
        self._processes[owner].wait(timeout=WAIT_S)
        self._dead.add(owner)
        alive = [client for node, client in enumerate(self._clients) if node not in self._dead]
        promoted = owner + NODES
        wait_until(lambda: slot in self._slots_of(promoted), "the replica owns the slot")
        self._replicas.remove(promoted)
        wait_until(lambda: all(_is_whole(client, 2 * NODES) for client in alive), "the Cluster is whole again")

    def move(self, slot: int) -> int:
        """Move the slot and its keys, as `redis-cli --cluster reshard` does, to the next node; return its number.

        Meanwhile the old owner answers for keys that it still has, and with ASK for others.
        """
        source = self.owner_of(slot)
        target = (source + 1) % NODES
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in self._clients]
        old, new = self._clients[source], self._clients[target]
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        migrated = 0
        while keys := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, _KEYS_AT_ONCE):
            for key in keys:  # one after the other: in between, clients meet a slot that is half here and half there
                old.execute_command("MIGRATE", "127.0.0.1", self.ports[target], key, 0, 5000)
                migrated += 1
        assert migrated, f"slot {slot} holds nothing"
        for client in (new, old, *self._clients):  # the new owner first: no slot is ever without one
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        self.moves += 1
        return target

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for process in self._processes:
            process.kill()
            process.wait(timeout=WAIT_S)

    def _start(self, directory: Path, port: int, bus: int) -> None:
        settings = {
            "port": port,
            "cluster-port": bus,
            "bind": "127.0.0.1",
            "cluster-enabled": "yes",
            "cluster-config-file": f"nodes-{port}.conf",
            "cluster-node-timeout": 10_000,
            "dir": directory,
            "save": "",
            "appendonly": "no",
        }
        if self._names:
            settings |= {"cluster-announce-hostname": "localhost", "cluster-preferred-endpoint-type": "hostname"}
        arguments = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
        if self._peers is not None:
            arguments += self._peers.arguments(port)
        with (directory / f"{port}.log").open("wb") as log:
            self._processes.append(subprocess.Popen([find_server(), *arguments], stdout=log, stderr=log))
        client = redis.Redis(port=port, socket_timeout=10.0) if self._peers is None else self._peers.client(port)
        self._clients.append(client)
        wait_until(lambda: _answers(client), f"the node at port {port} answers")

    def _join(self, buses: list[int]) -> None:
        for number, client in enumerate(self._clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            bounds = SLOTS * number // NODES, SLOTS * (number + 1) // NODES - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *bounds)
        for port, bus in zip(self.ports, buses, strict=True):
            self._clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
        wait_until(lambda: all(map(_is_whole, self._clients)), "all nodes know each other and all slots")

    def _slots_of(self, node: int) -> set[int]:
        """Slots that the node believes to be its own."""
        described = self._clients[node].execute_command("CLUSTER", "NODES")
        text = described if isinstance(described, str) else str(described, "utf-8")
        (line,) = (line.split() for line in text.splitlines() if "myself" in line)
        found: set[int] = set()
        for part in line[8:]:
            if not part.startswith("["):  # those are slots on their way
                first, _, last = part.partition("-")
                found |= set(range(int(first), int(last or first) + 1))
        return found


def _knows(client: redis.Redis, node: str) -> bool:
    return node in str(client.execute_command("CLUSTER", "NODES"))


def _is_whole(client: redis.Redis, nodes: int = NODES) -> bool:
    told = client.execute_command("CLUSTER", "INFO")
    text = "\n".join(f"{name}:{value}" for name, value in told.items()) if isinstance(told, dict) else told.decode()
    return {"cluster_state:ok", f"cluster_known_nodes:{nodes}", f"cluster_slots_ok:{SLOTS}"} <= set(text.split())


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]
