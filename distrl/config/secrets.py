"""Masking of secrets in what is shown of a run: passwords in URLs, and values under secret names.

A secret under a name that does not say so is shown.
"""

import re
from typing import Any

MASK = "•••"
_NAMES = r"(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|credentials?)"
_NAME = re.compile(rf"{_NAMES}$|^secrets$", re.IGNORECASE)
_USER = re.compile(r"://[^\s'\"]*@")  # user and password of a URL; a password may hold a slash
_ASSIGNED = re.compile(rf"""({_NAMES}['"]?\s*[=:]\s*)(?:'[^']*'|"[^"]*"|[^\s&,;'"}}]+)""", re.IGNORECASE)


def masked(dotted: str, value: Any) -> Any:
    """Return a configuration's value with secrets masked.

    Args:
        dotted: Its path; a part of it may name a secret, like environment.kwargs.api_key.
    """
    if value is not None and any(map(_NAME.search, dotted.split("."))):
        return [MASK] * len(value) if isinstance(value, list) else MASK
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, list):
        return [masked(dotted, each) for each in value]
    if isinstance(value, dict):
        return {key: masked(f"{dotted}.{key}", each) for key, each in value.items()}
    return value


def masked_text(text: str) -> str:
    """Mask users and passwords of URLs in a text, and values after `password=` and similar names."""
    return _ASSIGNED.sub(rf"\g<1>{MASK}", _USER.sub(f"://{MASK}@", text))
