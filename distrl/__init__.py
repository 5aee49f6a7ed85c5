"""distrl: distributed actor-learner training for reinforcement learning.

    import distrl

    summary = distrl.train(distrl.load("cartpole-impala", sets=["actors.count=4"]), run_dir="runs/first")

Importing this brings nothing: neither a numeric framework nor gymnasium, and the configuration's models, which take a
third of a second, when one of their names is first used. `train` imports what it needs when it is called.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.errors import ConfigError

if TYPE_CHECKING:
    from distrl.actors.exported_policy import ExportedPolicy
    from distrl.config.load import LoadedConfig, load
    from distrl.config.run import RunConfig
    from distrl.metrics.console import View
    from distrl.metrics.summary import Summary

__version__ = "0.1.0"
__all__ = ["LoadedConfig", "RunConfig", "__version__", "load", "load_policy", "run_directory", "run_name", "train"]


def __getattr__(name: str) -> Any:
    """The names of the configuration, which processes that only pass through this package never import."""
    if name not in {"LoadedConfig", "RunConfig", "load"}:
        raise AttributeError(f"module 'distrl' has no attribute {name!r}")
    from distrl.config import load as configuration

    return getattr(configuration, name)


def train(
    config: "RunConfig | LoadedConfig",
    *,
    run_dir: str | Path | None = None,
    resume: str | None = None,
    view: "View | None" = None,
) -> "Summary":
    """Trains until a stop condition of the configuration holds, and leaves everything in the run directory.

    Args:
        config: Made in Python, or loaded with `load`, which keeps the origin of every value.
        run_dir: The run's own directory, made if missing; by default a new one under runs/.
        resume: None: a new run. "auto": go on if `run_dir` holds a valid checkpoint, else start. A directory: go on
            with the run in it; `run_dir` is then not needed.
        view: Where progress is shown; by default a live panel in a terminal and plain lines elsewhere.

    Returns:
        The summary that is also in summary.json. Its `exit_code` is 0 if the run ended as asked; `error` says what
        went wrong otherwise.

    Raises:
        DistrlError: The run could not be started; the class says why (see distrl.errors).
    """
    # Imported here: roles and the CLI import this package and must stay light.
    from distrl.config.load import LoadedConfig
    from distrl.launch.head_start import head_start

    loaded = config if isinstance(config, LoadedConfig) else LoadedConfig.of(config)
    folder = run_directory(loaded.config, run_dir, resume)
    with head_start(loaded.config) as learner:
        from distrl.launch import training  # beside the head start, as they take a while
        from distrl.metrics.console import make_view

        shown = view or make_view(run_dir=folder)
        try:
            return training.train(loaded, run_dir=folder, resume=resume, view=shown, head_start=learner)
        finally:
            shown.stop()


def load_policy(path: str | Path) -> "ExportedPolicy":
    """The policy in a file that `distrl export` wrote; `act` takes an environment's own observations.

    It needs NumPy and ONNX Runtime; OpenCV as well where preprocessing resizes images.

    Raises:
        ConfigError: The file cannot be read.
        DistrlError: It is not an exported policy, is damaged, or wants data from outside of it.
    """
    from distrl.actors import exported_policy

    return exported_policy.load_policy(path)


def run_directory(config: "RunConfig", run_dir: str | Path | None, resume: str | None) -> Path:
    """Where a run goes: `run_dir`, the directory it resumes, or a new name under runs/.

    Raises:
        ConfigError: "auto" without a directory to look into, or two directories that differ.
    """
    if resume == "auto" and run_dir is None:
        raise ConfigError("--resume auto needs a --run-dir to look into; or name the run: --resume DIR")
    if resume is None or resume == "auto":
        return Path(run_dir) if run_dir is not None else Path("runs") / run_name(config)
    if run_dir is not None and Path(run_dir).resolve() != Path(resume).resolve():
        raise ConfigError(f"--resume {resume} goes on in that directory, but --run-dir is {run_dir}; leave one out")
    return Path(resume)


def run_name(config: "RunConfig", prefix: str = "") -> str:
    """The default name of a run's directory: <environment>-<algorithm>-<local time>."""
    names = f"{config.environment.id}-{config.algorithm.name}"
    names = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in names)
    return f"{prefix}{names}-{time.strftime('%Y%m%d-%H%M%S')}"
