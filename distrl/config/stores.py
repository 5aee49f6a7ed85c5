"""URLs of data stores: s3://bucket/path, gs://bucket/path, az://container/path, file:///path."""

import re
from urllib.parse import urlsplit

from distrl.errors import ConfigError, printable

EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure", "file": ""}
"""Scheme of a store's URL -> the extra of distrl that it needs."""
_PATH = re.compile(r"[A-Za-z0-9._=+~ /-]*")


def is_store_url(text: str) -> bool:
    """Whether a text names a data store, or a run in one, and not a path of this machine."""
    return text.partition("://")[0] in EXTRAS and "://" in text


def checked_store_url(url: str, where: str) -> str:
    """Return the URL of a data store without a slash at its end.

    Args:
        where: Name of the setting or option, for errors.

    Raises:
        ConfigError: It has another scheme, holds credentials or options, or names no bucket.
    """
    scheme, mark, rest = url.partition("://")
    if not mark or scheme not in EXTRAS:
        known = ", ".join(f"{name}://" for name in EXTRAS)
        raise ConfigError(f"{where}: {printable(_shown(url))} is no data store; it begins with one of {known}")
    if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
        raise ConfigError(
            f"{where} holds credentials or options, which others could read there; set those of {scheme}:// in the "
            f"environment (docs/cluster.md), and write {scheme}://{'' if scheme == 'file' else 'bucket'}/path"
        )
    parts = urlsplit(url)
    if scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise ConfigError(f"{where}: {printable(url)}: name an absolute path, such as file:///shared/runs")
    if scheme != "file" and not parts.netloc:
        raise ConfigError(f"{where}: {printable(url)} names no bucket, such as {scheme}://bucket/path")
    if not _PATH.fullmatch(parts.path) or ".." in parts.path.split("/"):
        raise ConfigError(f"{where}: the path of {printable(url)} may have letters, digits, '/', '.', '_' and '-'")
    return url.rstrip("/") if rest.strip("/") else url


def split_run(url: str, where: str) -> tuple[str, str]:
    """Return the store and the run's id of a URL STORE/RUN.

    Raises:
        ConfigError: It is no URL of a store, or names no run in one.
    """
    checked = checked_store_url(url, where)
    store, _, run_id = checked.rpartition("/")
    if not run_id or not store.partition("://")[2]:
        raise ConfigError(f"{where}: {printable(url)} names no run in a store: STORE/RUN")
    return store, run_id


def _shown(url: str) -> str:
    """Return the URL without what may be credentials."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}…@{rest.rpartition('@')[2]}" if "@" in rest else url
