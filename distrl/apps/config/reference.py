"""Every setting with its values, default and meaning, as a JSON schema made of the sections' types and docstrings.

`distrl config explain`, `distrl config schema` and docs/settings.py print it. Types and bounds come from Pydantic.
The meaning of a field is the docstring below it, which is read from the source on demand.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from distrl.apps.config.configuration import Configuration
from distrl.config.document import scalar
from distrl.config.optimizers import OptimizerParameters, users_of
from distrl.config.section import Section
from distrl.errors import one_line

Schema = dict[str, Any]
_DISCRIMINATORS = ("kind", "step", "name")
_DEFINITIONS = "#/$defs/"
_FILLED_IN = "declared"
"""The section that distrl itself writes for an algorithm of the user's own."""


class SettingRow(NamedTuple):
    """One setting of one section.

    Attributes:
        section: Name of the section's class.
        kind: Field and value that select the section among others, like "kind: lstm"; empty if it is the only one.
        values: Type and bounds, in words.
        default: One line of YAML; "required" if there is none; empty for a section.
        schema: Schema of its value.
    """

    name: str
    section: str
    kind: str
    values: str
    default: str
    meaning: str
    schema: Schema


class SectionReference(NamedTuple):
    """One section: its paths in a configuration, and its settings."""

    name: str
    kind: str
    paths: list[str]
    meaning: str
    settings: list[SettingRow]


@cache
def schema() -> Schema:
    """Return the JSON schema (2020-12) of a configuration file, with the docstrings as descriptions."""
    whole = Configuration.model_json_schema()
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    definitions = {"Configuration": whole, **whole["$defs"]}
    sections = {model.__name__: model for model in _models(Section)}
    for name, definition in definitions.items():
        if name in sections:
            _describe(definition, sections[name])
    _simplify(whole)
    return whole


def sections() -> list[SectionReference]:
    """Return every section, in the order in which a reader of a configuration meets them."""
    found: dict[str, SectionReference] = {}
    ahead: list[tuple[str, str]] = [("Configuration", "")]
    while ahead:
        name, path = ahead.pop(0)
        if name in found:
            if path not in found[name].paths:
                found[name].paths.append(path)
            continue
        definition = _definition(name)
        found[name] = SectionReference(
            name, _kind(definition), [path], _first_part(definition.get("description", "")), [*_settings(name)]
        )
        for key, value in definition.get("properties", {}).items():
            if key == _FILLED_IN:
                continue
            ahead += [(inner, f"{path}.{key}{below}".lstrip(".")) for inner, below in _sections_in(value)]
    return [*found.values()]


def find(dotted: str) -> list[SettingRow]:
    """Return the setting at a path: one for each kind of section that has it; empty for an unknown path.

    The user's own names (of observations, for example) may be anything; positions in lists are numbers.
    """
    nodes: list[tuple[Schema, SettingRow | None]] = [({"$ref": f"{_DEFINITIONS}Configuration"}, None)]
    for key in dotted.split("."):
        nodes = [after for node, _ in nodes for after in _step(node, key)]
    return [setting for _, setting in nodes if setting is not None]


def settings_of(value: Schema) -> list[SettingRow]:
    """Return the settings of the sections that a value may be."""
    return [setting for name, below in _sections_in(value) if not below for setting in _settings(name)]


def _step(node: Schema, key: str) -> Iterator[tuple[Schema, SettingRow | None]]:
    """Yield the schemas of the values that a key may have, each with its setting if it is one."""
    for each in _alternatives(node):
        if "$ref" in each:
            name = each["$ref"].removeprefix(_DEFINITIONS)
            yield from ((setting.schema, setting) for setting in _settings(name) if setting.name == key)
        elif (named := _named(each)) is not None:
            yield named, None
        elif each.get("type") == "array" and key.isdecimal() and isinstance(each.get("items"), dict):
            yield each["items"], None


def _settings(name: str) -> Iterator[SettingRow]:
    definition = _definition(name)
    required = definition.get("required", ())
    for key, value in definition.get("properties", {}).items():
        if key == _FILLED_IN:
            continue
        default = "required" if key in required else _default(value)
        inner = [*_sections_in(value)]
        # A single section describes itself.
        of_section = _definition(inner[0][0]).get("description", "") if len(inner) == 1 else ""
        meaning = value.get("description") or of_section
        yield SettingRow(key, name, _kind(definition), _values(value), default, one_line(meaning), value)


def _default(value: Schema) -> str:
    if "default" not in value:
        return "{}"  # from a default factory
    inner = value["default"]
    return "" if isinstance(inner, dict) and inner else scalar(inner)


def _kind(definition: Schema) -> str:
    """Return the field and value that select a section among others at its place; empty if nothing does."""
    for field in _DISCRIMINATORS:
        value = definition.get("properties", {}).get(field, {})
        if "const" in value:
            return f"{field}: {value['const']}"
    return "name: package.module:Class" if definition.get("title") == "ExternalAlgorithmParameters" else ""


def _values(value: Schema) -> str:
    """Type and bounds of a value, in words."""
    parts: dict[str, None] = dict.fromkeys(_one(each) for each in _alternatives(value))
    return " or ".join(part for part in parts if part)


def _one(value: Schema) -> str:
    if "$ref" in value:
        definition = _definition(value["$ref"].removeprefix(_DEFINITIONS))
        return "section" if "properties" in definition else "any value"
    if "const" in value:
        return scalar(value["const"])
    if "enum" in value:
        return ", ".join(map(scalar, value["enum"]))
    kind = str(value.get("type", "any value"))
    if kind == "array":
        inner = value.get("items") or {"anyOf": value.get("prefixItems", [])}
        count = value.get("minItems")
        exactly = f"{count} of " if count is not None and count == value.get("maxItems") else ""
        return f"list of {exactly}{_values(inner)}"
    if kind == "object":
        named = _named(value)
        return "mapping" if named is None else f"mapping of names to {_values(named)}"
    words: str = {"integer": "whole number", "string": "text", "boolean": "true or false"}.get(kind, kind)
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = [f"{sign} {value[bound]:.10g}" for bound, sign in bounds.items() if bound in value]
    return " ".join([words, ", ".join(told)]).strip()


def _alternatives(value: Schema) -> list[Schema]:
    """Return the members of a union; another schema is its own only one."""
    for union in ("anyOf", "oneOf"):
        if union in value:
            return [inner for member in value[union] for inner in _alternatives(member)]
    return [value]


def _named(value: Schema) -> Schema | None:
    """Return the schema of the values of a mapping whose keys are the user's own names."""
    patterns = [*value.get("patternProperties", {}).values(), value.get("additionalProperties")]
    return next((each for each in patterns if isinstance(each, dict)), None)


def _sections_in(value: Schema) -> Iterator[tuple[str, str]]:
    """Yield (section, path below the value) of all sections that it may hold."""
    for each in _alternatives(value):
        if "$ref" in each:
            name = each["$ref"].removeprefix(_DEFINITIONS)
            if "properties" in _definition(name):
                yield name, ""
        for inner, below in ((each.get("items"), "[]"), (_named(each), ".<name>")):
            if isinstance(inner, dict):
                yield from ((name, f"{below}{further}") for name, further in _sections_in(inner))


def _definition(name: str) -> Schema:
    whole = schema()
    definition: Schema = whole if name == "Configuration" else whole["$defs"][name]
    return definition


def _first_part(text: str) -> str:
    """Return a docstring without its table of attributes."""
    return one_line(text.partition("Attributes:")[0])


def _models(model: type[Section]) -> Iterator[type[Section]]:
    yield model
    for child in model.__subclasses__():
        yield from _models(child)


def _describe(definition: Schema, model: type[Section]) -> None:
    """Add the docstrings of a section and of its fields."""
    if "description" in definition:
        definition["description"] = _first_part(definition["description"])
    for key, value in definition.get("properties", {}).items():
        meaning = one_line(_meaning(model, key))
        users = users_of(key) if issubclass(model, OptimizerParameters) else ()
        used = f"Used by {', '.join(users)}." if users and users != users_of("learning_rate") else ""
        text = " ".join(filter(None, (meaning, used)))
        if text:
            value["description"] = text


def _meaning(model: type[Section], field: str) -> str:
    """Return the docstring below a field, in the class or in the nearest base class that declares it."""
    for kind in model.__mro__:
        if field in vars(kind).get("__annotations__", {}):
            meaning = _docstrings(kind.__module__).get((kind.__name__, field))
            if meaning is not None:
                return meaning
    return ""


@cache
def _docstrings(module: str) -> Mapping[tuple[str, str], str]:
    """(class, field) -> docstring, of all that a module has."""
    found = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field, after in pairwise(body):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[node.name, field.target.id] = after.value.value  # type: ignore[attr-defined]
    return found


def _simplify(value: Any) -> None:
    """Drop titles that repeat names, and let a section without its discriminator match several kinds."""
    if isinstance(value, list):
        for each in value:
            _simplify(each)
        return
    if not isinstance(value, dict):
        return
    if "oneOf" in value:
        value["anyOf"] = value.pop("oneOf")
        value.pop("discriminator", None)
    for key, inner in value.items():
        if key == "properties":
            for each in inner.values():
                each.pop("title", None)
        if key not in ("default", "enum", "const"):
            _simplify(inner)
