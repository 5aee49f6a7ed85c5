"""A Slurm cluster of its own: slurmctld on this machine, and a slurmd on each of several hosts of a network."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import psutil

from tests.faults.arguments import environment
from tests.faults.hosts import Host, Network
from tests.waiting import wait_until

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "scontrol")
CPUS = 4
"""Cores of each node, as Slurm counts them."""
_SETTINGS = """\
ClusterName=test
SlurmctldHost={name}({address})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=2
PartitionName=main Nodes={nodes} Default=YES State=UP PriorityTier=2
PartitionName=spare Nodes={nodes} State=UP PriorityTier=1
PartitionName=cancelling Nodes={nodes} State=UP PriorityTier=1 PreemptMode=CANCEL
"""


def missing_for_slurm() -> str | None:
    """Return the reason why this machine has no Slurm cluster, and the remedy; or None."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        return f"no {', '.join(lacking)}: apt-get install slurmctld slurmd slurm-client"
    return None


class SlurmCluster:
    """A cluster of `nodes` hosts n1, n2, …, which share this machine's files.

    Jobs of the partition `main` preempt those of `spare`, which are requeued, and of `cancelling`, which are cancelled.

    Args:
        directory: Takes settings, state and logs.
        port: A free port for slurmctld.

    Attributes:
        variables: Name -> value, by which Slurm's commands find the cluster.
    """

    def __init__(self, network: Network, directory: Path, port: int, nodes: int = 3) -> None:
        self._network = network
        directory.mkdir()
        (directory / "state").mkdir()
        settings = directory / "slurm.conf"
        self.variables = {"SLURM_CONF": str(settings)}
        self.hosts: dict[str, Host] = {}
        for number in range(1, nodes + 1):
            self.hosts[f"n{number}"] = network.host(f"n{number}")
        here = {"name": os.uname().nodename, "address": network.address, "port": port, "directory": directory}
        text = _SETTINGS.format(**here, nodes=",".join(self.hosts))
        for name, host in self.hosts.items():
            text += f"NodeName={name} NodeAddr={host.address} CPUs={CPUS} RealMemory=1000\n"
        settings.write_text(text)
        self._controller: subprocess.Popen[bytes] | None = None
        self._output = directory / "slurm.out"
        try:
            self.start_controller()
            for name in self.hosts:
                self.start_node(name)
            wait_until(lambda: len(self.idle()) == nodes, "all nodes are idle", 60.0)
        except BaseException:
            self.end()
            raise

    def start_controller(self) -> None:
        """Start slurmctld, with the jobs that an earlier one has left."""
        with self._output.open("ab") as output:
            command = ["slurmctld", "-D", "-f", self.variables["SLURM_CONF"]]
            self._controller = subprocess.Popen(command, env=environment(), stdout=output, stderr=output)

    def end_controller(self) -> None:
        """End slurmctld; jobs go on, and commands find no answer."""
        if self._controller is not None:
            self._controller.terminate()
            self._controller.wait(30)
            self._controller = None

    def start_node(self, name: str) -> None:
        """Start slurmd on a host."""
        with self._output.open("ab") as output:
            command = ["slurmd", "-D", "-N", name, "-f", self.variables["SLURM_CONF"]]
            self.hosts[name].start(*command, variables=environment(), stdout=output, stderr=output)

    def lose_node(self, name: str) -> None:
        """End a host and all that runs there without a word."""
        self._network.lose_power(self.hosts[name])

    def idle(self) -> list[str]:
        """Names of the nodes without a job."""
        return self.ask("sinfo", "--noheader", "--Node", "--partition=main", "--states=idle", "--format=%N").split()

    def ask(self, *command: str) -> str:
        """Return the output of one of Slurm's commands; empty if it fails."""
        done = subprocess.run(command, env=environment(**self.variables), capture_output=True, text=True)
        return done.stdout

    def kill_script(self, job: str) -> None:
        """Kill the batch script of a job, and all that it has started, as the kernel does for lack of memory."""
        script = f"{Path(self.variables['SLURM_CONF']).parent}/spool-*/job{int(job):05}/slurm_script"
        for process in psutil.process_iter(["cmdline"]):
            if any(fnmatch(word, script) for word in process.info["cmdline"] or ()):
                for each in [*process.children(recursive=True), process]:
                    with suppress(psutil.NoSuchProcess):
                        each.kill()

    def queue(self, *options: str, what: str = "%j|%T|%r|%N") -> list[str]:
        """Return the jobs that are not over, a line each; tasks of arrays singly."""
        return self.ask("squeue", "--noheader", "--array", *options, f"--format={what}").splitlines()

    def occupy(self, partition: str, cpus: int, seconds: int, *options: str) -> str:
        """Submit a job that sleeps; return its number."""
        words: Sequence[str] = ["--parsable", f"--partition={partition}", f"--ntasks={cpus}", "--output=/dev/null"]
        return self.ask("sbatch", *words, *options, f"--wrap=sleep {seconds}").strip()

    def end(self) -> None:
        """Cancel all jobs and end the daemons; the network ends the hosts."""
        self.ask("scancel", "--signal=KILL", "--full", f"--user={os.getuid()}")
        self.ask("scancel", f"--user={os.getuid()}")
        self.end_controller()
