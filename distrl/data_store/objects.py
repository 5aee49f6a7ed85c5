"""Objects of a data store by name: the one interface over a bucket and a shared disk.

A name is a path with slashes below the store's URL. An object is put as a whole: readers see the old content or the new
one, except where `put_stream` says otherwise.
"""

from collections.abc import Iterator, Sequence
from typing import IO, Protocol

BLOCK_BYTES = 16 * 2**20
"""Bytes of a large object that are read at once."""


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

    def get(self, name: str) -> bytes | None:
        """Return an object's content, or None if there is none."""

    def blocks(self, name: str, size_bytes: int) -> Iterator[bytes]:
        """Yield the content of an object of that size in blocks of `BLOCK_BYTES`; nothing if there is none."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return name -> size in bytes of all objects below a folder, at any depth; empty if there is none."""

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the store's URL, sorted."""

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that do not exist are passed over."""
