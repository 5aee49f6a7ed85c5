"""Make a folder by which distrl is installed on a machine without an index: `make bundle`.

    python -m bundle.build --python 3.12
    python -m bundle.build --environments --machine aarch64

build/bundle-3.12-x86_64/ then has install.sh, wheels of all that distrl needs on a machine with JAX, distrl's own, and
`benchmarks.gpu`. Wheels come through this machine's pip, with its settings, and are checked against the locks. They
are those for glibc 2.28, older than that of clusters in use, whatever this machine has.
"""

import argparse
import hashlib
import platform
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from image.build import ROOT, ImageError, Step, entries_for_linux

HERE = Path(__file__).resolve().parent
PRODUCTS = ROOT / "build"
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
GLIBC_MINOR = 28
LOCK, ENVIRONMENTS_LOCK = "bundle.lock", "environments.lock"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "distrl", "helm")
COPIED = (HERE / "install.sh", HERE / "check.py", ROOT / "LICENSE")
MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle that the command line describes, and print its size."""
    parser = argparse.ArgumentParser(prog="bundle", description="Make a folder that installs distrl without an index.")
    parser.add_argument("--python", default="3.12", help="that the bundle is for (default: %(default)s)")
    parser.add_argument("--machine", choices=MACHINES, default=platform.machine(), help="(default: %(default)s)")
    parser.add_argument("--environments", action="store_true", help="with Atari, MuJoCo and Box2D")
    given = parser.parse_args(arguments)
    if given.python not in PYTHONS:
        needed = f"{', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}"
        print(f"bundle: error: --python {given.python}: distrl needs Python {needed}", file=sys.stderr)
        return 2
    try:
        folder = build(given.python, given.machine, environments=given.environments)
    except ImageError as error:
        print(f"bundle: error: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder.relative_to(ROOT)}: {size / MIB:.1f} MiB; copy it, and run install.sh there", flush=True)
    return 0


def build(python: str, machine: str, *, environments: bool = False) -> Path:
    """Make the bundle anew and return its folder.

    Raises:
        ImageError: A step failed; an earlier bundle stays as it was.
    """
    folder = PRODUCTS / f"bundle-{python}-{machine}"
    made = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    (made / "wheels").mkdir(parents=True)
    entries = requirements(python, environments=environments)
    (made / "requirements.txt").write_text("".join(entries))
    (made / "needs.txt").write_text("".join(f"{need}\n" for need in needs()))
    (made / "python.txt").write_text(f"{python} on {machine}\n")
    with Step(f"downloading {len(entries)} packages for Python {python}", PRODUCTS / "bundle.log") as step:
        step.run(
            *(sys.executable, "-P", "-m", "pip", "download", "--require-hashes", "--no-deps", "--only-binary", ":all:"),
            *("--python-version", python, *(f"--platform={tag}" for tag in platforms(machine))),
            *("--dest", str(made / "wheels"), "--requirement", str(made / "requirements.txt")),
        )
    with Step("building distrl's wheel", PRODUCTS / "bundle.log") as step:
        wheel = build_wheel(made, step)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (made / "distrl.txt").write_text(f"distrl=={wheel.name.split('-')[1]} --hash=sha256:{digest}\n")
    copy_files(made)
    shutil.rmtree(folder, ignore_errors=True)
    return made.rename(folder)


def requirements(python: str, *, environments: bool) -> list[str]:
    """Return the entries of the locks, with hashes, that some patch version of this Python on Linux needs."""
    locks = [LOCK, *([ENVIRONMENTS_LOCK] if environments else [])]
    texts = [(ROOT / "requirements" / lock).read_text() for lock in locks]
    entries = {entry.split("==")[0]: entry for text in texts for entry in entries_for_linux(text, python)}
    return [entry for name, entry in sorted(entries.items()) if name not in with_jax()]


def needs() -> list[str]:
    """Return the requirements of distrl[jax] that the environment itself must meet."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["jax"]]
    return [each for each in asked if canonicalize_name(Requirement(each).name) in with_jax()]


def with_jax() -> set[str]:
    """Return the names of the packages that a bundle leaves to the environment."""
    return {line for line in (HERE / "excludes.txt").read_text().splitlines() if not line.startswith("#")}


def platforms(machine: str) -> list[str]:
    """Return the tags of wheels for machines with glibc 2.28, the newest first."""
    dated = ("2014",) if machine == "aarch64" else ("2014", "2010", "1")
    tags = [*(f"_2_{minor}" for minor in range(GLIBC_MINOR, 4, -1)), *dated]
    return [f"manylinux{tag}_{machine}" for tag in tags]


def build_wheel(made: Path, step: Step) -> Path:
    """Build distrl's wheel from a copy of its sources, as setuptools leaves files beside them."""
    sources = made / "sources"
    sources.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, sources)
    step.run(
        *(sys.executable, "-P", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", str(made / "wheels"), str(sources)),
    )
    shutil.rmtree(sources)
    (wheel,) = (made / "wheels").glob("distrl-*.whl")
    return wheel


def copy_files(made: Path) -> None:
    """Copy what is no wheel: the installer, and `benchmarks.gpu` with its page."""
    for path in COPIED:
        shutil.copy(path, made)
    (made / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "gpu.md", made / "docs")
    (made / "benchmarks").mkdir()
    for path in (ROOT / "benchmarks").glob("*.py"):
        shutil.copy(path, made / "benchmarks")
    (made / "benchmarks" / "results").mkdir()
    shutil.copy(ROOT / "benchmarks" / "results" / "gpu.json", made / "benchmarks" / "results")


if __name__ == "__main__":
    sys.exit(main())
