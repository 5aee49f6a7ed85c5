"""A real Prometheus that scrapes a dashboard as a ServiceMonitor of the chart says, and answers queries."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import wait_until


class Prometheus:
    """A server at a port of this machine."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now.

        Raises:
            ValueError: Prometheus does not understand it.
        """
        words = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{words}", timeout=30.0) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            raise ValueError(f"{expression}: {json.load(error)['error']}") from error


@contextmanager
def scraping(
    endpoint: Mapping[str, Any], labels: Mapping[str, str], *, target: str, secrets: Path, folder: Path, port: int
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes a target every second.

    Args:
        endpoint: An entry of a ServiceMonitor's `endpoints`.
        labels: Those that Prometheus' operator adds.
        target: Host and port in place of the endpoint's Pods.
        secrets: Folder with the keys of the Secret that the endpoint names.
        folder: For its files.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not here: sudo apt-get install prometheus")
    authorization = endpoint["authorization"]
    token = {"type": authorization["type"], "credentials_file": str(secrets / authorization["credentials"]["key"])}
    job = {"job_name": "dashboard", "scrape_interval": "1s", "scrape_timeout": "1s", "metrics_path": endpoint["path"]}
    job |= {"authorization": token, "static_configs": [{"targets": [target], "labels": dict(labels)}]}
    folder.mkdir()
    (folder / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    command = [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            server = Prometheus(port)
            wait_until(lambda: process.poll() is not None or server.is_ready(), "Prometheus is ready", 60.0)
            assert process.poll() is None, (folder / "log").read_text()
            yield server
        finally:
            process.terminate()
