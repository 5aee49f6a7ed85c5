"""Figures of the source: how long the loops are, what a start walks through, how large the core is.

    python -m benchmarks.house
    python -m benchmarks.house --against 95ad7aad
    python -m benchmarks.house --walk

Counts come from the syntax trees, of the working directory or of a commit. The walk is traced: one training in one
process (`actors.count: 0`) starts, and every function of distrl that gets a configuration is noted until the learner
takes its first batch and the actor its first step.
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
HOT = (
    *("types.py", "unroll_schema.py", "nest.py", "frames.py", "wire.py", "replay/*.py"),
    *("actors/exploring/*.py", "actors/extras/*.py"),
    *(
        f"actors/{name}.py"
        for name in ("acting", "actor", "admission", "choice_probabilities", "curriculum", "gradient_actor")
    ),
    *(f"actors/{name}.py" for name in ("policy", "priorities", "reward_moments", "shipping", "unroll")),
    *(f"learner/{name}.py" for name in ("batches", "intake", "learner", "prefetch", "publisher", "replay_batches")),
    *(f"learner/{name}.py" for name in ("rounds", "session", "state")),
    *(f"memory_backend/{name}.py" for name in ("backend", "codec", "compression", "engine", "gradient_codec")),
    *(f"memory_backend/{name}.py" for name in ("keys", "layouts", "ledger", "packing", "records", "redis_client")),
    *(f"memory_backend/{name}.py" for name in ("redis_connection", "stream", "tickets", "weights")),
    *("networks/*.py", "networks/actions/*.py", "networks/heads/*.py", "networks/framework/*.py"),
)
"""Modules that carry an unroll from the environment's step to the update, as paths in distrl/."""
APPLICATIONS = ("apps/*", "dashboard/*", "doctor/*", "experiments/*", "jobs/*", "trackers/*")
LOOPS = {
    "actor.py": "actors/actor.py",
    "learner.py": "learner/learner.py",
    "session.py": "learner/session.py",
    "training.py": "launch/training.py",
    "config/run.py": "config/run.py",
}
CLASSES = ("Actor", "Monitor", "Supervisor")
THIN_LINES = 60


class Source(NamedTuple):
    """A module: its lines and its syntax tree."""

    lines: int
    tree: ast.Module


def sources(root: Path) -> dict[str, Source]:
    """Return every module of root/distrl, by its path there."""
    package = root / "distrl"
    texts = {path.relative_to(package).as_posix(): path.read_text() for path in sorted(package.rglob("*.py"))}
    return {name: Source(len(text.splitlines()), ast.parse(text)) for name, text in texts.items()}


def figures(root: Path) -> dict[str, str]:
    """Return all counts of a checkout, by what they count."""
    modules = sources(root)
    core = {name: module for name, module in modules.items() if not _in(name, APPLICATIONS)}
    hot = {name: module for name, module in modules.items() if any(_is_in_folder(name, each) for each in HOT)}
    found = {}
    for label, name in LOOPS.items():
        if (module := modules.get(name)) is not None:
            found[f"{label}: lines · tests for None"] = f"{module.lines} · {none_tests(module.tree)}"
    for name in CLASSES:
        found[f"attributes of {name}"] = str(max((attributes(node) for node in _classes(modules, name)), default=0))
    found["hot path: files · lines"] = _size(hot)
    found["core: files · lines"] = _size(core)
    found["all: files · lines"] = _size(modules)
    found["names of classes that are used twice"] = str(len(twice(modules)))
    found[f"modules of at most {THIN_LINES} lines with one importer"] = str(len(thin(modules)))
    found["imports of applications by the core"] = str(sum(len(_upwards(module)) for module in core.values()))
    found["words of documentation"] = f"{words(root):,}"
    return found


def none_tests(tree: ast.AST) -> int:
    """Return the number of `is None` and `is not None`."""
    compared = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    return sum(
        isinstance(right, ast.Constant) and right.value is None for node in compared for right in node.comparators
    )


def attributes(node: ast.ClassDef) -> int:
    """Return the number of attributes that a class gives to itself."""
    named = {
        target.attr
        for target in ast.walk(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.ctx, ast.Store)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }
    declared = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and _is_name(part.target)}
    return len(named | declared)


def twice(modules: Mapping[str, Source]) -> list[str]:
    """Return the public names of classes that several modules define."""
    counts = Counter(
        node.name
        for module in modules.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in counts.items() if count > 1)


def thin(modules: Mapping[str, Source]) -> list[str]:
    """Return the short modules that one other module alone imports."""
    importers: Counter[str] = Counter()
    for name, module in modules.items():
        importers.update(imported(module.tree, modules) - {name})
    return sorted(
        name
        for name, module in modules.items()
        if 0 < module.lines <= THIN_LINES and importers[name] == 1 and not name.endswith("__init__.py")
    )


def imported(tree: ast.AST, modules: Mapping[str, Source]) -> set[str]:
    """Return the modules of distrl that a tree imports, by their paths."""
    dotted: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            dotted |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {name.removeprefix("distrl.").replace(".", "/") for name in dotted if name.startswith("distrl.")}
    return {path for name in paths for path in (f"{name}.py", f"{name}/__init__.py") if path in modules}


def words(root: Path) -> int:
    """Return the words of the pages that the repository keeps."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", root / "CHANGELOG.md", *(root / "docs").rglob("*.md")]
    return sum(len(page.read_text().split()) for page in pages)


def _in(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_in_folder(name: str, pattern: str) -> bool:
    """Return whether a path matches; `*` stands for no folder."""
    return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern)


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _size(modules: Mapping[str, Source]) -> str:
    return f"{len(modules)} · {sum(module.lines for module in modules.values()):,}"


def _classes(modules: Mapping[str, Source], name: str) -> Iterator[ast.ClassDef]:
    for module in modules.values():
        yield from (node for node in module.tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _upwards(module: Source) -> list[str]:
    rooms = [pattern.partition("/")[0] for pattern in APPLICATIONS]
    froms = [node.module or "" for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)]
    return [name for name in froms if any(f"{name}.".startswith(f"distrl.{room}.") for room in rooms)]


class Walk:
    """Notes the functions of distrl that get a configuration, until both loops have begun."""

    def __init__(self, kinds: tuple[type, ...]) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._kinds = kinds
        self._ends = {("learner/learner.py", "Learner.step"), ("actors/actor.py", "Actor.step")}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Take an event of `sys.setprofile`."""
        if event != "call" or not self._ends:
            return
        file = frame.f_code.co_filename
        if not file.startswith(str(ROOT / "distrl")):
            return
        place = (Path(file).relative_to(ROOT / "distrl").as_posix(), frame.f_code.co_qualname)
        self._ends.discard(place)
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        if any(isinstance(frame.f_locals.get(name), self._kinds) for name in arguments if name != "self"):
            self.functions.add(place)


def walk() -> set[tuple[str, str]]:
    """Start one training, and return (module, function) of what its configuration passes."""
    import distrl
    from distrl.config.load import LoadedConfig
    from distrl.config.run import RunConfig
    from distrl.roles.description import RunDescription

    traced = Walk((RunConfig, LoadedConfig, RunDescription))
    loaded = distrl.load("cartpole-impala", sets=["actors.count=0", "stop={updates: 1}"])
    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(traced)
        sys.setprofile(traced)
        try:
            distrl.train(loaded, run_dir=Path(folder) / "run", view="silent")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return traced.functions


def _at(commit: str, folder: str) -> Path:
    """Unpack a commit."""
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Path(folder)


def main() -> None:
    """Print the figures as a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="a further column, with the figures of this commit")
    parser.add_argument("--walk", action="store_true", help="also start a training, and trace its configuration")
    parser.add_argument("--list", action="store_true", help="also print the names behind the counts")
    arguments = parser.parse_args()
    columns = {"here": figures(ROOT)}
    if arguments.against:
        with tempfile.TemporaryDirectory() as folder:
            columns = {arguments.against: figures(_at(arguments.against, folder)), **columns}
    if arguments.walk:
        passed = walk()
        rooms = {name.rpartition("/")[0] for name, _ in passed}
        size = f"{len(passed)} · {len({name for name, _ in passed})} · {len(rooms)}"
        columns["here"]["start: functions · modules · folders that get a configuration"] = size
    print(f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", sep="\n")
    for label in columns["here"]:
        print(f"| {label} | {' | '.join(column.get(label, '–') for column in columns.values())} |")
    if arguments.list:
        modules = sources(ROOT)
        print("\nused twice:", *twice(modules), "\nthin:", *thin(modules), sep="\n  ")


if __name__ == "__main__":
    main()
