"""The cache of exported graphs and compiled programs: ``$XDG_CACHE_HOME/distrl`` or ``~/.cache/distrl``."""

import hashlib
import os
import platform
from pathlib import Path


def cache_directory(kind: str) -> Path:
    """Return the cache folder of one kind of files; it need not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "distrl" / kind


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return a name of this machine's instruction set; machines with equal names can share machine code.

    Args:
        info: The kernel's description of the processors; without it, as on macOS, the architecture is the name.
    """
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    last = {line.partition(":")[0].strip(): line for line in lines}  # the last core; all are equal
    parts = [platform.machine(), *(last[name] for name in ("model name", "flags", "Features") if name in last)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
