"""Loading: presets, files and flags become one RunConfig with the origin of every value; `dump` writes it as YAML.

Later layers win: defaults < preset < file < flags < `--set`. Mappings of a preset and a file are merged key by key;
`--set a.b=value` replaces a value as a whole.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError

from distrl.config.document import DEEPEST, check_plain, flat, parse, parse_mapping, scalar, shown
from distrl.config.explain import explain
from distrl.config.presets import preset_tree, presets
from distrl.config.run import RunConfig
from distrl.config.section import Section
from distrl.errors import ConfigError
from distrl.files import read_given

DEFAULT = "default"
UNUSED = " (not used by {})"
"""Note after the origin of an option that has no effect."""
FLAGS = {
    "--env": "environment.id",
    "--algorithm": "algorithm.name",
    "--data": "data.sets",
    "--record": "recording.name",
    "--actors": "actors.count",
    "--no-actors": "launch.start_actors",
    "--launcher": "launch.launcher",
    "--ray-address": "launch.ray_address",
    "--redis-url": "memory.url",
    "--init-from": "learner.init_from",
    "--seed": "seed",
}
"""Flag -> the setting that it sets."""

Model = TypeVar("Model", bound=Section)


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration and the origin of each of its values.

    Attributes:
        origins: Dotted path of every value -> "default", "preset NAME", "file PATH", "flag --actors", "flag --set",
            or "python".
    """

    config: RunConfig
    origins: dict[str, str]

    @staticmethod
    def of(config: RunConfig) -> "LoadedConfig":
        """Wrap a configuration made in Python; values that differ from the defaults have the origin "python"."""
        defaults = _leaves(type(config)().model_dump(mode="json"))
        leaves = _leaves(config.model_dump(mode="json"))
        return LoadedConfig(config, {leaf[0]: DEFAULT if leaf in defaults else "python" for leaf in leaves})

    @property
    def given(self) -> dict[str, str]:
        """Dotted path -> origin of the values that are not defaults."""
        return {dotted: origin for dotted, origin in self.origins.items() if origin != DEFAULT}

    def with_algorithm(self, section: Mapping[str, Any], further: dict[str, str]) -> "LoadedConfig":
        """Return the configuration with another section `algorithm`.

        Args:
            section: All of its keys.
            further: Dotted path -> origin, of values without one; the others are defaults.

        Raises:
            ConfigError: The rest of the configuration contradicts it.
        """
        return self._with({"algorithm": section}, self.given | further)

    def with_values(self, sections: Mapping[str, Mapping[str, Any]], origin: str) -> "LoadedConfig":
        """Return the configuration with other values of some keys.

        Args:
            sections: Section -> key -> value.

        Raises:
            ConfigError: The rest of the configuration contradicts them.
        """
        origin_of = self.given | {f"{section}.{key}": origin for section, keys in sections.items() for key in keys}
        values = self.config.model_dump(mode="json")
        return self._with({name: {**values[name], **keys} for name, keys in sections.items()}, origin_of)

    def _with(self, sections: Mapping[str, Any], origin_of: Mapping[str, str]) -> "LoadedConfig":
        config = validated(type(self.config), self.config.model_dump(mode="json") | dict(sections), origin_of)
        leaves = _leaves(config.model_dump(mode="json"))
        return LoadedConfig(config, {dotted: _origin(origin_of, dotted) for dotted, _ in leaves})


def load(
    preset: str | Mapping[str, Any] | None = None,
    file: str | Path | Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    *,
    opened: Mapping[tuple[str, ...], str] = MappingProxyType({}),
    model: type[RunConfig] = RunConfig,
) -> LoadedConfig:
    """Put the layers together and check the result.

    Args:
        preset: Name of a preset of distrl; or a mapping with any part of the tree.
        file: A YAML file with any part of the tree; or such a mapping.
        sets: "dotted.path=value", the value in YAML; it is read as data and never evaluated.
        flags: Flag of `FLAGS` -> value; None where it was not given.
        opened: Path of a section that is there even if no layer has it -> origin.
        model: The sections that there are.

    Raises:
        ConfigError: One line with the problem, the value, its origin, and the allowed or nearest values.
    """
    if isinstance(preset, Path):
        raise ConfigError(f"load({str(preset)!r}) takes the name of a preset first; name a file with file=")
    layers = _Layers(model)
    if isinstance(preset, str):
        layers.merge(preset_tree(preset), f"preset {preset}")
    if isinstance(file, str | Path):
        layers.merge(parse_mapping(_read(Path(file)), f"file {file}"), f"file {file}")
    for mapping in (given for given in (preset, file) if isinstance(given, Mapping)):
        check_plain(mapping, "the mapping")
        layers.merge(mapping, "python")
    for flag, value in (flags or {}).items():
        if value is not None:
            layers.put(FLAGS[flag].split("."), value, f"flag {flag}")
    for path, origin in opened.items():
        layers.open(path, origin)
    for assignment in sets:
        layers.put(*parse_assignment(assignment, "--set"), "flag --set")
    return _loaded(layers)


def load_text(text: str, origin: str, model: type[RunConfig] = RunConfig) -> LoadedConfig:
    """Check a configuration in YAML, as `load` does a file.

    Args:
        origin: Origin of its values, also in errors.
    """
    layers = _Layers(model)
    layers.merge(parse_mapping(text, origin), origin)
    return _loaded(layers)


def config_of_run(run_dir: Path) -> RunConfig:
    """Read the configuration of the run in a directory, without sections that are not of `RunConfig`.

    They belong to applications, which have checked them at the launch.

    Raises:
        ConfigError: As `load`.
    """
    path, known = run_dir / "config.yaml", RunConfig.model_fields
    tree = parse_mapping(_read(path), f"file {path}")
    layers = _Layers(RunConfig)
    layers.merge(
        {key: inner for key, inner in tree.items() if key in known or not isinstance(inner, dict)}, f"file {path}"
    )
    return _loaded(layers).config


def _loaded(layers: "_Layers") -> LoadedConfig:
    config = validated(layers.model, layers.tree, layers.origin_of)
    leaves = _leaves(config.model_dump(mode="json"))
    return LoadedConfig(config, {dotted: _origin(layers.origin_of, dotted) for dotted, _ in leaves})


def parse_assignment(assignment: str, where: str) -> tuple[list[str], Any]:
    """Split "dotted.path=value" into (path, value); the value is YAML, read as data and never evaluated.

    Args:
        where: Its source, for errors: "--set".

    Raises:
        ConfigError: It is not an assignment.
    """
    dotted, equals, text = assignment.partition("=")
    path = dotted.strip().split(".")
    if len(path) > DEEPEST:
        raise ConfigError(f"{where} {shown(dotted)} has {len(path)} levels; {DEEPEST} are the most")
    if not equals or not all(path):
        raise ConfigError(f"{where} wants path=value, like network.learning_rate=1e-3, not {shown(assignment)}")
    if not text.strip():
        raise ConfigError(f"{where} {dotted}= has no value; write {dotted}=null to unset it")
    return path, parse(text, f"{where} {dotted}")


def validated(model: type[Model], tree: Mapping[str, Any], origin_of: Mapping[str, str]) -> Model:
    """Make a section from plain data.

    Args:
        origin_of: Dotted path -> origin, of the values that were given.

    Raises:
        ConfigError: One line with the problem, the value, its origin, and the allowed or nearest values.
    """
    try:
        section = model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, origin_of, model)) from error
    _check_numbers(_leaves(section.model_dump(mode="json")), tree, origin_of)
    return section


def dump(loaded: LoadedConfig, show: Callable[[str, Any], Any] = lambda dotted, value: value) -> str:
    """Return the configuration as YAML, with the origin of every value as a comment; `load` reads it back equal.

    Options that the chosen optimizer does not use are marked.

    Args:
        show: As in `dump_given`.
    """
    return _document(loaded, loaded.config.model_dump(mode="json"), show)


def dump_given(loaded: LoadedConfig, show: Callable[[str, Any], Any] = lambda dotted, value: value) -> str:
    """Return the values that are not defaults, as `dump` does; `load` reads them back to an equal configuration.

    Args:
        show: Takes the dotted path of a value and the value, and returns what stands in its place.
    """
    return _document(loaded, _given(loaded.config.model_dump(mode="json"), loaded.given, ()), show)


def yaml_of(tree: Mapping[str, Any]) -> str:
    """Return a part of a configuration as YAML without comments, a value a line."""
    return "".join(f"{text}\n" for text, _ in _lines(tree, (), lambda dotted, value: value))


def _document(loaded: LoadedConfig, tree: Mapping[str, Any], show: Callable[[str, Any], Any]) -> str:
    lines = [*_lines(tree, (), show)]
    width = min(max((len(text) for text, dotted in lines if dotted), default=0), 56)
    network = loaded.config.network
    notes = {f"network.{option}": UNUSED.format(network.optimizer_type) for option in network.unused}
    return "".join(
        f"{text:<{width}}  # {' '.join(loaded.origins[dotted].split())}{notes.get(dotted, '')}\n"
        if dotted
        else f"{text}\n"
        for text, dotted in lines
    )


def _given(tree: Mapping[str, Any], given: Mapping[str, str], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a tree that holds the given values."""
    kept = {}
    for key, value in tree.items():
        place = (*path, key)
        if isinstance(value, dict) and value:
            if inner := _given(value, given, place):
                kept[key] = inner
        elif ".".join(place) in given:
            kept[key] = value
    return kept


def _is_section(model: Any, path: tuple[str, ...]) -> bool:
    """Whether the path names a section of a model, which an empty mapping leaves unchanged."""
    for key in path:
        field = model.model_fields.get(key) if isinstance(model, type) and issubclass(model, Section) else None
        model = None if field is None else field.annotation
    return isinstance(model, type) and issubclass(model, Section)


class _Layers:
    """The tree assembled so far, and the origin of each value."""

    def __init__(self, model: type[RunConfig]) -> None:
        self.model = model
        self.tree: dict[str, Any] = {}
        self.origin_of: dict[str, str] = {}

    def merge(self, layer: Mapping[str, Any], origin: str, path: tuple[str, ...] = ()) -> None:
        """Merge a preset's or a file's mapping key by key."""
        for key, value in layer.items():
            if isinstance(value, dict) and (value or _is_section(self.model, (*path, key))):
                self.merge(value, origin, (*path, key))
            else:
                self.put((*path, key), value, origin)

    def open(self, path: Sequence[str], origin: str) -> None:
        """Set an empty mapping, unless there is one already."""
        found: Any = self.tree
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            self.put(path, {}, origin)

    def put(self, path: Sequence[str], value: Any, origin: str) -> None:
        """Set one value, and drop the values that were below its path."""
        node = self.tree
        for key in path[:-1]:
            child = node.get(key)
            if not isinstance(child, dict):
                child = node[key] = {}
            node = child
        dotted = ".".join(path)
        for replaced in _below(node.get(path[-1]), dotted):
            self.origin_of.pop(replaced, None)
        node[path[-1]] = value
        self.origin_of[dotted] = origin


def _below(value: Any, dotted: str) -> Iterator[str]:
    """Yield the dotted paths of everything inside a mapping."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{dotted}.{key}"
            yield from _below(inner, f"{dotted}.{key}")


def _origin(origin_of: Mapping[str, str], dotted: str) -> str:
    """Return the origin of a value, or of the mapping that it was given in."""
    while dotted:
        if dotted in origin_of:
            return origin_of[dotted]
        dotted = dotted.rpartition(".")[0]
    return DEFAULT


def _read(file: Path) -> str:
    try:
        return read_given(file).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"file {file} is not UTF-8 text") from error
    except FileNotFoundError as error:
        hint = f"; there is a preset of that name: --preset {file}" if str(file) in presets() else ""
        raise ConfigError(f"file {file} does not exist{hint}") from error
    except OSError as error:
        within = file / "config.yaml"
        hint = f"; the configuration of this run is {within}" if within.is_file() else ""
        raise ConfigError(f"file {file} cannot be read: {error.strerror}{hint}") from error


def _leaves(tree: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(".".join(keys), value) for keys, value in flat(tree)]


def _lines(
    tree: Mapping[str, Any], path: tuple[str, ...], show: Callable[[str, Any], Any]
) -> Iterator[tuple[str, str | None]]:
    """Yield (line of YAML, dotted path of its value); the path is None for a line that opens a mapping."""
    indent = "  " * len(path)
    for key, value in tree.items():
        dotted = ".".join((*path, key))
        if isinstance(value, dict) and value:
            yield f"{indent}{scalar(key)}:", None
            yield from _lines(value, (*path, key), show)
        else:
            yield f"{indent}{scalar(key)}: {scalar(show(dotted, value))}", dotted


def _check_numbers(leaves: Sequence[tuple[str, Any]], tree: Mapping[str, Any], origin_of: Mapping[str, str]) -> None:
    """Refuse NaN, infinity, and booleans in place of numbers, which Pydantic accepts."""
    for dotted, value in leaves:
        given: Any = tree
        for key in dotted.split("."):
            given = given.get(key) if isinstance(given, dict) else None
        # Check the given value too: in free mappings, JSON has already replaced infinity by null.
        for number in [*_scalars(value), *_scalars(given)]:
            if isinstance(number, float) and not math.isfinite(number):
                raise ConfigError(f"{dotted}: {number} (from {_origin(origin_of, dotted)}) must be a finite number")
        if isinstance(given, bool) and not isinstance(value, bool):
            raise ConfigError(
                f"{dotted}: {shown(given)} (from {_origin(origin_of, dotted)}) must be a number, not a boolean"
            )


def _scalars(value: Any) -> Iterator[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if children is None:
        yield value
        return
    for child in children:
        yield from _scalars(child)
