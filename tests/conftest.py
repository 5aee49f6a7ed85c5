"""Settings for every test, made before anything imports TensorFlow. No global seeds: tests that draw say from what."""

import gc
import json
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from benchmarks.endurance import DIRECTORY_VARIABLE
from distrl.config import RunConfig
from distrl.environments.probe import probe
from distrl.errors import ConfigError
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.embedded_redis import EmbeddedRedis, find_server
from distrl.roles.description import LaunchedRun, RunAddress, RunDescription
from distrl.roles.trust import Trust, new_key, signature
from tests.helm.rendering import UnavailableError, helm_program

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

# Time is never asserted, so examples have no deadline; CI draws the same examples every time.
settings.register_profile("distrl", deadline=None, derandomize="CI" in os.environ)
# What runs once more on another of Keras' backends compiles for every shape anew, and needs no new examples.
settings.register_profile("other backend", settings.get_profile("distrl"), max_examples=8)
settings.load_profile("distrl" if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow" else "other backend")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules of tests/failures evenly among the others; tests of one module stay together.

    They wait more than they compute. If all workers came to them at the end of the run, the cores would be idle.
    """
    modules = [[*tests] for _, tests in groupby(items, lambda test: test.path)]
    waiting = [tests for tests in modules if FAILURES in tests[0].path.parents]
    others = [tests for tests in modules if FAILURES not in tests[0].path.parents]
    count_of_others, passed, spread = sum(map(len, others)), 0, 0
    items.clear()
    for tests in others:
        while spread < len(waiting) and spread * count_of_others <= passed * len(waiting):
            items += waiting[spread]
            spread += 1
        items += tests
        passed += len(tests)
    items += [test for tests in waiting[spread:] for test in tests]


FIRST_PORT, PORTS_EACH, PORT_SHARES = 20_000, 500, 20
"""Ports below the ephemeral ones, so that no other program gets them meanwhile; each worker has its own."""
_handed_out = count()
FAILURES = Path(__file__).parent / "failures"


@pytest.fixture
def free_port() -> int:
    """Return a port that no other test of this run gets and that no program listens on."""
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


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A real redis-server for the tests of one module."""
    try:
        find_server()
    except ConfigError as error:
        if "CI" in os.environ:
            pytest.fail(str(error))
        pytest.skip(str(error))
    with EmbeddedRedis.start(maxmemory_bytes=2**28, max_bulk_bytes=2**26) as server:
        yield server.url


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes what a test has measured for a row of docs/reliability.md: `measured(4, reconnect_s=2.5)`."""
    directory = os.environ.get(DIRECTORY_VARIABLE)

    def note(row: int, **found: float | int | str) -> None:
        print(f"row {row}: {found}")
        if directory is not None:
            path = Path(directory) / f"{row:02}-{request.node.name}.json"
            file = str(request.path.relative_to(request.config.rootpath))
            path.write_text(json.dumps({"row": row, "test": request.node.name, "file": file, "found": found}))

    return note


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Roles set it for their process, which here is that of all tests."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """Whether two trees are equal in structure, types, dtypes, shapes and bits."""
    return _same


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return isinstance(right, dict) and list(left) == list(right) and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, tuple):
        return isinstance(right, tuple) and len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, np.ndarray | np.generic):
        return (
            type(left) is type(right)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, float):
        return type(right) is float and struct.pack("d", left) == struct.pack("d", right)
    return type(left) is type(right) and left == right


gc.disable()  # until everything is imported and collected, of which nothing is ever freed


def pytest_collection_finish() -> None:
    """No later collection passes over all that again."""
    gc.freeze()
    gc.enable()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run_key() -> str:
    return new_key()


@pytest.fixture
def described_run(redis_url, run_key, tmp_path) -> Iterator[Callable[..., Backend]]:
    """Makes a run of CartPole in Redis, with changes to the configuration, as the supervisor does."""
    opened = []

    def make(**sections: Any) -> Backend:
        config = RunConfig.model_validate({"actors": {"count": 1, "environments": 4}, **sections})
        spec = probe(config.environment)
        description = RunDescription(run_id=tmp_path.name, run_dir=str(tmp_path), config=config, spec=spec)
        run = LaunchedRun(RunAddress(redis_url, tmp_path.name, Trust(run_key)), description)
        opened.append(run.open_backend("test"))
        published = description.published()
        opened[-1].create(published, signature(run_key, published))
        return opened[-1]

    yield make
    for backend in opened:
        backend.delete()
        backend.close()


@pytest.fixture(scope="session")
def needs_helm() -> None:
    """Skips the tests of the chart, with the reason, where helm cannot be had; `make cluster` fails then."""
    try:
        helm_program()
    except UnavailableError as error:
        pytest.skip(str(error))
