"""Sources of versions: an exported file, a run's directory that is followed or one of its checkpoints, a data store."""

import tempfile
from pathlib import Path

from distrl.apps.serve.versions import PolicySource
from distrl.config.stores import is_store_url, split_run
from distrl.data_store.fetching import fetch_files
from distrl.data_store.named_checkpoints import BEST, parse
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import StoredRun
from distrl.errors import ConfigError
from distrl.memory_backend.keys import checked_run_id
from distrl.serving.exported_policy import ExportedPolicy, load_policy
from distrl.serving.run_policy import mark_of_newest, policy_of_run


class Fixed:
    """One version, which does not change."""

    follows = False

    def __init__(self, name: str, policy: ExportedPolicy) -> None:
        self.name = name
        self._policy: ExportedPolicy | None = policy

    def newer(self) -> ExportedPolicy | None:
        policy, self._policy = self._policy, None
        return policy


class FollowedRun:
    """The newest saved weights of a run's directory, while the run trains."""

    follows = True

    def __init__(self, run_dir: Path) -> None:
        self.name = str(run_dir)
        self._run_dir = run_dir
        self._seen: tuple[int, int] | None = None

    def newer(self) -> ExportedPolicy | None:
        mark = mark_of_newest(self._run_dir)
        if mark is not None and mark == self._seen:
            return None
        policy = policy_of_run(self._run_dir)
        self._seen = mark  # read before the weights: a change in between is read once more
        return policy


class FollowedStore:
    """The newest policy of a run in a data store."""

    follows = True

    def __init__(self, url: str) -> None:
        self.name = url
        store, run_id = split_run(url, "RUN")
        self._run = StoredRun(open_objects(store), checked_run_id(run_id))
        self._seen: str | None = None

    def newer(self) -> ExportedPolicy | None:
        newest = str(self._run.look().newest)
        if newest == self._seen:
            return None
        with tempfile.TemporaryDirectory(prefix="distrl-") as folder:
            fetch_files(self._run, Path(folder), ["config.yaml", "policy/"])
            if not (Path(folder) / "config.yaml").is_file():
                raise ConfigError(f"{self.name}: there is no such run (no config.yaml)")
            policy = policy_of_run(Path(folder))
        self._seen = newest
        return policy


def source_of(text: str) -> PolicySource:
    """Return the source that the command line names: FILE.onnx, RUN, RUN@STEP, RUN@best or STORE/RUN.

    Raises:
        ConfigError: There is none.
    """
    if is_store_url(text):
        return FollowedStore(text)
    if text.endswith(".onnx"):
        return Fixed(text, load_policy(text))
    named = parse(text)
    if named.mark is None:
        return FollowedRun(named.run)
    return Fixed(text, policy_of_run(named.run, BEST if named.mark == BEST else str(named.find())))


def directory_of(text: str) -> Path | None:
    """Return the run's directory of a source that the command line names; None of a file and of a data store."""
    return None if is_store_url(text) or text.endswith(".onnx") else parse(text).run
