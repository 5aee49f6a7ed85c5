"""The user's code as a job takes it along: the files of the working directory, without those that git ignores."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.errors import ConfigError

RUNS = "runs"
LEFT_OUT = (".git", ".venv", "venv", "__pycache__")
"""Names of folders that are never sent; nor is `RUNS`, unless it lies deeper, where it may be a package."""
_NAMED = 3


@dataclass(frozen=True)
class CodePackage:
    """Files below a directory.

    Attributes:
        files: Relative to `directory`, in order.
        size_bytes: Their sum.
        by_git: Whether git has said what it ignores.
    """

    directory: Path
    files: Sequence[Path]
    size_bytes: int
    by_git: bool

    def __str__(self) -> str:
        left_out = ", ".join(f"{name}/" for name in (RUNS, *LEFT_OUT))
        ignored = " and what git ignores left out" if self.by_git else " left out; git is missing, so no .gitignore is"
        return f"{self.directory}: {_mb(self.size_bytes)} in {len(self.files)} files ({left_out}{ignored})"

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
        """Copy the files into an existing folder; of a link, the content that it leads to.

        Raises:
            ConfigError: A file cannot be read.
        """
        for file in self.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy(self.directory / file, folder / file)
            except OSError as error:
                raise _unreadable(self.directory, error) from error


def code_in(directory: Path) -> CodePackage:
    """Return the package of a directory.

    Raises:
        ConfigError: A folder cannot be read; or it is the user's home, where keys and tokens lie.
    """
    if directory.resolve() in (Path.home().resolve(), Path("/")):
        raise ConfigError(
            f"the code of the current directory would be sent, and {directory} is no project's: submit from the "
            "directory of your code"
        )
    try:
        found = {Path(name) for name in _below(directory, {directory.resolve()})}
        files = sorted(file for file in found if file.parts[0] != RUNS and not set(file.parts) & set(LEFT_OUT))
        size_bytes = sum((directory / file).stat().st_size for file in files)
    except OSError as error:
        raise _unreadable(directory, error) from error
    return CodePackage(directory, files, size_bytes, by_git=_git(directory, "--version") is not None)


def _below(directory: Path, above: set[Path]) -> Iterator[str]:
    """Yield the files below a directory; git lists links to folders, and repositories in it, without their files.

    Args:
        above: The folders that lead to it, which a link may lead back to.
    """
    for name in _listed(directory):
        place = directory / name
        if place.is_file():
            yield name
        elif place.is_dir() and (real := place.resolve()) not in above and place.name not in LEFT_OUT:
            yield from (os.path.join(name, inner) for inner in _below(place, {*above, real}))


def _listed(directory: Path) -> list[str]:
    """Return the entries that git does not ignore, whether the directory is in a repository or not."""
    in_repository = _git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if in_repository is not None:
        return in_repository
    with tempfile.TemporaryDirectory() as empty:
        if _git(directory, f"--git-dir={empty}", "init", "--quiet") is not None:
            place = (f"--git-dir={empty}", f"--work-tree={directory}")
            listed = _git(directory, *place, "ls-files", "-z", "--others", "--exclude-standard")
            if listed is not None:
                return listed
    return sorted(os.listdir(directory))


def _git(directory: Path, *arguments: str) -> list[str] | None:
    """Return the entries that git prints, ended by zero bytes; None where git is missing or refuses."""
    try:
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True)
    except FileNotFoundError:
        return None
    if done.returncode:
        return None
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _unreadable(directory: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the code in {directory} cannot be copied: {error.filename}: {error.strerror}; name what the job does not "
        "need in .gitignore"
    )


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
