"""Copies of a run's own files in the data store while it runs, beside the learner's checkpoints and policy."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from distrl.config.load import LoadedConfig, dump
from distrl.config.secrets import masked
from distrl.data_store.stored_run import StoredRun
from distrl.errors import StoreError
from distrl.files import open_regular

log = logging.getLogger(__name__)
EVERY_S = 30.0
"""Least time between two looks for changed files."""
LOOK_S = 0.5
"""Time between two looks whether the training has begun."""
LARGEST_SHARE = 0.05
"""Share of the time that may go into storing, as logs and metrics grow and are stored as a whole."""
LAST_RETRY_S = 2.0
_FILES = ("manifest.json", "metrics.csv", "evaluations.jsonl", "data.json", "job.json")
_LAST = ("summary.json",)
"""Files that are stored at the end: before it they are those of an earlier launch."""


class StoredFiles:
    """Stores config.yaml without its secrets, and files that have changed, on a thread of its own.

    It stops without an error when a learner of another launch writes to the run's folder.

    Args:
        run: The run's folder in the store.
        after: Highest claim in the store when the launch began.
        report: Takes lines for the user.
        begun: Whether the learner has begun to train. Before that nothing is stored, as the launch may be refused.
    """

    def __init__(
        self,
        run: StoredRun,
        run_dir: Path,
        loaded: LoadedConfig,
        *,
        launch: str,
        after: int,
        report: Callable[[str], None],
        begun: Callable[[], bool] = lambda: True,
    ) -> None:
        self._begun = begun
        self._run, self._run_dir, self._launch, self._after, self._report = run, run_dir, launch, after, report
        self._config: bytes | None = dump(loaded, masked).encode()
        self._sent: dict[str, tuple[int, int]] = {}  # file -> size and time of change as last stored
        self._trouble = False
        self._one_at_a_time = threading.Lock()
        self._end = threading.Event()
        # A daemon: a store that hangs must not keep the command.
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    def finish(self, give_up_s: float) -> None:
        """Store what has changed since, and end.

        Raises:
            StoreError: The store does not take it within `give_up_s`.
        """
        self._end.set()
        last = threading.Thread(target=self._store_last, args=(give_up_s,), name="store", daemon=True)
        self._last_error: StoreError | None = StoreError(
            f"the data store has not taken the run's files within {give_up_s:g} s; they are in {self._run_dir}"
        )
        last.start()
        last.join(give_up_s)
        if (error := self._last_error) is not None:
            raise error

    def abandon(self) -> None:
        """End without storing what has changed: the launch is refused."""
        self._end.set()

    def _store_last(self, give_up_s: float) -> None:
        until = time.monotonic() + give_up_s
        while True:
            try:
                self._store(*_LAST)
            except (StoreError, OSError) as error:
                lacks = f"the data store lacks the run's last files: {error}; they are in {self._run_dir}"
                self._last_error = StoreError(lacks)
                if time.monotonic() + LAST_RETRY_S > until:
                    return
                time.sleep(LAST_RETRY_S)
            else:
                self._last_error = None
                return

    def _work(self) -> None:
        wait_s = 0.0
        while not self._end.wait(wait_s):
            if not self._begun():
                wait_s = LOOK_S
                continue
            began = time.monotonic()
            try:
                self._store()
            except (StoreError, OSError) as error:
                if not self._trouble:
                    self._report(f"the data store does not take the run's files: {error}; they are tried again")
                self._trouble = True
            else:
                if self._trouble:
                    self._report("the run's files are stored again")
                self._trouble = False
            wait_s = max(EVERY_S, (time.monotonic() - began) / LARGEST_SHARE)

    def _store(self, *more: str) -> None:
        with self._one_at_a_time:
            changed = [*self._changed(*more)]
            if not (changed or self._config) or not self._is_own():
                return
            if self._config is not None:
                self._put("config.yaml", self._config)
                self._run.objects.remove([f"{self._run.run_id}/{name}" for name in _LAST])
                self._config = None
            for path, mark in changed:
                name = path.relative_to(self._run_dir).as_posix()
                with open_regular(path, links=False) as file:
                    self._put(name, file.read())
                self._sent[name] = mark

    def _put(self, name: str, content: bytes) -> None:
        self._run.objects.put(f"{self._run.run_id}/{name}", content)

    def _changed(self, *more: str) -> Iterator[tuple[Path, tuple[int, int]]]:
        for path in (
            *(self._run_dir / name for name in (*_FILES, *more)),
            *sorted((self._run_dir / "logs").glob("*.log")),
        ):
            if not path.is_file() or path.is_symlink():
                continue
            found = path.stat()
            mark = found.st_size, found.st_mtime_ns
            if self._sent.get(path.relative_to(self._run_dir).as_posix()) != mark:
                yield path, mark

    def _is_own(self) -> bool:
        """Whether no learner of another launch has claimed the run's folder since this launch began."""
        highest = self._run.look().writer
        return highest <= self._after or self._run.claim(highest).get("launch") == self._launch
