"""A run that is tracked without a training."""

import csv
import socket

import pytest

from distrl.apps.config.trackers import TrackersConfig
from distrl.apps.trackers.tracker import Ending, TrackedRun
from distrl.apps.trackers.tracking import Tracking
from distrl.observers.metrics_csv import CsvSink

ENDED = Ending(0, "asked")


class Launch:
    """Sends the same snapshots to metrics.csv and to trackers."""

    def __init__(self, run_dir, resumed=False, **config):
        self.events = []
        self.run = TrackedRun("run-1", run_dir, {"seed": 1, "actors": {"count": 2}}, resumed)
        (run_dir / "logs").mkdir(exist_ok=True)
        self.csv = CsvSink(run_dir / "metrics.csv")
        self.tracking = Tracking(TrackersConfig(**config), self.run, self.events.append)

    def take(self, *updates, **others):
        for number in updates:
            snapshot = {"updates": number, "env_steps": 64 * number, "loss": 1 / (1 + number), "bottleneck": "-"}
            snapshot |= {"kl": None, "unsaved": "no", "network/relu_zeros/a": 0.5, **others}
            self.csv.write(snapshot)
            self.tracking.record(snapshot)

    def finish(self, ending=ENDED):
        self.csv.close()
        return self.tracking.finish(ending)


def rows_of(run_dir):
    """The numbers of metrics.csv, row by row."""
    with (run_dir / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{name: float(cell) for name, cell in row.items() if cell not in ("", "-")} for row in rows]


@pytest.fixture
def launch(tmp_path):
    made = []

    def make(resumed=False, **config):
        made.append(Launch(tmp_path, resumed, **config))
        return made[-1]

    yield make
    for each in made:
        each.finish()


@pytest.fixture
def callers(monkeypatch):
    """A server in the place of every proxy, and the connections to it: libraries that reach out are noticed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY", "CI", "PYTEST_CURRENT_TEST"):  # libraries keep quiet in tests
            monkeypatch.delenv(name, raising=False)

        def connections(wait_s=0.1):
            server.settimeout(wait_s)
            try:
                connection, address = server.accept()
                connection.close()
                return [address]
            except TimeoutError:
                return []

        yield connections
