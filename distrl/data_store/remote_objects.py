"""Objects in a bucket, through fsspec: the only module that knows it and the libraries behind it."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from distrl.config.stores import EXTRAS
from distrl.data_store.objects import BLOCK_BYTES, MOST_BYTES, require_size
from distrl.errors import StoreError, one_line, require

_LIBRARIES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
# The caller tries again, and may report it meanwhile: the libraries' own patience is minutes.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}}},
}
_REMEDIES = (
    (FileNotFoundError, "make the bucket, or correct its name"),
    (PermissionError, "the credentials must allow to list, read, write and delete there"),
)
_CREDENTIALS = "set the credentials in the environment (docs/cluster.md)"


class RemoteObjects:
    """A bucket.

    Args:
        url: Its scheme is s3, gs or az, or memory in tests.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        scheme = url.partition("://")[0]
        if scheme in _LIBRARIES:
            require(_LIBRARIES[scheme], f"{_LIBRARIES[scheme]}, for {scheme}://,", EXTRAS[scheme])
        import fsspec

        options = _OPTIONS.get(scheme, {})
        with self._answering(""):
            found = fsspec.core.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False, **options)
        self._files: Any = found[0]
        if scheme == "s3":
            self._files.retries = 1  # of its own, each with those of the options
        self._root = str(found[1]).rstrip("/")

    def put(self, name: str, content: bytes) -> None:
        with self._answering(name):
            self._files.pipe_file(self._path(name), content)

    def put_stream(self, name: str, file: IO[bytes]) -> None:
        with self._answering(name), self._files.open(self._path(name), "wb") as out:
            shutil.copyfileobj(file, out, BLOCK_BYTES)

    def create(self, name: str, content: bytes) -> bool:
        with self._answering(name):
            try:
                self._files.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
            except Exception as error:
                if getattr(error, "code", None) in (412, "412"):  # gcsfs has no class of its own for it
                    return False
                raise
        return True

    def get(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        with self._answering(name):
            try:
                require_size(int(self._files.size(self._path(name))), most)
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def blocks(self, name: str, size_bytes: int) -> Iterator[bytes]:
        path = self._path(name)
        for start in range(0, size_bytes, BLOCK_BYTES):
            with self._answering(name):
                try:
                    block = self._files.cat_file(path, start=start, end=min(start + BLOCK_BYTES, size_bytes))
                except FileNotFoundError:
                    return
            yield bytes(block)

    def sizes(self, folder: str) -> dict[str, int]:
        with self._answering(folder):
            try:
                found = self._files.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        return {path.removeprefix(f"{self._root}/"): int(entry["size"]) for path, entry in found.items()}

    def folders(self) -> list[str]:
        with self._answering(""):
            found = self._files.ls(self._root, detail=True)
        return sorted(entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "directory")

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with self._answering(name):
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        """Turn every error of the libraries, whose classes have no common root, into a StoreError with its reason."""
        try:
            yield
        except Exception as error:
            text = one_line(error) or type(error).__name__
            remedy = next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), "")
            if "redential" in f"{type(error).__name__} {text}":
                remedy = _CREDENTIALS
            place = f"{self.url}/{name}" if name else self.url
            raise StoreError(f"{place}: {text}{f'; {remedy}' if remedy else ''}") from error
