"""A game that distrl learns to play from another machine. Copy it, and put your own game where `Walk` is.

    distrl train --env tcp-listen://127.0.0.1:6025 --actors 1 --set actors.environments=1
    python examples/remote_client.py 127.0.0.1 6025

It needs msgpack and msgpack_numpy, but not distrl. docs/environments.md has the protocol.
"""

import os
import socket
import sys
import time
from contextlib import suppress

import msgpack
import msgpack_numpy


class Walk:
    """From 0 to 5 or -5, one step to the left (action 0) or to the right (action 1) at a time."""

    def answer(self, cmd, action=None, state=None, **_):
        """Return the reply to a request, without its status."""
        if cmd in ("describe", "seed"):
            return {"observation_space": {"type": "Box", "shape": [1]}, "action_space": {"type": "Discrete", "n": 2}}
        self.x = self.x + 2 * action - 1 if cmd == "step" else state["x"] if cmd == "set_state" else 0
        end = {"reward": float(self.x == 5), "terminated": abs(self.x) == 5, "truncated": False}
        return {"obs_dict": {"observation": [self.x]}, **end}


def send(peer, message):
    """Send the length of the message in eight digits, then the message, which may contain arrays."""
    body = msgpack.packb(message, default=msgpack_numpy.encode)
    peer.sendall(b"%08d" % len(body) + body)


def receive(stream):
    """Read the next whole message."""
    return msgpack.unpackb(stream.read(int(stream.read(8))))


host, port = sys.argv[1:] if len(sys.argv) == 3 else sys.exit("usage: remote_client.py HOST PORT")
while True:
    with suppress(OSError), socket.create_connection((host, port)) as peer, peer.makefile("rb") as stream:
        send(peer, {"cmd": "hello", "token": os.environ.get("DISTRL_ENV_TOKEN")})
        game = Walk()
        while stream.peek(1) and (request := receive(stream)):
            if "cmd" in request:
                send(peer, {"status": "ok", **game.answer(**request)})
            elif request["status"] != "ok":  # the first message is the reply to hello
                print(request["message"], flush=True)
    time.sleep(0.5)  # distrl does not listen yet, or no longer
