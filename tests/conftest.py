"""Settings for every test, made before anything imports TensorFlow. No global seeds: tests that draw say from what."""

import os
import socket
from itertools import count

import pytest
from hypothesis import settings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

# Time is never asserted, so examples have no deadline; CI draws the same examples every time.
settings.register_profile("distrl", deadline=None, derandomize="CI" in os.environ)
# What runs once more on another of Keras' backends compiles for every shape anew, and needs no new examples.
settings.register_profile("other backend", settings.get_profile("distrl"), max_examples=8)
settings.load_profile("distrl" if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow" else "other backend")


FIRST_PORT, PORTS_EACH, PORT_SHARES = 20_000, 500, 20
"""Below those that systems give out by themselves, so that nobody else gets them meanwhile; each worker has its own."""
_handed_out = count()


@pytest.fixture
def free_port() -> int:
    """A port that no other test of this run is given, and that nobody listens on."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    first = FIRST_PORT + int(worker) % PORT_SHARES * PORTS_EACH
    # Where in its share a process begins depends on the process: several runs may go on at once on one machine.
    for _ in range(PORTS_EACH):
        port = first + (os.getpid() + next(_handed_out)) % PORTS_EACH
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise RuntimeError(f"no port from {first} to {first + PORTS_EACH - 1} is free")
