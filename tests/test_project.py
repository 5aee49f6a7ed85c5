"""The project's own files: dependencies, locks, package data and the commands that the README promises."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bundle.build import with_jax
from image.build import entries_for_linux

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
LOCKS = {
    "train": {"cpu", "ray", "atari", "mujoco", "compression", "plot", "dashboard", "serve"},
    "gpu": {"gpu", "ray", "atari", "mujoco", "compression", "plot", "dashboard", "serve", "data"},
    "learner": {"cpu", "ray", "atari", "mujoco", "compression", "plot", "dashboard", "serve", "data"},
    "actor": {"compression"},
    "environments": {"atari", "mujoco", "compression"},
    "dashboard": {"dashboard"},
    "bundle": {"jax"},
    "dev": {"cpu", "jax", "ray", "atari", "mujoco", "envpool", "gym", "dm-control", "minatar", "compression", "plot"}
    | {"tune", "wandb", "mlflow", "data", "dashboard", "serve", "dev", "s3", "gcs", "azure"},
}
ACCELERATOR = re.compile(r"nvidia|cuda|torch|triton|jax-cuda")
ACCELERATED = {"gpu", "bundle"}
SELF = {"distrl[image]", "distrl[jax]", "distrl[plot]"}


def declared() -> list[tuple[str, str]]:
    """(extra or –, requirement) in the order of pyproject.toml."""
    base = [("–", requirement) for requirement in PROJECT["dependencies"]]
    extras = PROJECT["optional-dependencies"]
    groups = PYPROJECT["dependency-groups"]
    named = [(f"`{extra}`", requirement) for extra in extras for requirement in extras[extra]]
    return base + named + [(f"`{group}`", requirement) for group in groups for requirement in groups[group]]


def lock_text(name: str) -> str:
    return (ROOT / f"requirements/{name}.lock").read_text()


def lock(name: str) -> dict[str, tuple[str, str, list[str]]]:
    """Package -> (version, marker, hashes)."""
    entries = {}
    for entry in re.split(r"\n(?=\S)", lock_text(name)):
        if entry.startswith("#"):
            continue  # what the lock leaves out
        requirement = Requirement(entry.split(" \\")[0])
        version = str(requirement.specifier).removeprefix("==")
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry)
        entries[canonicalize_name(requirement.name)] = (version, str(requirement.marker or ""), hashes)
    return entries


def test_dependencies_page_is_pyproject():
    rows = re.findall(
        r"^\| (–|`[\w-]+`) \| `([^`]+)` \| (.+) \|$", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE
    )
    assert [(extra, requirement) for extra, requirement, _ in rows] == declared()
    assert all(reason.endswith(".") for *_, reason in rows)


def test_every_extra_that_users_are_promised():
    promised = {"cpu", "gpu", "jax", "jax-cuda", "ray", "dashboard", "serve", "dev", "s3", "gcs", "azure"}
    promised |= {
        "image",
        "atari",
        "box2d",
        "mujoco",
        "video",
        "envpool",
        "gym",
        "dm-control",
        "minatar",
        "compression",
        "data",
        "plot",
        "tune",
        "wandb",
        "mlflow",
    }
    assert PROJECT["optional-dependencies"].keys() == promised


def test_the_supported_pythons_are_said_alike_everywhere():
    versions = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if " :: 3." in name]
    assert versions == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    for page in ("README.md", "Makefile"):
        assert "Python 3.11, 3.12 or 3.13" in (ROOT / page).read_text()
    (others,) = re.findall(r"^PYTHONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert others.split() == versions[1:]  # `make test` runs on the first


@pytest.mark.parametrize("requirement", sorted({requirement for _, requirement in declared()} - SELF))
def test_every_dependency_has_a_lower_and_an_upper_bound(requirement):
    operators = {specifier.operator for specifier in Requirement(requirement).specifier}
    assert operators == {">=", "<"}


def test_extra_names_in_errors_exist():
    """require(module, what, extra) names an extra that pip knows."""
    extras = set()
    for path in (ROOT / "distrl").rglob("*.py"):
        calls = re.findall(r"(?:require|MissingExtraError)\(([^()]*)\)", path.read_text())
        extras |= {call.split(",")[-1].strip().strip('"') for call in calls if call.rstrip().endswith('"')}
    assert extras <= PROJECT["optional-dependencies"].keys()


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_and_hashes_what_pyproject_asks_for(name):
    locked = lock(name)
    assert all(version and hashes for version, _, hashes in locked.values())
    asked = list(PROJECT["dependencies"])
    if "plot" in LOCKS[name]:  # the locks by which distrl is installed from its sources
        asked += PYPROJECT["build-system"]["requires"]
    asked += [item for extra in LOCKS[name] for item in PROJECT["optional-dependencies"][extra] if item not in SELF]
    left_out = with_jax() if name == "bundle" else set()
    for requirement in map(Requirement, asked):
        if canonicalize_name(requirement.name) in left_out:
            continue
        version, *_ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}: run make lock"


@pytest.mark.parametrize("name", [*sorted(LOCKS.keys() - {"dev"}), "build"])
def test_every_lock_is_a_selection_from_the_dev_lock(name):
    dev = lock("dev")
    for package, (version, _, hashes) in lock(name).items():
        if name not in ACCELERATED or not (package == "tensorflow" or ACCELERATOR.match(package)):
            assert (version, hashes) == (dev[package][0], dev[package][2])


@pytest.mark.parametrize(
    ("name", "shared"), [("references", {"keras", "numpy", "tensorflow-cpu", "jax"}), ("site", {"jinja2", "ruff"})]
)
def test_other_environments_have_the_dev_locks_versions_of_what_both_have(name, shared):
    dev, other = lock("dev"), lock(name)
    both = dev.keys() & other.keys()
    assert shared <= both
    assert {package: other[package][0] for package in both} == {package: dev[package][0] for package in both}
    assert all(hashes for _, _, hashes in other.values())


def test_tensorflow_is_of_one_version_in_all_locks():
    assert lock("gpu")["tensorflow"][0] == lock("train")["tensorflow-cpu"][0]


def test_the_build_lock_has_what_builds_the_images():
    locked = lock("build")
    for requirement in map(Requirement, PYPROJECT["dependency-groups"]["image-build"]):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)][0])
    assert set(PYPROJECT["build-system"]["requires"]) <= set(PYPROJECT["dependency-groups"]["image-build"])


@pytest.mark.parametrize("name", ["train", "actor", "build"])
def test_the_packages_that_an_image_downloads_are_all_that_some_python_3_11_on_linux_needs(name):
    taken = {canonicalize_name(entry.split("==")[0]): entry for entry in entries_for_linux(lock_text(name))}
    assert all(" ; " not in entry and "--hash=sha256:" in entry for entry in taken.values())
    for patch in ("3.11.2", "3.11.14"):  # Debian's, and one that needs less
        here = {"python_full_version": patch, "python_version": "3.11", "sys_platform": "linux"}
        for package, (_, marker, hashes) in lock(name).items():
            if not marker or Marker(marker).evaluate(here):
                assert re.findall(r"sha256:([0-9a-f]{64})", taken[package]) == hashes
    assert "colorama" not in taken  # Windows'


def test_actors_and_dashboards_have_no_framework_in_their_images():
    for name in ("actor", "environments", "dashboard"):
        assert not {"tensorflow", "tensorflow-cpu", "keras", "jax", "jaxlib", "ray"} & lock(name).keys()


@pytest.mark.parametrize("name", [*LOCKS, "build"])
def test_lock_names_no_index_and_brings_no_accelerator_libraries(name):
    text = lock_text(name)
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted-host|^-", text, re.MULTILINE)
    assert bool([package for package in lock(name) if ACCELERATOR.match(package)]) == (name in ACCELERATED)


def test_package_data_is_declared_and_there():
    data = [
        "py.typed",
        "presets/*.yaml",
        "apps/dashboard/static/**/*",
        "apps/serve/demo/*",
        "chart/**/*",
        "chart/.helmignore",
    ]
    assert PYPROJECT["tool"]["setuptools"]["package-data"] == {"distrl": data}
    assert (ROOT / "distrl/py.typed").exists()
    assert (ROOT / "distrl/presets/cartpole-impala.yaml").exists()
    assert (ROOT / "distrl/apps/dashboard/static/index.html").exists()


def test_a_wheel_has_the_chart(tmp_path):
    """It is a link in the tree, so that a checkout and an editable installation have it, too."""
    assert os.readlink(ROOT / "distrl/chart") == "../helm/distrl"
    for name in ("distrl", "helm"):
        hidden = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=hidden)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, f"--wheel-dir={tmp_path}", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    chart = ROOT / "helm/distrl"
    files = {f"distrl/chart/{path.relative_to(chart)}" for path in chart.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert "distrl/chart/templates/learner.yaml" in files
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.startswith("distrl/chart/")} == files


def test_the_version_is_written_once():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "distrl.version.__version__"}


def test_console_script_leads_to_a_function():
    module, _, function = PROJECT["scripts"]["distrl"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_ci_runs_what_the_test_command_of_the_readme_runs():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    parts = [line.split()[1] for line in lines if line.startswith("run_part ")]
    assert parts == ["fast", "suite", "site", "pythons", "part", "again"]
    rules = re.findall(r"^(test|check): ([a-z ]+?) *##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rules == [("test", "check"), ("check", "fast suite")]
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("broken", ["fast", "pythons", "again", None])
def test_ci_ends_at_the_first_part_that_fails_and_shows_the_time_of_each(broken, tmp_path):
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, source in {"make": f"echo make $1 $RUN_TESTS $ALL; [ $1 != {broken} ]", "chromium": ""}.items():
        (programs / name).write_text(f"#!/bin/sh\n{source}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run([tmp_path / ".ci/run"], env=environment, capture_output=True, text=True, check=False)
    parts = ["fast", "suite", "site", "pythons", "part", "again"]
    begun = parts[: parts.index(broken) + 1] if broken else parts
    noted = ["make fast", *(f"make {part} -m tests.second_run note 1" for part in parts[1:])]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [" ".join(line) for line in lines[: len(begun)]] == noted[: len(begun)]
    assert [(line[0], line[2]) for line in lines[len(begun) :]] == [(part, "s") for part in begun]
    assert (done.returncode, done.stderr) == (1 if broken else 0, "")


def make(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command, environment = ["make", "--no-print-directory", *arguments], {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_make_lists_its_targets():
    listed = [line.split()[0] for line in make().stdout.splitlines()]
    assert {"install", "train", "test", "check", "format", "bench"} <= set(listed)


def test_make_keeps_bytecode_where_the_environment_refuses_it():
    shown = f"shown: ; @{sys.executable} -c 'import sys; print(sys.dont_write_bytecode)'"
    done = make("shown", f"--eval={shown}", PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("#!/bin/sh\nexit 1", "distrl needs Python 3.11, 3.12 or 3.13: sudo apt-get install python3 python3-venv"),
        ('#!/bin/sh\ncase "$2" in *venv*) exit 1;; esac', "lacks its venv module: sudo apt-get install python3-venv"),
    ],
    ids=["too old or absent", "without venv"],
)
def test_make_says_what_is_missing_in_one_line(program, message, tmp_path):
    python = tmp_path / "python3"
    python.write_text(program)
    python.chmod(0o755)
    done = make("install", f"PYTHON={python}", f"VENV={tmp_path}/venv")
    said, verdict = done.stderr.splitlines()
    assert message in said
    assert "Error 1" in verdict
    assert done.returncode == 2
    assert not (tmp_path / "venv").exists()


def test_python_here_is_one_that_the_project_supports():
    assert sys.version_info >= (3, 11)


def test_tests_that_this_run_leaves_out_have_their_fixtures():
    """Nothing else of `make test` would notice that those of `make cluster` cannot begin."""
    plan = [sys.executable, "-m", "pytest", "-q", "--setup-plan", "-p", "no:cacheprovider", "-m", "cluster"]
    done = subprocess.run([*plan, "tests/cluster"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, re.findall(r"^ERROR .*|^E .*", done.stdout, re.MULTILINE)) == (0, [])


def test_names_of_kept_files_are_plain():
    """A file that a script has left behind by mistake shows, and every file can be named in a shell."""
    kept = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [name for name in kept.split("\0") if not re.fullmatch(r"[\w./-]*", name, re.ASCII)] == []
