"""Ray clusters that exist before a run: one node on this machine, or a node on each of several hosts."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.faults.arguments import environment
from tests.faults.hosts import Host
from tests.faults.training import wait_until

RAY = str(Path(sys.executable).parent / "ray")
_START = (RAY, "start", "--block", "--disable-usage-stats", f"--object-store-memory={80 * 2**20}")
_STARTED = b"--block"
"""A word of what a node prints once it is up."""
QUICK_TO_MISS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
}
"""Settings of a head that finds a silent node dead in some ten seconds, and not after a minute."""


class LocalCluster:
    """A cluster of one node at a port of this machine, until it is ended.

    Args:
        options: Of `ray start`.

    Attributes:
        address: For --ray-address.
        directory: Of all that Ray writes. Its path is short, because Ray's sockets lie in it.
    """

    def __init__(self, port: int, log: Path, *options: str, cpus: int = 8, variables: Mapping[str, str]) -> None:
        self.address, self.directory = f"127.0.0.1:{port}", Path(f"/tmp/ray-{port}")
        own = ("--head", f"--port={port}", f"--temp-dir={self.directory}", f"--num-cpus={cpus}")
        with log.open("wb") as output:
            command = [*_START, *own, *(options or ("--include-dashboard=false",))]
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**variables})
        try:
            _await_start(self.process, log)
        except BaseException:
            self.end()
            raise

    @property
    def pids(self) -> set[int]:
        """Every process of Ray's that runs."""
        return {child.pid for child in psutil.Process(self.process.pid).children(recursive=True)}

    def end(self) -> None:
        """End every process, and remove the directory."""
        processes = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        self.process.wait(30)
        for process in psutil.wait_procs(processes, 10)[1]:
            process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class ClusterOfHosts:
    """A cluster whose nodes are hosts of a network. The head's host has no room for roles.

    Args:
        disk: An empty folder, in which every host of the cluster sees a disk of its own.
    """

    def __init__(self, head: Host, port: int, disk: Path) -> None:
        self.head, self.address, self._disk = head, f"{head.address}:{port}", disk
        quick = f"--system-config={json.dumps(QUICK_TO_MISS)}"
        self._start(head, "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", quick)

    def files(self, host: Host) -> Path:
        """Return the path of a host's disk for this process."""
        return Path(f"/proc/{host.pid}/root{self._disk}")

    def add(self, host: Host, cpus: int) -> None:
        """Make a host a node, and return once it is one."""
        self._start(host, f"--address={self.address}", f"--num-cpus={cpus}")

    def _start(self, host: Host, *options: str) -> None:
        subprocess.run(host.enter("mount", "-t", "tmpfs", "tmpfs", str(self._disk)), check=True, capture_output=True)
        short = Path(f"/tmp/ray-{host.address}")  # Ray's sockets lie in it
        own = (f"--node-ip-address={host.address}", f"--temp-dir={short}")
        log = self._disk.parent / f"ray-{host.name}.log"
        with log.open("wb") as output:
            process = host.start(*_START, *own, *options, variables=environment(), stdout=output, stderr=output)
        _await_start(process, log)

    def clean(self) -> None:
        """Remove what Ray has written; the hosts have ended."""
        prefix = self.head.address.rpartition(".")[0]
        for directory in Path("/tmp").glob(f"ray-{prefix}.*"):
            shutil.rmtree(directory, ignore_errors=True)


def _await_start(process: "subprocess.Popen[bytes]", log: Path) -> None:
    wait_until(lambda: _STARTED in log.read_bytes() or process.poll() is not None, "the Ray node is up", 60.0)
    assert process.poll() is None, log.read_text()
    time.sleep(0.1)
