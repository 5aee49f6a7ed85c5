"""distrl: distributed actor-learner training for reinforcement learning.

    import distrl

    summary = distrl.train(distrl.load("cartpole-impala", sets=["actors.count=4"]), run_dir="runs/first")

Importing this imports neither a numeric framework nor gymnasium. The configuration's models, which take a third of a
second, are imported when one of their names is first used; `train` imports what it needs when it is called.
"""

import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.errors import ConfigError
from distrl.version import __version__

if TYPE_CHECKING:
    from distrl.apps.agents.agent import Agent
    from distrl.apps.agents.runner import Runner
    from distrl.apps.agents.tensorforce import from_tensorforce
    from distrl.apps.config.configuration import Configuration as RunConfig
    from distrl.apps.config.configuration import load
    from distrl.apps.reports.loaded_run import LoadedRun
    from distrl.config import run as core
    from distrl.config.load import LoadedConfig
    from distrl.interrupt import Interrupt
    from distrl.launch.one_process import Here
    from distrl.memory_backend.steering import Steering
    from distrl.metrics.snapshot import Snapshot
    from distrl.runs.summary import Summary
    from distrl.serving.exported_policy import ExportedPolicy
    from distrl.terminal.console import Listener, View

# ONNX Runtime, from 1.29 on, sends telemetry from its import on, with a thread, files in the user's cache, and memory
# that grows where the network is cut. Set the variable to 0 to have that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "Agent",
    "LoadedConfig",
    "RunConfig",
    "Runner",
    "View",
    "__version__",
    "attach",
    "from_tensorforce",
    "iterate",
    "load",
    "load_policy",
    "load_run",
    "run_directory",
    "run_name",
    "train",
]

AGENTS = {"Agent": "agent", "Runner": "runner", "from_tensorforce": "tensorforce"}
"""Name of what serves code that owns its loop -> its module."""


def __getattr__(name: str) -> Any:
    """Import names of the configuration and of views at their first use."""
    if name == "View":
        from distrl.terminal.console import View

        return View
    if name in AGENTS:
        return getattr(import_module(f"distrl.apps.agents.{AGENTS[name]}"), name)
    if name not in {"LoadedConfig", "RunConfig", "load"}:
        raise AttributeError(f"module 'distrl' has no attribute {name!r}")
    from distrl.apps.config import configuration

    return configuration.Configuration if name == "RunConfig" else getattr(configuration, name)


def __dir__() -> list[str]:
    """Return the public names, also those that are imported at their first use."""
    return sorted(__all__)


def train(
    config: "RunConfig | LoadedConfig",
    *,
    run_dir: str | Path | None = None,
    resume: str | None = None,
    run_id: str | None = None,
    view: "View | str | None" = None,
    callbacks: "Sequence[Listener]" = (),
) -> "Summary":
    """Train until a stop condition of the configuration holds, and store everything in the run directory.

    Args:
        config: Made in Python, or loaded with `load`, which keeps the origin of every value.
        run_dir: The run's own directory, made if missing; by default a new one under runs/.
        resume: None: a new run. "auto": go on if `run_dir`, or the data store, holds a valid checkpoint, else start. A
            directory: go on with the run in it; `run_dir` is then not needed. STORE/RUN: fetch that run first.
            "RUN@STEP", "RUN@best": go on from that checkpoint, in the run's directory or, with another `run_dir`, in a
            new run.
        run_id: The id of a new run, by which roles and commands on other hosts find it in Redis: letters, digits, '.',
            '_' and '-'. None: one of the time and a random number. A resumed run keeps its own.
        view: How progress is shown. "auto" (the default): a live panel in a terminal and plain lines elsewhere.
            "plain": plain lines. "quiet": events and the final summary. "silent": nothing. Or an object with the
            methods of `distrl.View`.
        callbacks: Each is called with every new snapshot, about once a second. False, returned by one, ends the run in
            order, with the stop reason "callback". An exception in one ends the run, too, and is raised.

    Returns:
        The summary that is also in summary.json. Its `exit_code` is 0 if the run ended as requested; otherwise
        `error` has the reason.

    Raises:
        DistrlError: The run could not be started; the class says why (see distrl.errors).
    """
    return _train(config, run_dir, resume, run_id, view, callbacks)


def iterate(
    config: "RunConfig | LoadedConfig",
    *,
    run_dir: str | Path | None = None,
    resume: str | None = None,
    run_id: str | None = None,
    view: "View | str | None" = None,
) -> "Generator[Snapshot, None, Summary]":
    """Train as `train` does, and yield every new snapshot; leaving the loop ends the run in order.

        for result in distrl.iterate(config):
            if result["mean_return_100"] is not None and result["mean_return_100"] > 400:
                break

    A snapshot is a mapping of the names in `distrl.metrics.snapshot.METRICS`, and of the algorithm's own; what is not
    known yet is None. The generator returns the summary, which is also in summary.json. Signals stay with the caller:
    Ctrl-C leaves the loop. A generator with a name goes on training until it is closed: use `contextlib.closing`.
    """
    from distrl.launch.iteration import iterate as over

    return over(lambda listener, interrupt: _train(config, run_dir, resume, run_id, view, [listener], interrupt))


def _train(
    config: "RunConfig | LoadedConfig",
    run_dir: str | Path | None,
    resume: str | None,
    run_id: str | None,
    view: "View | str | None",
    callbacks: "Sequence[Listener]",
    interrupt: "Interrupt | None" = None,
    here: "Here | None" = None,
) -> "Summary":
    # Imported here: roles and the CLI import this package and must stay light.
    from distrl.config.load import LoadedConfig
    from distrl.interrupt import Interrupt
    from distrl.launch.head_start import head_start

    if not isinstance(resume, str | None):
        raise ConfigError(f'resume: {resume!r} names no run; give "auto", or a run\'s directory as a str')
    loaded = config if isinstance(config, LoadedConfig) else LoadedConfig.of(config)
    folder = run_directory(loaded.config, run_dir, resume)
    new = run_dir is None and resume is None
    with forgotten_if_empty(folder) if new else nullcontext(), head_start(loaded.config) as learner:
        from distrl.apps.trackers.tracking import Trackers  # beside the head start, as they take a while
        from distrl.launch import training
        from distrl.terminal.console import ListenedView, named_view

        shown = named_view(view or "auto", folder) if isinstance(view, str | None) else view
        interrupt = interrupt or Interrupt()
        if callbacks:
            shown = ListenedView(shown, callbacks, partial(interrupt.set, 0, "callback"))
        try:
            return training.train(
                loaded,
                run_dir=folder,
                resume=resume,
                run_id=run_id,
                view=shown,
                head_start=learner,
                interrupt=interrupt,
                observers=[Trackers],
                here=here,
            )
        finally:
            shown.stop()


@contextmanager
def attach(run_dir: str | Path) -> "Iterator[Steering]":
    """Control a live run: pause, resume, stop, scale, checkpoint, evaluate, change parameters.

        with distrl.attach("runs/first") as run:
            run.change({"network.learning_rate": 1e-4})

    Args:
        run_dir: The run's directory, on the machine that launched it.

    Raises:
        ConfigError: It holds no run, or one that has ended.
        MemoryBackendError: Its Redis does not answer within seconds.
    """
    from distrl.runs.directories import open_run

    with open_run(Path(run_dir)).steering("Python") as run:
        yield run


def load_policy(path: str | Path) -> "ExportedPolicy":
    """Load the policy from a file that `distrl export` wrote; `act` takes an environment's own observations.

    It needs NumPy and ONNX Runtime; OpenCV as well where preprocessing resizes images.

    Raises:
        ConfigError: The file cannot be read.
        DistrlError: It is not an exported policy, is damaged, or wants data from outside of it.
    """
    from distrl.serving import exported_policy

    return exported_policy.load_policy(path)


def load_run(path: str | Path) -> "LoadedRun":
    """Read the run in a directory, live or finished: `path`, `config`, `summary` (or None) and `metrics`.

    `metrics` maps each column of metrics.csv to a float64 array, so that a data frame is one call away.

    Raises:
        ConfigError: There is none, one of its files is damaged, or this distrl does not know its configuration.
    """
    from distrl.apps.reports import loaded_run

    return loaded_run.load_run(Path(path))


def run_directory(config: "core.RunConfig", run_dir: str | Path | None, resume: str | None) -> Path:
    """Return `run_dir`, the directory to resume, or a new one under runs/, which this makes.

    For a run in a data store, STORE/RUN, that is `run_dir` or runs/RUN.

    Raises:
        ConfigError: "auto" without a directory to look into, or two directories that differ and no checkpoint.
    """
    if resume is not None and "://" in resume:
        from distrl.config.stores import split_run

        return Path(run_dir) if run_dir is not None else Path("runs") / split_run(resume, "--resume")[1]
    if resume == "auto" and run_dir is None:
        raise ConfigError("--resume auto needs a --run-dir to look into; or name the run: --resume DIR")
    if resume is None or resume == "auto":
        return Path(run_dir) if run_dir is not None else new_directory(Path("runs") / run_name(config))
    from distrl.runs.run_directory import named_directory

    return named_directory(None if run_dir is None else Path(run_dir), resume)


def run_name(config: "core.RunConfig", prefix: str = "") -> str:
    """Return the default name of a run's directory: `<environment>-<algorithm>-<local time>`."""
    names = f"{config.environment.id}-{config.algorithm.name}"
    names = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in names)
    return f"{prefix}{names}-{time.strftime('%Y%m%d-%H%M%S')}"


def new_directory(path: Path) -> Path:
    """Make a new directory: `path`, or its name with -2, -3 and so on.

    Raises:
        ConfigError: It cannot be made.
    """
    for number in count(1):
        free = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            free.mkdir(parents=True)
        except FileExistsError:
            continue  # another run began in the same second
        except OSError as error:
            raise ConfigError(f"{free} cannot be made: {error.strerror}; choose another --run-dir") from error
        return free
    raise AssertionError  # numbers do not end


@contextmanager
def forgotten_if_empty(folder: Path) -> "Iterator[None]":
    """Remove a run's directory that is still empty at the end: nothing has been launched."""
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()
