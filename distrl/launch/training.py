"""`distrl.train`: from a configuration to a summary. Checks everything cheap first, then launches and supervises."""

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.environment_checks import check_fit, unused_mask_note
from distrl.config.load import LoadedConfig, dump, load
from distrl.config.settings import read_settings
from distrl.environments.probe import probe
from distrl.errors import EXIT_INTERRUPTED, ConfigError, DistrlError, MemoryBackendError, failure, require
from distrl.interrupt import Interrupt, interruptible
from distrl.launch.external_algorithm import settled
from distrl.launch.fleet import Launcher
from distrl.launch.head_start import HeadStart
from distrl.launch.last_policy import keep_published
from distrl.launch.manifest import write_manifest
from distrl.launch.monitor import Monitor
from distrl.launch.one_process import REASONS, train_here
from distrl.launch.ray_token import make_private_token
from distrl.launch.supervise import Outcome, Supervisor
from distrl.learner.replay_set_up import empty_replay_note
from distrl.memory_backend.backend import Backend, QueueCaps
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from distrl.memory_backend.redis_backend import RedisBackend
from distrl.networks.parts.schemes import check_windows
from distrl.roles.description import RunDescription
from distrl.roles.framework import require_framework
from distrl.roles.join import open_backend
from distrl.roles.plan import (
    RoleHome,
    check_queue,
    most_actors,
    oversubscription_warning,
    publication_note,
    replay_note,
)
from distrl.roles.trust import KEY_FILE, new_key, signature
from distrl.runs.run_directory import Opened, open_run_directory, require_free, usable, write_private, write_run_json
from distrl.runs.summary import PolicyLag, Summary
from distrl.terminal.console import View
from distrl.types import EnvSpec

LAST_LOOK_S = 3.0
COUNTS = ("env_steps", "updates", "episodes", "trained_steps", "weights_version")


def train(
    loaded: LoadedConfig,
    *,
    run_dir: Path,
    resume: str | None,
    view: View,
    head_start: HeadStart | None = None,
    interrupt: Interrupt | None = None,
) -> Summary:
    """Trains until a stop condition holds, somebody asks, or something fails for good.

    Args:
        run_dir: The run's own directory, made if missing.
        resume: None, "auto", or anything else for "must resume" (see `open_run_directory`).
        head_start: What becomes the learner, if it is a process.
        interrupt: Ends the run when its code is set; None: signals do, if this is the main thread.

    Returns:
        The summary, also written to summary.json; `exit_code` and `error` in it say how the run ended.

    Raises:
        ConfigError, CheckpointError, MemoryBackendError: Before anything was launched.
    """
    started = time.time(), time.monotonic()
    loaded = settled(loaded)
    config = loaded.config
    _check_launchable(config)
    require_free(run_dir, resume)
    spec = probe(config.environment, action_mask=config.network.action_mask)
    check_fit(config, spec)
    check_windows(config.network, spec)
    check_queue(config, spec)
    remark = replay_note(config, spec)
    with open_run_directory(run_dir, resume) as opened:
        try:
            summary = _train(loaded, spec, remark, run_dir, opened, view, head_start, interrupt, started)
        except ConfigError:
            if opened.was_empty:
                _remove_refused(run_dir)
            raise
        if opened.was_empty and summary.exit_code == ConfigError.exit_code and not summary.updates:
            _remove_refused(run_dir)
    return summary


def _remove_refused(run_dir: Path) -> None:
    """Remove the directory of a run that was refused, so that the corrected command finds it free."""
    if not any((run_dir / "checkpoints").glob("*")):
        shutil.rmtree(run_dir, ignore_errors=True)


def _train(
    loaded: LoadedConfig,
    spec: EnvSpec,
    remark: str | None,
    run_dir: Path,
    opened: Opened,
    view: View,
    head_start: HeadStart | None,
    interrupt: Interrupt | None,
    started: tuple[float, float],
) -> Summary:
    """Train in a directory that is ours.

    Args:
        remark: On the replay memory, for the user.
        started: When the command started: by the wall clock, and by the monotonic clock.
    """
    config = loaded.config
    with settled_config(run_dir, loaded) as keep_config:
        run_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        description = RunDescription(
            run_id=run_id,
            run_dir=str(run_dir.resolve()),
            resumed_update=opened.update,
            most_actors=most_actors(config),
            config=config,
            spec=spec,
        )
        with usable(run_dir):
            write_manifest(run_dir, run_id, config)
            monitor = Monitor(config, run_dir, view)
        try:
            monitor.tell_configuration(read_settings(run_dir / "config.yaml"))
            empty = empty_replay_note(config, run_dir / "checkpoints", opened.update)
            mask = unused_mask_note(config, spec)
            remarks = [oversubscription_warning(config), remark, empty, publication_note(config), mask]
            for note in filter(None, [f"run {run_id} in {run_dir}", *opened.notes, *remarks]):
                monitor.event(note)
            with interruptible() if interrupt is None else nullcontext(interrupt) as asked:
                if config.deterministic:
                    outcome = train_here(description, monitor, asked)
                else:
                    outcome = _train_with_roles(description, monitor, asked, head_start)
                keep_config(outcome.exit_code != ConfigError.exit_code)
        except BaseException as error:  # raised on; whatever was launched is accounted for
            _account_for(description, opened, monitor, _outcome_of(error), *started, view)
            raise
        return _account_for(description, opened, monitor, outcome, *started, view)


def _outcome_of(error: BaseException) -> Outcome:
    code, text = failure(error)
    if code == EXIT_INTERRUPTED:
        return Outcome(code, text)
    return Outcome(code, REASONS.get(code, "unexpected error"), text)


def _account_for(
    description: RunDescription,
    opened: Opened,
    monitor: Monitor,
    outcome: Outcome,
    started: float,
    began: float,
    view: View,
) -> Summary:
    """Write the summary and show the closing lines. A summary that is refused is an error, unless there is one."""
    monitor.close()
    summary = summarize(description, opened, monitor, outcome, started, time.monotonic() - began)
    try:
        summary.write(Path(description.run_dir) / "summary.json")
    except OSError as error:
        unwritten = f"the summary cannot be written: {error}"
        if outcome.error is None:
            code = outcome.exit_code or DistrlError.exit_code
            summary = summary.model_copy(update={"exit_code": code, "error": unwritten})
        else:
            view.event(unwritten)
    view.close(summary)
    return summary


def _check_launchable(config: RunConfig) -> None:
    """What can be known to fail before anything is made: extras, Redis, and who can reach it."""
    require_framework(config.learner.backend)
    if config.deterministic:
        return
    if config.launch.launcher == "ray":
        require("ray", "Ray", "ray")
    if config.memory.url is None:
        find_server()
        if config.launch.ray_address is not None:
            raise ConfigError(
                f"launch.ray_address {config.launch.ray_address}: roles on other hosts cannot reach an embedded Redis; "
                "name one that they can with --redis-url"
            )
    else:
        RedisBackend.open(config.memory.url, "check", QueueCaps.of(config), name="check", give_up_s=3.0).close()


@contextmanager
def settled_config(run_dir: Path, loaded: LoadedConfig) -> Iterator[Callable[[bool], None]]:
    """config.yaml of this launch; the one of an earlier launch comes back unless this one is told to stay.

    Raises:
        ConfigError: The directory's run is of another environment or algorithm.
    """
    path = run_dir / "config.yaml"
    before = None
    if path.exists():
        _check_same_task(path, loaded.config)
        before = path.read_text(encoding="utf-8")
    stays = [before is None]
    with usable(run_dir):
        write_private(path, dump(loaded))  # private: memory.url may hold a password
    try:
        yield stays.append
    finally:
        if before is not None and not stays[-1]:
            with suppress(OSError):  # a disk that is full must not hide what has ended the run
                write_private(path, before)


def _check_same_task(path: Path, config: RunConfig) -> None:
    earlier = load(file=path).config
    for name, now, then in (
        ("environment.id", config.environment.id, earlier.environment.id),
        ("algorithm.name", config.algorithm.name, earlier.algorithm.name),
    ):
        if now != then:
            raise ConfigError(f"the run to resume has {name} {then}, not {now}; choose another --run-dir for {now}")


def _train_with_roles(
    description: RunDescription, monitor: Monitor, interrupt: Interrupt, head_start: HeadStart | None
) -> Outcome:
    """Learner and actors as processes or Ray actors over Redis."""
    config, run_dir = description.config, Path(description.run_dir)
    with ExitStack() as cleanup:
        redis_url = config.memory.url
        if redis_url is None:
            redis_url = cleanup.enter_context(_embedded_redis(description)).url
        backend = open_backend(redis_url, description, "supervisor")
        cleanup.callback(backend.close)
        run_key, published = new_key(), description.published()
        with usable(run_dir):
            write_private(run_dir / KEY_FILE, run_key + "\n")
        backend.create(published, signature(run_key, published))
        cleanup.callback(_last_look, description, redis_url, monitor)
        write_run_json(run_dir, description.run_id, redis_url)
        launcher = _make_launcher(description, redis_url, run_key, head_start, monitor.event)
        cleanup.callback(launcher.close)
        outcome = Supervisor(config, launcher, backend, monitor, run_dir / "logs", interrupt).run()
        if outcome.exit_code == DistrlError.exit_code:
            _keep_published(run_dir, backend, monitor)
    return outcome


def _keep_published(run_dir: Path, backend: Backend, monitor: Monitor) -> None:
    try:
        kept = keep_published(run_dir, backend)
    except MemoryBackendError as error:
        kept = f"the published weights are not kept: {error}"
    if kept is not None:
        monitor.event(kept)


def _last_look(description: RunDescription, redis_url: str, monitor: Monitor) -> None:
    """Take what the roles left behind, then remove the run's keys, also where they can no longer be read.

    If Redis is gone, or what it holds has been damaged, the last known numbers stand.
    """
    try:
        with closing(open_backend(redis_url, description, "supervisor", give_up_s=LAST_LOOK_S)) as backend:
            try:
                monitor.tell_of_requests(backend)  # such as to stop, which the learner may have seen first
                monitor.update(backend, backend.registry.roles())
            except MemoryBackendError as error:
                monitor.event(f"the numbers are those of the last look: {error}")
            backend.delete()
    except MemoryBackendError as error:
        monitor.event(f"the numbers are those of the last look, and keys may be left behind: {error}")


def _embedded_redis(description: RunDescription) -> EmbeddedRedis:
    caps = description.config.memory.queue_bytes
    # Room for the queue, one unroll per actor beyond it, and weights of any size that fits a laptop.
    return EmbeddedRedis.start(maxmemory_bytes=4 * caps + 2**30, max_bulk_bytes=2**29)


def _make_launcher(
    description: RunDescription,
    redis_url: str,
    run_key: str,
    head_start: HeadStart | None,
    tell: Callable[[str], None],
) -> Launcher:
    config = description.config
    gpu = config.device != "cpu"
    logs = Path(description.run_dir) / "logs"
    where = RoleHome(redis_url, description.run_id, logs, config.learner.threads, gpu, run_key)
    if config.launch.launcher == "ray":
        if config.launch.ray_address is None:
            make_private_token()
            if named := os.environ.get("RAY_ADDRESS"):
                tell(f"RAY_ADDRESS {named} is not used; --ray-address auto joins that cluster")
        # Imported here: Ray is an extra, and takes a second.
        from distrl.launch.ray_actors import RayLauncher

        return RayLauncher(where, config.launch.ray_address)
    from distrl.launch.processes import ProcessLauncher

    return ProcessLauncher(where, head_start, tell)


def summarize(
    description: RunDescription, opened: Opened, monitor: Monitor, outcome: Outcome, started: float, wall_s: float
) -> Summary:
    """summary.json from the newest snapshot, the ledger and how the run ended.

    Args:
        started: When it was launched, in seconds since 1970: the first update is told by the learner's clock.
        wall_s: How long it took, by a clock that nobody sets.
    """
    config, latest, ledger = description.config, monitor.latest, monitor.ledger
    first_update = latest.get("first_update_unix_s")
    resumed = {"env_steps": opened.env_steps, "updates": opened.update}
    counts = {name: max(int(latest.get(name) or 0), resumed.get(name, 0)) for name in COUNTS}
    return Summary(
        run_id=description.run_id,
        algorithm=config.algorithm.name,
        env=config.environment.id,
        seed=config.seed,
        **counts,
        mean_return_100=_number(latest.get("mean_return_100")),
        best_mean_return_100=_number(latest.get("best_mean_return_100")),
        evaluation_mean_return=_number(latest.get("evaluation_mean_return")),
        evaluation_env_steps=_whole(latest.get("evaluation_env_steps")),
        best_evaluation_return=_number(latest.get("best_evaluation_return")),
        wall_s=wall_s,
        time_to_first_update_s=None if first_update is None else float(first_update) - started,
        env_steps_per_s=monitor.rate("env_steps"),
        updates_per_s=monitor.rate("updates"),
        stop_reason=outcome.stop_reason,
        exit_code=outcome.exit_code,
        error=outcome.error,
        produced=ledger.produced,
        foreign=ledger.foreign,
        trained=ledger.trained,
        queued=ledger.queued,
        in_flight=ledger.in_flight,
        dropped=dict(ledger.dropped),
        lost=ledger.lost,
        rolled_back=ledger.rolled_back,
        policy_lag=PolicyLag(**{name: _number(latest.get(f"policy_lag_{name}")) for name in ("mean", "p95", "max")}),
        bottleneck=str(latest.get("bottleneck") or "-"),
        peak_rss_mb=monitor.peak_rss_mb,
        restarts=monitor.restarts,
        learner_idle_share=_number(latest.get("learner_wait_share")),
        actors_blocked_share=_number(latest.get("actors_blocked_share")),
        resumed_env_steps=opened.env_steps,
        resumed_updates=opened.update,
        resumed_wall_s=opened.wall_s,
    )


def _number(value: float | int | str | None) -> float | None:
    return None if value is None else float(value)


def _whole(value: float | int | str | None) -> int | None:
    return None if value is None else int(value)
