"""Changes of runs' labels, and removal of runs, for several runs at once; each run's failure is its own."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from distrl.apps.dashboard.index import Index, IndexedRun
from distrl.errors import ConfigError, one_line
from distrl.runs.labels import Labels
from distrl.runs.removal import remove_run_directory

MOST_RUNS = 500
"""Most runs of one request."""
_MOST_NAMED = 20
"""Most runs that a line of the log names."""
_LOG = logging.getLogger(__name__)
Ids = Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_RUNS)]


class Edit(BaseModel):
    """The body of a request that changes labels; None leaves a label as it is.

    Attributes:
        add: Tags to add.
        remove: Tags to remove.
    """

    model_config = ConfigDict(extra="forbid")

    ids: Ids
    name: str | None = None
    note: str | None = None
    archived: bool | None = None
    tags: tuple[str, ...] | None = None
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class Removal(BaseModel):
    """The body of a request that deletes runs."""

    model_config = ConfigDict(extra="forbid")

    ids: Ids


class Edits:
    """Changes run directories that the index knows. Safe for several threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()  # labels are read and written

    def label(self, edit: Edit, by: str) -> dict[str, Any]:
        """Change the labels of runs.

        Args:
            by: Who asks, for the log.
        """

        def change(entry: IndexedRun) -> None:
            folder = self._index.directory(entry)
            if not (folder / "run.json").is_file():
                raise ConfigError("it has no directory here, and so no place for labels")
            before = Labels.read(folder)
            values: dict[str, Any] = before.model_dump()
            given = edit.model_dump(include={"name", "note", "archived", "tags"}, exclude_none=True)
            values |= given
            values["tags"] = Labels.of({"tags": values["tags"]}).tagged(edit.add, edit.remove)
            after = Labels.of(values)
            if after != before:
                after.write(folder)

        return self._each(edit.ids, change, f"labels changed by {by}")

    def remove(self, removal: Removal, by: str) -> dict[str, Any]:
        """Delete the directories of runs that do not run; `by` as in `label`."""

        def change(entry: IndexedRun) -> None:
            if entry.state == "running" or self._index.running(entry) is not None:
                raise ConfigError("it runs; stop it first")
            folder = self._index.directory(entry)
            if not (folder / "run.json").is_file():
                raise ConfigError("it has no directory here")
            remove_run_directory(self._index.root, folder)

        return self._each(removal.ids, change, f"deleted by {by}")

    def _each(self, ids: Sequence[str], change: Callable[[IndexedRun], None], what: str) -> dict[str, Any]:
        """Return the ids that were changed, and id -> problem of the others.

        Args:
            what: What is done, for the log.
        """
        done, paths, problems = [], [], {}
        with self._lock:
            self._index.read_again(ids)
            for one in dict.fromkeys(ids):
                try:
                    entry = self._index.entry(one)
                    change(entry)
                except (ConfigError, OSError) as error:
                    told = str(error) if isinstance(error, ConfigError) else f"{error.strerror}"
                    root = self._index.root
                    problems[one] = one_line(told.replace(f"{root}/", ""))
                else:
                    done.append(one)
                    paths.append(entry.path)
            if paths:
                more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
                _LOG.info("%s: %s%s", what, ", ".join(paths[:_MOST_NAMED]), more)
            self._index.read_again(ids)
        return {"done": done, "problems": problems}
