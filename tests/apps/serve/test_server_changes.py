"""1,000 changes of version while clients act: every reply is whole and of one version, and memory stays as it is."""

import contextlib
import http.client
import threading

import numpy as np
import psutil
import pytest

from distrl.learner.policy_files import read_policy, write_weights
from distrl.types import Weights
from tests.apps.serve.conftest import ask_by, exchange, serving
from tests.waiting import PATIENCE_S, wait_until

CLIENTS = 6


def numbered(run_dir, number):
    """Publish weights by which the policy's value is the version's number, whatever it sees."""
    arrays = {name: np.zeros_like(array) for name, array in read_policy(run_dir).weights.arrays.items()}
    bias = next(name for name, array in arrays.items() if "value" in name and array.shape == (1,))
    arrays[bias][0] = number
    write_weights(run_dir / "policy", Weights(number, arrays))


def client(served, found, problems, stop, own):
    """Act until `stop` in requests, sessions and batches, by HTTP or WebSocket, and note versions."""
    kinds = [{"observations": [[0.1] * 4] * 5}, {"observation": [0.2] * 4, "session": own}, {"observation": [0.3] * 4}]
    try:
        with contextlib.ExitStack() as open_connections:
            if own % 2:
                websocket = open_connections.enter_context(served.socket("msgpack"))
                ask = lambda message: exchange(websocket, **message)  # noqa: E731
            else:
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
                open_connections.callback(connection.close)
                kinds[1]["session"] = ask_by(connection, "POST", "/sessions")[1]["session"]
                ask = lambda message: ask_by(connection, "POST", "/act", message)[1]  # noqa: E731
            for step in range(10**9):
                if stop.is_set():
                    return
                message = kinds[step % 3] | {"want": ["value"]} | ({"begins": True} if step % 30 == 1 else {})
                reply = ask(message)
                values = np.atleast_1d(reply.get("value", np.nan))
                found[own].add(reply.get("version"))
                if not (values == reply.get("version")).all():
                    problems.append(reply)
    except Exception as error:
        problems.append(error)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_many_changes_under_load(copied, changes):
    run_dir = copied("mlp")
    numbered(run_dir, 1)
    own, problems, stop = psutil.Process(), [], threading.Event()
    found = [set() for _ in range(CLIENTS)]
    with serving(run_dir, poll_s=0.0) as served:
        threads = [threading.Thread(target=client, args=(served, found, problems, stop, n)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        sizes = {}
        for number in range(2, changes + 2):
            numbered(run_dir, number)
            wait_until(
                lambda number=number: problems or served.act(observation=[0.0] * 4)["version"] == number, "it changes"
            )
            if problems:
                break
            if number % (changes // 10) == 1:
                sizes[number] = own.memory_info().rss / 2**20
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert problems == []
    assert min(len(versions) for versions in found) > 20  # all of them have seen changes
    sizes = list(sizes.values())
    assert sizes[-1] < sizes[1] + 30, sizes  # versions that stayed would take more
