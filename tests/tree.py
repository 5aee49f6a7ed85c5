"""All that is below a folder, to compare it before and after."""

from pathlib import Path


def tree(folder: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Return path -> mode, and a file's bytes, a link's target, or None of a folder."""
    return {path.relative_to(folder).as_posix(): (path.lstat().st_mode, _content(path)) for path in folder.rglob("*")}


def _content(path: Path) -> bytes | str | None:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else None
