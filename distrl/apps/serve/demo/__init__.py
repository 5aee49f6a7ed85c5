"""A game that a page steps, and whose moves the server chooses and learns from: `distrl serve --learn --demo`.

Files of the page are read once, as the server starts. They load nothing from elsewhere.
"""

from pathlib import Path
from typing import NamedTuple

from distrl.files import MOST_POLICY_BYTES, read_small

FOLDER = Path(__file__).parent
CONFIG = FOLDER / "catch.yaml"
PLACE = "/demo/"
_POLICY = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
)
_TYPES = {"index.html": b"text/html; charset=utf-8", "demo.js": b"text/javascript", "demo.css": b"text/css"}


class File(NamedTuple):
    """A reply that is no message."""

    media_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


def demo_files() -> dict[str, File]:
    """Return path -> file of the page."""
    found = {name: File(kind, read_small(FOLDER / name, MOST_POLICY_BYTES), _HEADERS) for name, kind in _TYPES.items()}
    return {PLACE + ("" if name == "index.html" else name): file for name, file in found.items()}
