"""The images that image/build.py builds, and their files for containers (tests/faults/pods.py)."""

import json
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from image.build import build, missing_packages, parts, storage
from tests.faults.pods import RUNTIME, Files

REGISTRY = "docker.io"
"""Registry of a reference that names none."""


def missing_for_images() -> str | None:
    """Return the Debian packages that are missing to build and run images, as a reason to skip; or None."""
    missing = missing_packages("buildah", "mmdebstrap", RUNTIME)
    return f"install {' '.join(missing)}: sudo apt-get install {' '.join(missing)}" if missing else None


class Image:
    """An image, built unless it is there, with its files mounted.

    Attributes:
        archive: The file that holds it.
        references: Names under which `podman load` would store it.
        config: What the image says about itself, in Docker's terms: User, Env, Entrypoint, Healthcheck, Labels …
        root: Its files.
    """

    def __init__(self, target: str) -> None:
        """Build it; raise image.build.ImageError if that fails."""
        self.archive = build(target)
        with parts(self.archive) as (config, _):
            self.config: dict[str, Any] = config["config"]
        with tarfile.open(self.archive) as archive:
            manifest = archive.extractfile("manifest.json")
            assert manifest is not None
            self.references: list[str] = json.load(manifest)[0]["RepoTags"]
        self._container = _buildah("from", "--pull-never", f"localhost/distrl/{target}")
        self.root = Path(_buildah("mount", self._container))

    @property
    def files(self) -> Files:
        """Its files and settings, for a container."""
        user, group = map(int, self.config["User"].split(":"))
        variables = dict(variable.split("=", 1) for variable in self.config["Env"])
        return Files(self.root, tuple(self.config["Entrypoint"]), variables, self.config["WorkingDir"], (user, group))

    def close(self) -> None:
        _buildah("rm", self._container)


def files_of_images(images: Iterable[Image], others: Callable[[str], Files]) -> Callable[[str], Files]:
    """Return the function from an image's reference to its files.

    Args:
        others: The same for images that are not distrl's.
    """
    built = {reference: image.files for image in images for reference in image.references}

    def files_of(reference: str) -> Files:
        if "distrl/" not in reference:
            return others(reference)
        return built[reference if "." in reference.partition("/")[0] else f"{REGISTRY}/{reference}"]

    return files_of


def _buildah(*arguments: str) -> str:
    command = ["buildah", *storage(), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
