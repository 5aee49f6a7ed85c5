"""Passwords of Redis, from the environment of this process: no URL, file of a run or command line holds one.

They are read when a connection is opened, so that a password in a file may be changed while roles run.
"""

import os
from urllib.parse import urlsplit

from distrl.config.secrets import (
    PASSWORD_FILE_OPTION,
    PASSWORD_FILE_VARIABLE,
    PASSWORD_VARIABLE,
    read_secret,
    split_password,
    split_password_file,
)

URL_VARIABLE = "DISTRL_REDIS_URL"
SENTINEL_VARIABLE = "DISTRL_SENTINEL_PASSWORD"
SENTINEL_FILE_VARIABLE = "DISTRL_SENTINEL_PASSWORD_FILE"


def url_of_environment() -> str | None:
    """Return the URL in `DISTRL_REDIS_URL` without its password; None where the variable is not set."""
    given = os.environ.get(URL_VARIABLE)
    return split_password(given)[0] if given else None


def password(url: str) -> str | None:
    """Return the password for the Redis at a URL.

    It is that of the file that the URL names, else of `DISTRL_REDIS_PASSWORD`, else of the file that
    `DISTRL_REDIS_PASSWORD_FILE` names, else the one in `DISTRL_REDIS_URL`, which is for that URL's servers and user
    alone.

    Raises:
        ConfigError: The file cannot be read, is empty, or others may read it.
    """
    if (file := split_password_file(url)[1]) is not None:
        return read_secret(file, PASSWORD_FILE_OPTION)
    found = _given(PASSWORD_VARIABLE, PASSWORD_FILE_VARIABLE)
    if found is not None:
        return found
    known, inside = split_password(os.environ.get(URL_VARIABLE, ""))
    return inside if _server(known) == _server(url) else None


def sentinel_password() -> str | None:
    """Return the password for Sentinels: of `DISTRL_SENTINEL_PASSWORD` or the file of `DISTRL_SENTINEL_PASSWORD_FILE`.

    Raises:
        ConfigError: As `password`.
    """
    return _given(SENTINEL_VARIABLE, SENTINEL_FILE_VARIABLE)


def carried(url: str) -> dict[str, str]:
    """Return the environment variables by which a process on another host has this one's passwords.

    Raises:
        ConfigError: As `password`.
    """
    found = {PASSWORD_VARIABLE: password(url), SENTINEL_VARIABLE: sentinel_password()}
    return {name: value for name, value in found.items() if value is not None}


def _given(variable: str, file_variable: str) -> str | None:
    if value := os.environ.get(variable):
        return value
    path = os.environ.get(file_variable)
    return read_secret(path, file_variable) if path else None


def _server(url: str) -> tuple[str, str, str]:
    """Return scheme, user with hosts, and the path of a unix socket."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc, parts.path if parts.scheme == "unix" else ""
