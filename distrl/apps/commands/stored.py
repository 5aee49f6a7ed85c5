"""Runs in a data store, as commands name them: STORE/RUN."""

import atexit
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.apps.commands.options import Layers, named_weights
from distrl.apps.commands.printing import echo
from distrl.apps.config.configuration import load
from distrl.config.load import LoadedConfig
from distrl.config.stores import is_store_url
from distrl.errors import CheckpointError, ConfigError, StoreError

if TYPE_CHECKING:
    from distrl.data_store.stored_run import StoredRun


def stored_run(url: str, where: str) -> "StoredRun":
    """Return the run in a data store that a URL names.

    Raises:
        ConfigError: It names none, or the store cannot be used.
    """
    from distrl.config.stores import split_run
    from distrl.data_store.opening import open_objects
    from distrl.data_store.stored_run import StoredRun
    from distrl.memory_backend.keys import checked_run_id

    store, run_id = split_run(url, where)
    return StoredRun(open_objects(store), checked_run_id(run_id))


def stored_configuration(layers: Layers, url: str) -> LoadedConfig:
    """Load the configuration of a run in a data store, below the layers of the command line.

    Raises:
        ConfigError: There is no such run, or its configuration is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="distrl-") as folder:
        fetched(url, "--resume", Path(folder), ["config.yaml"])
        return replace(layers, config=Path(folder) / "config.yaml").load()


def fetched(url: str, where: str, folder: Path, files: list[str]) -> "StoredRun":
    """Fetch files of a run in a data store into a folder, config.yaml among them.

    Raises:
        ConfigError: There is no such run, or the store cannot be used.
    """
    from distrl.data_store.fetching import fetch_files

    run = stored_run(url, where)
    try:
        fetch_files(run, folder, files)
    except StoreError as error:
        raise ConfigError(f"{where}: {error}") from error
    if not (folder / "config.yaml").is_file():
        raise ConfigError(f"{where} {url}: there is no such run (no config.yaml)")
    return run


def _check_configuration(run_dir: Path) -> None:
    """Check all sections of a run's configuration, of which the core reads its own; nothing if there is none."""
    if (run_dir / "config.yaml").is_file():
        load(file=run_dir / "config.yaml")


def _report(text: str) -> None:
    echo(text, err=True)


def with_weights(run: str, checkpoint: str) -> tuple[Path, str]:
    """Return a run's directory and its weights as --checkpoint names them.

    For a run in a data store the directory has a copy of its policy, and is removed when the command ends.

    Args:
        run: A directory, RUN@STEP, RUN@best, or STORE/RUN.
        checkpoint: "newest", "best" or a checkpoint's path, as of `distrl evaluate`.

    Raises:
        ConfigError: There is no such run or checkpoint, the store cannot be used, a path is named, which the store has
            not, or both arguments name a checkpoint.
    """
    if not is_store_url(run):
        folder, checkpoint = named_weights(Path(run), checkpoint)
        _check_configuration(folder)
        return folder, checkpoint
    if checkpoint not in ("newest", "best"):
        raise ConfigError(f"--checkpoint {checkpoint}: of a run in a data store there are newest and best")
    # Imported here: the command line's help needs no checkpoints.
    from distrl.data_store.checkpoints import ACTING, mark_best
    from distrl.data_store.fetching import fetch_checkpoint

    folder = Path(tempfile.mkdtemp(prefix="distrl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = fetched(run, "RUN", folder, ["config.yaml", "policy/"])
    _check_configuration(folder)
    try:
        listing = found.look()
        wanted = found.best(listing) if checkpoint == "best" else listing.newest
        if wanted is not None:
            (folder / "checkpoints").mkdir()
            groups = (ACTING,) if checkpoint == "best" else ()  # policy/ has the newest weights, a checkpoint their age
            path = fetch_checkpoint(found, wanted, folder / "checkpoints", _report, groups)
            if checkpoint == "best":
                mark_best(path)
    except CheckpointError as error:
        if checkpoint == "best":
            raise
        _report(f"the age of the newest weights is not known: {error}")
    except StoreError as error:
        raise ConfigError(f"RUN: {error}") from error
    return folder, checkpoint
