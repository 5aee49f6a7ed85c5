"""What actor and learner roles share: joining a run, the heartbeat, and being asked to stop."""

import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError
from setproctitle import setproctitle

from distrl.config import RunConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.live_settings import steered_so_far
from distrl.environments.vector import VectorEnvironment
from distrl.errors import ConfigError, EnvironmentFailedError, MemoryBackendError
from distrl.memory_backend.backend import Backend, QueueCaps
from distrl.memory_backend.redis_backend import RedisBackend
from distrl.memory_backend.registry_interface import Control, RoleStatus, Setting
from distrl.roles.description import Run, RunAddress, RunDescription
from distrl.roles.lifeline import watch_lifeline
from distrl.roles.plan import Role
from distrl.roles.stacks import stacks
from distrl.types import PolicyBundle

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HEARTBEAT_S = 1.0
BUNDLE_POLL_S = 0.1
NICENESS = 10
"""Nice value of every role but the learner; gives it a tenth of the learner's CPU weight."""
log = logging.getLogger("distrl")


def join(address: RunAddress, role: Role) -> tuple[RedisBackend, Run]:
    """Open the backend of a run that exists, with the bounds that its configuration gives.

    Raises:
        MemoryBackendError: No such run, or one of another version of distrl.
        ConfigError: The description is not signed by the run's key, or names code that the role must not import.
    """
    run_id, trust = address.run_id, address.trust
    unbounded = QueueCaps(sys.maxsize, sys.maxsize)
    first = RedisBackend.open(address.redis_url, run_id, unbounded, name=role.name, give_up_s=5.0)
    try:
        text = first.config_json()
        trust.check_signature(run_id, text, first.signature())
        description = RunDescription.model_validate_json(text)
    except ValidationError as error:
        odd = error.errors(include_url=False)[0]
        where = ".".join(map(str, odd["loc"]))
        raise MemoryBackendError(
            f"run {run_id} is not described as this distrl does ({where}: {odd['msg']}); "
            "use one version of distrl for all roles"
        ) from error
    finally:
        first.close()
    if description.run_id != run_id:
        raise ConfigError(f"the description of run {run_id} in Redis is of run {description.run_id}: it was rewritten")
    trust.check_code(run_id, description.config, role.kind)
    run = Run(address, description)
    return run.open_backend(role.name), run


def become(name: str, stop: threading.Event) -> None:
    """Makes this process a role: process title, log lines, signals that set `stop`, ends with its parent.

    What asks the terminal for something, such as a password, gets an error: in the background it would be stopped.
    """
    setproctitle(f"distrl: {name}")
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {name} %(levelname)s %(message)s", force=True
    )
    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as after nohup
            signal.signal(number, lambda *_: stop.set())
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    watch_lifeline()


def be_done() -> None:
    """Nothing can be asked of this process any more but to end, which it does.

    Python takes its handlers away before it has ended: whoever asks in that moment would kill a role that has done all
    it had to, and take it for one that has not.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def give_way(role: Role) -> None:
    """Lets the learner go first where there are fewer cores than processes: most wait for it, sooner or later.

    Of this thread and those that it starts. Where Linux groups processes by sessions (autogroup), it weighs niceness
    within one, which is why all roles that one command starts are in one.
    """
    if role.kind != "learner":
        os.nice(NICENESS)


def await_bundle(backend: Backend, stop: threading.Event) -> PolicyBundle | None:
    """The policy bundle, which the learner exports once it has built the network; None when stopped before that.

    Raises:
        MemoryBackendError: The run is gone, so that there will be none.
    """
    while not stop.wait(BUNDLE_POLL_S):
        bundle = backend.weights.get_bundle()
        if bundle is not None:
            return bundle
    return None


def make_environment(config: EnvironmentConfig, count: int, incarnation: int) -> VectorEnvironment:
    """The role's environments.

    Raises:
        ConfigError: They cannot be made.
        EnvironmentFailedError: They cannot, and it is not the role's first start: that may pass.
    """
    try:
        return VectorEnvironment(config, count)
    except ConfigError as error:
        if incarnation == 1:
            raise
        raise EnvironmentFailedError(str(error)) from error


class Heartbeat:
    """Tells the registry once a second how a role is, and the role when the run is to stop; on a thread of its own.

    Args:
        backend: A connection of its own; closed with the heartbeat.
        status: Reads the role's state; called on the heartbeat's thread.
        stop: Set when operators or the learner have ended the run.
        config: The run's, as it was launched.
        tell: Takes the configuration whenever operators have changed it; called on the heartbeat's thread.
    """

    def __init__(
        self,
        backend: Backend,
        status: Callable[[], RoleStatus],
        stop: threading.Event,
        config: RunConfig,
        tell: Callable[[RunConfig], None] = lambda config: None,
    ) -> None:
        self._backend = backend
        self._status = status
        self._stop = stop
        self._config = self._steered = config
        self._tell = tell
        self._settings: Mapping[str, Setting] = {}
        self._held: Mapping[str, Setting] = {}
        self._beat = 0
        self._with_stacks = False
        self._cpu = (time.monotonic(), time.process_time())
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """The first beat goes out before this returns, so that a supervisor knows who holds what."""
        logging.getLogger().setLevel(self._config.launch.log_level.upper())
        self.beat()
        self._obey(self._backend.registry.control())
        self._thread.start()

    def beat(self) -> None:
        self._beat += 1
        now, peak = memory_mb()
        told = stacks() if self._with_stacks else ""
        status = replace(self._status(), beat=self._beat, rss_mb=now, peak_rss_mb=peak, stacks=told)
        self._backend.registry.beat(replace(status, cpu_share=self._cpu_share()))

    def _cpu_share(self) -> float:
        """Of one core, since the beat before."""
        (at, used), self._cpu = self._cpu, (time.monotonic(), time.process_time())
        return round((self._cpu[1] - used) / max(self._cpu[0] - at, 1e-9), 3)

    def close(self) -> None:
        self._end.set()
        self._thread.join(timeout=5.0)
        self._backend.close()

    def _run(self) -> None:
        while not self._end.wait(HEARTBEAT_S):
            try:
                self.beat()
                self._obey(self._backend.registry.control())
            except MemoryBackendError as error:
                # The role's own thread meets the same trouble and decides; a missed beat only makes it look old.
                log.warning("heartbeat: %s", error)

    def _obey(self, control: Control) -> None:
        self._with_stacks = control.stacks
        if control.stop is not None:
            self._stop.set()
        settings = {**self._settings, **control.settings}  # what Redis has forgotten, the learner puts back
        if settings == self._settings:
            return
        config, held, problems = steered_so_far(self._config, settings, self._held)
        for problem in problems:  # nobody who asks by way of distrl gets that far alone
            log.error("not taken over: %s", problem)
        if config != self._steered:
            logging.getLogger().setLevel(config.launch.log_level.upper())
            self._tell(config)
        self._steered, self._held, self._settings = config, held, settings


def rounded(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares as heartbeats tell them: to a thousandth."""
    return {name: round(share, 3) for name, share in shares.items()}


def here() -> tuple[str, int]:
    """(host name, process id)."""
    return socket.gethostname(), os.getpid()


def memory_mb() -> tuple[float, float]:
    """Resident memory of this process, now and at its highest, in MB (10^6 bytes)."""
    status = Path("/proc/self/status")
    if not status.exists():  # macOS: no current figure, so the peak stands for both
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
        return round(peak, 1), round(peak, 1)
    # Not getrusage: on Linux its peak starts at the size of the process that forked this one.
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if line.startswith("Vm"))
    now, peak = (int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
    return round(now, 1), round(peak, 1)
