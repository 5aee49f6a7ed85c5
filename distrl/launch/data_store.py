"""The data store's part in a launch: checks before it, and what is fetched before a run resumes."""

from collections.abc import Callable
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.document import flat
from distrl.config.secrets import MASK
from distrl.config.stores import split_run
from distrl.data_store.fetching import RUN_FILES, fetch_newest
from distrl.data_store.opening import open_objects, require_usable
from distrl.data_store.stored_run import StoredRun
from distrl.errors import CheckpointError, ConfigError, StoreError
from distrl.memory_backend.keys import checked_run_id


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


def open_stored_run(config: RunConfig, run_id: str, resume: str | None) -> StoredRun | None:
    """Return the run's folder in the store of a configuration, checked; None without a store.

    Raises:
        ConfigError: The store cannot be used, or holds a run of this id that would be overwritten; or a secret is
            missing, which the store does not keep.
    """
    store = config.checkpoint.store
    if store is None:
        return None
    for keys, value in flat(config.model_dump(mode="json")):
        if MASK in str(value):
            dotted = ".".join(keys)
            raise ConfigError(f"{dotted} holds a secret, which the store does not keep: add --set {dotted}=…")
    try:
        run = StoredRun(open_objects(store), run_id)
        require_usable(run.objects)
        begun = run.is_begun()
    except StoreError as error:
        raise ConfigError(f"checkpoint.store cannot be used: {error}") from error
    if resume is None and begun:
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
    try:
        if "://" in resume and run.look().newest is None:
            raise CheckpointError(f"nothing to resume: {run.url} holds no checkpoint")
        return fetch_newest(run, run_dir, RUN_FILES, report).notes
    except StoreError as error:
        raise ConfigError(f"checkpoint.store cannot be used: {error}") from error
