"""Build the container images with buildah: `make image`. It needs root, and no Docker engine.

    python image/build.py actor learner dashboard

Each image becomes a file build/image/TARGET.tar for `docker load` or `podman load`, with its list of packages and
licences (CycloneDX) beside it. Nothing is built anew whose inputs are the same. Packages are downloaded by this
machine's pip, with its settings, and checked against the locks twice: at the download, and in the image.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parent.parent
PRODUCTS = ROOT / "build" / "image"
LOCKS = {
    "actor": "actor.lock",
    "actor-environments": "environments.lock",
    "learner": "learner.lock",
    "learner-gpu": "gpu.lock",
    "dashboard": "dashboard.lock",
}
"""Lock of each target."""
USUAL = ("actor", "learner", "dashboard")
TOOLS_LOCK = "build.lock"
INPUTS = ("Dockerfile", ".dockerignore", "LICENSE", "README.md", "pyproject.toml", "distrl", "helm", "image/build.py")
SUITE = "bookworm"
BASE_PACKAGES = ("python3", "python3-venv")
LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
KEPT = "/usr/share/doc/*/copyright"
MOUNTED = "/mnt"
"""Where packages are mounted in a build: a folder that every base has, as buildah would leave another one behind."""
SBOM = "opt/distrl/sbom.cdx.json"
LOG_LINES = 25


class ImageError(Exception):
    """A step that failed; the message is what the user sees."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the targets that the command line names, and print their sizes."""
    parser = argparse.ArgumentParser(description="Build the container images with buildah.")
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help=f"of {', '.join(LOCKS)}; default: {' '.join(USUAL)}"
    )
    parser.add_argument("--base", metavar="IMAGE", help="base image to pull; default: Debian, made by mmdebstrap")
    told = parser.parse_args(arguments)
    if unknown := set(told.targets) - LOCKS.keys():
        parser.error(f"there is no target {', '.join(sorted(unknown))}; choose of {', '.join(LOCKS)}")
    try:
        for target in told.targets or USUAL:
            image = build(target, told.base)
            print(f"distrl/{target}: {size_bytes(image) / 1e6:,.0f} MB in {image.relative_to(ROOT)}", flush=True)
    except ImageError as error:
        print(f"image: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def build(target: str, base: str | None = None) -> Path:
    """Build one image unless it is there already; return the file that holds it.

    Raises:
        ImageError: A program is missing, or a step failed.
    """
    image, key_file = PRODUCTS / f"{target}.tar", PRODUCTS / f"{target}.key"
    key = key_of(target, base)
    if key_file.exists() and key_file.read_text() == key:
        return image
    _require_programs(base)
    PRODUCTS.mkdir(parents=True, exist_ok=True)
    with (PRODUCTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds of an image would write one file
        if not key_file.exists() or key_file.read_text() != key:
            _build_anew(target, base, image)
            key_file.write_text(key)
    return image


def _require_programs(base: str | None) -> None:
    if missing := missing_packages("buildah", *(() if base else ("mmdebstrap",))):
        raise ImageError(f"install {' '.join(missing)} first: sudo apt-get install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise ImageError(f"buildah and mmdebstrap need root here, and this is uid {os.geteuid()}: sudo make image")


def _build_anew(target: str, base: str | None, image: Path) -> None:
    wheels = download_wheels(target)
    name = base or make_base()
    for stale in (PRODUCTS / f"{target}.key", image):
        stale.unlink(missing_ok=True)
    with Step(f"building distrl/{target} (minutes the first time)", PRODUCTS / f"{target}.log") as step:
        step.run(
            *("buildah", *storage(), "build", "--isolation", "chroot", "--format", "docker", "--layers"),
            *(() if base else ("--pull-never",)),
            *("--build-arg", f"BASE={name}", "--build-arg", f"VERSION={version()}"),
            *("--build-arg", f"REVISION={revision()}", "--build-arg", f"SOURCE={os.environ.get('SOURCE', 'unknown')}"),
            *("--volume", f"{wheels}:{MOUNTED}:ro", "--build-arg", f"PIP_FIND_LINKS={MOUNTED}"),
            *("--build-arg", "PIP_NO_INDEX=1", "--target", target, "--tag", f"distrl/{target}", str(ROOT)),
        )
        archive = f"docker-archive:{image}:distrl/{target}:{version()}"
        step.run("buildah", *storage(), "push", f"distrl/{target}", archive)
    (PRODUCTS / f"{target}.sbom.cdx.json").write_bytes(read_file(image, SBOM))


def missing_packages(*programs: str) -> list[str]:
    """Return the programs that are missing on this machine, which are Debian packages of the same names."""
    return [name for name in programs if shutil.which(name) is None]


def key_of(target: str, base: str | None) -> str:
    """Return a hash of all that an image is made of."""
    source = os.environ.get("SOURCE")
    digest = hashlib.sha256(repr((target, base or base_name(), revision(), source)).encode())
    inputs = [*INPUTS, f"requirements/{LOCKS[target]}", f"requirements/{TOOLS_LOCK}"]
    for path in sorted(file for name in inputs for file in _files(ROOT / name)):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)


def version() -> str:
    """Return distrl's version, without importing it."""
    lines = (ROOT / "distrl/version.py").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("__version__ = "))
    return line.split('"')[1]


def revision() -> str:
    """Return the last commit that changed an image's inputs, with a mark if they differ from it.

    "unknown" outside of a repository, and without git.
    """
    if shutil.which("git") is None:
        return "unknown"
    inputs = ["--", *INPUTS, "requirements"]
    done = [
        subprocess.run(["git", "-C", str(ROOT), *command, *inputs], capture_output=True, text=True)
        for command in (["log", "-1", "--format=%H"], ["status", "--porcelain"])
    ]
    if any(each.returncode for each in done) or not done[0].stdout:
        return "unknown"
    return done[0].stdout.strip() + ("-dirty" if done[1].stdout else "")


def storage() -> list[str]:
    """Return buildah's options by which it keeps layers below build/."""
    return ["--root", str(PRODUCTS / "storage"), "--runroot", str(PRODUCTS / "run")]


def base_name() -> str:
    """Return the name of the base image that `make_base` makes."""
    return "localhost/distrl-base:" + hashlib.sha256(repr((SUITE, BASE_PACKAGES, LEFT_OUT)).encode()).hexdigest()[:12]


def make_base() -> str:
    """Make the base image once: Debian with Python, without documentation; return its name."""
    name = base_name()
    if subprocess.run(["buildah", *storage(), "inspect", "--type=image", name], capture_output=True).returncode == 0:
        return name
    folder = PRODUCTS / "base"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    with Step(f"making a base of Debian {SUITE} (a minute)", PRODUCTS / "base.log") as step:
        step.run(
            *("mmdebstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"),
            *(*left_out, f"--dpkgopt=path-include={KEPT}", SUITE, str(folder / "base.tar")),
        )
        step.run("buildah", *storage(), "build", "--isolation", "chroot", "--tag", name, str(folder))
    (folder / "base.tar").unlink()
    return name


def download_wheels(target: str) -> Path:
    """Download all that the target's locks pin for Linux; return the folder.

    The base's Python may be another 3.11 than this one, so that every package is taken which some 3.11 needs.
    """
    wheels = PRODUCTS / "wheels"
    wheels.mkdir(exist_ok=True)
    for lock in (TOOLS_LOCK, LOCKS[target]):
        text = (ROOT / "requirements" / lock).read_text()
        done, wanted = wheels / f"{lock}.done", hashlib.sha256(text.encode()).hexdigest()
        if done.exists() and done.read_text() == wanted:
            continue
        chosen = PRODUCTS / f"{lock}.txt"
        chosen.write_text("".join(entries_for_linux(text)))
        with Step(f"downloading the packages of requirements/{lock}", PRODUCTS / f"{lock}.log") as step:
            step.run(
                *(sys.executable, "-P", "-m", "pip", "download", "--require-hashes", "--no-deps"),
                *("--only-binary", ":all:", "--python-version", "3.11", "--dest", str(wheels)),
                *("--requirement", str(chosen)),
            )
        done.write_text(wanted)
    return wheels


def entries_for_linux(lock: str, python: str = "3.11") -> Iterator[str]:
    """Yield the entries of a lock that some patch version of this Python on Linux needs, without their markers."""
    for entry in lock.replace("\n    ", "\0").splitlines():
        requirement, *rest = entry.split("\0")
        pinned, _, marker = requirement.removesuffix(" \\").partition(" ; ")
        if not marker or any(_holds(marker, python, patch) for patch in ("0", "99")):
            yield "\n    ".join([f"{pinned} \\", *rest]) + "\n"


def _holds(marker: str, python: str, patch: str) -> bool:
    full = {"python_full_version": f"{python}.{patch}", "python_version": python}
    return Marker(marker).evaluate({**full, "sys_platform": "linux", "platform_system": "Linux"})


@contextmanager
def parts(image: Path) -> Iterator[tuple[dict[str, Any], list[tarfile.TarFile]]]:
    """Yield the configuration of an image and its layers, the lowest first."""
    with tarfile.open(image) as archive:

        def part(name: str) -> Any:
            file = archive.extractfile(name)
            assert file is not None
            return file

        (manifest,) = json.load(part("manifest.json"))
        with ExitStack() as opened:
            layers = [opened.enter_context(tarfile.open(fileobj=part(name))) for name in manifest["Layers"]]
            yield json.load(part(manifest["Config"])), layers


def size_bytes(image: Path) -> int:
    """Return the size of an image's files, as a container engine stores them: not compressed."""
    with parts(image) as (_, layers):
        return sum(member.size for layer in layers for member in layer)


def read_file(image: Path, path: str) -> bytes:
    """Return a file of an image."""
    with parts(image) as (_, layers):
        for layer in reversed(layers):
            if path in layer.getnames() and (file := layer.extractfile(path)) is not None:
                return file.read()
    raise ImageError(f"{path} is not in {image}")


class Step:
    """One line for the user, and a log of what its commands print."""

    def __init__(self, what: str, log: Path) -> None:
        self._what, self._log, self._began = what, log, time.monotonic()

    def __enter__(self) -> "Step":
        print(f"{self._what} … log in {self._log.relative_to(ROOT)}", flush=True)
        self._log.unlink(missing_ok=True)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            print(f"  done in {time.monotonic() - self._began:.0f} s", flush=True)

    def run(self, *command: str) -> None:
        """Run a command; raise ImageError with the end of its output if it fails."""
        with self._log.open("a") as log:
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL).returncode
        if code:
            end = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise ImageError(f"{shlex.join(command[:4])} … failed with {code}; all of it in {self._log}\n{end}")


if __name__ == "__main__":
    sys.exit(main())
