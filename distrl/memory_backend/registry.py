"""Who takes part in the run, what operators ask of it, and what is told of it: metrics and evaluations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from distrl.errors import FencedError, MemoryBackendError
from distrl.memory_backend.keys import RunKeys, checked_actor
from distrl.memory_backend.redis_client import RedisClient, Reply
from distrl.memory_backend.registry_interface import (
    ERRANDS,
    BestEvaluation,
    Control,
    Demand,
    Errand,
    Evaluation,
    Producer,
    Registry,
    Request,
    RoleStatus,
    Setting,
)
from distrl.memory_backend.resp import Command

# A snapshot is a second: enough for whoever looks in to draw the last minutes; the whole history is in `metrics.csv`.
# A long one would make Redis grow for the first half hour of every run, a kilobyte each.
SNAPSHOTS = 200
EVALUATIONS = 2000
REQUESTS = 200

_SETTING = "set "
"""First part of the control hash's fields that hold settings; their paths follow."""

_STATUS = TypeAdapter(RoleStatus)
_EVALUATION = TypeAdapter(Evaluation)


def newest_evaluator(incarnation: int, newest: int) -> None:
    """Raises FencedError unless the evaluator's incarnation is the newest."""
    if incarnation != newest:
        raise FencedError(f"another evaluator has taken over (incarnation {newest}, ours {incarnation})")


class RedisRegistry(Registry):
    """The hashes `actors`, `incarnations`, `control`, `evaluated`, and the streams `metrics` and `evaluations`."""

    def __init__(self, client: RedisClient, keys: RunKeys) -> None:
        self._client = client
        self._keys = keys

    def register_actor(self, actor: int) -> int:
        """Return the actor's new incarnation, from 1. Repeated over a broken connection it can skip a number.

        Raises:
            ConfigError: The id is not allowed.
        """
        return int(self._client.call("HINCRBY", self._keys.incarnations, checked_actor(actor), 1))

    def register_evaluator(self) -> int:
        """The evaluator's new incarnation, from 1."""
        return int(self._client.call("HINCRBY", self._keys.incarnations, "evaluator", 1))

    def evaluator_incarnation(self) -> int:
        """The newest that was handed out; 0 before the first."""
        return int(self._client.call("HGET", self._keys.incarnations, "evaluator") or 0)

    def is_registered(self, producer: Producer) -> bool:
        """Whether `register_actor` has handed out this (actor, incarnation)."""
        actor, incarnation = producer
        return 1 <= incarnation <= int(self._client.call("HGET", self._keys.incarnations, actor) or 0)

    def beat(self, status: RoleStatus) -> None:
        """Replace the role's heartbeat, dated by `clock`."""
        dated = json.dumps({**asdict(status), "at": self.clock()})
        self._client.call("HSET", self._keys.actors, f"{status.role}:{status.id}", dated)

    def clock(self) -> float:
        """Seconds since 1970 by the clock of Redis."""
        seconds, microseconds = self._client.call("TIME")
        return float(f"{seconds}.{microseconds:06d}")

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
        """What operators ask.

        Raises:
            MemoryBackendError: It is not what `set_control` writes.
        """
        told: dict[bytes, bytes] = self._client.call("HGETALL", self._keys.control)
        try:
            return _control(told)
        except ValueError as error:
            raise MemoryBackendError(
                f"what operators ask of {self._keys.run_id} is malformed ({error}); use one version of distrl for all"
            ) from error

    def set_control(
        self,
        *,
        paused: bool | None = None,
        stop: str | None = None,
        target_actors: int | None = None,
        target_forced: bool | None = None,
        stacks: bool | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Changes what is given and leaves the rest, single settings included."""
        given = {
            "paused": paused,
            "stop": stop,
            "target_actors": target_actors,
            "target_forced": target_forced,
            "stacks": stacks,
        }
        told = {name: int(value) if isinstance(value, bool) else value for name, value in given.items()}
        fields = [part for name, value in told.items() if value is not None for part in (name, value)]
        fields += [part for path, value in (settings or {}).items() for part in (_SETTING + path, json.dumps(value))]
        if fields:
            self._client.call("HSET", self._keys.control, *fields)

    def demand(self, errand: Errand) -> int:
        """Asks for it once more. Repeated over a broken connection it can ask twice."""
        return int(self._client.call("HINCRBY", self._keys.control, f"{errand}.asked", 1))

    def fulfil(self, errand: Errand, number: int) -> None:
        """It was run for everybody who had asked up to the `number`-th time."""
        self._client.call("HSET", self._keys.control, f"{errand}.done", number)

    def add_request(self, request: Request) -> None:
        """Appends one request; about the newest `REQUESTS` are kept. Over a broken connection it can be there twice."""
        fields = ("by", request.by, "what", request.what)
        self._client.call("XADD", self._keys.requests, "MAXLEN", "~", REQUESTS, "*", *fields)

    def requests(self, after: str) -> list[tuple[str, Request]]:
        """(id, request) of those newer than the id `after`; '0' for all that are kept."""
        entries: list[tuple[bytes, Any]] = self._client.call("XRANGE", self._keys.requests, f"({after}", "+")
        return [
            (entry_id.decode(), Request(fields[b"by"].decode(), fields[b"what"].decode()))
            for entry_id, fields in entries
        ]

    def add_snapshot(self, snapshot: Mapping[str, float | int | str | None]) -> None:
        """Appends one snapshot; about the newest `SNAPSHOTS` are kept."""
        text = json.dumps(dict(snapshot))
        self._client.call("XADD", self._keys.metrics, "MAXLEN", "~", SNAPSHOTS, "*", "json", text)

    def snapshots(self, after: str) -> list[tuple[str, dict[str, float | int | str | None]]]:
        """(id, snapshot) of those newer than the id `after`; '0' for all that are kept."""
        entries: list[tuple[bytes, Any]] = self._client.call("XRANGE", self._keys.metrics, f"({after}", "+")
        return [(entry_id.decode(), json.loads(fields[b"json"])) for entry_id, fields in entries]

    def add_evaluation(self, evaluation: Evaluation, weights: bytes, incarnation: int) -> None:
        """Appends one evaluation, exactly once; about the newest `EVALUATIONS` are kept, and the best one's weights.

        Raises:
            FencedError: `incarnation` is not the evaluator's newest; nothing was changed.
        """
        keys, text = self._keys, json.dumps(asdict(evaluation))

        def prepare(newest: Reply, replies: Sequence[Reply]) -> Sequence[Command]:
            newest_evaluator(incarnation, int(newest or 0))
            (best,) = replies
            commands: list[Command] = [
                ("XADD", keys.evaluations, "MAXLEN", "~", EVALUATIONS, "*", "json", text),
                ("HSET", keys.evaluated, "env_steps", evaluation.env_steps),
            ]
            if best is None or evaluation.mean_return > float(best):
                told = ("mean_return", repr(evaluation.mean_return), "json", text, "blob", weights)
                commands.append(("HSET", keys.evaluated, *told))
            return commands

        guard: Command = ("HGET", keys.incarnations, "evaluator")
        best_so_far: Command = ("HGET", keys.evaluated, "mean_return")
        self._client.exactly_once(keys, guard, prepare, "telling an evaluation", [best_so_far])

    def evaluations(self, after: str) -> list[tuple[str, Evaluation]]:
        """(id, evaluation) of those newer than the id `after`; '0' for all that are kept.

        Raises:
            MemoryBackendError: One is not what `add_evaluation` writes.
        """
        entries: list[tuple[bytes, Any]] = self._client.call("XRANGE", self._keys.evaluations, f"({after}", "+")
        return [(entry_id.decode(), self._evaluation(fields[b"json"])) for entry_id, fields in entries]

    def best_evaluation(self) -> BestEvaluation | None:
        """The best evaluation of this launch and what was evaluated, read together.

        Raises:
            MemoryBackendError: It is not what `add_evaluation` writes.
        """
        text, weights = self._client.call("HMGET", self._keys.evaluated, "json", "blob")
        return None if text is None else BestEvaluation(self._evaluation(text), weights)

    def restore_evaluated(self, env_steps: int) -> None:
        """For the evaluators of this launch; a multiple that one of them has passed stays passed."""
        self._client.call("HSET", self._keys.evaluated, "restored_env_steps", env_steps)

    def evaluated_env_steps(self) -> int:
        """Of this launch, or what `restore_evaluated` told, whichever is more."""
        told = self._client.call("HMGET", self._keys.evaluated, "env_steps", "restored_env_steps")
        return max(int(value or 0) for value in told)

    def _evaluation(self, text: bytes) -> Evaluation:
        try:
            return _EVALUATION.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise MemoryBackendError(
                f"an evaluation of {self._keys.run_id} is malformed ({first['loc']}: {first['msg']}); "
                "use one version of distrl for all roles"
            ) from error


def _demand(told: Mapping[bytes, bytes], errand: Errand) -> Demand:
    asked, done = (int(told.get(f"{errand}.{which}".encode(), 0)) for which in ("asked", "done"))
    return Demand(asked, done)


def _control(told: Mapping[bytes, bytes]) -> Control:
    """Raises ValueError for what no distrl writes."""
    stop, target = told.get(b"stop"), told.get(b"target_actors")
    return Control(
        paused=told.get(b"paused") == b"1",
        stop=None if stop is None else stop.decode(),
        target_actors=None if target is None else int(target),
        target_forced=told.get(b"target_forced") == b"1",
        stacks=told.get(b"stacks") == b"1",
        settings={
            name.decode().removeprefix(_SETTING): json.loads(value)
            for name, value in told.items()
            if name.startswith(_SETTING.encode())
        },
        **{errand: _demand(told, errand) for errand in ERRANDS},
    )
