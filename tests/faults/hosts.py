"""Hosts on one machine: namespaces of their own, joined by a switch, that can be cut off and lose power.

Needs root and the programs unshare, nsenter, mount, hostname and ip. Everything is bound to the life of this process:
the first process of a host ends at the end of its standard input, and the kernel removes the rest.
"""

import os
import shlex
import subprocess
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import psutil

NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")
REDIS_PORT = 6379
"""Port of a Redis that has a host of its own."""
NOWHERE = "02:00:00:00:00:01"
"""A hardware address that no interface has."""
NETWORKS = 256
"""Number of networks that one machine can have at once, in all processes of tests."""
_numbers = count(os.getpid())


class Space:
    """Network, mount, host name, IPC and process namespaces, and their first process.

    Attributes:
        pid: Of the first process, in this machine's numbers.
    """

    def __init__(self, name: str, script: str = ":", *arguments: str) -> None:
        """Run `script` in the new namespaces, as root there, and return when it is done.

        Raises:
            OSError: This machine cannot make them; the message has the reason.
        """
        self.name = name
        inside = f'hostname "$0" && ip link set lo up && {script} && echo ready && exec cat'
        self._parent = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside, name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._parent.stdout is not None
        if self._parent.stdout.readline() != b"ready\n":
            raise OSError(f"no namespaces for {name}: {self._parent.communicate()[1].decode().strip()}")
        (first,) = psutil.Process(self._parent.pid).children()
        self.pid = first.pid

    def enter(self, *command: str) -> list[str]:
        """Return the command that runs another one in here; its exit code is that of the other one."""
        return ["nsenter", "--target", str(self.pid), *NAMESPACES, "--", *command]

    def ip(self, *arguments: str) -> None:
        """Change the network in here."""
        _ip(self.pid, *arguments)

    def end(self) -> None:
        """Kill every process in here: the first one ends with its input, and the kernel kills the others."""
        if self._parent.returncode is None:
            self._parent.communicate()


class Host(Space):
    """One host of a network, with its own name, /dev/shm and TMPDIR. It sees the files of this machine.

    Attributes:
        address: In the network; other hosts also find it by its name.
        names: The hosts file of the network.
    """

    def __init__(self, name: str, address: str, directory: Path, names: Path) -> None:
        self.address = address
        self.names = names
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        (directory / name).mkdir()
        super().__init__(name, 'mount -t tmpfs tmpfs /dev/shm && mount --bind "$1" /etc/hosts', str(names))

    def start(self, *command: str, variables: dict[str, str], **streams: Any) -> "subprocess.Popen[bytes]":
        """Start a command in here, in the network's directory."""
        told = {**variables, "TMPDIR": str(self._directory / self.name)}
        there = self.enter("env", "-C", str(self._directory), *command)
        self._started.append(subprocess.Popen(there, env=told, stdin=subprocess.DEVNULL, **streams))
        return self._started[-1]

    def end(self) -> None:
        super().end()
        for started in self._started:
            started.wait()

    @property
    def received_bytes(self) -> int:
        """Bytes that have reached this host from others."""
        text = subprocess.run(self.enter("cat", "/proc/net/dev"), check=True, capture_output=True, text=True).stdout
        (line,) = (line for line in text.splitlines() if line.strip().startswith("eth0:"))
        return int(line.split(":")[1].split()[0])


class Network:
    """A switch and the hosts on it. This process is on it as well, under `address`."""

    def __init__(self, directory: Path) -> None:
        """Make a network without hosts; `directory` takes files of hosts.

        Raises:
            OSError: This machine cannot make one; the message has the reason.
        """
        self._directory = directory
        self._names = directory / "hosts"
        self._names.write_text("127.0.0.1 localhost\n")
        self._hosts: list[Host] = []
        self._cleanup = ExitStack()
        self._switch = self._keep(Space("switch", "ip link add bridge0 type bridge && ip link set bridge0 up"))
        try:
            self._subnet = self._join()
        except OSError:
            self.close()
            raise
        self.address = f"{self._subnet}.254"

    def host(self, name: str) -> Host:
        """Add a host."""
        address = f"{self._subnet}.{len(self._hosts) + 1}"
        with self._names.open("a") as file:
            file.write(f"{address} {name}\n")
        host = self._keep(Host(name, address, self._directory, self._names))
        self._hosts.append(host)
        self._connect(name, host.pid, "eth0", address)
        return host

    def unplug(self, host: Host) -> None:
        """Cut a host off: it loses its link."""
        self._switch.ip("link", "set", "dev", host.name, "down")

    def plug(self, host: Host) -> None:
        self._switch.ip("link", "set", "dev", host.name, "up")

    def lose(self, source: Host, sink: Host) -> None:
        """Lose what `source` sends to `sink` from now on, in silence; the other direction works."""
        source.ip("neigh", "replace", sink.address, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0")

    def find(self, source: Host, sink: Host) -> None:
        """Undo `lose`."""
        source.ip("neigh", "del", sink.address, "dev", "eth0")

    def lose_power(self, host: Host) -> None:
        """End a host without a word to any other."""
        self.unplug(host)
        host.end()

    def close(self) -> None:
        """End all hosts."""
        self._cleanup.close()

    def _keep(self, space: Any) -> Any:
        self._cleanup.callback(space.end)
        return space

    def _join(self) -> str:
        """Connect this machine, and return the network's addresses: those that no other network of this machine has."""
        for number in (next(_numbers) % NETWORKS for _ in range(NETWORKS)):
            subnet = f"198.18.{number}"  # set aside for tests of networks
            try:
                self._connect("here", os.getpid(), f"dt{number}", f"{subnet}.254")
            except OSError as error:
                if "File exists" not in str(error):
                    raise
            else:
                return subnet
        raise OSError(f"{NETWORKS} networks of tests are there already")

    def _connect(self, port: str, pid: int, interface: str, address: str) -> None:
        """Lay a cable from a port of the switch to an interface in the network of the process `pid`."""
        self._switch.ip("link", "add", "name", port, "type", "veth", "peer", "name", interface, "netns", str(pid))
        self._switch.ip("link", "set", "dev", port, "master", "bridge0", "up")
        _ip(pid, "address", "add", f"{address}/24", "dev", interface)
        _ip(pid, "link", "set", "dev", interface, "up")


def _ip(pid: int, *arguments: str) -> None:
    """Run `ip` in the network of the process `pid`.

    Raises:
        OSError: It is missing, or refuses.
    """
    command = ["nsenter", "--target", str(pid), "--net", "ip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{shlex.join(command)}: {done.stderr.strip()}")
