"""An S3 server in a process of its own, which tests stop, suspend and refuse rights on."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fsspec

from tests.waiting import wait_until

BUCKET = "bucket"


class S3Server:
    """moto's server with one bucket.

    Args:
        address: Where it listens.
        refuses: Whether it refuses every request, as for want of rights.
    """

    def __init__(self, folder: Path, port: int, *, address: str = "127.0.0.1", refuses: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._address, self._port, self._refuses = folder / "s3.log", address, port, refuses
        self.url = f"s3://{BUCKET}/runs"
        self.start()

    @property
    def variables(self) -> dict[str, str]:
        """The environment of clients."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self._address}:{self._port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-store",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """Start it, empty but for the bucket."""
        variables = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "0"} if self._refuses else dict(os.environ)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", self._address, "-p", str(self._port)],
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
            )
        wait_until(lambda: b"Running on" in self._log.read_bytes(), "the S3 server listens")
        if not self._refuses:
            self.files().mkdir(BUCKET)

    def files(self):
        """Return a client of its own, whatever the environment says."""
        found = self.variables
        return fsspec.filesystem(
            "s3",
            key=found["AWS_ACCESS_KEY_ID"],
            secret=found["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=found["AWS_ENDPOINT_URL"],
            skip_instance_cache=True,
            use_listings_cache=False,
        )

    def names(self, run_id: str) -> set[str]:
        """Return the names of a run's objects."""
        prefix = f"{BUCKET}/runs/{run_id}"
        return {name.removeprefix(f"{prefix}/") for name in self.files().find(prefix)}

    def has_checkpoint(self, run_id: str) -> bool:
        """Whether a run has a complete checkpoint: its manifest is written last."""
        return any(name.startswith("checkpoints/") and name.endswith("manifest.json") for name in self.names(run_id))

    def requests(self) -> Counter[str]:
        """Return the number of requests by kind since the start of the server; LIST is a GET of the bucket."""
        lines = re.findall(r'"(?:\x1b\[\d+m)*(GET|PUT|POST|DELETE|HEAD) (\S+)', self._log.read_text())
        return Counter("LIST" if kind == "GET" and "list-type" in path else kind for kind, path in lines)

    def signal(self, number: int) -> None:
        """Suspend it, let it go on, or kill it."""
        os.killpg(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait()
            self._log.unlink()

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
