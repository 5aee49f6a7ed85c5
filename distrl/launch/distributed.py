"""A training of several roles: learner and actors as processes or Ray actors over Redis, under a supervisor."""

import os
import secrets
import shlex
import socket
from contextlib import ExitStack, closing
from pathlib import Path

from distrl.config.secrets import split_password_file
from distrl.data_store.atomic import put_file, remove_temporaries
from distrl.errors import DecodeError, DistrlError, MemoryBackendError
from distrl.files import MOST_POLICY_BYTES, read_small
from distrl.interrupt import Interrupt
from distrl.launch.earlier_launch import dead_launch
from distrl.launch.fleet import Launcher
from distrl.launch.head_start import HeadStart
from distrl.launch.monitor import Monitor
from distrl.launch.outcome import Outcome
from distrl.launch.processes import ProcessLauncher
from distrl.launch.run_redis import RunRedis, open_redis
from distrl.launch.supervise import Supervisor
from distrl.learner.policy_files import write_weights
from distrl.memory_backend.access import user_name
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights
from distrl.memory_backend.credentials import password
from distrl.memory_backend.keys import DEFAULT_NAMESPACE, split_namespace
from distrl.memory_backend.records import SupervisorStatus
from distrl.memory_backend.redis_address import parse_address, with_user
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.trust import KEY_FILE, Trust, given_key, new_key, signature
from distrl.runs.run_directory import usable, write_run_json

LAST_LOOK_S = 3.0


def train_with_roles(
    description: RunDescription, monitor: Monitor, interrupt: Interrupt, head_start: HeadStart | None
) -> Outcome:
    """Train with a learner and actors as processes or Ray actors over Redis.

    The run has a key of its own, unless the environment names one that other hosts already have.
    """
    config, run_dir = description.config, Path(description.run_dir)
    with ExitStack() as cleanup:
        redis = open_redis(config.memory, run_dir, cleanup)
        url = redis.here if config.launch.ray_address is None else redis.of_any_host
        run = LaunchedRun(RunAddress(url, description.run_id, Trust(given_key() or new_key())), description)
        at = url, description.run_id, description.run_dir
        earlier = None if config.memory.url is None else dead_launch(*at)
        backend = run.open_backend("supervisor")
        cleanup.callback(backend.close)
        _publish(run, backend, earlier)
        if earlier is not None:
            monitor.event(f"removed what an earlier launch of {description.run_id} had left in Redis")
        cleanup.callback(_last_look, run, monitor)
        own = redis.password_file is not None
        write_run_json(run_dir, description.run_id, description.launch, redis.elsewhere, own=own)
        if not config.launch.start_actors:
            _tell_how_to_join(run, redis, monitor)
        if config.evaluation.films.used:
            cleanup.callback(_remove_unfinished_films, run_dir, monitor)  # when all roles have ended
        launcher = _make_launcher(run, head_start, monitor)
        cleanup.callback(launcher.close)
        resumed = description.start.update, description.start.wall_s
        outcome = Supervisor(config, launcher, backend, monitor, run.log_dir, interrupt, resumed).run()
        if outcome.exit_code == DistrlError.exit_code and (kept := keep_published(run_dir, backend)):
            monitor.event(kept)
    return outcome


def _remove_unfinished_films(run_dir: Path, monitor: Monitor) -> None:
    """Remove the film of an evaluator that did not end in time and was killed."""
    try:
        remove_temporaries(run_dir / "films")
    except OSError as error:
        monitor.event(f"an unfinished film cannot be removed: {error}")


def _tell_how_to_join(run: LaunchedRun, redis: RunRedis, monitor: Monitor) -> None:
    """Print the commands by which other hosts bring actors, and an evaluator where this one has no environment."""
    monitor.event(f"no actors here; on their hosts, {_how_to_join(run, redis, 'actor', 'distrl actors')}")
    run_dir = Path(run.description.run_dir)
    monitor.event(f"on hosts that share {run_dir}, as this user: distrl actors --run-dir {shlex.quote(str(run_dir))}")
    if run.config.evaluation.every_env_steps is not None and run.config.environment.spec_file is not None:
        how = _how_to_join(run, redis, "evaluator", "distrl evaluator")
        monitor.event(f"no evaluator here; on a host with the environment, {how}")


def _how_to_join(run: LaunchedRun, redis: RunRedis, role: str, command: str) -> str:
    """Return what another host needs for a role, and the command; the learner's user of Redis is not for it."""
    url = split_password_file(redis.elsewhere)[0]
    namespace = split_namespace(url)[1] or DEFAULT_NAMESPACE
    needs = [f"with DISTRL_RUN_KEY_FILE naming a copy of {Path(run.description.run_dir) / KEY_FILE}"]
    if redis.password_file is not None:
        needs.append(f"DISTRL_REDIS_PASSWORD_FILE naming a copy of {redis.password_file}")
    elif password(redis.elsewhere) is not None:
        needs.append("DISTRL_REDIS_PASSWORD_FILE naming a file with their password")
    address = parse_address(url)
    if address.is_here:
        needs.append("an address of Redis that they reach in place of this host's own")
    user = address.user
    if user == user_name(namespace, "learner"):
        url = with_user(url, user_name(namespace, role))
    elif user not in (None, "default"):  # the server of a single user has this one
        url = with_user(url, None)
        needs.append(f"a user for {role}s in the URL ({user} is the learner's)")
    return f"{' and '.join(needs)}: {command} --redis-url {shlex.quote(url)} --run-id {run.address.run_id}"


def _publish(run: LaunchedRun, backend: Backend, earlier: str | None) -> None:
    """Write the signed description to Redis in place of an earlier launch's keys, and the key to the run directory."""
    key, published = run.address.trust.key, run.description.published()
    assert key is not None
    with usable(Path(run.description.run_dir)):
        put_file(Path(run.description.run_dir) / KEY_FILE, f"{key}\n".encode(), private=True)
    backend.create(published, signature(key, published), replaces=earlier)
    # Another launch of this run that begins now finds a supervisor.
    backend.registry.beat_supervisor(SupervisorStatus(socket.gethostname(), os.getpid(), 0))


def _last_look(run: LaunchedRun, monitor: Monitor) -> None:
    """Read the last numbers, then remove the run's keys, also where they can no longer be read."""
    try:
        with closing(run.open_backend("supervisor", give_up_s=LAST_LOOK_S)) as backend:
            backend.check_launch()  # the numbers there may be those of another one
            try:
                monitor.report_requests(backend)  # such as to stop, which the learner may have seen first
                monitor.update(backend, backend.registry.roles())
            except MemoryBackendError as error:
                monitor.event(f"the numbers are those of the last look: {error}")
            backend.delete()
    except MemoryBackendError as error:
        monitor.event(f"the numbers are those of the last look, and keys may be left behind: {error}")


def _make_launcher(run: LaunchedRun, head_start: HeadStart | None, monitor: Monitor) -> Launcher:
    config = run.config
    if config.launch.launcher == "ray":
        if config.launch.ray_address is None:
            make_private_token()
            if named := os.environ.get("RAY_ADDRESS"):
                monitor.event(f"RAY_ADDRESS {named} is not used; --ray-address auto joins that cluster")
        # Imported here: Ray is an extra, and takes a second.
        from distrl.launch.ray_actors import RayLauncher

        return RayLauncher(run, config.launch.ray_address, monitor.show)
    return ProcessLauncher(run, head_start, monitor.event)


def keep_published(run_dir: Path, backend: Backend) -> str | None:
    """Write the published weights to policy/ if they are newer: Redis forgets them with the run.

    Returns:
        One line for the user; None if there is nothing newer, or the directory does not take it: then the run's own
        error says what refuses.
    """
    file = run_dir / "policy" / "weights.msgpack"
    try:
        found = backend.weights.fetch()
        if found is None:
            return None
        weights = decode_weights(found.blob)
        if file.exists() and weights.version <= decode_weights(read_small(file, MOST_POLICY_BYTES)).version:
            return None
        write_weights(file.parent, weights)
    except MemoryBackendError as error:
        return f"the published weights are not kept: {error}"
    except (OSError, DecodeError):
        return None
    return (
        f"policy/ holds the newest published weights, which no checkpoint does (version {found.version:,}, "
        f"{found.progress.env_steps:,} steps): distrl evaluate {run_dir}"
    )


def make_private_token() -> None:
    """Set a token for the clusters that this process starts; Ray would otherwise keep one in the home directory."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
