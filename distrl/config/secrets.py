"""Secrets: kept out of the settings, read from private files, and masked in what is shown of a run.

Masked are passwords in URLs and values under secret names. A secret under a name that does not say so is shown.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from distrl.config.document import flat
from distrl.errors import ConfigError
from distrl.files import read_small

PASSWORD_VARIABLE = "DISTRL_REDIS_PASSWORD"
PASSWORD_FILE_VARIABLE = "DISTRL_REDIS_PASSWORD_FILE"
PASSWORD_FILE_OPTION = "password_file"
"""Option of a Redis URL: the file with the password for this URL alone."""

MASK = "•••"
_NAMES = (
    r"(?:password|passwd|passphrase|(?<![a-z])pass|secret|token|bearer|credentials?|signature|connection[_-]?string"
    r"|(?:api|access|account|private|secret|auth|shared|signing|encryption|hmac|storage|run|ssh)[_-]?key)"
)
_NAME = re.compile(rf"{_NAMES}$|^secrets$", re.IGNORECASE)
_URL_END = re.compile(r"[\s'\"]")  # of the part of a URL that may hold a user
_ASSIGNED = re.compile(rf"""({_NAMES}['"]?\s*[=:]\s*)(?:'[^']*'|"[^"]*"|[^\s&,;'"}}]+)""", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a setting or a variable is a secret by its name."""
    return _NAME.search(name) is not None


def masked(dotted: str, value: Any) -> Any:
    """Return a configuration's value with secrets masked.

    Args:
        dotted: Its path; a part of it may name a secret, like environment.kwargs.api_key.
    """
    if value is not None and any(map(is_secret, dotted.split("."))):
        return [MASK] * len(value) if isinstance(value, list) else MASK
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, list):
        return [masked(dotted, each) for each in value]
    if isinstance(value, dict):
        named = _is_variable_of_secret(value)
        return {
            key: MASK if named and key == "value" else masked(f"{dotted}.{key}", each) for key, each in value.items()
        }
    return value


def masked_settings(config: Mapping[str, Any]) -> list[str]:
    """Return the dotted paths of the values of a configuration that were masked when it was written."""
    return [".".join(keys) for keys, value in flat(config) if MASK in str(value)]


def _is_variable_of_secret(value: dict[str, Any]) -> bool:
    """Whether a mapping is the variable of a Pod whose name is that of a secret: {name: API_TOKEN, value: …}."""
    name = value.get("name")
    return isinstance(name, str) and is_secret(name)


def masked_text(text: str) -> str:
    """Mask users and passwords of URLs in a text, and values after `password=` and similar names."""
    return _ASSIGNED.sub(rf"\g<1>{MASK}", _without_users(text))


def _without_users(text: str) -> str:
    """Mask users and passwords of URLs; each character is read once, as a pattern would not, and logs are long."""
    kept, begin = [], 0
    while (at := text.find("://", begin)) >= 0:
        end = _URL_END.search(text, at + 3)
        stop = len(text) if end is None else end.start()
        user_ends = text.rfind("@", at + 3, stop)  # the last one: a password may hold a slash or such a sign
        kept += [text[begin:at], text[at:stop] if user_ends < 0 else f"://{MASK}@{text[user_ends + 1 : stop]}"]
        begin = stop
    return "".join([*kept, text[begin:]])


def split_password(url: str) -> tuple[str, str | None]:
    """Return the URL without its password, and the password, which follows the user or is the option `password`."""
    address, mark, query = url.partition("?")
    scheme, slashes, rest = address.partition("://")
    login, at, hosts = rest.partition("/")[0].rpartition("@")
    user, _, found = login.partition(":")
    if at:
        rest = (user + at if user else "") + hosts + rest[len(login + at + hosts) :]
    options = parse_qsl(query, keep_blank_values=True)
    kept = [option for option in options if option[0] != "password"]
    if len(kept) < len(options):
        found, mark, query = dict(options)["password"], mark if kept else "", urlencode(kept, safe="/")
    return scheme + slashes + rest + mark + query, unquote(found) or None


def with_password_file(url: str, path: Path | str) -> str:
    """Return the URL with the file of its password as an option."""
    return f"{url}{'&' if '?' in url else '?'}{PASSWORD_FILE_OPTION}={quote(os.path.abspath(path))}"


def split_password_file(url: str) -> tuple[str, str | None]:
    """Return the URL without the option that names the file of its password, and the path; None where it has none."""
    address, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    kept = [option for option in options if option[0] != PASSWORD_FILE_OPTION]
    if len(kept) == len(options):
        return url, None
    return address + (f"?{urlencode(kept, safe='/')}" if kept else ""), dict(options)[PASSWORD_FILE_OPTION]


def refuse_password(url: str, where: str) -> None:
    """Raise ConfigError if the URL holds a password.

    Args:
        where: The name of the URL, for the error: "memory.url".
    """
    if split_password(url)[1] is not None:
        raise ConfigError(
            f"{where} holds a password, which others could read; put it into the environment variable "
            f"{PASSWORD_VARIABLE}, or the path of its file into {PASSWORD_FILE_VARIABLE}"
        )


def read_secret(path: str, where: str) -> str:
    """Return the one line that a private file holds, without white space around it.

    Args:
        where: The setting that names the file, for errors.

    Raises:
        ConfigError: It cannot be read, is empty, or others may read it.
    """
    check_private(path, where)
    try:
        text = read_small(Path(path)).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} {path} cannot be read: {error}") from error
    if not text:
        raise ConfigError(f"{where} {path} is empty; write the secret into it")
    return text


def check_private(path: str, where: str) -> None:
    """Raise ConfigError unless other users cannot read the file. Its group may, if root owns it, as in containers."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ConfigError(f"{where} {path} cannot be read: {error.strerror}") from error
    refused = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid else stat.S_IWGRP)
    if found.st_mode & refused:
        raise ConfigError(f"others may read {where} {path}; chmod 600 {path}")
