"""A policy with memory, and the inference server of a host as a process of its own."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from distrl.actors.admission import ActorProgress
from distrl.actors.policy import Policy
from distrl.config import RunConfig
from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.schedules import Progress
from distrl.environments.probe import probe
from distrl.inference.client import SharedPolicy
from distrl.memory_backend.codec import encode_weights
from distrl.memory_backend.weights import Published
from distrl.networks.network import Network
from distrl.networks.policy.bundle import export_bundle
from distrl.types import PolicyBundle, Weights
from tests.inference.one_server import DESCRIPTION, GRAPH, publish

CONFIG = RunConfig.model_validate(
    {
        "environment": {"id": "distrl.environments.worlds.toy:Identity", "kwargs": {"n": 3, "length_steps": 7}},
        "network": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 3}},
        "actors": {"environments": 2, "unroll_length_steps": 5},
    }
)


@pytest.fixture(scope="session")
def remembering(tmp_path_factory) -> tuple[Network, PolicyBundle]:
    """A network with an LSTM, and its bundle."""
    heads = (PolicyHeadParameters(), ValueHeadParameters())
    network = Network(CONFIG.network, probe(CONFIG.environment), heads, "main", 1)
    return network, export_bundle(network, cache_dir=tmp_path_factory.mktemp("bundles"))


class Host:
    """A host with at most one server, and the learner (the test), which publishes weights."""

    def __init__(self, folder: Path, network: Network, bundle: PolicyBundle) -> None:
        self.folder, self.directory, self.bundle = folder, folder / "host", bundle
        self.directory.mkdir()
        (folder / GRAPH).write_bytes(bundle.graph)
        (folder / DESCRIPTION).write_text(bundle.description)
        self._network = network
        self.stop = threading.Event()
        self.opened: list[SharedPolicy] = []
        self.server: subprocess.Popen[str] | None = None

    def starts(self) -> None:
        command = [sys.executable, "-m", "tests.inference.one_server", str(self.folder), str(self.directory)]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def ends(self, number: int = signal.SIGTERM) -> tuple[int, int]:
        """End the server with a signal; return its batches and their rows if it ends in order."""
        assert self.server is not None
        self.server.send_signal(number)
        told = self.server.communicate()[0]
        self.server = None
        return tuple(map(int, told.split())) if told else (0, 0)

    def weights(self, version: int) -> Weights:
        """Weights of a version, drawn from its number."""
        rng = np.random.default_rng(version)
        arrays = self._network.named_weights()
        drawn = {name: rng.standard_normal(array.shape).astype(array.dtype) for name, array in arrays.items()}
        return Weights(version, drawn)

    def publishes(self, version: int) -> None:
        blob = encode_weights(self.weights(version))
        publish(self.folder, Published(version, blob, Progress(10 * version, version, version)))

    def actor(self, rows: int = 2, **options: bool) -> SharedPolicy:
        progress = ActorProgress("acting")
        made = SharedPolicy(self.bundle.description, rows, self.directory, self.stop.is_set, progress, **options)
        self.opened.append(made)
        return made

    def own(self, version: int) -> Policy:
        """A policy in this process, under the weights of a version."""
        policy = Policy(self.bundle)
        policy.set_weights(self.weights(version))
        return policy

    def close(self) -> None:
        self.stop.set()
        for policy in self.opened:
            policy.close()
        if self.server is not None:
            self.server.kill()
            self.server.communicate()


@pytest.fixture
def host(tmp_path, remembering) -> Iterator[Host]:
    made = Host(tmp_path, *remembering)
    yield made
    made.close()
