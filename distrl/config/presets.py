"""The presets that come with distrl: one YAML file each, whose first comment line describes it.

Beside the configuration a preset has the section `preset`: the return it must reach, what it needs, what to expect.
"""

from difflib import get_close_matches
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Self

from pydantic import Field, model_validator

from distrl.config.document import parse_mapping
from distrl.config.section import Section
from distrl.errors import ConfigError


class Acceptance(Section):
    """The mean return that a preset must reach within a number of environment steps of training."""

    mean_return: float
    """Mean return of 100 greedy episodes after the training, or of the last 100 training episodes: see `measure`."""
    env_steps: int = Field(ge=1)
    measure: str = Field("evaluation", pattern="^(evaluation|training)$")


class PresetFacts(Section):
    """Facts about a preset beside its configuration."""

    acceptance: Acceptance
    needs: tuple[str, ...] = ()
    """Extras of distrl that its environment needs, keys of `EXTRA_MODULES`."""
    expected: tuple[tuple[int, float], ...] = ()
    """Measured (environment steps, mean return of the last 100 training episodes)."""
    expected_from: str | None = None
    """Seeds behind `expected`, such as `seed 101` or `the mean of three seeds`."""

    @model_validator(mode="after")
    def _expected_is_of_seeds(self) -> Self:
        if bool(self.expected) != (self.expected_from is not None):
            raise ValueError("expected and expected_from go together")
        return self


EXTRA_MODULES = {
    "atari": "ale_py",
    "box2d": "Box2D",
    "dm-control": "dm_control",
    "envpool": "envpool",
    "minatar": "minatar",
    "mujoco": "mujoco",
}
"""Extra -> a module that it installs."""

_FOLDER = files("distrl") / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets, in order."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _FOLDER.iterdir() if entry.name.endswith(".yaml"))


def presets() -> dict[str, str]:
    """Return name -> one line of description, in order."""
    return {name: read_preset(name).split("\n", 1)[0].lstrip("# ") for name in preset_names()}


def read_preset(name: str) -> str:
    """Return the preset's YAML text."""
    known = preset_names()
    if name not in known:
        raise ConfigError(f"unknown preset {name!r}; {nearest(name, known)}")
    return (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def preset_facts(name: str) -> PresetFacts:
    """Return the section `preset` of a preset."""
    return PresetFacts.model_validate(_parsed(name)["preset"])


def missing_extras(facts: PresetFacts) -> list[str]:
    """Return the extras that it needs and that are not installed."""
    return [extra for extra in facts.needs if find_spec(EXTRA_MODULES[extra]) is None]


def preset_tree(name: str) -> dict[str, Any]:
    """Return the configuration that the preset gives."""
    return {key: value for key, value in _parsed(name).items() if key != "preset"}


def _parsed(name: str) -> dict[str, Any]:
    return dict(parse_mapping(read_preset(name), f"preset {name}"))


def nearest(name: str, known: list[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest known names, or all of them."""
    close = get_close_matches(name.lower(), known, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
