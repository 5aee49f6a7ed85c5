"""A training of `distrl serve`'s own: `distrl train` without actors, in a child process that ends with the server."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from distrl.apps.agents.agent import batch_of_loops
from distrl.apps.commands.printing import echo
from distrl.apps.config.configuration import load
from distrl.apps.serve.learning import JoinedRun
from distrl.config.load import LoadedConfig
from distrl.errors import ConfigError, DistrlError, MemoryBackendError, RunKeyError
from distrl.launch.run_to_join import RunOfDirectory
from distrl.roles.lifeline import LIFELINE_VARIABLE, Lifeline
from distrl.runs.directories import RunRecord
from distrl.user_classes import search_path

LOOK_S = 0.2


@contextmanager
def joined(run_dir: Path, config: str | None, sets: Sequence[str]) -> Iterator[JoinedRun]:
    """Join the run of a directory, whose learner learns from clients; leave it at the end.

    Args:
        config: Preset, or YAML file: begin a training in the directory, or resume the one there, unless one goes on; it
            ends with the server. None: a training goes on there.
        sets: "dotted.path=value" for that training.

    Raises:
        ConfigError: The configuration is not valid, the run there has another environment, or cannot be joined.
        DistrlError: There is no run, or it has ended.
    """
    to_join = RunOfDirectory(run_dir)
    child: subprocess.Popen[bytes] | None = None
    lifeline = Lifeline()
    try:
        if config is None:
            if (stop := to_join.launch_ended()) is not None:
                raise DistrlError(f"{run_dir}: its training has ended ({stop}); --train begins one, or resumes it")
            run = JoinedRun(to_join)
        else:
            loaded, settings = _plan(config, sets)
            if (found := _now(to_join)) is not None:
                run = _goes_on(run_dir, found, loaded)
            else:
                before = _launch(run_dir)
                child = _started(run_dir, config, settings, lifeline)
                run = _joined(run_dir, before, child)
        try:
            run.wait()
            yield run
        finally:
            run.close()
    finally:
        if child is not None:
            child.terminate()
            if code := child.wait():
                echo(f"{run_dir}: its training has ended with exit code {code}", err=True)
        lifeline.close()


def _goes_on(run_dir: Path, found: JoinedRun, loaded: LoadedConfig) -> JoinedRun:
    """Take a training that goes on in place of one that would begin, if clients' episodes fit it."""
    there, wanted = found.environment, loaded.config.environment
    if (there.id, there.spaces) != (wanted.id, wanted.spaces):
        found.close()
        raise ConfigError(
            f"{run_dir}: a training of {there.id} goes on there, not of {wanted.id}; name another directory, or leave "
            "out what begins a training"
        )
    echo(f"{run_dir}: a training goes on there already, by its own settings; it is joined, and outlives this server")
    return found


def _started(run_dir: Path, config: str, settings: Sequence[str], lifeline: Lifeline) -> subprocess.Popen[bytes]:
    words = [config] if _is_file(config) else ["--preset", config]
    words += ["--run-dir", str(run_dir), "--resume", "auto"]
    for value in settings:
        words += ["--set", value]
    # A session of its own: Ctrl-C reaches it through this server, once. It ends with this server, however that ends.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "distrl", "train", *words],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": search_path(), LIFELINE_VARIABLE: str(lifeline.read_fd)},
        pass_fds=[lifeline.read_fd],
        start_new_session=True,
    )


def _plan(config: str, sets: Sequence[str]) -> tuple[LoadedConfig, list[str]]:
    """Return the configuration of a training whose actors are seats, and its settings in the form of --set.

    Raises:
        ConfigError: It is not valid.
    """
    settings = ["launch.start_actors=false", *sets]
    try:
        loaded = _loaded(config, settings)
    except ConfigError:  # without actors of its own it has to listen, or to name a Redis
        settings.insert(0, "memory.listen=127.0.0.1")
        loaded = _loaded(config, settings)
    settings.append("actors.environments=1")
    if (size := batch_of_loops(loaded)) is not None:
        settings.append(f"learner.batch_size={size}")
    return loaded, settings


def _loaded(config: str, sets: Sequence[str]) -> LoadedConfig:
    return load(file=config, sets=sets) if _is_file(config) else load(config, sets=sets)


def _is_file(config: str) -> bool:
    return config.endswith((".yaml", ".yml"))


def _now(to_join: RunOfDirectory) -> JoinedRun | None:
    """Join a run that goes on; None: none does that could be joined, so that a training is begun or refused there."""
    try:
        return JoinedRun(to_join)
    except (MemoryBackendError, ConfigError):
        return None


def _launch(run_dir: Path) -> str | None:
    """Return the newest launch in a run's directory; None: there is none."""
    path = run_dir / "run.json"
    return RunRecord.read(path).launch if path.exists() else None


def _joined(run_dir: Path, before: str | None, child: subprocess.Popen[bytes]) -> JoinedRun:
    """Join a run that is being started.

    Args:
        before: The launch before that, which has ended, and which perhaps nothing could join.

    Raises:
        ConfigError: It cannot be joined.
        DistrlError: Its process has ended.
    """
    to_join = RunOfDirectory(run_dir)
    while (code := child.poll()) is None:
        if _launch(run_dir) != before:
            with suppress(MemoryBackendError, RunKeyError):  # it is not there yet, or its key is not
                return JoinedRun(to_join)
        time.sleep(LOOK_S)
    raise DistrlError(f"{run_dir}: its training has ended with exit code {code}")
