"""Objects on a disk that several hosts share."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from distrl.data_store import atomic
from distrl.data_store.objects import BLOCK_BYTES
from distrl.errors import StoreError


class LocalObjects:
    """A directory that several hosts share, named by a URL file:///path.

    Args:
        url: Its last folder is made if its parent exists, as a missing parent is most often a disk that is not mounted.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._root = Path(unquote(urlsplit(url).path))

    def put(self, name: str, content: bytes) -> None:
        with self._answering(name):
            atomic.put_file(self._made(name), content)

    def put_stream(self, name: str, file: IO[bytes]) -> None:
        with self._answering(name), atomic.file(self._made(name)) as out:
            shutil.copyfileobj(file, out, BLOCK_BYTES)

    def create(self, name: str, content: bytes) -> bool:
        with self._answering(name):
            path = self._made(name)
            whole = path.with_name(f"{atomic.TEMPORARY}{secrets.token_hex(4)}-{path.name}")
            try:
                atomic.put_file(whole, content)
                os.link(whole, path)  # at once with its content, for readers and after a crash
            except FileExistsError:
                return False
            finally:
                whole.unlink(missing_ok=True)
        return True

    def get(self, name: str) -> bytes | None:
        with self._answering(name):
            path = self._root / name
            return path.read_bytes() if path.is_file() else None

    def blocks(self, name: str, size_bytes: int) -> Iterator[bytes]:
        with self._answering(name):
            try:
                file = (self._root / name).open("rb")
            except FileNotFoundError:
                return
            with file:
                while block := file.read(BLOCK_BYTES):
                    yield block

    def sizes(self, folder: str) -> dict[str, int]:
        found = {}
        with self._answering(folder):
            for where, _, files in os.walk(self._root / folder):
                for file in files:
                    if file.startswith(atomic.TEMPORARY):
                        continue
                    path = Path(where) / file
                    try:
                        found[path.relative_to(self._root).as_posix()] = path.stat().st_size
                    except FileNotFoundError:  # removed meanwhile
                        continue
        return found

    def folders(self) -> list[str]:
        with self._answering(""):
            return sorted(path.name for path in self._root.iterdir() if path.is_dir())

    def remove(self, names: Sequence[str]) -> None:
        with self._answering(names[0] if names else ""):
            for name in names:
                (self._root / name).unlink(missing_ok=True)
            # A bucket has no empty folders.
            for folder in sorted({(self._root / name).parent for name in names}, reverse=True):
                if folder != self._root and folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()

    def _made(self, name: str) -> Path:
        """Return the path of an object, whose folders are made."""
        self._root.mkdir(exist_ok=True)
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = error.filename or self._root / name
            raise StoreError(f"{self.url}: {where}: {error.strerror or error}") from error
