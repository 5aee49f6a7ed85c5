"""The cache of exported graphs and compiled programs: ``$XDG_CACHE_HOME/distrl`` or ``~/.cache/distrl``."""

import hashlib
import logging
import os
import platform
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)


def cache_directory(kind: str) -> Path:
    """Return the cache folder of one kind of files; it need not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "distrl" / kind


def write_cached(path: Path, content: bytes, what: str, again: str) -> None:
    """Write a file of the cache as a whole; what cannot be written is reported, and costs only time.

    Args:
        what: The content, for the log.
        again: What the next start does without it, for the log.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            unfinished = Path(directory) / path.name
            unfinished.write_bytes(content)
            unfinished.replace(path)
    except OSError as error:
        logger.warning("%s is not cached, so the next start %s again: %s", what, again, error)


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return a name of this machine's instruction set; machines with equal names can share machine code.

    Args:
        info: The kernel's description of the processors; without it, as on macOS, the architecture is the name.
    """
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    last = {line.partition(":")[0].strip(): line for line in lines}  # the last core; all are equal
    parts = [platform.machine(), *(last[name] for name in ("model name", "flags", "Features") if name in last)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
