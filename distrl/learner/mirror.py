"""The copy of a learner's checkpoints and policy in the data store, made on a thread of its own.

The run's directory stays the first place: a checkpoint is complete there before it is stored. So a slow store, or none,
never stops the training. If the store is slower than the checkpoints, those in between are left out.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from distrl.data_store import checkpoints
from distrl.data_store.checkpoints import step_of
from distrl.data_store.fetching import write_writer
from distrl.data_store.stored_run import CheckpointPosition, StoredRun, Writer
from distrl.errors import CheckpointError, FencedError, StoreError
from distrl.files import MOST_BYTES, open_regular, read_regular

log = logging.getLogger(__name__)
RETRY_S = 10.0
"""Time until the next attempt after an error of the store."""
LAST_RETRY_S = 2.0
"""The same at the end, where something waits for it."""
SLOW_S = 30.0
"""Duration of an attempt beyond which the user gets a message."""
_POLICY = ("graph.onnx", "description.json", "weights.msgpack", "best.msgpack")
_POLL_S = 0.2


class Mirror:
    """Stores the newest and the best checkpoint of a run's directory, and its policy, whenever they change.

    Args:
        run: The run's folder in the store.
        after: Highest claim in the store when the learner's state was chosen.
        base: The checkpoint from which the learner goes on.
        launch: Token of the launch.
        keep: `checkpoint.keep`.
        give_up_s: `checkpoint.store_give_up_s`.
        begun: Whether the learner has taken unrolls in. Before that the store stays as it is until `finish`, as the
            launch may be refused.
    """

    def __init__(
        self,
        run: StoredRun,
        run_dir: Path,
        *,
        after: int,
        base: CheckpointPosition | None = None,
        launch: str,
        keep: int,
        give_up_s: float,
        begun: Callable[[], bool] = lambda: True,
    ) -> None:
        self.begun = begun
        self._error: str | None = None  # the store's last one; None since the last success
        self._began_at: float | None = None  # of the attempt that is under way
        self._run, self._run_dir, self._keep, self._give_up_s = run, run_dir, keep, give_up_s
        self._after, self._base, self._launch = after, base, launch
        self._token = secrets.token_hex(8)
        self._writer: Writer | None = None
        self._is_compared = False
        self._fenced: FencedError | None = None
        self._stored: dict[str, bytes] = {}  # name and manifest of local checkpoints that are in the store
        self._policy: dict[str, bytes] = {}  # sha256 of each file as last stored
        self._wanted, self._done = 1, 0  # numbers of requests; the first one stores what the directory holds
        self._closed = self._hurried = False
        self._change = threading.Condition()
        # A daemon: a store that hangs must not keep the learner's process.
        self._thread = threading.Thread(target=self._work, name="store", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """The reason why the store lacks the newest checkpoint, if that is more than a matter of moments."""
        began_at = self._began_at
        if self._error is None and began_at is not None and time.monotonic() - began_at > SLOW_S:
            return f"{self._run.url} has been taking it for more than {SLOW_S:g} s, or does not answer"
        return self._error

    def request(self) -> None:
        """Store what the directory holds now."""
        with self._change:
            self._wanted += 1
            self._change.notify_all()

    def check(self) -> None:
        """Raise FencedError if another learner has taken over the run in the store."""
        if self._fenced is not None:
            raise self._fenced

    def finish(self, waiting: Callable[[], None]) -> None:
        """Wait until everything that was requested is stored, for at most `give_up_s`.

        Args:
            waiting: Called once a second.

        Raises:
            StoreError: The store does not take it in time; the message has the reason and names the directory.
            FencedError: See `check`.
        """
        until = time.monotonic() + self._give_up_s
        with self._change:
            self._hurried = True
            self._change.notify_all()
            told_at = time.monotonic()
            while self._done < self._wanted and self._fenced is None:
                now = time.monotonic()
                if now >= until:
                    why = self.trouble or f"it has not taken it within {self._give_up_s:g} s"
                    raise StoreError(
                        f"the data store lacks the last checkpoint: {why}; it is complete in {self._run_dir}"
                    )
                if now - told_at >= 1.0:
                    told_at = now
                    waiting()
                self._change.wait(_POLL_S)
        self.check()

    def close(self) -> None:
        """Store no more; a request that is on its way is not waited for."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def _work(self) -> None:
        with self._change:
            while not (self._closed or self._hurried or self.begun()):
                self._change.wait(_POLL_S)
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closed or self._wanted > self._done)
                if self._closed:
                    return
                number = self._wanted
            self._began_at = time.monotonic()
            try:
                self._store()
            except FencedError as error:
                with self._change:
                    self._fenced = error
                    self._change.notify_all()
                return
            except (StoreError, OSError) as error:
                self._pause(str(error))
            except Exception as error:  # without this thread, the training would go on and nothing be stored
                log.exception("the thread that stores checkpoints has failed")
                self._pause(f"unexpected {type(error).__name__}: {error}")
            else:
                with self._change:
                    self._error, self._began_at, self._done = None, None, number
                    self._change.notify_all()

    def _pause(self, trouble: str) -> None:
        """Keep the error for reports, and wait until the next attempt."""
        with self._change:
            hurried, self._error = self._hurried, trouble
            wait_s = LAST_RETRY_S if hurried else RETRY_S
            log.error("the last checkpoint is not stored: %s; tried again in %g s", trouble, wait_s)
            self._change.wait_for(lambda: self._closed or self._hurried != hurried, wait_s)

    def _store(self) -> None:
        """Store what has changed.

        Raises:
            StoreError, FencedError: It is not stored.
            OSError: The run's directory cannot be read.
        """
        if self._writer is None:
            self._writer = Writer.claim(self._run, self._after, self._launch, self._base, self._token)
        if not self._is_compared:
            self._compare(self._writer)
            self._is_compared = True
        newest, best = self._local()
        for path in dict.fromkeys(filter(None, (newest, best))):
            if self._stored.get(path.name) != read_regular(path / "manifest.json", MOST_BYTES, links=False):
                self._store_checkpoint(self._writer, path, is_best=path == best)
        self._store_policy(self._writer)

    def _local(self) -> tuple[Path | None, Path | None]:
        """Return the newest and the best checkpoint of the run's directory; one without a manifest is none."""
        folder = self._run_dir / "checkpoints"
        whole = (path for path in checkpoints.newest_first(folder) if (path / "manifest.json").is_file())
        best = checkpoints.best_path(folder)
        return next(whole, None), best if best is not None and (best / "manifest.json").is_file() else None

    def _compare(self, writer: Writer) -> None:
        """Look which of the directory's checkpoints the store has byte for byte."""
        write_writer(self._run_dir, self._run.run_id, writer.number)
        listing = writer.require_own()
        for path in filter(None, self._local()):
            known = [position for position in listing.complete if position.step == step_of(path)]
            manifest = self._run.manifest(known[0]) if known else None
            if manifest is not None and manifest == read_regular(path / "manifest.json", MOST_BYTES, links=False):
                self._stored[path.name] = manifest

    def _store_checkpoint(self, writer: Writer, path: Path, *, is_best: bool) -> None:
        replays = {name: file for name, file in checkpoints.replay_paths(path).items() if file.exists()}
        try:
            manifest = read_regular(path / "manifest.json", MOST_BYTES, links=False)
            writer.store(path, step_of(path), replays, best=is_best, keep=self._keep)
        except FileNotFoundError:  # removed meanwhile: a later request stores its successor
            self.request()
        except CheckpointError as error:
            log.warning("not stored: %s", error)
        else:
            self._stored[path.name] = manifest
            log.info("stored %s", path.name)

    def _store_policy(self, writer: Writer) -> None:
        """Store the files of policy/ that have changed."""
        changed = {}
        for name in _POLICY:
            file = self._run_dir / "policy" / name
            with suppress(FileNotFoundError):
                with open_regular(file, links=False) as opened:
                    content = opened.read()
                if sha256(content).digest() != self._policy.get(name):
                    changed[name] = content
        if changed:
            writer.require_own()
        for name, content in changed.items():
            self._run.objects.put(f"{self._run.run_id}/policy/{name}", content)
            self._policy[name] = sha256(content).digest()
