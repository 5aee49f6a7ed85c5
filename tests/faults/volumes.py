"""Volumes of Pods as folders: owned and with the rights that a kubelet gives them."""

import base64
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.hosts import Host

Object = Mapping[str, Any]
SIZES = {"Mi": "m", "Gi": "g"}


@dataclass(frozen=True)
class Volume:
    """A folder of this machine that containers mount."""

    path: Path
    is_read_only: bool = False


def contents(found: Object) -> dict[str, bytes]:
    """Return the files of a Secret or ConfigMap."""
    data = found.get("data") or {}
    if found["kind"] == "Secret":
        return {name: base64.b64decode(value) for name, value in data.items()}
    return {name: value.encode() for name, value in data.items()}


def write_files(directory: Path, files: Mapping[str, bytes], mode: int, group: int | None) -> Volume:
    """Write files as a kubelet does: each is a link into a folder that is exchanged when they change."""
    held = directory / "..2026_01_01"
    held.mkdir(parents=True)
    for name, content in files.items():
        path = held / name
        path.write_bytes(content)
        path.chmod(mode | (0o440 if group is not None else 0))
        (directory / name).symlink_to(f"..data/{name}")
        if group is not None:
            os.chown(path, 0, group)
    (directory / "..data").symlink_to(held.name)
    for folder in (held, directory):
        _own(folder, group)
    return Volume(directory, is_read_only=True)


def chosen(volume: Object, found: Object, directory: Path, group: int | None) -> Volume:
    """Write the files that a volume takes of a Secret or ConfigMap."""
    files = contents(found)
    if "items" in volume:
        files = {item["path"]: files[item["key"]] for item in volume["items"]}
    return write_files(directory, files, volume.get("defaultMode", 0o644), group)


def empty(volume: Object, directory: Path, group: int | None, host: Host) -> Volume:
    """Make an empty folder, in memory if the volume is; its own size is then limited, otherwise not."""
    directory.mkdir(parents=True)
    if volume.get("medium") == "Memory":
        size = volume["sizeLimit"]
        options = f"size={size[:-2]}{SIZES[size[-2:]]}"
        subprocess.run(host.enter("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)), check=True)
        command = f"chgrp {group or 0} {directory} && chmod 2777 {directory}"
        subprocess.run(host.enter("sh", "-c", command), check=True)
    else:
        _own(directory, group)
    return Volume(directory)


def claimed(directory: Path, group: int | None) -> Volume:
    """Give a claim's folder to the Pod's group, unless it is the group's already."""
    directory.mkdir(parents=True, exist_ok=True)
    if group is not None and directory.stat().st_gid != group:
        os.chown(directory, 0, group)
        directory.chmod(0o2775)
    return Volume(directory)


def _own(folder: Path, group: int | None) -> None:
    os.chown(folder, 0, group or 0)
    folder.chmod(0o2777)
