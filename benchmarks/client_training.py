"""A training whose episodes a program of its own plays: by `distrl.Agent`, or by clients of `distrl serve --learn`.

    python -m benchmarks.client_training http --preset cartpole-appo --seed 1 --run-dir runs/by-clients

It takes the options of `distrl train`. Clients are threads of this process, each with an environment, a connection and
a session, and one request under way; they play until the run has reached its budget.
"""

import argparse
import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from websockets.sync.client import connect

import distrl
from distrl.config.environment import EnvironmentConfig
from distrl.config.load import LoadedConfig
from distrl.user_classes import own_class

CLIENTS = 16
STARTS_WITHIN_S = 120.0
LOOK_S = 0.1
REPLIES_WITHIN_S = 60.0

Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""Sends a message of a session to act; returns the reply."""


def environment_of(config: EnvironmentConfig) -> "gymnasium.Env[Any, Any]":
    """Return the environment that a configuration names."""
    if ":" in config.id:
        made: gymnasium.Env[Any, Any] = own_class(config.id, "environment")(**config.kwargs)
        return made
    return gymnasium.make(config.id, **config.kwargs)


def by_agent(loaded: LoadedConfig, run_dir: Path) -> None:
    """Train by one loop with an agent."""
    environment = environment_of(loaded.config.environment)
    seed: int | None = client_seeds(loaded.config.seed)[0]
    with distrl.Agent(loaded, run_dir=run_dir, view="silent") as agent:
        while agent.ended is None:
            observation, _ = environment.reset(seed=seed)
            seed, over = None, False
            while not over:
                observation, reward, terminated, truncated, _ = environment.step(agent.act(observation))
                agent.observe(float(reward), terminated, truncated, observation)
                over = terminated or truncated


def by_clients(way: str, given: argparse.Namespace, loaded: LoadedConfig) -> None:
    """Train by clients of a server.

    Args:
        way: "http" or "websocket".

    Raises:
        RuntimeError: The server did not start or has ended, or refused a message.
    """
    run_dir, over = given.run_dir, threading.Event()
    with serving(given) as (port, server), ThreadPoolExecutor(CLIENTS) as threads:
        clients = [
            threads.submit(client, way, port, loaded.config.environment, seed, over)
            for seed in client_seeds(loaded.config.seed)
        ]
        try:
            while not (run_dir / "summary.json").exists():
                if server.poll() is not None:
                    raise RuntimeError(f"the server has ended with exit code {server.returncode}")
                if failed := [done for done in wait(clients, LOOK_S, FIRST_EXCEPTION).done if done.exception()]:
                    failed[0].result()
        finally:
            over.set()


def client_seeds(seed: int) -> list[int]:
    """Return the seeds of the clients' environments."""
    return [int(one) for one in np.random.SeedSequence(seed).generate_state(CLIENTS)]


@contextlib.contextmanager
def serving(given: argparse.Namespace) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Serve a new training while inside; yield the port and the process, whose output goes to RUN.log.

    Raises:
        RuntimeError: It did not start.
    """
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    sets = [word for value in (f"seed={given.seed}", *given.sets) for word in ("--set", value)]
    words = ["serve", str(given.run_dir), "--learn", "--train", given.preset, "--port", str(port), *sets]
    log = given.run_dir.with_name(f"{given.run_dir.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        server = subprocess.Popen([sys.executable, "-m", "distrl", *words], stdout=output, stderr=output)
    try:
        give_up = time.monotonic() + STARTS_WITHIN_S
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"the server does not start; its messages are in {log}")
            time.sleep(LOOK_S)
        yield port, server
    finally:
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    return False


def client(way: str, port: int, config: EnvironmentConfig, seed: int, over: threading.Event) -> None:
    """Play episodes until `over`.

    Raises:
        RuntimeError: The server refused a message.
    """
    environment = environment_of(config)
    with {"http": by_http, "websocket": by_websocket}[way](port) as ask:
        first: int | None = seed
        while not over.is_set():
            play(environment, ask, first, over)
            first = None


@contextlib.contextmanager
def by_http(port: int) -> Iterator[Ask]:
    """Open a connection with a session that the server names."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=REPLIES_WITHIN_S)) as connection:

        def post(path: str, message: Mapping[str, Any]) -> dict[str, Any]:
            connection.request("POST", path, json.dumps(message), {"Content-Type": "application/json"})
            return accepted(json.loads(connection.getresponse().read()))

        session = post("/sessions", {})["session"]
        yield lambda message: post("/act", {"session": session, **message})


@contextlib.contextmanager
def by_websocket(port: int) -> Iterator[Ask]:
    """Open a WebSocket with one session."""
    with connect(f"ws://127.0.0.1:{port}/ws", proxy=None, compression=None) as websocket:

        def ask(message: dict[str, Any]) -> dict[str, Any]:
            websocket.send(json.dumps({"session": 1, **message}))
            return accepted(json.loads(websocket.recv(REPLIES_WITHIN_S)))

        yield ask


def accepted(reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply; raise RuntimeError if it is an error."""
    if "error" in reply:
        raise RuntimeError(f"refused with status {reply['status']}: {reply['error']}")
    return reply


def play(environment: "gymnasium.Env[Any, Any]", ask: Ask, seed: int | None, over: threading.Event) -> None:
    """Play one episode, or a part of it if `over` is set."""
    space = environment.action_space
    observation, _ = environment.reset(seed=seed)
    reply = ask({"observation": plain(observation), "begins": True})
    for step in range(sys.maxsize):
        action = np.asarray(reply["action"], space.dtype) if space.shape else reply["action"]
        observation, reward, terminated, truncated, _ = environment.step(action)
        message = {"reward": float(reward), "step": step}
        if terminated:
            ask({**message, "terminated": True})
            return
        message["observation"] = plain(observation)
        if truncated:
            ask({**message, "truncated": True})
            return
        if over.is_set():
            return
        reply = ask(message)


def plain(observation: Any) -> Any:
    """Return an observation as JSON has it."""
    if isinstance(observation, Mapping):
        return {name: plain(part) for name, part in observation.items()}
    return np.asarray(observation).tolist()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, those of `distrl train` that benchmarks give."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("way", choices=["agent", "http", "websocket"])
    made.add_argument("--preset", required=True)
    made.add_argument("--seed", type=int, required=True)
    made.add_argument("--run-dir", type=Path, required=True)
    made.add_argument("--set", action="append", default=[], dest="sets", metavar="PATH=VALUE")
    made.add_argument("--quiet", action="store_true", help="as of distrl train; it is always quiet")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; return the run's exit code.

    Raises:
        SystemExit: The accounts of unrolls are not exact.
    """
    given = parser().parse_args(arguments)
    loaded = distrl.load(given.preset, sets=given.sets, flags={"--seed": given.seed})
    if given.way == "agent":
        by_agent(loaded, given.run_dir)
    else:
        by_clients(given.way, given, loaded)
    summary = json.loads((given.run_dir / "summary.json").read_text("utf-8"))
    if summary["imbalance"]:
        raise SystemExit(f"error: {summary['imbalance']} unrolls are not accounted for")
    exit_code: int = summary["exit_code"]
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
