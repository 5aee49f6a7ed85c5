"""An inference server in a process of its own, with published weights in a file."""

import signal
import sys
import threading
from pathlib import Path

from distrl.config.schedules import Progress
from distrl.inference.server import InferenceServer
from distrl.inference.versions import Versions
from distrl.memory_backend.weights import Published
from distrl.networks.policy.description import BundleDescription
from distrl.types import PolicyBundle

PUBLISHED, GRAPH, DESCRIPTION = "published", "graph.onnx", "description.json"


def published(folder: Path) -> Published | None:
    """Return what `publish` has written."""
    try:
        line, _, blob = (folder / PUBLISHED).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    version, *progress = map(int, line.split())
    return Published(version, blob, Progress(*progress))


def publish(folder: Path, weights: Published) -> None:
    new = folder / f"{PUBLISHED}.new"
    new.write_bytes(b"%d %d %d %d\n" % (weights.version, *weights.progress) + weights.blob)
    new.rename(folder / PUBLISHED)


def main(folder: Path, directory: Path) -> None:
    bundle = PolicyBundle((folder / GRAPH).read_bytes(), (folder / DESCRIPTION).read_text())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    versions = Versions(bundle, lambda: published(folder), directory)
    server = InferenceServer(BundleDescription.from_json(bundle.description), versions, directory)
    server.serve(stop.is_set)
    print(server.batches, server.batched_rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
