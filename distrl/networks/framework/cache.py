"""Where what is costly to make again is kept for later processes: ``$XDG_CACHE_HOME/distrl`` or ``~/.cache/distrl``."""

import hashlib
import os
import platform
from pathlib import Path


def cache_directory(kind: str) -> Path:
    """The folder of one kind of things, which need not exist yet."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "distrl" / kind


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """A name of this machine's instruction set: machine code is of use on another one only if it has the same.

    Args:
        info: What the kernel tells of the processors; without it, as on macOS, the architecture is the name.
    """
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    told = {line.partition(":")[0].strip(): line for line in lines}  # of the last core; all have the same
    parts = [platform.machine(), *(told[name] for name in ("model name", "flags", "Features") if name in told)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
