"""The runs that a Redis holds, living or dead, for `distrl runs --redis-url`."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Literal

from distrl.errors import ConfigError, ForeignKeyError, MemoryBackendError, MissingRunError, OutageError, printable
from distrl.memory_backend.backend import Backend, connect, connect_engine
from distrl.memory_backend.engine import Engine, RunStore
from distrl.memory_backend.keys import DEFAULT_NAMESPACE, RunKeys, run_of, runs_pattern, split_namespace
from distrl.roles.presence import leaders, living
from distrl.runs.reading import SILENT_S, Reading

GIVE_UP_S = 3.0
NO_KEY = -2
"""Reply to TTL for a key that does not exist."""


@dataclass(frozen=True)
class RunInRedis:
    """One run in Redis.

    Attributes:
        run_dir, env, algorithm: As the run's description says; "" where it cannot be read.
        state: silent: neither supervisor nor learner has sent a heartbeat for `SILENT_S`.
        supervisor_age_s, learner_age_s: Age of the newest heartbeat; None without one.
        actors: Number of actors whose newest heartbeat is no older than `SILENT_S`.
        expires_s: Time until Redis removes the run's keys, unless it is renewed; None: never.
    """

    namespace: str
    run_id: str
    run_dir: str
    env: str
    algorithm: str
    state: Literal["running", "silent"]
    supervisor_age_s: float | None
    learner_age_s: float | None
    actors: int
    expires_s: int | None


def stored_runs(url: str, trouble: Callable[[str], None]) -> Iterator[RunInRedis]:
    """Yield the runs in the URL's namespace, or in all namespaces, by namespace and id. Scans all keys of Redis.

    Args:
        trouble: Gets a line for each run that cannot be read: another program has written its keys, or they are not for
            this user.

    Raises:
        MemoryBackendError: Redis is unreachable, or its user may not scan.
    """
    _, namespace = split_namespace(url)
    with closing(connect_engine(url, name="cli", give_up_s=GIVE_UP_S)) as engine:
        for name in sorted(filter(None, map(run_of, engine.keys(runs_pattern(namespace))))):
            try:
                yield _stored(engine, *name)
            except OutageError:
                raise
            except MemoryBackendError as error:
                trouble(str(error))


def remove_run(url: str, run_id: str) -> None:
    """Remove the keys of a dead run, also those that another version of distrl or another program has written.

    Raises:
        ConfigError: The run lives.
        MissingRunError: There is no such run.
        MemoryBackendError: Redis is unreachable, or the run was launched again meanwhile.
    """
    keys = RunKeys(run_id, split_namespace(url)[1] or DEFAULT_NAMESPACE)
    with closing(connect(url, run_id, name="cli", give_up_s=GIVE_UP_S)) as backend:
        if int(backend.engine.call("TTL", keys.run)) == NO_KEY:
            raise MissingRunError(
                f"no run {run_id} at {backend.engine.url} in this namespace; distrl runs --redis-url URL lists all, "
                "and the URL's option namespace selects one"
            )
        foreign = _foreign_keys(backend.engine, keys)
        found = backend
        if keys.run not in foreign:
            with suppress(MissingRunError):  # the key `run` may hold no launch
                found = backend.of_standing_launch()
        # A process of distrl that cannot write its heartbeat ends.
        alive = None if keys.actors in foreign else living(lambda: leaders(found.registry))
        if alive is not None:
            raise ConfigError(
                f"run {run_id} goes on: {alive}, sends heartbeats; stop it first: distrl stop --redis-url URL --run-id "
                f"{run_id}"
            )
        for key in foreign:
            backend.engine.call("UNLINK", key)
        found.delete()


def _foreign_keys(engine: Engine, keys: RunKeys) -> list[str]:
    """Return those keys that a removal reads, and that hold a type of another program."""

    def is_foreign(*command: str) -> bool:
        try:
            engine.call(*command)
        except ForeignKeyError:
            return True
        return False

    reads = (("HGET", keys.run, "launch"), ("HGETALL", keys.actors), ("HGETALL", keys.incarnations))
    return [command[1] for command in reads if is_foreign(*command)]


def _stored(engine: Engine, namespace: str, run_id: str) -> RunInRedis:
    keys = RunKeys(run_id, namespace)
    backend = Backend(RunStore(engine, keys))
    description = _description(engine.call("HGET", keys.run, "config"))
    config: Any = description.get("config")
    registry = backend.registry
    found = Reading(roles=registry.roles(), supervisor=registry.supervisor(), clock=registry.clock())
    ages_s = [*zip((role.role for role in found.roles), found.ages_s, strict=True)]
    learner_age_s = next((age_s for kind, age_s in ages_s if kind == "learner"), None)
    leading = [age_s for age_s in (found.supervisor_age_s, learner_age_s) if age_s is not None]
    expires_s = int(engine.call("TTL", keys.run))
    return RunInRedis(
        namespace=namespace,
        run_id=run_id,
        run_dir=_text(description, "run_dir"),
        env=_text(config, "environment", "id"),
        algorithm=_text(config, "algorithm", "name"),
        state="running" if min(leading, default=SILENT_S + 1.0) <= SILENT_S else "silent",
        supervisor_age_s=found.supervisor_age_s,
        learner_age_s=learner_age_s,
        actors=sum(kind == "actor" and age_s <= SILENT_S for kind, age_s in ages_s),
        expires_s=None if expires_s < 0 else expires_s,
    )


def _description(text: bytes | None) -> dict[str, Any]:
    """Return the decoded description; empty if it is none, as another program or version may have written it."""
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(found: Any, *path: str) -> str:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return printable(found) if isinstance(found, str) else ""
