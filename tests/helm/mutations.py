"""Small faults in the objects of a rendering: a field that is misspelt or missing, an entry that is there twice."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.helm.checks import MERGE_KEYS
from tests.helm.rendering import Object, name_of

Path = tuple[str | int, ...]


class Mutant(NamedTuple):
    """A fault: in words, the objects that have it, and the changed one among them (None: it is gone)."""

    fault: str
    objects: Sequence[Object]
    changed: Object | None


def mutants(objects: Sequence[Object]) -> Iterator[Mutant]:
    """Yield every rendering with one fault."""
    for number, found in enumerate(objects):
        others = [*objects[:number], *objects[number + 1 :]]
        if found["kind"] == "NetworkPolicy":
            yield Mutant(f"{name_of(found)}: gone", others, None)
        for path, parent in _places(found, ()):
            key = path[-1]
            if isinstance(key, str):
                yield _changed(others, found, path, "misspelt", lambda at, key: at.__setitem__(f"{key}x", at.pop(key)))
                yield _changed(others, found, path, "missing", lambda at, key: at.pop(key))
            elif isinstance(parent[key], dict | str):
                yield _changed(others, found, path, "missing", lambda at, key: at.pop(key))
            if isinstance(parent[key], list) and key in MERGE_KEYS and parent[key]:
                yield _changed(others, found, path, "twice", lambda at, key: at[key].append(copy.deepcopy(at[key][0])))


def _places(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the path of everything inside a value, and the mapping or list that has it."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in entries:
        yield (*path, key), value
        yield from _places(each, (*path, key))


def _changed(others: Sequence[Object], found: Object, path: Path, fault: str, change: Any) -> Mutant:
    made = copy.deepcopy(found)
    at: Any = made
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    where = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return Mutant(f"{name_of(found)}: {where} {fault}", [*others, made], made)
