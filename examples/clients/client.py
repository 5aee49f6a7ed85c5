"""A client of `distrl serve`, with the standard library alone: copy this file.

    python client.py http://127.0.0.1:8730 "[0, 0.1, 0, -0.1]" ...

Each argument is an observation in JSON; all of them are of one episode.
"""

import http.client
import json
import os
import sys
from urllib.parse import urlsplit


class ServedPolicy:
    """A policy behind a URL, over one connection that stays open.

    Args:
        url: Like http://127.0.0.1:8730, or https:// behind a proxy.
        token: The server's token, if it has one.
    """

    def __init__(self, url, token=None, timeout_s=10.0):
        place = urlsplit(url)
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(place.netloc, timeout=timeout_s)
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def act(self, observation, **fields):
        """Return the reply for one observation; fields are session, begins, greedy, want."""
        return self._ask("POST", "/act", {"observation": observation, **fields})

    def begin_session(self):
        """Return the identifier of a new session: the memory of one sequence of episodes."""
        return self._ask("POST", "/sessions")["session"]

    def end_session(self, session):
        """End a session."""
        self._ask("DELETE", f"/sessions/{session}")

    def describe(self):
        """Return observations, actions, policies and limits."""
        return self._ask("GET", "/")

    def close(self):
        """Close the connection."""
        self._connection.close()

    def _ask(self, method, path, message=None):
        body = None if message is None else json.dumps(message)
        self._connection.request(method, path, body, self._headers)
        reply = json.loads(self._connection.getresponse().read())
        if "error" in reply:
            raise RuntimeError(f"{method} {path}: {reply['error']} (status {reply['status']})")
        return reply


def main():
    """Act on the observations of the command line."""
    if len(sys.argv) < 3:
        sys.exit("usage: python client.py URL OBSERVATION ...")
    url, *observations = sys.argv[1:]
    policy = ServedPolicy(url, os.environ.get("DISTRL_SERVE_TOKEN"))
    session = policy.begin_session()
    for step, observation in enumerate(observations):
        reply = policy.act(json.loads(observation), session=session, begins=step == 0)
        print(json.dumps(reply["action"]), reply["version"])
    policy.end_session(session)
    policy.close()


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"client: {error}")
