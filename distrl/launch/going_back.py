"""A training goes on from a chosen checkpoint: in its own run, whose later state is set aside, or in a new run.

The learner always takes the newest checkpoint of its directory, also when it is restarted. So the later ones have to
be elsewhere before it starts. They become a directory that can be resumed, evaluated and exported itself.
"""

import logging
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from distrl.data_store import atomic
from distrl.data_store.checkpoints import best_path, mark_best, newest_first, read_manifest, step_of
from distrl.errors import DistrlError
from distrl.files import open_regular
from distrl.learner.policy_files import BEST_FILE, WEIGHTS_FILE, kept_best, read_policy, write_weights
from distrl.learner.replay_set_up import saved_replays
from distrl.runs.run_directory import usable
from distrl.types import Weights

log = logging.getLogger(__name__)


def begin_at(run_dir: Path, chosen: Path, env_steps: int, *, with_id: bool = False) -> str | None:
    """Make a checkpoint the newest of a run's directory; return a line for the user, if something was moved or copied.

    Args:
        chosen: The checkpoint, of this run or of the one that this one branches from.
        env_steps: Environment steps behind it.
        with_id: The run has a data store, so a run that continues the later state needs an id of its own.

    Raises:
        ConfigError: A file cannot be moved or copied.
    """
    with usable(run_dir):
        if chosen.parent.resolve() != (run_dir / "checkpoints").resolve():
            return _branch(run_dir, chosen, env_steps)
        return _set_aside(run_dir, chosen, env_steps, "--run-id NAME " if with_id else "")


def _set_aside(run_dir: Path, chosen: Path, env_steps: int, options: str) -> str | None:
    """Move the state after `chosen` to a directory of its own, and let policy/ be that of `chosen`."""
    step, checkpoints, policy = step_of(chosen), run_dir / "checkpoints", run_dir / "policy"
    later = [path for path in newest_first(checkpoints) if step_of(path) > step]
    if not later:
        return None
    moved = [path for updates, path in saved_replays(checkpoints).items() if updates > step] + later
    kept = kept_best(policy)
    if kept is not None and kept.env_steps > env_steps:
        moved.append(policy / BEST_FILE)
    best, weights = best_path(checkpoints), _acting(run_dir, chosen)
    aside = _new_directory(run_dir, f"after-{step}")
    for name in ("config.yaml", "manifest.json", "metrics.csv", "policy/graph.onnx", "policy/description.json"):
        _copy(run_dir / name, aside / name)
    if (policy / WEIGHTS_FILE).is_file():
        _move(policy / WEIGHTS_FILE, aside / "policy" / WEIGHTS_FILE)
    if weights is not None:
        write_weights(policy, weights)
    if best is not None and step_of(best) > step:
        _move(checkpoints / "best", aside / "checkpoints" / "best")
        mark_best(chosen)  # so that it is kept until there is a better one
    for path in moved:
        _move(path, aside / path.relative_to(run_dir))
    many = "1 later checkpoint is" if len(later) == 1 else f"{len(later)} later checkpoints are"
    return f"{many} set aside: distrl train {options}--resume {aside} goes on from update {step_of(later[0]):,}"


def _branch(run_dir: Path, chosen: Path, env_steps: int) -> str:
    """Copy a checkpoint of another run, and what belongs to it."""
    source, checkpoints = chosen.parent.parent, run_dir / "checkpoints"
    best = kept_best(source / "policy")
    _copy(source / "metrics.csv", run_dir / "metrics.csv")
    if best is not None and best.env_steps <= env_steps:
        _copy(source / "policy" / BEST_FILE, run_dir / "policy" / BEST_FILE)
    if (replay := saved_replays(chosen.parent).get(step_of(chosen))) is not None:
        _copy(replay, checkpoints / replay.name)
    copied = checkpoints / chosen.name.removesuffix(".replaced")
    names = (*read_manifest(chosen)["files"], "manifest.json")
    atomic.put_directory(copied, {name: _read(chosen / name) for name in names})
    mark_best(copied)
    return f"a new run with all the state of {chosen}"


def _acting(run_dir: Path, chosen: Path) -> Weights | None:
    """Return the policy's weights of a checkpoint; None where policy/ is damaged or not there."""
    try:
        return read_policy(run_dir, str(chosen)).weights
    except DistrlError as error:  # the learner writes policy/ anew with its next checkpoint
        log.warning("policy/ is not that of %s yet: %s", chosen.name, error)
        return None


def _new_directory(run_dir: Path, name: str) -> Path:
    for number in count(1):
        path = run_dir / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            path.mkdir()
            return path
    raise AssertionError  # numbers do not end


def _copy(path: Path, to: Path) -> None:
    """Copy a file that is there. The run may be another user's: a link would bring any file into this one."""
    with suppress(FileNotFoundError), open_regular(path, links=False) as file:
        to.parent.mkdir(exist_ok=True)
        with to.open("wb") as copied:
            shutil.copyfileobj(file, copied)


def _read(path: Path) -> bytes:
    with open_regular(path, links=False) as file:
        return file.read()


def _move(path: Path, to: Path) -> None:
    to.parent.mkdir(exist_ok=True)
    path.rename(to)
