"""Runs that a Redis knows of, wherever they were launched: shown beside those whose directories are here."""

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from distrl.config.settings import settings_in
from distrl.dashboard.configuration import Leaf
from distrl.dashboard.live import FIRST_RETRY_S, GIVE_UP_S, LONGEST_RETRY_S, ODD
from distrl.errors import DistrlError
from distrl.memory_backend.backend import QueueCaps
from distrl.memory_backend.keys import RunKeys
from distrl.memory_backend.redis_backend import RedisBackend
from distrl.memory_backend.redis_client import RedisClient, connect
from distrl.metrics.runs import RunRecord

SCAN_S = 5.0
"""From one look for runs to the next."""
SILENT_S = 15.0
"""A run none of whose roles has given a sign of life for that long is gone."""
_SCANNED = 1000
_PREFIX, _SUFFIX = "distrl:", ":run"
_LOG = logging.getLogger(__name__)


class Found(NamedTuple):
    """A run that Redis knows of.

    Attributes:
        leaves: Its configuration, secrets masked; nobody there knows where values came from.
        alive: Whether its roles give signs of life; for the first `SILENT_S` that is taken for granted.
    """

    record: RunRecord
    leaves: list[Leaf]
    alive: bool


class Elsewhere:
    """Looks for runs in Redis servers. The caller keeps threads apart.

    Args:
        urls: Of the servers.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._servers = [_Server(url, clock) for url in urls]

    def runs(self) -> dict[str, Found]:
        """Run id -> what is known; as they were `SCAN_S` ago, or longer where Redis cannot be reached."""
        return {run_id: found for server in self._servers for run_id, found in server.runs().items()}

    def close(self) -> None:
        """Closes the connections."""
        for server in self._servers:
            server.close()


def check_reachable(urls: Sequence[str]) -> None:
    """Asks each server once: a wrong address is told of at the start, an outage later on is waited out.

    Raises:
        ConfigError: It is no Redis URL.
        MemoryBackendError: Unreachable.
    """
    for url in urls:
        connect(url, name="dashboard", give_up_s=GIVE_UP_S).close()


class _Server:
    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._url = url
        self._clock = clock
        self._client: RedisClient | None = None
        self._found: dict[str, Found] = {}
        self._beats: dict[str, tuple[object, float]] = {}  # run id -> its roles' beats, and since when
        self._due, self._retry_s = float("-inf"), FIRST_RETRY_S

    def runs(self) -> dict[str, Found]:
        if self._clock() < self._due:
            return self._found
        try:
            self._client = self._client or connect(self._url, name="dashboard", give_up_s=GIVE_UP_S)
            self._found = {run_id: found for run_id in self._ids(self._client) if (found := self._run(run_id))}
        except DistrlError as error:
            _LOG.warning("runs cannot be looked for: %s", error)
            self.close()
            self._found = {}
            self._due = self._clock() + self._retry_s
            self._retry_s = min(2.0 * self._retry_s, LONGEST_RETRY_S)
        else:
            self._beats = {run_id: beats for run_id, beats in self._beats.items() if run_id in self._found}
            self._due, self._retry_s = self._clock() + SCAN_S, FIRST_RETRY_S
        return self._found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _ids(self, client: RedisClient) -> list[str]:
        found, cursor, pattern = set(), 0, f"{_PREFIX}*{_SUFFIX}"
        while True:
            after, keys = client.call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED, "TYPE", "hash")
            found |= {key.decode(errors="replace").removeprefix(_PREFIX).removesuffix(_SUFFIX) for key in keys}
            cursor = int(after)
            if cursor == 0:
                return sorted(found)

    def _run(self, run_id: str) -> Found | None:
        """None for what no distrl of this version has written."""
        assert self._client is not None
        try:
            no_producer = QueueCaps(entries=sys.maxsize, bytes=sys.maxsize)
            backend = RedisBackend(self._client, RunKeys(run_id), no_producer)
            before = self._found.get(run_id)
            leaves = before.leaves if before is not None else _leaves(backend.config_json(), run_id)
            beats = [(role.role, role.id, role.incarnation, role.beat) for role in backend.registry.roles()]
        except ODD as error:
            self._client.call("PING")  # raises where it is Redis that is gone, and not this run that is odd
            _LOG.debug("passed over run %s: %s", run_id, error)
            return None
        kept = self._beats.get(run_id)
        if kept is None or kept[0] != beats:
            kept = self._beats[run_id] = (beats, self._clock())
        record = RunRecord(run_id=run_id, redis_url=self._url, pid=0, started=_started(run_id))
        return Found(record, leaves, self._clock() - kept[1] < SILENT_S)


def _leaves(description: str, run_id: str) -> list[Leaf]:
    config: Any = json.loads(description)["config"]
    return [
        Leaf(path, setting.value, setting.origin)
        for path, setting in settings_in(json.dumps(config), f"the configuration of {run_id}").items()
    ]


def _started(run_id: str) -> float:
    """When the run was launched, by its name, in its launcher's time; 0 where that does not tell."""
    try:
        return time.mktime(time.strptime(run_id[:15], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return 0.0
