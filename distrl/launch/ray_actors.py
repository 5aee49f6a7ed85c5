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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from distrl.config.secrets import split_password_file
from distrl.errors import ConfigError
from distrl.launch.collected_log import PrintedLines, UncollectedLines
from distrl.launch.fleet import last_error
from distrl.launch.ray_cluster import shortened
from distrl.memory_backend.credentials import carried
from distrl.memory_backend.host_weights import sharing_weights
from distrl.memory_backend.private_directory import make_private_directory
from distrl.role_kinds import KINDS
from distrl.roles.description import LaunchedRun, RunAddress
from distrl.roles.join import give_way
from distrl.roles.log_lines import RoleLines, moment
from distrl.roles.plan import Role
from distrl.roles.running import run_role
from distrl.runs.run_directory import is_directory_of
from distrl.user_classes import hide_arguments

LOCAL_CPUS = 1024  # as a bound on actors; roles are OS processes and share the cores there are
COLLECT_EVERY_S = 3.0
VERDICT_EVERY_S = 2.0  # between two questions to Ray whether any node has what a waiting role needs
"""Time between two collections of the lines of a role whose log is on another host."""
OBJECT_STORE_BYTES = 80 * 1024 * 1024  # Ray's minimum: unrolls travel through Redis, not through Ray


class Lines(NamedTuple):
    """Whole lines of a role's log; `is_in_log` if the launcher has them in its directory already."""

    text: str
    is_in_log: bool


class RayRole:
    """Runs inside a Ray worker process. Two threads: `run` occupies one, the other methods need the other.

    Args:
        run_dir: The run's directory by the launcher's path. The log is in its folder `logs` on this host.
        run_id, launch: Tell whether this host shares the directory with the launcher.
        shows: Whether the launcher prints the role's lines.
    """

    def __init__(self, role: Role, run_dir: str, run_id: str, launch: str, shows: bool) -> None:
        self._role, self._launch = role, launch
        self._stop = threading.Event()
        self._log = _open_log(Path(run_dir) / "logs" / role.log_name)
        self._log_start = os.fstat(self._log.fileno()).st_size
        handlers: list[logging.Handler] = [logging.StreamHandler(self._log)]
        self._is_shared = is_directory_of(Path(run_dir), run_id, launch)
        self._uncollected = UncollectedLines() if shows or not self._is_shared else None
        if self._uncollected is not None:
            handlers.append(self._uncollected)
        for handler in handlers:
            handler.setFormatter(RoleLines(role.name))
        logging.basicConfig(handlers=handlers, level=logging.INFO, force=True)

    def run(self, address: RunAddress, passwords: Mapping[str, str]) -> tuple[int, str | None, Lines | None]:
        """Return the role's exit code, its last error and the rest of `new_lines`: its log may be on another host."""
        os.environ.update(passwords)
        hide_arguments()  # of Ray's worker
        give_way(self._role)
        # A unix socket has both ends on this host, where no network is saved.
        is_here = address.redis_url.startswith("unix:")
        with (
            contextlib.nullcontext() if is_here else sharing_weights(self._launch),
            contextlib.redirect_stdout(PrintedLines()),
        ):
            code = run_role(self._role, address, self._stop)
        return code, last_error(self._log, self._log_start), self.new_lines()

    def new_lines(self) -> Lines | None:
        """Return what was logged since the last call; None if the launcher has no use for it."""
        return None if self._uncollected is None else Lines(self._uncollected.take(), self._is_shared)

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
    """One started role in its placement group.

    Args:
        needs: Its resources in words.
        log: Takes Ray's errors, and the role's lines if its host does not share the run's directory.
        show: Takes each line of the role's; None: they are not printed.
    """

    def __init__(
        self,
        role: Role,
        actor: Any,
        place: PlacementGroup,
        needs: str,
        log: Path,
        address: RunAddress,
        show: Callable[[str], None] | None,
    ) -> None:
        self.role = role
        self.error: str | None = None
        self._actor = actor
        self._place = place
        self._needs: str | None = needs
        self._nowhere = False
        self._verdict_at = 0.0
        self._log = log
        self._show = show
        self._lines: Any = None  # the call for new lines that has not been answered
        self._collect_at = time.monotonic()
        # Ray makes the call's name the title of its process: ray::distrl: actor 3. Key and passwords are arguments of
        # the call: Ray's dashboard and state API show runtime environments, and its head keeps constructors' arguments.
        there = replace(address, redis_url=split_password_file(address.redis_url)[0])  # its host may lack the file
        self._result = actor.run.options(name=f"distrl: {role.name}").remote(there, carried(address.redis_url))
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; -9 if the process died, 1 if it could not run, None while running."""
        if self._code is not None:
            return self._code
        self._collect()
        if ray.wait([self._result], timeout=0)[0]:
            try:
                self._code, self.error, rest = ray.get(self._result)
                self._take(rest)
            except RayActorError as error:
                self._code = self._failed(-9, error)
            except RayError as error:
                self._code = self._failed(1, error)
            # The role has returned, its worker process has not: Ray keeps it for further calls.
            self._release()
        return self._code

    @property
    def waits_for(self) -> str | None:
        """Resources that no node has free, or has at all by Ray's word; None once the role has its place."""
        if self._needs is not None and (self._code is not None or self._place.wait(0)):
            self._needs = None
        if self._needs is not None and time.monotonic() >= self._verdict_at:
            self._verdict_at = time.monotonic() + VERDICT_EVERY_S
            told = ray.util.placement_group_table(self._place).get("stats", {})
            self._nowhere = told.get("scheduling_state") == "INFEASIBLE"
        return f"{self._needs}, which no node has" if self._needs is not None and self._nowhere else self._needs

    def terminate(self) -> None:
        if self._code is None:
            self._actor.stop.remote()

    def kill(self) -> None:
        if self._code is None:
            self._code = -9
            self._release()

    def _collect(self) -> None:
        """Ask for the role's new lines every few seconds, as long as there is a use for them."""
        if self._lines is None:
            if time.monotonic() >= self._collect_at:
                self._lines = self._actor.new_lines.remote()
        elif ray.wait([self._lines], timeout=0)[0]:
            lines: Lines | None = None
            with contextlib.suppress(RayError):  # it has died, as its result will tell
                lines = ray.get(self._lines)
            self._lines = None
            self._collect_at = float("inf") if lines is None else time.monotonic() + COLLECT_EVERY_S
            self._take(lines)

    def _take(self, lines: Lines | None) -> None:
        if lines is None:
            return
        if not lines.is_in_log:
            self._write(lines.text)
        if self._show is not None:
            for line in lines.text.splitlines():
                self._show(line)

    def _write(self, lines: str) -> None:
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write(lines)

    def _release(self) -> None:
        ray.kill(self._actor)
        remove_placement_group(self._place)

    def _failed(self, code: int, error: RayError) -> int:
        self.error = f"Ray: {shortened(error)}"
        self._write(f"{moment(time.time())} {self.role.name} ERROR distrl: error: {self.error}\n")
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
    """Starts roles as Ray actors, without Ray's own restarts: the supervise loop is the same for all launchers.

    Args:
        show: Takes each line that a role logs; used with `launch.print_logs`.
    """

    def __init__(self, run: LaunchedRun, address: str | None, show: Callable[[str], None] = print) -> None:
        self._run = run
        self._show = show if run.config.launch.print_logs else None
        self._directory: Path | None = None
        self._lock = -1
        self._guard: subprocess.Popen[bytes] | None = None
        with _own_sigterm_handler():
            if address is None:
                self._start_local_cluster()
            else:
                self._connect(address)

    def start(self, role: Role) -> RayHandle:
        run, log = self._run, self._run.log_dir / role.log_name
        needs = {"CPU": run.threads(role)} | self._gpus(role)
        # Of nodes with room, Ray takes the one with the largest free share: the groups spread over the nodes.
        place = placement_group([needs], strategy="SPREAD")
        options: dict[str, Any] = {
            "num_cpus": run.threads(role),
            "num_gpus": needs.get("GPU", 0),
            "scheduling_strategy": PlacementGroupSchedulingStrategy(place),
            "max_restarts": 0,
            "max_concurrency": 2,  # so that `stop` gets through while `run` runs
            "runtime_env": {"env_vars": run.variables(role)},
        }
        launch = (run.description.run_dir, run.address.run_id, run.description.launch)
        named: Any = type(
            f"distrl: {role.name}", (RayRole,), {}
        )  # what Ray's lists and, between calls, the process show
        actor = ray.remote(named).options(**options).remote(role, *launch, self._show is not None)
        words = ", ".join(f"{count} {kind}" for kind, count in needs.items())
        return RayHandle(role, actor, place, words, log, run.address, self._show)

    def _gpus(self, role: Role) -> dict[str, int]:
        """Return the GPUs of a role that computes on some, if some node has them beside its cores."""
        config = self._run.config
        needs = {"GPU": KINDS[role.kind].gpus(config), "CPU": self._run.threads(role)}
        if not needs["GPU"] or config.device == "cpu":
            return {}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fits = any(all(node.get(kind, 0) >= count for kind, count in needs.items()) for node in nodes)
        return {"GPU": needs["GPU"]} if fits or config.device == "gpu" else {}

    def _connect(self, address: str) -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (RayError, ConnectionError, RuntimeError) as error:
            raise ConfigError(f"Ray at {address}: {shortened(error)}") from error

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
        try:
            ray.init(
                address="local",  # without it, Ray would join the cluster that RAY_ADDRESS names
                num_cpus=LOCAL_CPUS,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.WARNING,
                _temp_dir=str(self._directory / "ray"),
            )
        except Exception as error:  # Ray raises bare ones, above all when a slow machine needs more than 30 s
            self.close()
            raise ConfigError(
                f"Ray does not start on this machine: {shortened(error)}; try again, or leave out --launcher ray"
            ) from error
