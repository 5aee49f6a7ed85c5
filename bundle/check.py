"""Look whether this environment can take distrl from this folder; if not, print one line and exit with 2.

install.sh runs it, by the interpreter of the environment, before it changes anything.
"""

import contextlib
import ctypes
import hashlib
import os
import re
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
HASHES = "(cd frameworks && sha256sum *.whl > SHA256SUMS)"
PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
"""Distributions by which JAX uses NVIDIA GPUs; each needs a driver of its CUDA or a later one."""


def problem(folder: Path) -> str | None:
    """Return why distrl cannot be installed from a bundle's folder, and what to do; or None."""
    if find_spec("pip") is None:
        return f"{sys.executable} has no pip: run {sys.executable} -m ensurepip"
    if (found := managed() or damaged(folder)) is not None:
        return found
    here, brought = installed(folder), in_frameworks(folder)
    if "jax" not in here | brought:
        return (
            "there is no JAX: install it, or copy its wheels into frameworks/ "
            f"(pip download --dest frameworks 'jax[cuda12]' and {HASHES} where there is an index)"
        )
    for requirement in needs(folder):
        number = (here | brought).get(requirement.name)
        if number is not None and not requirement.specifier.contains(number, prereleases=True):
            return f"{requirement.name} {number} is there, and distrl needs {requirement}: install another version"
    return driver_problem([name for name in PLUGINS if name in here | brought], driver_cuda())


def managed() -> str | None:
    """Return why pip refuses the interpreter, which the system's packages manage (PEP 668), and what to do; or None."""
    marked = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    if not marked or sys.prefix != sys.base_prefix or os.environ.get("PIP_BREAK_SYSTEM_PACKAGES"):
        return None
    make = f"{sys.executable} -m venv --system-site-packages venv"
    return f"the system's packages manage {sys.executable}: make an environment ({make}), and name venv/bin/python"


def damaged(folder: Path) -> str | None:
    """Return what is wrong with the hashes of the wheels in frameworks/, and what to do; or None."""
    frameworks = folder / "frameworks"
    listed = frameworks / "SHA256SUMS"
    lines = listed.read_text().splitlines() if listed.exists() else []
    hashes = {name.strip(" *"): digest for digest, _, name in (line.partition(" ") for line in lines)}
    for wheel in sorted(frameworks.glob("*.whl")):
        if wheel.name not in hashes:
            return f"frameworks/SHA256SUMS does not name {wheel.name}: run {HASHES} where it was downloaded"
        with wheel.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != hashes[wheel.name]:
                return f"frameworks/{wheel.name} does not have the hash in SHA256SUMS: copy it once more"
    return None


def driver_problem(plugins: list[str], cuda: tuple[int, int] | None) -> str | None:
    """Return why the driver cannot serve JAX's plugins; or None, as on a machine without a driver.

    Args:
        cuda: Latest CUDA that the driver knows.
    """
    for plugin in plugins:
        major = int(re.sub(r"\D", "", plugin))
        if cuda is not None and cuda < (major, 0):
            return (
                f"the NVIDIA driver knows CUDA {cuda[0]}.{cuda[1]}, and {plugin} needs {major}.0: "
                "update the driver, or install JAX for this CUDA or for the CPU"
            )
    return None


def driver_cuda() -> tuple[int, int] | None:
    """Return the latest CUDA that this machine's driver knows; None without a driver, as on a login node."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return number.value // 1000, number.value % 1000 // 10


def needs(folder: Path) -> list:
    """Return the requirements that the environment itself must meet."""
    (wheel,) = (folder / "wheels").glob("packaging-*.whl")
    sys.path.insert(0, str(wheel))
    from packaging.requirements import Requirement

    return [Requirement(line) for line in (folder / "needs.txt").read_text().splitlines()]


def installed(folder: Path) -> dict[str, str]:
    """Return name -> version of those packages that matter and are installed."""
    found = {}
    for name in [*(requirement.name for requirement in needs(folder)), *PLUGINS]:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def in_frameworks(folder: Path) -> dict[str, str]:
    """Return name -> version of the wheels in frameworks/."""
    names = [path.name.split("-") for path in (folder / "frameworks").glob("*.whl")]
    return {name.replace("_", "-").lower(): number for name, number, *_ in names}


def main() -> int:
    """Check, and return the exit code."""
    if (found := problem(HERE)) is not None:
        print(f"install.sh: error: {found}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
