"""Objects of a data store by name: the one interface over a bucket and a shared disk.

A name is a path with slashes below the store's URL. An object is put as a whole: readers see the old content or the new
one, except where `put_stream` says otherwise.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import IO, Protocol

BLOCK_BYTES = 16 * 2**20
"""Bytes of a large object that are read at once."""
MOST_BYTES = 2**20
"""Largest object that is read as a whole, unless the reader says otherwise."""


class Objects(Protocol):
    """A data store. Every method raises StoreError if the store does not answer or refuses.

    Attributes:
        url: The store's URL.
    """

    url: str

    def put(self, name: str, content: bytes) -> None:
        """Create or replace an object."""

    def put_stream(self, name: str, file: IO[bytes]) -> None:
        """Create or replace an object by the rest of a file; after an error a part of it may be there."""

    def create(self, name: str, content: bytes) -> bool:
        """Create an object and return True; return False if there is one of that name, which stays as it is."""

    def get(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """Return the content of an object of at most `most` bytes, or None if there is none."""

    def blocks(self, name: str, size_bytes: int) -> Iterator[bytes]:
        """Yield the first `size_bytes` of an object in blocks of `BLOCK_BYTES`; nothing if there is none."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return name -> size in bytes of all objects below a folder, at any depth; empty if there is none."""

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the store's URL, sorted."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that do not exist are passed over."""


def require_size(size: int, most: int) -> None:
    """Raise OSError for an object that is larger than its reader takes."""
    if size > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {most:,}")
