"""The frame of every role: joining a run, the heartbeat, and signals that end it."""

import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from setproctitle import setproctitle

from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.live_settings import Value, steered_so_far
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, EnvironmentFailedError, MemoryBackendError
from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.host_weights import HOST_WEIGHTS_VARIABLE
from distrl.memory_backend.records import ALL_ROLES, Control, RoleStatus
from distrl.role_kinds import KINDS
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.host_load import HostMeter
from distrl.roles.lifeline import watch_lifeline
from distrl.roles.log_lines import RoleLines
from distrl.roles.plan import Role
from distrl.roles.stacks import stacks
from distrl.roles.suspend_clock import AwakeClock
from distrl.types import PolicyBundle
from distrl.version import __version__

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HEARTBEAT_S = 1.0
BUNDLE_POLL_S = 0.1
NICENESS = 10
"""Nice value of every role but the learner; gives it a tenth of the learner's CPU weight."""
log = logging.getLogger("distrl")


def join(address: RunAddress, role: Role, give_up_s: float | None = None) -> tuple[Backend, LaunchedRun]:
    """Open the backend of a run that exists, with the bounds that its configuration gives.

    Args:
        give_up_s: As `LaunchedRun.open_backend`.

    Raises:
        MemoryBackendError: No such run, or one of another version of distrl.
        ConfigError: The description is not signed by the run's key, or names code that the role must not import.
    """
    run_id, trust = address.run_id, address.trust
    first = connect(address.redis_url, run_id, name=role.name, give_up_s=5.0)
    try:
        text, signed = first.signed_config()
        version = first.distrl_version()
        trust.check_signature(run_id, text, signed)
        description = RunDescription.read(text, run_id, version)
    finally:
        first.close()
    if description.run_id != run_id:
        raise ConfigError(f"the description of run {run_id} in Redis is of run {description.run_id}: it was rewritten")
    trust.check_code(run_id, description.config, role.kind)
    if version != __version__:
        log.warning("run %s is of distrl %s, this is distrl %s", run_id, version, __version__)
    run = LaunchedRun(address, description)
    backend = run.open_backend(role.name, give_up_s=give_up_s)
    if directory := os.environ.get(HOST_WEIGHTS_VARIABLE):
        backend.share_weights(Path(directory))
    return backend, run


def become(name: str, stop: threading.Event) -> None:
    """Make this process a role: process title, log lines, signals that set `stop`, an end with its parent.

    Code that reads from the terminal, such as a password prompt, gets an error: in the background it would be stopped.
    """
    setproctitle(f"distrl: {name}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RoleLines(name))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as after nohup
            signal.signal(number, lambda *_: stop.set())
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    watch_lifeline()


def be_done() -> None:
    """Ignore further signals: this process ends.

    Python removes its handlers earlier. A signal in that moment would kill a role that has done all its work.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def give_way(role: Role) -> None:
    """Lower the priority of every role but the learner, for which most roles wait sooner or later.

    Linux weighs niceness within one session (autogroup): all roles that one command starts share one.
    """
    if role.kind != "learner":
        os.nice(NICENESS)


def await_bundle(backend: Backend, stop: threading.Event) -> PolicyBundle | None:
    """Wait for the policy bundle, which the learner exports once it has built the network; None when stopped.

    Raises:
        MissingRunError, FencedError: The run has ended, or was launched again.
    """
    while not stop.wait(BUNDLE_POLL_S):
        backend.check_launch()
        bundle = backend.weights.get_bundle()
        if bundle is not None:
            return bundle
    return None


def await_weights(backend: Backend, stop: threading.Event) -> bool:
    """Wait until the learner has published weights; return False when stopped. Errors as `await_bundle`.

    By then it has restored the settings that operators changed in earlier launches.
    """
    while not stop.wait(BUNDLE_POLL_S):
        backend.check_launch()
        if backend.weights.version() > 0:
            return True
    return False


MAKING = "starting: making the environment"
"""The state of a role while it imports and makes its environment."""


def make_environment(config: EnvironmentConfig, count: int, incarnation: int) -> VectorEnvironment:
    """Make the role's environments; at a later start of the role a failure may pass."""
    try:
        return VectorEnvironment(config, count)
    except ConfigError as error:
        if incarnation == 1:
            raise
        raise EnvironmentFailedError(str(error)) from error


class JoinedRole(ABC):
    """One role of a run, from joining it to its end; `stop` ends it in order.

    Attributes:
        first_state: Its state in the first heartbeat, which may be the last for long: an import that holds the
            interpreter lets none go out.
        give_up_s: Longest outage of Redis that it outlives; None: as of the run.
    """

    first_state: ClassVar[str] = "starting"
    give_up_s: ClassVar[float | None] = None

    def __init__(self, role: Role, address: RunAddress, stop: threading.Event) -> None:
        self._role, self._stop = role, stop
        self._backend, self._run = join(address, role, self.give_up_s)
        self._steered = self._run.config
        self._incarnation = 0  # until it is registered
        self._awake = AwakeClock()
        self._enter(self.first_state)

    def run(self) -> object:
        """Do the role's work until it is done or asked to stop."""
        with ExitStack() as cleanup:
            cleanup.callback(self._backend.close)
            connection = self._run.open_backend(f"{self._role.name} heartbeat", give_up_s=self.give_up_s)
            beats = Heartbeat(
                connection,
                self.status,
                self._stop,
                self._run.config,
                self._steer,
                self._run.description.spec.adjustable,
            )
            beats.start()
            cleanup.callback(beats.close)
            return self._work(cleanup)

    @abstractmethod
    def _work(self, cleanup: ExitStack) -> object:
        """Do the role's work; heartbeats go out meanwhile."""

    @abstractmethod
    def status(self) -> RoleStatus:
        """Return the heartbeat; called on the heartbeat's thread."""

    def _steer(self, config: RunConfig) -> None:
        """Take over a configuration that operators have changed; called on the heartbeat's thread."""
        self._steered = config

    def _in_force(self) -> RunConfig:
        """Return the configuration with the changes that are in Redis now."""
        description, settings = self._run.description, self._backend.registry.control().settings
        return steered_so_far(description.config, settings, adjustable=description.spec.adjustable)[0]

    def _enter(self, state: str) -> None:
        # In this order, and read in the other one: the heartbeat's thread never sees a new state with an old time.
        self._entered_at = time.monotonic()
        self._state = state

    def _identity(self) -> RoleStatus:
        """Return a status with the role's identity and state."""
        role, host = self._role, socket.gethostname()
        return RoleStatus(role.kind, role.id, self._incarnation, host, os.getpid(), self._state)


class Heartbeat:
    """A thread that reports a role's state to the registry once a second, and follows requests of operators.

    Args:
        backend: A connection of its own; closed with the heartbeat.
        status, steer: Called on the heartbeat's thread; `steer` whenever operators have changed the configuration.
        stop: Set when operators or the learner have ended the run.
        adjustable: `EnvSpec.adjustable` of the run's environment.
    """

    def __init__(
        self,
        backend: Backend,
        status: Callable[[], RoleStatus],
        stop: threading.Event,
        config: RunConfig,
        steer: Callable[[RunConfig], None],
        adjustable: Collection[str] = (),
    ) -> None:
        self._backend = backend
        self._status = status
        self._stop = stop
        self._config = self._steered = config
        self._adjustable = adjustable
        self._steer = steer
        self._settings: Mapping[str, Value] = {}
        self._held: Mapping[str, Value] = {}
        self._beat = 0
        self._notice = ""  # of the newest beat
        self._with_stacks = False
        self._cpu = (time.monotonic(), time.process_time())
        self._host, self._key = HostMeter(gpus=KINDS[status().role].gpus(config) > 0), status().key
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Send the first heartbeat before this returns, so that the supervisor knows which role holds what."""
        logging.getLogger().setLevel(self._config.launch.log_level.upper())
        self.beat()
        self._obey(self._backend.registry.control())
        self._thread.start()

    def beat(self) -> None:
        self._beat += 1
        now, peak = memory_mb()
        status = self._status()
        self._notice = status.notice
        memory = self._config.memory
        if status.role == "learner" and memory.url is not None:
            self._backend.keep(memory.keep_s)
        self._backend.registry.beat(
            replace(
                status,
                beat=self._beat,
                rss_mb=now,
                peak_rss_mb=peak,
                cpu_share=self._cpu_share(),
                waits={name: round(share, 3) for name, share in status.waits.items()},
                stacks=stacks() if self._with_stacks else "",
                machine=self._host.read(),
            )
        )

    def _cpu_share(self) -> float:
        """Return the share of one core since the last heartbeat."""
        (at, used), self._cpu = self._cpu, (time.monotonic(), time.process_time())
        return round((self._cpu[1] - used) / max(self._cpu[0] - at, 1e-9), 3)

    def close(self) -> None:
        self._end.set()
        self._thread.join(timeout=5.0)
        self._backend.close()

    def _run(self) -> None:
        while not self._end.wait(HEARTBEAT_S):
            with _missing():
                self.beat()
                self._obey(self._backend.registry.control())
        if self._status().notice != self._notice:  # of the role's last moments; the supervisor reads it at the end
            with _missing():
                self.beat()

    def _obey(self, control: Control) -> None:
        self._with_stacks = control.stacks in (ALL_ROLES, self._key)
        if control.stop is not None:
            self._stop.set()
        settings = {**self._settings, **control.settings}  # the learner restores settings that Redis has lost
        if settings == self._settings:
            return
        config, held, problems = steered_so_far(self._config, settings, self._held, self._adjustable)
        for problem in problems:  # distrl's own commands check requests before
            log.error("not taken over: %s", problem)
        if config != self._steered:
            logging.getLogger().setLevel(config.launch.log_level.upper())
            self._steer(config)
        self._steered, self._held, self._settings = config, held, settings


@contextmanager
def _missing() -> Iterator[None]:
    """Log a heartbeat that Redis does not take: it only makes the role look old.

    The role's own thread meets the same error and decides.
    """
    try:
        yield
    except MemoryBackendError as error:
        log.warning("heartbeat: %s", error)


def memory_mb() -> tuple[float, float]:
    """Return resident memory of this process, now and at its peak, in MB (10^6 bytes)."""
    status = Path("/proc/self/status")
    if not status.exists():  # macOS: no current figure, so the peak stands for both
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
        return round(peak, 1), round(peak, 1)
    # Not getrusage: on Linux its peak starts at the size of the process that forked this one.
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if line.startswith("Vm"))
    now, peak = (int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return round(now, 1), round(peak, 1)
