"""Connections between hosts, tried all at once: which are made, and which time out."""

import json
import subprocess
import sys
from collections.abc import Hashable, Mapping
from typing import TypeVar

from tests.faults.arguments import environment
from tests.faults.hosts import Host

PORTS = (8000, 8001, 8002)
PATIENCE_S = 3.0
"""Time for a connection on one machine; the kernel sends a lost request again after one second."""
SERVE = """
import asyncio, sys
async def serve():
    for port in map(int, sys.argv[1:]):
        await asyncio.start_server(lambda reader, writer: writer.close(), "0.0.0.0", port)
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(serve())
"""
CONNECT = """
import asyncio, json, sys
async def reach(host, port):
    try:
        await asyncio.wait_for(asyncio.open_connection(host, port), float(sys.argv[2]))
    except TimeoutError:
        return "time-out"
    except OSError as error:
        return error.strerror or str(error)
    return "connected"
async def main():
    return await asyncio.gather(*(reach(*target) for target in json.loads(sys.argv[1])))
print(json.dumps(asyncio.run(main())))
"""
Name = TypeVar("Name", bound=Hashable)


def listen(host: Host, ports: tuple[int, ...] = PORTS) -> None:
    """Accept connections to these ports of a host for the rest of its life."""
    command = (sys.executable, "-c", SERVE, *map(str, ports))
    server = host.start(*command, variables=environment(), stdout=subprocess.PIPE)
    assert server.stdout is not None
    with server.stdout as output:
        assert output.readline() == b"ready\n"


def reached(host: Host | None, targets: Mapping[Name, tuple[str, int]]) -> set[Name]:
    """Return the targets to which a host can connect; all others must time out. None: this machine.

    Raises:
        AssertionError: A connection is refused, so that it was allowed and nothing listens.
    """
    command = [sys.executable, "-c", CONNECT, json.dumps([*targets.values()]), str(PATIENCE_S)]
    done = subprocess.run(host.enter(*command) if host else command, check=True, capture_output=True, text=True)
    results = dict(zip(targets, json.loads(done.stdout), strict=True))
    odd = {name: result for name, result in results.items() if result not in ("connected", "time-out")}
    assert not odd, odd
    return {name for name, result in results.items() if result == "connected"}
