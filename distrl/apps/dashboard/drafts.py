"""Configurations that the page edits: of a preset, of a run, and checked as the command line checks them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distrl.apps.config.configuration import load_text
from distrl.config.document import DEEPEST, lines_of
from distrl.config.load import DEFAULT, yaml_of
from distrl.config.presets import preset_tree
from distrl.config.secrets import masked_settings
from distrl.config.settings import Leaves
from distrl.errors import ConfigError, one_line
from distrl.runs.directories import SET_ASIDE

ORIGIN = "the editor"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_LINE = re.compile(r"\(line (\d+), column \d+\)")
_PATH = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")


class Problem(NamedTuple):
    """A reason why a draft cannot be started; `line` counts from 1, None: unknown."""

    text: str
    line: int | None = None


def of_preset(name: str) -> str:
    """Return a preset's configuration in YAML."""
    return yaml_of(preset_tree(name))


def of_run(leaves: Leaves) -> str:
    """Return the given settings of a run in YAML, secrets masked; all of them where origins are unknown."""
    tree: dict[str, Any] = {}
    for (*above, last), setting in leaves.items():
        if setting.origin == DEFAULT:
            continue
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = setting.value
    return yaml_of(tree)


def name_problem(root: Path, name: str) -> Problem | None:
    """Check the name of a new run directory below `root`."""
    if not _NAME.fullmatch(name):
        return Problem("a name has 1 to 80 letters, digits, '.', '_' and '-', and begins with a letter or a digit")
    if name == SET_ASIDE:
        return Problem(f"runs in {name} are not listed; choose another name")
    if not root.is_dir() or (root / "run.json").exists():
        return Problem("the dashboard shows no folder of runs; start it with one: distrl dashboard RUNS_DIR")
    return Problem(f"{name} is there already; choose another name") if (root / name).exists() else None


def problem(text: str) -> Problem | None:
    """Check a configuration as `distrl train FILE` does; nothing that it names is imported."""
    try:
        loaded = load_text(text, ORIGIN)
    except ConfigError as error:
        told = one_line(error)
        return Problem(told, _line(told, text))
    hidden = masked_settings(loaded.config.model_dump(mode="json"))
    if hidden:
        told = f"{hidden[0]} is masked; write the value in place of •••, or remove the line"
        return Problem(told, _line(told, text))
    if "environment.id" not in loaded.given:
        return Problem("environment.id is missing; name an environment, like CartPole-v1")
    return None


def _line(told: str, text: str) -> int | None:
    found = _LINE.search(told)
    if found is not None:
        return int(found[1])
    lines = lines_of(text)
    return next((lines[path] for path in _paths(told) if path in lines), None)


def _paths(told: str) -> Sequence[str]:
    """Return the dotted paths that a message may name, each followed by the sections around it, the first one first."""
    found = []
    for match in _PATH.finditer(told):
        keys = match[0].split(".")[:DEEPEST]
        found += [".".join(keys[:depth]) for depth in range(len(keys), 0, -1)]
    return found


def summary(text: str) -> Mapping[str, Any]:
    """Return what a valid draft would train."""
    config = load_text(text, ORIGIN).config
    return {"env": config.environment.id, "algorithm": config.algorithm.name, "actors": config.actors.count}
