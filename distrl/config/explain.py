"""What is wrong with a configuration, in one line: the path, the value, where it came from, what is allowed."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from distrl.config.algorithms import ALGORITHMS
from distrl.config.document import shown
from distrl.config.presets import nearest
from distrl.config.run import RunConfig

Path = tuple[str, ...]


def explain(error: ValidationError, origin_of: Mapping[str, str]) -> str:
    """One line for the first problem of a configuration that does not hold, and how many more there are.

    Args:
        origin_of: Dotted path -> where its value came from, for paths that were given.
    """
    problems = error.errors(include_url=False)
    # An unknown key is usually the cause of what else is wrong.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    text = _explain(problems[0], origin_of)
    more = len(problems) - 1
    return text if more == 0 else f"{text} (and {more} more {'problem' if more == 1 else 'problems'})"


def section_at(path: Sequence[str]) -> type[BaseModel] | None:
    """The section that a path leads to; None if it is a value or does not exist."""
    section: type[BaseModel] = RunConfig
    entries_of: type[BaseModel] | None = None  # set while the path names an entry of a mapping of sections
    for key in path:
        if entries_of is not None:
            section, entries_of = entries_of, None
            continue
        field = section.model_fields.get(key)
        if field is None:
            return None
        candidates: list[Any] = [field.annotation, *get_args(field.annotation)[-1:]]
        sections = [type_ for type_ in candidates if isinstance(type_, type) and issubclass(type_, BaseModel)]
        inner: type[BaseModel] | None = next(iter(sections), None)
        if inner is None:
            return None
        if candidates[0] is inner:
            section = inner
        else:
            entries_of = inner
    return None if entries_of is not None else section


def known_paths(section: type[BaseModel] = RunConfig, prefix: Path = ()) -> list[str]:
    """Every dotted path that a configuration can set, sections included."""
    paths = []
    for name in section.model_fields:
        path = (*prefix, name)
        paths.append(".".join(path))
        inner = section_at(path)
        if inner is not None:
            paths += known_paths(inner, path)
    return paths


def _explain(problem: Any, origin_of: Mapping[str, str]) -> str:
    path: Path = tuple(str(part) for part in problem["loc"])
    dotted = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {dotted}{_from(path, origin_of)}; {_nearest_key(path)}"
    if problem["type"] == "value_error":  # a validator of ours, whose message names the values
        text = " ".join(str(problem["ctx"]["error"]).split())
        return f"{dotted}: {text}" if dotted else text
    value = f"{dotted}: {shown(problem['input'])}{_from(path, origin_of)}"
    if path == ("algorithm", "name") and isinstance(problem["input"], str):
        hint = nearest(problem["input"], [*ALGORITHMS])
        return f"unknown algorithm {problem['input']!r}{_from(path, origin_of)}; {hint}"
    if problem["type"] in ("model_type", "dict_type"):
        section = section_at(path)
        keys = f" of {', '.join(section.model_fields)}" if section is not None else ""
        return f"{value} must be a mapping{keys}"
    return f"{value} {_allowed(problem)}"


def _allowed(problem: Any) -> str:
    """Pydantic's "Input should be …" as "must be …", with the nearest choice where there are choices."""
    message = " ".join(str(problem["msg"]).split())
    message = re.sub(r"^Input should", "must", message).replace("valid tuple", "list").replace("valid list", "list")
    if problem["type"] == "literal_error" and isinstance(problem["input"], str):
        choices = re.findall(r"'([^']+)'", message)
        close = get_close_matches(problem["input"].lower(), [choice.lower() for choice in choices], n=1)
        meant = next((choice for choice in choices if [choice.lower()] == close), None)
        message += f"; did you mean {meant}?" if meant else ""
    return message


def _from(path: Path, origin_of: Mapping[str, str]) -> str:
    """' (from …)', by the path itself, the newest value above it, or one below it."""
    for end in range(len(path), 0, -1):
        origin = origin_of.get(".".join(path[:end]))
        if origin is not None:
            return f" (from {origin})"
    below = ".".join(path) + "."
    origin = next((origin for given, origin in origin_of.items() if given.startswith(below)), None)
    return f" (from {origin})" if origin is not None else ""


def _nearest_key(path: Path) -> str:
    """The nearest valid key beside an unknown one; else the same or a similar key elsewhere; else what there is."""
    parents, key = path[:-1], path[-1]
    section = section_at(parents)
    here = [*section.model_fields] if section is not None else []
    prefix = "".join(f"{part}." for part in parents)
    beside = get_close_matches(key, here, n=1, cutoff=0.7)
    if beside:
        return f"did you mean {prefix}{beside[0]}?"
    paths = known_paths()
    names = {dotted.rpartition(".")[2] for dotted in paths}
    elsewhere = get_close_matches(key, sorted(names), n=1, cutoff=0.7)
    if elsewhere:
        matches = [dotted for dotted in paths if dotted.rpartition(".")[2] == elsewhere[0]]
        return f"did you mean {' or '.join(matches[:3])}?"
    return f"valid keys in {prefix[:-1]}: {', '.join(here)}" if parents else f"valid keys: {', '.join(here)}"
