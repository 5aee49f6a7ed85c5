"""Objects on a disk that several hosts share.

Others may write there, too. So each folder on the way to an object is opened by its descriptor, relative to the folder
above it: no part of a name may be a link, and only regular files are read. A link that a listing meets is no object.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import unquote, urlsplit

from distrl.data_store.atomic import TEMPORARY
from distrl.data_store.objects import BLOCK_BYTES, MOST_BYTES, require_size
from distrl.errors import StoreError
from distrl.files import NotAFileError, open_regular


class LocalObjects:
    """A directory that several hosts share, named by a URL file:///path.

    Args:
        url: Its last folder is made if its parent exists, as a missing parent is most often a disk that is not mounted.
            Links in the path of the URL itself are followed: they are the user's.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._root = Path(unquote(urlsplit(url).path))

    def put(self, name: str, content: bytes) -> None:
        self._write(name, lambda out: out.write(content))

    def put_stream(self, name: str, file: IO[bytes]) -> None:
        self._write(name, lambda out: shutil.copyfileobj(file, out, BLOCK_BYTES))

    def create(self, name: str, content: bytes) -> bool:
        try:
            # A link to the whole file: at once with its content, for readers and after a crash.
            self._write(name, lambda out: out.write(content), new=True)
        except StoreError as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            raise
        return True

    def get(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        with self._answering(name):
            try:
                with self._folder_of(name) as (folder, last), open_regular(last, links=False, folder=folder) as file:
                    size = os.fstat(file.fileno()).st_size
                    require_size(size, most)
                    return file.read(size)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def blocks(self, name: str, size_bytes: int) -> Iterator[bytes]:
        with self._answering(name):
            try:
                with self._folder_of(name) as (folder, last):
                    file = open_regular(last, links=False, folder=folder)
            except FileNotFoundError:
                return
            with file:
                while block := file.read(min(BLOCK_BYTES, size_bytes)):
                    yield block
                    size_bytes -= len(block)

    def sizes(self, folder: str) -> dict[str, int]:
        found = {}
        with self._answering(folder):
            try:
                with self._opened(_parts(folder)) as top:
                    for where, _, files, descriptor in os.fwalk(".", dir_fd=top, follow_symlinks=False):
                        for file in files:
                            if file.startswith(TEMPORARY):
                                continue
                            with suppress(FileNotFoundError):  # removed meanwhile
                                status = os.stat(file, dir_fd=descriptor, follow_symlinks=False)
                                if stat.S_ISREG(status.st_mode):
                                    found[(Path(folder) / where / file).as_posix()] = status.st_size
            except (FileNotFoundError, NotADirectoryError):
                return {}
        return found

    def folders(self) -> list[str]:
        with self._answering(""), os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with self._answering(name), suppress(FileNotFoundError), self._folder_of(name) as (folder, last):
                os.unlink(last, dir_fd=folder)
        # A bucket has no empty folders.
        folders = {parent.as_posix() for name in names for parent in PurePosixPath(name).parents} - {"."}
        for parent in sorted(folders, reverse=True):
            with self._answering(parent), suppress(FileNotFoundError), self._folder_of(parent) as (above, last):
                with self._opened(_parts(parent)) as folder, os.scandir(folder) as entries:
                    remains = [*entries]
                    if any(not entry.name.startswith(TEMPORARY) or entry.is_dir() for entry in remains):
                        continue
                    for entry in remains:  # of writers that were killed
                        os.unlink(entry.name, dir_fd=folder)
                os.rmdir(last, dir_fd=above)

    def _write(self, name: str, write: Callable[[IO[bytes]], object], *, new: bool = False) -> None:
        """Write an object under a temporary name of its own, as there may be two writers, and rename it.

        Args:
            new: Leave an object of that name as it is, with FileExistsError as the cause of the error.
        """
        with self._answering(name):
            self._root.mkdir(exist_ok=True)
            with self._folder_of(name, make=True) as (folder, last):
                whole = f"{TEMPORARY}{secrets.token_hex(4)}-{last}"
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                try:
                    with open(os.open(whole, flags, 0o666, dir_fd=folder), "wb") as out:
                        write(out)
                        out.flush()
                        os.fsync(out.fileno())
                    if new:
                        os.link(whole, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                    else:
                        os.rename(whole, last, src_dir_fd=folder, dst_dir_fd=folder)
                finally:
                    with suppress(FileNotFoundError):  # it was renamed
                        os.unlink(whole, dir_fd=folder)
                os.fsync(folder)

    @contextmanager
    def _folder_of(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of an object; yield its descriptor and the last part of the name."""
        *parts, last = _parts(name)
        with self._opened(parts, make=make) as folder:
            yield folder, last

    @contextmanager
    def _opened(self, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """Open a folder below the store's root, each part relative to the one before.

        Args:
            make: Make what is missing.

        Raises:
            NotAFileError: A part is a link.
            OSError: It cannot be opened, or made.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(self._root, flags)
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                try:
                    below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
                except NotADirectoryError:
                    if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
                        raise NotAFileError(errno.ELOOP, f"{part} is a link", part) from None
                    raise
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except NotAFileError as error:
            told = f"{error.strerror}; a data store holds regular files and folders alone: remove it"
            raise StoreError(f"{self.url}: {self._root / name}: {told}") from error
        except OSError as error:
            raise StoreError(f"{self.url}: {self._root / name}: {error.strerror or error}") from error


def _parts(name: str) -> list[str]:
    """Return the parts of an object's name.

    Raises:
        NotAFileError: It leads out of the store.
    """
    parts = [part for part in name.split("/") if part]
    if {".", ".."} & {*parts}:
        raise NotAFileError(errno.EINVAL, "a part of the name is . or ..", name)
    return parts
