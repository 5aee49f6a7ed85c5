"""How a training starts, decided in one place: which run, in which directory, with the state of which checkpoint.

    new         no --resume, or "auto" without a checkpoint: fresh networks
    warm        the same with `learner.init_from`: fresh but for the weights that it names
    branched    RUN@STEP with another --run-dir: all the state of that checkpoint, in a new run
    resumed     "auto", RUN, RUN@STEP, STORE/RUN: all the state of a checkpoint, in the same run

`plan_start` refuses what cannot be before anything slow is done. `opened` locks the directory and makes the checkpoint
its newest one, which every learner of the launch takes, also one that is started again (`learner/origin.py`). So later
checkpoints are moved to a directory of their own, which can be resumed, evaluated and exported itself. All of this is
undone unless the launch is accepted.
"""

import logging
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.load import LoadedConfig, config_of_run, dump
from distrl.config.secrets import masked_settings
from distrl.config.stores import is_store_url, split_run
from distrl.data_store import atomic
from distrl.data_store.checkpoints import (
    LoadedCheckpoint,
    best_path,
    load_newest,
    mark_best,
    newest_first,
    read_manifest,
    step_of,
)
from distrl.data_store.checkpoints import load as load_checkpoint
from distrl.data_store.fetching import RUN_FILES, fetch_newest
from distrl.data_store.named_checkpoints import parse
from distrl.data_store.opening import open_objects, require_usable, usable_store
from distrl.data_store.start_plan import Kind, StartPlan
from distrl.data_store.stored_run import CheckpointPosition, GoingBack, StoredRun
from distrl.errors import CheckpointError, ConfigError, DistrlError, StoreError
from distrl.files import open_regular, read_small
from distrl.launch.checks import Checked
from distrl.launch.manifest import write_manifest
from distrl.learner.policy_files import BEST_FILE, WEIGHTS_FILE, kept_best, read_policy, write_weights
from distrl.learner.replay_set_up import empty_replay_note, saved_replays
from distrl.learner.weight_source import settled_name
from distrl.memory_backend.keys import checked_run_id
from distrl.runs.run_directory import branches, locked, named_checkpoint, require_free, run_id_of, run_to_resume, usable
from distrl.runs.trial import Trial
from distrl.types import Weights

log = logging.getLogger(__name__)
_SETTING = "learner.init_from"


@dataclass(frozen=True)
class PlannedRun:
    """A start that nothing known at once forbids.

    Attributes:
        resume: As `distrl.train` takes it.
        chosen: The checkpoint that `resume` names, of this run or of another one; None: the newest of this run counts.
        is_new: Whether a run begins. "auto" goes on with the run of the directory, also if it has no checkpoint yet.
        stored: The run's folder in the data store; None without one.
    """

    run_dir: Path
    resume: str | None
    chosen: Path | None
    run_id: str
    is_new: bool
    stored: StoredRun | None


def plan_start(config: RunConfig, run_dir: Path, resume: str | None, run_id: str | None) -> PlannedRun:
    """Settle which run starts, and change nothing.

    Raises:
        ConfigError: The directory or the id is taken, the checkpoint is not there, it is not clear which run is to go
            on, or the data store cannot be used.
        CheckpointError: The mark of the best checkpoint is damaged.
    """
    wanted = None if run_id is None else checked_run_id(run_id)
    if resume is not None and is_store_url(resume):
        wanted = _stored_id(resume, config.checkpoint.store)
    require_free(run_dir, resume)
    is_new = resume is None or branches(run_dir, resume)
    store = config.checkpoint.store
    if not is_new and store is not None and wanted is None and run_id_of(run_dir) is None:
        raise ConfigError(
            f"{run_dir} holds no run, and the data store has runs by their ids: add --run-id NAME, or --resume "
            f"{store}/NAME"
        )
    named, settled = named_checkpoint(resume), _settled_id(run_dir, wanted)
    chosen = None if named is None or named.mark is None else named.find()
    return PlannedRun(run_dir, resume, chosen, settled, is_new, _open_stored_run(config, settled, new=is_new))


@contextmanager
def opened(
    start: PlannedRun, checked: Checked, report: Callable[[str], None]
) -> Iterator[tuple[StartPlan, Checked, Trial]]:
    """Lock the run's directory, bring the state there that the launch goes on from, and write its configuration.

    Args:
        report: Takes lines about a long download, and about a disk that does not take back what has changed.

    Yields:
        The plan; the configuration, with an exact name of the weights that the training begins with; and the trial,
        which puts the directory back at the end unless the launch has been accepted.

    Raises:
        ConfigError: The directory is another process's, the checkpoint is of another task or began with other weights,
            a disk or the data store refuses, or another launch has begun the run there.
        CheckpointError: There are checkpoints and none is valid, or there is none and `resume` is not "auto".
    """
    run_dir, trial = start.run_dir, Trial(report)
    require_free(run_dir, start.resume)  # another launch may have begun since
    if start.chosen is not None and (named := named_checkpoint(start.resume)) is not None:
        start = replace(start, chosen=named.find())  # a run that still trains may have another best one by now
    fetches = start.stored is not None and start.resume is not None and start.chosen is None
    loaded = None if fetches else _load(start)  # before the directory is made
    with locked(run_dir) as made, trial.of(run_dir, new=made):
        fetched = _fetch(start, report) if fetches else []
        loaded = _load(start) if fetches else loaded
        source = run_to_resume(run_dir, start.resume) or run_dir
        checked = with_weights(checked, None if loaded is None else source)
        config = checked.loaded.config
        require_same_task(source, config)
        plan, moved = _plan(start, loaded, config), None
        if start.chosen is not None:
            moved = begin_at(run_dir, start.chosen, plan.env_steps, with_id=start.stored is not None)
        write_config(run_dir, checked.loaded)
        with usable(run_dir):
            write_manifest(run_dir, start.run_id, config)
        empty = empty_replay_note(config, run_dir / "checkpoints", plan.update)
        notes = (f"run {start.run_id} in {run_dir}", *fetched, *plan.notes, moved, empty)
        with _begun(start, trial):
            yield plan.model_copy(update={"notes": tuple(filter(None, notes))}), checked, trial


def _load(start: PlannedRun) -> LoadedCheckpoint | None:
    """Return the checkpoint that the launch goes on from, without its arrays; None if there is none.

    They are checked and not kept: this process lives as long as the training.
    """
    if start.chosen is not None:
        return replace(load_checkpoint(start.chosen), arrays={})
    if start.resume is None:
        return None
    try:
        loaded = load_newest(start.run_dir / "checkpoints")
    except CheckpointError as error:
        # Not even with "auto": a new start would silently lose what the operator may still repair.
        raise CheckpointError(
            f"{start.run_dir} holds checkpoints and none is valid; put a good one back, or start anew with another "
            f"--run-dir ({error})"
        ) from error
    if loaded is None and named_checkpoint(start.resume) is not None:
        raise CheckpointError(f"nothing to resume: {start.run_dir} holds no checkpoint under checkpoints/")
    return None if loaded is None else replace(loaded, arrays={})


def _plan(start: PlannedRun, loaded: LoadedCheckpoint | None, config: RunConfig) -> StartPlan:
    """Return the plan by the checkpoint that the launch goes on from, before anything is moved."""
    if loaded is None:
        none = f"no checkpoint in {start.run_dir}: starting from the beginning"
        kind: Kind = "new" if config.learner.init_from is None else "warm"
        return StartPlan(kind=kind, notes=() if start.resume is None else (none,))
    passed_over = [f"passed over {path.name}: {reason}" for path, reason in loaded.rejected]
    env_steps, wall_s = loaded.meta.get("env_steps"), loaded.meta.get("wall_s")
    goes_back = start.chosen is not None and not start.is_new
    return StartPlan(
        kind="branched" if start.is_new else "resumed",
        update=loaded.step,
        env_steps=env_steps if isinstance(env_steps, int) else 0,
        wall_s=float(wall_s) if isinstance(wall_s, int | float) else 0.0,
        back=going_back(start.stored, loaded.path) if goes_back and start.stored is not None else None,
        notes=(*passed_over, f"resuming from {loaded.path.name} (update {loaded.step})"),
    )


# Which run it is.


def _settled_id(run_dir: Path, chosen: str | None) -> str:
    """Return the id of the run in the directory; if it holds none, the chosen one or a new one.

    Raises:
        ConfigError: Another one was chosen for a run that has an id.
    """
    kept = run_id_of(run_dir)
    if kept is None:
        return chosen or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    if chosen not in (None, kept):
        raise ConfigError(f"the run in {run_dir} has the id {kept}, not {chosen}; leave --run-id out to resume it")
    return checked_run_id(kept)


def _stored_id(resume: str, store: str | None) -> str:
    """Return the id of the run that `--resume STORE/RUN` names.

    Raises:
        ConfigError: The URL names no run, or not one in `checkpoint.store`.
    """
    named, run_id = split_run(resume, "--resume")
    if named != store:
        raise ConfigError(
            f"--resume {resume}: the run goes on in that store, and checkpoint.store is {store}; add "
            f"--set checkpoint.store={named}"
        )
    return checked_run_id(run_id)


def require_same_task(run_dir: Path, config: RunConfig) -> None:
    """Raise ConfigError if the run in a directory is of another environment or algorithm."""
    if not (run_dir / "config.yaml").exists():
        return
    earlier = config_of_run(run_dir)
    for name, now, then in (
        ("environment.id", config.environment.id, earlier.environment.id),
        ("algorithm.name", config.algorithm.name, earlier.algorithm.name),
    ):
        if now != then:
            raise ConfigError(f"the run to resume has {name} {then}, not {now}; choose another --run-dir for {now}")


def write_config(run_dir: Path, loaded: LoadedConfig) -> None:
    """Write config.yaml of this launch.

    Raises:
        ConfigError: The disk refuses.
    """
    with usable(run_dir):
        atomic.put_file(run_dir / "config.yaml", dump(loaded).encode(), private=True)


# The data store.


def _open_stored_run(config: RunConfig, run_id: str, *, new: bool) -> StoredRun | None:
    """Return the run's folder in the store of a configuration, checked; None without a store.

    Args:
        new: The run must not be there yet.

    Raises:
        ConfigError: The store cannot be used, or holds a run of this id that would be overwritten; or a secret is
            missing, which the store does not keep.
    """
    store = config.checkpoint.store
    if store is None:
        return None
    for dotted in masked_settings(config.model_dump(mode="json")):
        raise ConfigError(f"{dotted} holds a secret, which the store does not keep: add --set {dotted}=…")
    with usable_store():
        run = StoredRun(open_objects(store), run_id)
        require_usable(run.objects)
        begun = run.look().is_begun
    if new and begun:
        raise _taken(run)
    return run


def _taken(run: StoredRun) -> ConfigError:
    return ConfigError(f"{run.url} already holds a run; choose another --run-id, or go on with --resume {run.url}")


def _fetch(start: PlannedRun, report: Callable[[str], None]) -> list[str]:
    """Fetch the newest checkpoint and the run's files, unless the directory is at least as new; return notes."""
    run, resume = start.stored, start.resume
    assert run is not None
    assert resume is not None
    with usable_store():
        if is_store_url(resume) and run.look().newest is None:
            raise CheckpointError(f"nothing to resume: {run.url} holds no checkpoint")
        return fetch_newest(run, start.run_dir, RUN_FILES, report).notes


def going_back(run: StoredRun, chosen: Path) -> GoingBack:
    """Return how the store passes over all that is later than a checkpoint of the directory.

    Raises:
        ConfigError: The store does not answer any more.
    """
    with usable_store():
        listing, manifest = run.look(), read_small(chosen / "manifest.json")
        # The same step may be there twice, of writers before and after an earlier return.
        same = (
            position
            for position in listing.complete
            if position.step == step_of(chosen) and run.manifest(position) == manifest
        )
        return GoingBack(listing.writer, next(same, CheckpointPosition(0, step_of(chosen))))


@contextmanager
def _begun(start: PlannedRun, trial: Trial) -> Iterator[None]:
    """Claim the run's folder if the launch begins it, until the launch is refused; nothing without a store.

    Raises:
        ConfigError: Another launch has begun a new run meanwhile, or the store does not answer any more.
    """
    run = start.stored
    if run is None:
        yield
        return
    with usable_store():
        first = run.begin()
    if start.is_new and not first:
        raise _taken(run)
    try:
        yield
    finally:
        if first and not trial.accepted:
            with suppress(StoreError):
                run.withdraw()


# The weights that a training begins with.


def require_weights(config: RunConfig) -> None:
    """Raise ConfigError unless this host has the run, checkpoint or file that the training begins with, unread."""
    if config.learner.init_from is not None:
        _exact(config.learner.init_from)


def with_weights(checked: Checked, resumed: Path | None) -> Checked:
    """Name exactly the weights that the training begins with, or has begun with if it goes on from a checkpoint.

    Args:
        resumed: Directory of the run whose checkpoint the training goes on from; None: it begins without one.

    Raises:
        ConfigError: There are none of that name, or a run is to go on that began with other weights.
    """
    given = name = checked.loaded.config.learner.init_from
    origin = checked.loaded.origins.get(_SETTING, "")
    if resumed is None:
        name = None if given is None else _exact(given)
    else:
        path = resumed / "config.yaml"
        name, origin = config_of_run(resumed).learner.init_from if path.is_file() else None, f"file {path}"
        if given is not None and not _is_same(given, name):
            began = "with fresh weights" if name is None else f"with those of {name}"
            raise ConfigError(
                f"{_SETTING}: {given} is for a new training; the run in {resumed} began {began} and goes on with its "
                "own: leave it out, or choose another --run-dir"
            )
    if name == given:
        return checked
    return replace(checked, loaded=checked.loaded.with_values({"learner": {"init_from": name}}, origin))


def _exact(name: str) -> str:
    try:
        return settled_name(name)
    except DistrlError as error:
        raise ConfigError(f"{_SETTING}: {error}") from error


def _is_same(given: str, recorded: str | None) -> bool:
    """Whether `recorded` may have come from `given`, whose newest or best checkpoint it then names by number."""
    if recorded is None or given == recorded:
        return given == recorded
    before, now = parse(recorded), parse(given)
    return before.run == now.run and not isinstance(now.mark, int)


# A chosen checkpoint.


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
    moved = [path for updates, path in saved_replays(checkpoints) if updates > step] + later
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
    for replay in (path for updates, path in saved_replays(chosen.parent) if updates == step_of(chosen)):
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
