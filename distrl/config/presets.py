"""The presets that come with distrl: one YAML file each, whose first comment line says what it is."""

from difflib import get_close_matches
from importlib.resources import files

from distrl.errors import ConfigError

_FOLDER = files("distrl") / "presets"


def presets() -> dict[str, str]:
    """Name -> one line of description, by name."""
    names = sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))
    return {name: read_preset(name).split("\n", 1)[0].lstrip("# ") for name in names}


def read_preset(name: str) -> str:
    """The preset's YAML text.

    Raises:
        ConfigError: No preset has that name; names the nearest ones.
    """
    known = sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))
    if name not in known:
        raise ConfigError(f"unknown preset {name!r}; {nearest(name, known)}")
    return (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def nearest(name: str, known: list[str]) -> str:
    """The end of an error message about an unknown name: the nearest known ones, or all there are."""
    close = get_close_matches(name.lower(), known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
