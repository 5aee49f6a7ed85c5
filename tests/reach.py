"""The applications whose tests `make test` leaves out, as the change does not reach them; CI runs all tests.

    python -m tests.reach    prints an argument of pytest for each folder that is left out

The change is what differs from the commit that HEAD and origin/main share, files that git does not know included.
It reaches a folder of tests/apps if it has a module there, or one that those import, directly or through others. Other
files than modules count as all modules beside them, or in the nearest folder above that has some. Imports that only a
child process does are not seen.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
APPLICATIONS = PurePosixPath("tests/apps")
SOURCES = ("distrl", "tests", "benchmarks", "bundle")
ALWAYS = ("commands",)
"""The command line is how all of distrl is used."""

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
"""Files that no application reads."""


def changed(root: Path) -> set[str] | None:
    """Return the paths that the change has touched; None if git does not know, as in an archive."""
    try:
        base = _git(root, "merge-base", "HEAD", "origin/main").strip()
        paths = _git(root, "diff", "--name-only", base) + _git(root, "ls-files", "--others", "--exclude-standard")
        return set(paths.splitlines())
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def left_out(root: Path, change: set[str] | None) -> list[str]:
    """Return the folders of tests/apps that the change does not reach, in order."""
    if change is None:
        return []
    modules = {
        path.relative_to(root).as_posix(): path for source in SOURCES for path in sorted((root / source).rglob("*.py"))
    }
    reached = {each for name in change if name not in PAGES for each in _beside(PurePosixPath(name), modules)}
    needs = {
        name: set(_needs(PurePosixPath(name), ast.parse(path.read_bytes()), modules))
        for name, path in modules.items()
        if reached
    }
    before: set[str] = set()
    while reached != before:
        before = reached
        reached = before | {name for name, needed in needs.items() if needed & before}
    tested = {name for name in reached if PurePosixPath(name).is_relative_to(APPLICATIONS)}
    folders = sorted(path.name for path in (root / APPLICATIONS).iterdir() if any(path.glob("test_*.py")))
    reached_folders = {PurePosixPath(name).parts[2] for name in tested}
    return [folder for folder in folders if folder not in reached_folders | {*ALWAYS}]


def _beside(path: PurePosixPath, modules: Mapping[str, Path]) -> list[str]:
    """Return the changed module itself, or the modules that may read another file."""
    if str(path) in modules:
        return [str(path)]
    for folder in path.parents:
        if found := [name for name in modules if PurePosixPath(name).parent == folder]:
            return found
    return list(modules)


def _needs(path: PurePosixPath, tree: ast.Module, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a module imports, the packages around them, and the conftest.py around itself."""
    dotted = {f"{folder}/conftest".replace("/", ".") for folder in path.parents}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            dotted |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    for name in dotted:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            inner = "/".join(parts[:end])
            yield from modules.keys() & {f"{inner}.py", f"{inner}/__init__.py"}


def main() -> None:
    """Print the arguments, and a line on what is left out."""
    folders = left_out(ROOT, changed(ROOT))
    if folders:
        names = ", ".join(folders)
        print(f"not reached by this change, left out: {names} (make test ALL=1 runs their tests)", file=sys.stderr)
    print(*(f"--ignore={APPLICATIONS / folder}" for folder in folders))


if __name__ == "__main__":
    main()
