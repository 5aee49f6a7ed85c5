"""config.yaml as pages show it: every value with its origin, and secrets masked."""

from pathlib import Path
from typing import Any, NamedTuple

from distrl.config.settings import read_settings
from distrl.dashboard.files import inside


class Leaf(NamedTuple):
    """One value; `origin` is "" where the file does not tell."""

    path: str
    value: Any
    origin: str


def read_configuration(run_dir: Path) -> list[Leaf]:
    """Every value of a run's configuration in the file's order, fit to be shown.

    Raises:
        NotThereError: The run has no config.yaml.
        ConfigError: It is damaged.
    """
    settings = read_settings(inside(run_dir, "config.yaml"))
    return [Leaf(path, setting.value, setting.origin) for path, setting in settings.items()]
