"""Data stores for tests: a shared disk, memory, and one that breaks."""

import itertools
from pathlib import Path

import numpy as np

from distrl.data_store import checkpoints
from distrl.data_store.local_objects import LocalObjects
from distrl.data_store.opening import open_objects
from distrl.data_store.remote_objects import RemoteObjects
from distrl.data_store.stored_run import StoredRun, Writer
from distrl.errors import StoreError

_numbers = itertools.count()
KINDS = ("file", "memory")


def make_store(kind: str, folder: Path):
    """Return an empty store."""
    return RemoteObjects(f"memory://store-{next(_numbers)}") if kind == "memory" else open_objects(f"file://{folder}/s")


def saved(run_dir: Path, step: int, *, best: bool = False, keep: int = 5, groups=("main.online",)) -> Path:
    """Write a checkpoint whose arrays hold its step."""
    arrays = {group: {"w": np.full(8, step)} for group in groups}
    return checkpoints.save(run_dir / "checkpoints", step, arrays, {"run_id": "r"}, keep=keep, best=best)


def store_steps(run: StoredRun, run_dir: Path, *steps: int, keep: int = 5) -> Writer:
    """Claim the run and store a checkpoint for each step."""
    writer = Writer.claim(run, run.look().writer, "launch")
    for step in steps:
        writer.store(saved(run_dir, step), step, {}, best=False, keep=keep)
    return writer


def held(run_dir: Path) -> float:
    """Return the step that the newest valid checkpoint of a directory holds in its array."""
    return float(checkpoints.load_newest(run_dir / "checkpoints").arrays["main.online"]["w"][0])


class Breaking(LocalObjects):
    """A shared disk that stops to answer, or calls a function, before its Nth request that writes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.writes = 0
        self.down = False
        self.before_write = lambda number: None

    def _written(self):
        self.before_write(self.writes)
        self.writes += 1
        if self.down:
            raise StoreError(f"{self.url}: no answer")

    def put(self, name, content):
        self._written()
        super().put(name, content)

    def put_stream(self, name, file):
        self._written()
        super().put_stream(name, file)

    def create(self, name, content):
        self._written()
        return super().create(name, content)

    def remove(self, names):
        self._written()
        super().remove(names)

    def sizes(self, folder):
        if self.down:
            raise StoreError(f"{self.url}: no answer")
        return super().sizes(folder)
