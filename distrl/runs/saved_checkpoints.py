"""The checkpoints of a run as lists show them, with the command lines that use them.

Only the small files of a checkpoint are read, and none of a link.
"""

import json
import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distrl.data_store.checkpoints import best_path, newest_first, step_of
from distrl.errors import ConfigError
from distrl.files import read_small

MOST = 500
"""Most checkpoints that are listed, the newest."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """One checkpoint.

    Attributes:
        step: Its number of updates, by which RUN@STEP names it.
        env_steps: Environment steps behind it; None: unknown.
        saved: When it was written, in seconds since 1970.
        size_bytes: Size of all its files by its manifest; None: the manifest is damaged.
        mean_return: Mean return of the last 100 episodes before it; None: unknown.
        evaluation: Mean return of the newest evaluation before it; None: there was none.
        evaluation_env_steps: Environment steps behind the weights of that evaluation.
        problem: Why it cannot be used; "": its small files are as they must be.
    """

    step: int
    env_steps: int | None
    saved: float
    size_bytes: int | None
    is_newest: bool
    is_best: bool
    mean_return: float | None = None
    evaluation: float | None = None
    evaluation_env_steps: int | None = None
    problem: str = ""


def saved_checkpoints(run_dir: Path) -> list[SavedCheckpoint]:
    """Return the checkpoints in a run's directory, newest first, at most `MOST`; empty if the directory is a link."""
    paths, best = own_checkpoints(run_dir)
    newest = list(paths.values())[:MOST]
    found = [_described(path, is_newest=path == newest[0], is_best=path == best) for path in newest]
    return [one for one in found if one is not None]


def own_checkpoints(run_dir: Path) -> tuple[dict[int, Path], Path | None]:
    """Return step -> directory of a run's checkpoints, newest first, and the best one's directory; none of a link."""
    directory = run_dir / "checkpoints"
    if directory.is_symlink():
        return {}, None
    paths = [path for path in newest_first(directory) if not path.is_symlink() and not path.name.endswith(".replaced")]
    best = best_path(directory) if _is_own_file(directory / "best") else None
    return {step_of(path): path for path in paths}, best


def commands(run_dir: Path, step: int | None, other: Path) -> dict[str, str]:
    """Return command lines, quoted for a POSIX shell: resume, branch, begin, evaluate, export.

    Args:
        step: A checkpoint's number of updates; None: the newest.
        other: Directory for a new run.
    """
    named = shlex.quote(str(run_dir) if step is None else f"{run_dir}@{step}")
    new, config = shlex.quote(str(other)), shlex.quote(str(run_dir / "config.yaml"))
    branch = f"{run_dir}@{'best' if step is None else step}"
    return {
        "resume": f"distrl train --resume {named}",
        "branch": f"distrl train --resume {shlex.quote(branch)} --run-dir {new}",
        "begin": f"distrl train {config} --init-from {named} --run-dir {new}",
        "evaluate": f"distrl evaluate {named}",
        "export": f"distrl export {named}",
    }


def _described(path: Path, *, is_newest: bool, is_best: bool) -> SavedCheckpoint | None:
    """Return a checkpoint by its small files; None if it was pruned meanwhile."""
    bare = SavedCheckpoint(step_of(path), None, 0.0, None, is_newest, is_best)
    try:
        bare = replace(bare, saved=path.lstat().st_mtime)
        manifest, meta = _read(path / "manifest.json"), _read(path / "meta.json")
        size_bytes = sum(int(entry["bytes"]) for entry in manifest["files"].values())
    except FileNotFoundError:
        return replace(bare, problem="a file is missing") if path.is_dir() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigError):
        # A file that is not what the learner writes can fail in each of these ways.
        return replace(bare, problem="damaged")
    returns = [value for one in _list(meta.get("recent_returns")) if (value := _number(one)) is not None]
    return replace(
        bare,
        size_bytes=size_bytes,
        env_steps=_whole(meta.get("env_steps")),
        mean_return=sum(returns) / len(returns) if returns else None,
        evaluation=_number(meta.get("evaluation_mean_return")),
        evaluation_env_steps=_whole(meta.get("evaluation_env_steps")),
    )


def _read(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        raise ValueError(f"{path.name} is a link")
    found = json.loads(read_small(path))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no mapping")
    return found


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 1000


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
