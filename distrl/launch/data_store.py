"""The data store's part in a launch: checks before it, and what is fetched before a run resumes."""

from collections.abc import Callable
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.secrets import masked_settings
from distrl.config.stores import is_store_url, split_run
from distrl.data_store.checkpoints import newest_first, step_of
from distrl.data_store.fetching import RUN_FILES, fetch_newest
from distrl.data_store.opening import open_objects, require_usable, usable_store
from distrl.data_store.stored_run import Position, StoredRun, Writer
from distrl.errors import CheckpointError, ConfigError
from distrl.files import read_small
from distrl.memory_backend.keys import checked_run_id
from distrl.runs.run_directory import run_id_of


def resumed_run(resume: str, store: str | None) -> str:
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


def require_id(config: RunConfig, run_dir: Path, chosen: str | None) -> None:
    """Raise ConfigError if it is not known which run of the store is to go on in a directory."""
    store = config.checkpoint.store
    if store is not None and chosen is None and run_id_of(run_dir) is None:
        raise ConfigError(
            f"{run_dir} holds no run, and the data store has runs by their ids: add --run-id NAME, or --resume "
            f"{store}/NAME"
        )


def open_stored_run(config: RunConfig, run_id: str, *, new: bool) -> StoredRun | None:
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
        begun = run.is_begun()
    if new and begun:
        raise ConfigError(f"{run.url} already holds a run; choose another --run-id, or go on with --resume {run.url}")
    return run


def fetch_run(run: StoredRun, run_dir: Path, resume: str, report: Callable[[str], None]) -> list[str]:
    """Fetch the newest checkpoint and the run's files, unless the directory is at least as new; return notes.

    Args:
        report: Takes lines about the progress.

    Raises:
        ConfigError: The store does not answer any more.
        CheckpointError: `resume` names the run in the store, and it has no checkpoint there; or none is valid.
    """
    with usable_store():
        if is_store_url(resume) and run.look().newest is None:
            raise CheckpointError(f"nothing to resume: {run.url} holds no checkpoint")
        return fetch_newest(run, run_dir, RUN_FILES, report).notes


def is_only_stored(run: StoredRun, run_dir: Path) -> bool:
    """Whether the run has a checkpoint in the store, and none in the directory.

    Raises:
        ConfigError: The store does not answer any more.
    """
    with usable_store():
        return not newest_first(run_dir / "checkpoints") and run.look().newest is not None


def go_back(run: StoredRun, run_dir: Path) -> None:
    """Let the store pass over all that is later than the newest checkpoint of the directory.

    Raises:
        ConfigError: The store does not answer any more. The same command can be repeated.
        FencedError: Another learner has claimed the run meanwhile.
    """
    with usable_store("; repeat the command"):
        newest, listing = newest_first(run_dir / "checkpoints")[0], run.look()
        manifest = read_small(newest / "manifest.json")
        # The same step may be there twice, of writers before and after an earlier return.
        same = (
            position
            for position in listing.complete
            if position.step == step_of(newest) and run.manifest(position) == manifest
        )
        Writer.claim(run, listing.writer, "", next(same, Position(0, step_of(newest))))
