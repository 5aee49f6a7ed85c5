"""Roles as Ray actors, on a private local cluster or on one that exists (`launch.ray_address`)."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from distrl.config.secrets import split_password_file
from distrl.launch.fleet import last_error
from distrl.memory_backend.credentials import carried
from distrl.memory_backend.private_directory import make_private_directory
from distrl.roles.description import Run, RunAddress
from distrl.roles.join import give_way
from distrl.roles.plan import Role
from distrl.roles.running import run_role

LOCAL_CPUS = 1024  # as a bound on actors; roles are OS processes and share the cores there are
OBJECT_STORE_BYTES = 80 * 1024 * 1024  # Ray's minimum: unrolls travel through Redis, not through Ray


class RayRole:
    """Runs inside a Ray worker process. Two threads: `run` occupies one, `stop` needs the other."""

    def __init__(self, role: Role, log: str) -> None:
        self._role = role
        self._stop = threading.Event()
        self._log = _open_log(Path(log))
        self._log_start = os.fstat(self._log.fileno()).st_size
        logging.basicConfig(
            stream=self._log,
            level=logging.INFO,
            format=f"%(asctime)s {role.name} %(levelname)s %(message)s",
            force=True,
        )

    def run(self, address: RunAddress, passwords: Mapping[str, str]) -> tuple[int, str | None]:
        """Return the role's exit code and last error: its log may be on another host."""
        os.environ.update(passwords)
        give_way(self._role)
        code = run_role(self._role, address, self._stop)
        return code, last_error(self._log, self._log_start)

    def stop(self) -> None:
        self._stop.set()


def _open_log(path: Path) -> IO[str]:
    """Open the role's log, or an unnamed temporary file where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+")
    except OSError:
        return tempfile.TemporaryFile("a+")


class RayHandle:
    """One started role in its placement group; `needs` is its resources in words, and `log` also takes Ray's errors."""

    def __init__(
        self, role: Role, actor: Any, place: PlacementGroup, needs: str, log: Path, address: RunAddress
    ) -> None:
        self.role = role
        self.error: str | None = None
        self._actor = actor
        self._place = place
        self._needs: str | None = needs
        self._log = log
        # Ray makes the call's name the title of its process: ray::distrl: actor 3. Key and passwords are arguments of
        # the call: Ray's dashboard and state API show runtime environments, and its head keeps constructors' arguments.
        there = replace(address, redis_url=split_password_file(address.redis_url)[0])  # its host may lack the file
        self._result = actor.run.options(name=f"distrl: {role.name}").remote(there, carried(address.redis_url))
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; -9 if the process died, 1 if it could not run, None while running."""
        if self._code is None and ray.wait([self._result], timeout=0)[0]:
            try:
                self._code, self.error = ray.get(self._result)
            except RayActorError as error:
                self._code = self._failed(-9, error)
            except RayError as error:
                self._code = self._failed(1, error)
            # The role has returned, its worker process has not: Ray keeps it for further calls.
            self._release()
        return self._code

    @property
    def waits_for(self) -> str | None:
        """Resources that no node has free; None once the role has its place."""
        if self._needs is not None and (self._code is not None or self._place.wait(0)):
            self._needs = None
        return self._needs

    def terminate(self) -> None:
        if self._code is None:
            self._actor.stop.remote()

    def kill(self) -> None:
        if self._code is None:
            self._code = -9
            self._release()

    def _release(self) -> None:
        ray.kill(self._actor)
        remove_placement_group(self._place)

    def _failed(self, code: int, error: RayError) -> int:
        self.error = f"Ray: {' '.join(str(error).split())}"
        with contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.role.name} ERROR distrl: error: {self.error}\n")
        return code


@contextlib.contextmanager
def _own_sigterm_handler() -> Iterator[None]:
    """While inside, Ray may set its handler of SIGTERM, which exits at once; afterwards the earlier one is in force."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # elsewhere Ray sets none
            signal.signal(signal.SIGTERM, before)


class RayLauncher:
    """Starts roles as Ray actors, without Ray's own restarts: the supervise loop is the same for all launchers."""

    def __init__(self, run: Run, address: str | None) -> None:
        self._run = run
        self._directory: Path | None = None
        self._lock = -1
        self._guard: subprocess.Popen[bytes] | None = None
        with _own_sigterm_handler():
            if address is None:
                self._start_local_cluster()
            else:
                ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)

    def start(self, role: Role) -> RayHandle:
        run, log = self._run, self._run.log_dir / role.log_name
        may_use_gpu = role.kind == "learner" and run.config.device != "cpu"
        gpus = 1 if may_use_gpu and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        needs = {"CPU": run.threads(role)} | ({"GPU": gpus} if gpus else {})
        place = placement_group([needs])
        options: dict[str, Any] = {
            "num_cpus": run.threads(role),
            "num_gpus": gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(place),
            "max_restarts": 0,
            "max_concurrency": 2,  # so that `stop` gets through while `run` runs
            "runtime_env": {"env_vars": run.variables(role)},
        }
        actor = ray.remote(RayRole).options(**options).remote(role, str(log))
        words = ", ".join(f"{count} {kind}" for kind, count in needs.items())
        return RayHandle(role, actor, place, words, log, run.address)

    def close(self) -> None:
        """End a private cluster and remove its directory."""
        ray.shutdown()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(timeout=30)
            os.close(self._lock)

    def _start_local_cluster(self) -> None:
        """Start a private cluster; a guard ends it and removes its directory however this process ends."""
        self._directory, self._lock = make_private_directory()  # a short path: Ray puts unix sockets deep inside
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-m", "distrl.roles.lifeline", str(self._directory)],
            stdin=subprocess.PIPE,
            pass_fds=(self._lock,),
            start_new_session=True,
        )
        # Ray's processes end with this one; only two of its agents first try for a minute to tell their dead head node.
        ray.init(
            address="local",  # without it, Ray would join the cluster that RAY_ADDRESS names
            num_cpus=LOCAL_CPUS,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.WARNING,
            _temp_dir=str(self._directory / "ray"),
        )
