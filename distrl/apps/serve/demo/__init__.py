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


def demo_replies() -> dict[str, tuple[int, File]]:
    """Return path -> status and file: those of the page, and the way to it from the path without its slash."""
    found = {name: File(kind, read_small(FOLDER / name, MOST_POLICY_BYTES), _HEADERS) for name, kind in _TYPES.items()}
    files = {PLACE + ("" if name == "index.html" else name): (200, file) for name, file in found.items()}
    # Relative, for a server behind a proxy's path; temporary, as a browser keeps 308 for whatever has the port next.
    return files | {PLACE.rstrip("/"): (307, File(b"text/plain", b"", ((b"location", PLACE.lstrip("/").encode()),)))}
