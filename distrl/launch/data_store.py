"""The data store's part in a launch: checks before it, and what is fetched before a run resumes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.secrets import masked_settings
from distrl.config.small_files import read_small
from distrl.config.stores import is_store_url, split_run
from distrl.data_store.checkpoints import newest_first, step_of
from distrl.data_store.fetching import RUN_FILES, fetch_newest
from distrl.data_store.opening import open_objects, require_usable, usable_store
from distrl.data_store.stored_run import GoingBack, Position, StoredRun
from distrl.errors import CheckpointError, ConfigError, StoreError
from distrl.memory_backend.keys import checked_run_id
from distrl.runs.run_directory import run_id_of
from distrl.runs.trial import Trial


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
        begun = run.look().is_begun
    if new and begun:
        raise _taken(run)
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
        return GoingBack(listing.writer, next(same, Position(0, step_of(chosen))))


@contextmanager
def begun(run: StoredRun | None, trial: Trial, *, new: bool) -> Iterator[None]:
    """Claim the run's folder for a launch that begins it, until the launch is refused; nothing without a store.

    Args:
        new: The folder must hold no run.

    Raises:
        ConfigError: Another launch has begun it meanwhile, or the store does not answer any more.
    """
    first = False
    if run is not None:
        with usable_store():
            first = run.begin()
        if new and not first:
            raise _taken(run)
    try:
        yield
    finally:
        if run is not None and first and not trial.accepted:
            with suppress(StoreError):
                run.withdraw()


def _taken(run: StoredRun) -> ConfigError:
    return ConfigError(f"{run.url} already holds a run; choose another --run-id, or go on with --resume {run.url}")
