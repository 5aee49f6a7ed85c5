"""A run in memory for what roles do with a backend."""

import pytest

from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.stream import QueueCaps


@pytest.fixture
def backend() -> Backend:
    backend = connect("local:", "r", QueueCaps(8, 2**20), name="test", give_up_s=1.0)
    backend.create("{}")
    return backend
