"""The user's code as a job takes it along: the files of the working directory, without those that git ignores."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.errors import ConfigError

LEFT_OUT = (".git", "runs", "__pycache__")
"""Names of folders that are never sent."""
_NAMED = 3


@dataclass(frozen=True)
class CodePackage:
    """Files below a directory.

    Attributes:
        files: Relative to `directory`, in order.
        size_bytes: Their sum.
    """

    directory: Path
    files: Sequence[Path]
    size_bytes: int

    def __str__(self) -> str:
        left_out = f"{', '.join(f'{name}/' for name in LEFT_OUT)} and what git ignores left out"
        return f"{self.directory}: {_mb(self.size_bytes)} in {len(self.files)} files ({left_out})"

    def check_size(self, most_bytes: int, taker: str) -> None:
        """Raise ConfigError with the largest files if the package is larger than `taker` takes."""
        if self.size_bytes <= most_bytes:
            return
        sizes = sorted(((self.directory / file).stat().st_size, file) for file in self.files)[-_NAMED:]
        largest = ", ".join(f"{file} {_mb(size)}" for size, file in reversed(sizes))
        raise ConfigError(
            f"the code in {self.directory} has {_mb(self.size_bytes)}, and {taker} takes "
            f"{_mb(most_bytes)}; the largest files are {largest}: name them in .gitignore, or submit from another "
            "directory"
        )

    def copy_to(self, folder: Path) -> None:
        """Copy the files into an existing folder; of a link, what it names."""
        for file in self.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.directory / file, folder / file)


def code_in(directory: Path) -> CodePackage:
    """Return the package of a directory."""
    found = []
    for name in _listed(directory):
        file = Path(name)
        if not set(file.parts[:-1]) & set(LEFT_OUT) and (directory / file).is_file():
            found.append(file)
    return CodePackage(directory, sorted(found), sum((directory / file).stat().st_size for file in found))


def _listed(directory: Path) -> list[str]:
    """Return the files that git does not ignore, whether the directory is in a repository or not."""
    in_repository = _git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if in_repository is not None:
        return in_repository
    with tempfile.TemporaryDirectory() as empty:
        if _git(directory, f"--git-dir={empty}", "init", "--quiet") is not None:
            place = (f"--git-dir={empty}", f"--work-tree={directory}")
            listed = _git(directory, *place, "ls-files", "-z", "--others", "--exclude-standard")
            if listed is not None:
                return listed
    names = []
    for folder, inner, files in os.walk(directory):
        inner[:] = [name for name in inner if name not in LEFT_OUT]
        names += [os.path.relpath(os.path.join(folder, file), directory) for file in files]
    return names


def _git(directory: Path, *arguments: str) -> list[str] | None:
    """Return the entries that git prints, ended by zero bytes; None where git is missing or refuses."""
    try:
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True)
    except FileNotFoundError:
        return None
    if done.returncode:
        return None
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
