"""Ray clusters that exist before a run: one node on this machine, or a node on each of several hosts."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.faults.arguments import environment
from tests.faults.hosts import Host
from tests.waiting import lasts, wait_until

RAY = str(Path(sys.executable).parent / "ray")
_START = (RAY, "start", "--block", "--disable-usage-stats", f"--object-store-memory={80 * 2**20}")
_STARTED = b"--block"
"""A word of what a node prints once it is up."""
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
FAKE_HEAD_NODE_ID = "f" * 51 + "00000"
"""Node id that Ray's provider of imitated nodes gives the head."""
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

    @property
    def nodes(self) -> int:
        """Number of nodes, by their processes: a question to Ray would start workers, so that no node was idle."""
        return sum(_name(pid) == "raylet" for pid in self.pids)

    def end(self) -> None:
        """End every process, and remove the directory."""
        processes = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        self.process.wait(30)
        for process in psutil.wait_procs(processes, 10)[1]:
            process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def autoscaling(port: int, config: Path, cpus: int, most_nodes: int) -> tuple[str, dict[str, str]]:
    """Return the option and the variables by which a head adds nodes of this machine for what is asked of it.

    `ray.cluster_utils.AutoscalingCluster` would do the same, but it needs a file that Ray's packages lack, and ends all
    Ray processes of the machine first.

    Args:
        config: File that is written for the autoscaler.
        cpus: Of each node that it adds.
    """
    head = "ray.head.default"
    node = {"resources": {"CPU": cpus}, "node_config": {}, "min_workers": 0, "max_workers": most_nodes}
    provider = {"type": "external", "module": PROVIDER, "head_node_id": FAKE_HEAD_NODE_ID, "launch_multiple": True}
    provider |= dict.fromkeys(("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check"), True)
    settings = {
        "cluster_name": "test",
        "max_workers": most_nodes,
        "provider": {**provider, "gcs_address": f"127.0.0.1:{port}"},
        "available_node_types": {head: {"resources": {}, "node_config": {}, "max_workers": 0}, "node": node},
        "head_node_type": head,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        **{key: {} for key in ("auth", "docker", "file_mounts", "head_node", "worker_nodes")},
        **{key: [] for key in ("cluster_synced_files", "initialization_commands", "setup_commands")},
        **{key: [] for key in ("head_setup_commands", "worker_setup_commands", "rsync_exclude", "rsync_filter")},
        **{key: [] for key in ("head_start_ray_commands", "worker_start_ray_commands")},
        "file_mounts_sync_continuously": False,
    }
    config.write_text(json.dumps(settings))
    variables = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "RAY_enable_autoscaler_v2": "1"}
    own_id = dict.fromkeys(("RAY_CLOUD_INSTANCE_ID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING"), FAKE_HEAD_NODE_ID)
    return f"--autoscaling-config={config}", {**variables, **own_id}


class ClusterWithJobs(LocalCluster):
    """A cluster with a job server and a token, whose processes find this interpreter as `python`.

    Attributes:
        jobs: URL of the job server.
        token: Name -> value of the variables by which commands have the token.
    """

    def __init__(self, port: int, dashboard_port: int, log: Path, *, cpus: int = 8) -> None:
        self.jobs = f"http://127.0.0.1:{dashboard_port}"
        self.token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        dashboard = ("--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}")
        # Another cluster of this machine may hold the agent's usual port; without an agent no job is taken.
        dashboard += (f"--dashboard-agent-listen-port={dashboard_port + 1}",)
        super().__init__(port, log, *dashboard, cpus=cpus, variables=environment(PATH=path, **self.token))


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


def _name(pid: int) -> str:
    """Return the name of a process, "" if it has ended."""
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


def _await_start(process: "subprocess.Popen[bytes]", log: Path) -> None:
    wait_until(lambda: _STARTED in log.read_bytes() or process.poll() is not None, "the Ray node is up", 120.0)
    assert process.poll() is None, log.read_text()
    lasts(0.1)
