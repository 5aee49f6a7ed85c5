"""Open a data store by its URL, and check that it can be used."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from distrl.data_store.local_objects import LocalObjects
from distrl.data_store.objects import Objects
from distrl.errors import ConfigError, StoreError


def open_objects(url: str) -> Objects:
    """Return the data store of a URL that `checked_store_url` has accepted; sends nothing yet.

    Raises:
        MissingExtraError: The library of such stores is not installed.
        StoreError: It cannot be set up, for want of credentials for example.
    """
    if url.startswith("file://"):
        return LocalObjects(url)
    # Imported here: its libraries are extras, and take half a second.
    from distrl.data_store.remote_objects import RemoteObjects

    return RemoteObjects(url)


@contextmanager
def usable_store() -> Iterator[None]:
    """Raise ConfigError with the store's reason if it fails while inside."""
    try:
        yield
    except StoreError as error:
        raise ConfigError(f"checkpoint.store cannot be used: {error}") from error


def require_usable(objects: Objects) -> None:
    """Check that the store takes, returns, lists and removes objects, and creates one only once.

    Raises:
        ConfigError: It does not; the message has the store's reason and the remedy.
    """
    name = f".distrl-probe-{secrets.token_hex(4)}/probe"
    with usable_store():
        try:
            created = objects.create(name, b"distrl")
            again = objects.create(name, b"again")
            found, listed = objects.get(name), objects.sizes(name.partition("/")[0])
        finally:
            objects.remove([name])
    if not created or again or found != b"distrl" or listed != {name: 6}:
        raise ConfigError(
            f"checkpoint.store {objects.url} cannot be used: it replaces an object that must only be created (If-None-"
            "Match), or forgets it; two learners could not be told apart there"
        )
