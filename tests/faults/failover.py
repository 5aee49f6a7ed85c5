"""Fail-overs without servers: what a replica holds, and its promotion, which takes the newest transactions away.

Both engines have them. The one in this process is put back as a whole; so its newest entry ids are given out again, as
by a server whose clock is behind.
"""

import copy
from collections.abc import Iterable

from distrl.memory_backend.backend import Backend
from distrl.memory_backend.local import LocalEngine

Replica = dict[str, object]


def replica_of(backend: Backend) -> Replica:
    """Return the run's keys as a replica holds them now."""
    engine, prefix = backend.engine, backend._run.keys.prefix
    if isinstance(engine, LocalEngine):
        with engine._store.changed:
            return {key: copy.deepcopy(held) for key, held in engine._store.data.items() if key.startswith(prefix)}
    names = engine.keys(prefix + "*")
    return dict(zip(names, engine.transaction([("DUMP", name) for name in names]), strict=True))


def promote(replica: Replica, backends: Iterable[Backend]) -> None:
    """Put the run's keys back; the connection of each backend breaks and finds another server.

    To a learner that takes over later, the run has the name of the history that the replica followed.
    """
    first, *others = backends
    engine, prefix = first.engine, first._run.keys.prefix
    if isinstance(engine, LocalEngine):
        with engine._store.changed:
            for key in [key for key in engine._store.data if key.startswith(prefix)]:
                del engine._store.data[key]
            engine._store.data.update(copy.deepcopy(replica))
    else:
        found = engine.keys(prefix + "*")
        removal = [("UNLINK", *found)] if found else []
        engine.transaction([*removal, *[("RESTORE", key, 0, dumped) for key, dumped in replica.items()]])
    engine.call("HSET", first._run.keys.run, "history", "a master:that is gone")
    for backend in (first, *others):
        backend.engine.interruptions += 1
        backend.engine.failovers += 1
