"""A run in memory for what roles do with a backend."""

import pytest

from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.in_memory import InMemoryBackend


@pytest.fixture
def backend() -> InMemoryBackend:
    backend = InMemoryBackend("r", QueueCaps(8, 2**20))
    backend.create("{}")
    return backend
