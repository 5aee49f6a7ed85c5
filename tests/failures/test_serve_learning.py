"""Clients of `distrl serve --learn`: their episodes are unrolls of ordinary actors, with exact accounts."""

import contextlib
import http.client
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.apps.serve.conftest import ask_by, exchange
from tests.faults.arguments import sets
from tests.faults.own_redis import OwnRedis
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.redis]

SPACES = "{observation_space: {type: Box, shape: [3]}, action_space: {type: Discrete, n: 2}}"
SMALL = sets(
    *(f"environment.spaces={SPACES}", "learner.batch_size=2", "actors.environments=1"),
    *("actors.unroll_length_steps=4", "network.middleware_parameters.scheme=[8]"),
)
GAME = ("--env", "game", "--no-actors", *SMALL)


@contextlib.contextmanager
def teaching(run_dir, *more):
    """Serve a run to clients that teach it; yield the port and the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "distrl", "serve", str(run_dir), "--learn", "--port", "0", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        lines = iter(process.stdout.readline, "")
        found = next(filter(None, (re.search(r"at http://127\.0\.0\.1:(\d+)/", line) for line in lines)), None)
        assert found, process.communicate()
        yield int(found[1]), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


@contextlib.contextmanager
def socket_to(port):
    with connect(f"ws://127.0.0.1:{port}/ws", proxy=None, compression=None) as websocket:
        yield websocket


def shown(rng):
    return rng.normal(size=3).tolist()


def play(websocket, session, steps, rng, **more):
    """Play an episode of some steps, each with reward 1; return the last reply."""
    reply = exchange(websocket, session=session, observation=shown(rng), begins=True, **more)
    for step in range(steps):
        assert reply["action"] in (0, 1), reply
        over = {"terminated": True} if step == steps - 1 else {"observation": shown(rng)}
        reply = exchange(websocket, session=session, reward=1.0, step=step, **over)
    return reply


def metric(port, name):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        text = ask_by(connection, "GET", "/metrics")[1].decode()
    return float(re.search(rf"^{name} (.*)$", text, re.MULTILINE)[1])


@pytest.mark.parametrize("algorithm", ["impala", "ppo"])  # any age, and unrolls that each take a ticket
def test_episodes_of_clients_are_learned_from(start_run, redis_url, algorithm):
    more = sets("algorithm.minibatches=1") if algorithm == "ppo" else []
    run = start_run(*GAME, "--algorithm", algorithm, "--redis-url", redis_url, *more)
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    rng = np.random.default_rng(0)
    with teaching(run.run_dir) as (port, _), socket_to(port) as websocket:
        trained = run.backend.ledger.counts
        while trained().trained < 20:
            for session in ("a", 2):
                reply = play(websocket, session, 5, rng)
                assert (reply["return"], reply["steps"], reply["session"]) == (5.0, 5, session)
        greedy = exchange(websocket, session="greedy", observation=shown(rng), greedy=True, want=["value"])
        assert "learns" not in greedy
        assert math.isfinite(greedy["value"])
        drawn = exchange(websocket, session="a", observation=shown(rng), want=["log_probability", "distribution"])
        assert drawn["learns"]
        chances = drawn["distribution"]["action"]["probabilities"]
        assert math.log(chances[drawn["action"]]) == pytest.approx(drawn["log_probability"], rel=1e-3)
        assert metric(port, "distrl_serve_learning_episodes") == 1
        run.process.terminate()
        summary = run.finish()
        while "learns" in play(websocket, "a", 3, rng):  # the run has ended: the newest policy goes on
            pass
    assert (summary.exit_code, summary.imbalance, summary.lost, summary.foreign) == (0, 0, 0, 0)
    assert summary.mean_return_100 == 5.0
    assert algorithm != "ppo" or summary.policy_lag.max == 0


LIES = [
    ({"reward": math.nan}, 400, False),
    ({"reward": 3e38}, 400, False),  # its square is not finite, nor would be the loss
    ({"reward": 1.0, "observation": [0.0, 3e38, 0.0]}, 400, False),
    ({"reward": 1.0, "observation": None}, 400, False),
    ({"reward": "much"}, 400, False),
    ({}, 400, False),  # no reward
    ({"reward": 1.0, "observation": [0.0, math.inf, 0.0]}, 400, False),
    ({"reward": 1.0, "observation": [0.0] * 4}, 400, False),
    ({"reward": 1.0, "truncated": True, "observation": None}, 400, False),
    ({"reward": 1.0, "step": 3}, 409, True),  # of another action: what came between is not known
]


def test_a_client_that_lies_or_goes_loses_only_its_own_episode(start_run, redis_url):
    run = start_run(*GAME, "--algorithm", "impala", "--redis-url", redis_url)
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    rng = np.random.default_rng(1)
    with teaching(run.run_dir) as (port, server), socket_to(port) as honest:
        exchange(honest, session=1, observation=shown(rng))
        for lie, status, is_lost in LIES:
            with socket_to(port) as liar:  # that goes in the middle of its episode
                assert exchange(liar, session=1, observation=shown(rng))["learns"]
                message = {"session": 1, "observation": shown(rng), **lie}
                liar.send(json.dumps(message))
                refused = json.loads(liar.recv(timeout=PATIENCE_S))
                assert refused["status"] == status, refused
                corrected = exchange(liar, session=1, observation=shown(rng), reward=0.0)
                assert corrected.get("status") == (409 if is_lost else None), corrected
                assert "action" in exchange(liar, session=1, observation=shown(rng), begins=True)
            assert exchange(honest, session=1, observation=shown(rng), reward=1.0)["learns"]
        last = exchange(honest, session=1, observation=shown(rng), reward=1.0, truncated=True)
        assert (last["return"], last["steps"]) == (len(LIES) + 1, len(LIES) + 1)
        wait_until(lambda: metric(port, "distrl_serve_learning_episodes") == 0, "seats of those who went are free")
        server.kill()  # with unrolls that are not full
    with teaching(run.run_dir) as (port, _), socket_to(port) as websocket:
        before = run.backend.ledger.counts().trained
        while run.backend.ledger.counts().trained < before + 4:
            play(websocket, "a", 5, rng)
        run.process.terminate()
        summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.lost, summary.foreign) == (0, 0, 0, 0)
    assert sum(summary.dropped.values()) == 0


def test_a_client_that_dies_holds_no_update_up(start_run, redis_url):
    """By HTTP the server does not notice; where staleness is bounded, the update waits until its ticket is back."""
    run = start_run(*GAME, "--algorithm", "ppo", "--redis-url", redis_url, *sets("algorithm.minibatches=1"))
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    rng = np.random.default_rng(2)
    with teaching(run.run_dir) as (port, _), socket_to(port) as websocket:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as dying:
            session = ask_by(dying, "POST", "/sessions")[1]["session"]
            message = {"session": session, "observation": shown(rng), "begins": True}
            assert ask_by(dying, "POST", "/act", message)[1]["learns"]
        before = run.backend.ledger.counts().trained
        while run.backend.ledger.counts().trained < before + 8:
            play(websocket, "a", 5, rng)
        run.process.terminate()
        summary = run.finish()
    assert (summary.exit_code, summary.imbalance, summary.lost, summary.policy_lag.max) == (0, 0, 0, 0)


@pytest.mark.long
def test_a_run_that_is_launched_again_is_joined_again(start_run):
    """Its Redis goes with it: the server gives that one up although the run's roles would wait for it much longer."""
    patient = sets("memory.give_up_s=3600", "memory.listen=127.0.0.1")
    run = start_run(*GAME, "--algorithm", "impala", *patient)
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    rng = np.random.default_rng(3)
    with teaching(run.run_dir) as (port, _), socket_to(port) as websocket:
        assert "learns" in play(websocket, "a", 3, rng)
        earlier = run.record["launch"]
        run.process.kill()
        run.process.wait()
        again = start_run(*GAME, "--algorithm", "impala", *patient, "--resume", str(run.run_dir))
        wait_until(lambda: again.record["launch"] != earlier, "it is launched again")
        while not again.backend.ledger.counts().trained:
            play(websocket, "a", 5, rng)
        again.process.terminate()
        assert again.finish().exit_code == 0


class Players:
    """Clients that play until they are told to stop, and come back whenever their server or connection goes."""

    def __init__(self, port, count):
        self._over, self._port = threading.Event(), port
        self.steps = [0] * count
        self.wrong = []
        self._threads = [threading.Thread(target=self._play, args=(number,)) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _play(self, number):
        rng = np.random.default_rng(number)
        while not self._over.is_set():
            with contextlib.suppress(OSError, WebSocketException), socket_to(self._port) as websocket:
                while not self._over.is_set():
                    try:
                        play(websocket, 1, 5, rng)
                    except (AssertionError, KeyError) as error:
                        self.wrong.append(repr(error))
                        break
                    self.steps[number] += 5
                    if rng.random() < 0.05:
                        break  # this client dies

    def stop(self):
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_accounts_are_exact_after_twenty_kills(start_run, free_port, tmp_path):
    """Clients die all the time; server, learner and Redis are killed in turn."""
    own = OwnRedis(tmp_path / "redis", free_port, "always").start()
    run = start_run(*GAME, "--algorithm", "impala", "--redis-url", own.url, *sets("actors.restart_budget=100"))
    run.wait_until(lambda: run.state("learner").startswith(("waiting", "training")), "the learner waits")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    server = contextlib.ExitStack()
    server.enter_context(teaching(run.run_dir, "--port", str(port)))
    players = Players(port, 4)
    try:
        for kill in range(20):
            before = run.backend.ledger.counts().trained
            run.wait_until(lambda before=before: run.backend.ledger.counts().trained > before + 10, "it learns")
            if kill % 3 == 0:
                server.close()
                server = contextlib.ExitStack()
                server.enter_context(teaching(run.run_dir, "--port", str(port)))
            elif kill % 3 == 1:
                run.kill("learner")
            else:
                own.end(signal.SIGKILL)
                own.start()
        before = run.backend.ledger.counts().trained
        run.wait_until(lambda: run.backend.ledger.counts().trained > before + 10, "it learns")
    finally:
        players.stop()
        server.close()
    run.process.terminate()
    summary = run.finish()
    own.end()
    assert players.wrong == []
    dropped = sum(summary.dropped.values())
    assert (summary.exit_code, summary.imbalance) == (0, 0)
    assert summary.produced + summary.foreign == (
        summary.trained + summary.queued + summary.in_flight + dropped + summary.lost
    )
