"""A virtual environment for each peer, made once from exact versions, in `requirements/`.

They use the Python that runs the benchmark; the versions were chosen for 3.11. Sample Factory 2.1.1 needs NumPy below 2
and gymnasium below 1; installing it compiles its queue, which needs a C++ compiler. CleanRL is no library and is not
installed: `cleanrl` is EnvPool and PyTorch.

They take about 2 GB each with PyTorch built for CPUs. pip installs such a build if PIP_EXTRA_INDEX_URL or
PIP_FIND_LINKS names one; otherwise it installs the build with CUDA, which works too and is far larger.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
NAMES = tuple(sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))


class InstallationError(Exception):
    """Error in making an environment; the message is pip's last line."""


def requirements(name: str) -> Path:
    """Return the file with the exact versions."""
    return REQUIREMENTS / f"{name}.txt"


def stamp(name: str) -> str:
    """Return the path of the mark of a complete environment."""
    return hashlib.sha256(requirements(name).read_bytes() + sys.version.encode()).hexdigest()


def is_made(name: str, folder: Path) -> bool:
    """Return whether the environment exists, complete and with these versions."""
    path = folder / name / "installed"
    return path.exists() and path.read_text(encoding="utf-8") == stamp(name)


def make(names: Iterable[str], folder: Path, tell: Callable[[str], None]) -> dict[str, str]:
    """Make the missing environments. Return name -> error of those that failed."""
    failed = {}
    for name in names:
        if is_made(name, folder):
            continue
        tell(f"making the environment of {name} in {folder / name}: some minutes, about 2 GB …")
        try:
            _make(name, folder / name)
        except InstallationError as error:
            failed[name] = str(error)
            tell(f"{name} cannot be installed: {error}")
    return failed


def _make(name: str, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "--requirement", str(requirements(name))])
    (folder / "installed").write_text(stamp(name), encoding="utf-8")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise InstallationError(lines[-1])
