"""Who takes part in the run, what operators ask of it, and the metrics that dashboards read."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from distrl.errors import MemoryBackendError
from distrl.memory_backend.backend import Control, Producer, Registry, RoleStatus
from distrl.memory_backend.keys import RunKeys
from distrl.memory_backend.redis_client import RedisClient

SNAPSHOTS = 2000

_STATUS = TypeAdapter(RoleStatus)


class RedisRegistry(Registry):
    """The hashes `actors`, `incarnations` and `control`, and the stream `metrics`."""

    def __init__(self, client: RedisClient, keys: RunKeys) -> None:
        self._client = client
        self._keys = keys

    def register_actor(self, actor: int) -> int:
        """The actor's new incarnation, from 1. Repeated over a broken connection it can skip a number."""
        return int(self._client.call("HINCRBY", self._keys.incarnations, actor, 1))

    def is_registered(self, producer: Producer) -> bool:
        """Whether `register_actor` has handed out this (actor, incarnation)."""
        actor, incarnation = producer
        return 1 <= incarnation <= int(self._client.call("HGET", self._keys.incarnations, actor) or 0)

    def beat(self, status: RoleStatus) -> None:
        """Replaces the role's heartbeat."""
        self._client.call("HSET", self._keys.actors, f"{status.role}:{status.id}", json.dumps(asdict(status)))

    def roles(self) -> list[RoleStatus]:
        """Newest heartbeat of every role, ordered by role and id.

        Raises:
            MemoryBackendError: A heartbeat is not what `beat` writes.
        """
        beats = self._client.call("HVALS", self._keys.actors)
        try:
            statuses = [_STATUS.validate_json(beat) for beat in beats]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise MemoryBackendError(
                f"a heartbeat of {self._keys.run_id} is malformed ({first['loc']}: {first['msg']}); "
                "use one version of distrl for all roles"
            ) from error
        return sorted(statuses, key=lambda status: (status.role, status.id))

    def forget_actor(self, actor: int) -> None:
        """Removes a retired actor's heartbeat; its incarnations stay registered."""
        self._client.call("HDEL", self._keys.actors, f"actor:{actor}")

    def control(self) -> Control:
        """What operators ask."""
        paused, stop, target = self._client.call("HMGET", self._keys.control, "paused", "stop", "target_actors")
        return Control(
            paused=paused == b"1",
            stop=None if stop is None else stop.decode(),
            target_actors=None if target is None else int(target),
        )

    def set_control(
        self, *, paused: bool | None = None, stop: str | None = None, target_actors: int | None = None
    ) -> None:
        """Changes what is given and leaves the rest."""
        given = {"paused": None if paused is None else int(paused), "stop": stop, "target_actors": target_actors}
        fields = [part for name, value in given.items() if value is not None for part in (name, value)]
        if fields:
            self._client.call("HSET", self._keys.control, *fields)

    def add_snapshot(self, snapshot: Mapping[str, float | int | str | None]) -> None:
        """Appends one snapshot; about the newest `SNAPSHOTS` are kept."""
        text = json.dumps(dict(snapshot))
        self._client.call("XADD", self._keys.metrics, "MAXLEN", "~", SNAPSHOTS, "*", "json", text)

    def snapshots(self, after: str) -> list[tuple[str, dict[str, float | int | str | None]]]:
        """(id, snapshot) of those newer than the id `after`; '0' for all that are kept."""
        entries: list[tuple[bytes, Any]] = self._client.call("XRANGE", self._keys.metrics, f"({after}", "+")
        return [(entry_id.decode(), json.loads(fields[b"json"])) for entry_id, fields in entries]
