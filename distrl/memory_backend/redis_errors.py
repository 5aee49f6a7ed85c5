"""Redis' refusals: which of them pass, and what to say of them."""

import redis

from distrl.errors import one_line
from distrl.memory_backend.engine import Command, Reply

_STATES = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED")
_OUTAGES = frozenset((*_STATES, "MOVED", "ASK", "MISCONF", "OOM", "BUSY"))
"""First words of refusals that pass by themselves or when an operator acts: a fail-over, a slot that moves, a full
memory or disk."""
_DISCARDED = "Transaction discarded because of: "
_ADVICE = {
    "READONLY": "name the master in the URL, an address that follows it, or its Sentinels (redis+sentinel://)",
    "UNKNOWN": "end the URL with the name that `sentinel monitor` gives the master: redis+sentinel://host:26379/NAME",
    "NOREPLICAS": "start its replicas, or lower its min-replicas-to-write",
    "MOVED": "name the Cluster: redis+cluster://",
    "MISCONF": "see its log, and free its disk",
    "OOM": "raise its maxmemory or lower memory.queue_bytes",
    "NOPERM": "check user and namespace in the URL, and the user's rules: distrl redis acl",
    "NOGROUP": "the run's data is gone, start a new run",
}


class ReplicaError(redis.ConnectionError):
    """The server that the address leads to is a replica: a fail-over is under way, or the address is wrong."""


class UnknownMasterError(redis.ConnectionError):
    """Sentinels answer, and none of them watches a master of that name."""


def checked(reply: Reply, command: Command) -> Reply:
    """Return the reply; raise it if it is a refusal, with `command` noted for `refusal`."""
    if isinstance(reply, redis.RedisError):
        reply.add_note(" ".join(filter(None, (str(command[0]), key_of(command)))))
        raise reply
    return reply


def key_of(command: Command) -> str | None:
    """Return the first key of a run in a command; None if it has none."""
    return next((part for part in command[1:] if isinstance(part, str) and part.startswith("distrl:")), None)


def is_outage(error: redis.RedisError) -> bool:
    """Return whether the same command may be accepted later, perhaps by another server."""
    return isinstance(error, redis.ConnectionError | redis.TimeoutError) or code(error) in _OUTAGES


def code(error: redis.RedisError) -> str:
    """Return the first word of a refusal, which redis-py removes if it knows it."""
    text = str(error)
    if error.status_code is None or text.startswith(_DISCARDED):
        return text.removeprefix(_DISCARDED).split(" ", 1)[0]
    return str(error.status_code)


def line(error: Exception) -> str:
    """Return the error's text in one line."""
    return one_line(error)[:300] or type(error).__name__


def refusal(error: redis.RedisError, user: str | None) -> str:
    """Return what a server refuses for good, for which user, its own words and what to do."""
    what = next(iter(getattr(error, "__notes__", ())), "")
    return f"refuses {what or 'a command'} to user {user or 'default'}: {line(error)}{advice(error)}"


def outage(error: redis.RedisError, seconds: float | None, remedy: str) -> str:
    """Return the words for a server with which nothing but `error` happened for so long; `remedy` precedes ours.

    Args:
        seconds: None if the error was final at once.
    """
    unreachable = isinstance(error, redis.ConnectionError | redis.TimeoutError) and not _answers(error)
    state = "is unreachable" if unreachable else "has refused"
    duration = "" if seconds is None else f" for {seconds:g} s"
    return f"{state}{duration} ({line(error)}){remedy or advice(error)}"


def advice(error: redis.RedisError) -> str:
    """Return what to do, after a semicolon; empty where Redis' own words must do."""
    if isinstance(error, ReplicaError):
        return f"; {_ADVICE['READONLY']}"
    if isinstance(error, UnknownMasterError):
        return f"; {_ADVICE['UNKNOWN']}"
    if isinstance(error, redis.ConnectionError | redis.TimeoutError) and not _answers(error):
        return "; check that it runs and the URL"
    found = _ADVICE.get(code(error))
    return f"; {found}" if found else ""


def _answers(error: redis.RedisError) -> bool:
    """Return whether the error, by its class one of the connection, is a server's own word."""
    return isinstance(error, ReplicaError | UnknownMasterError | redis.BusyLoadingError)
