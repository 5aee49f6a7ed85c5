"""Access rules: the commands that each role sends to Redis, by key, and the users of Redis that follow from them.

`COMMANDS` is the one table. A test records real runs with MONITOR and fails if a role sends a command that the table
does not grant it, or never sends one that the table grants.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Literal, get_args

from distrl.memory_backend.keys import TABLE, namespace_pattern, row_pattern
from distrl.role_kinds import KINDS

Server = Literal["6.2", "7"]
"""Oldest version whose rules are understood: 7 can limit each command to certain keys."""

ROLES = (*KINDS, "operator", "viewer")
"""The learner with its supervisor; an operator steers and removes runs; a viewer reads them."""
SERVERS: Sequence[Server] = get_args(Server)

INCLUDED: Mapping[str, Sequence[str]] = {
    "learner": (*KINDS,),  # `distrl train` starts all of them with its own user
    "operator": ("operator", "viewer"),
}
"""User -> roles that log in as that user; a role that is not here has a user of its own."""

WITHOUT_KEY: Mapping[str, str] = {
    **dict.fromkeys(KINDS, "CLIENT|SETNAME EXEC INFO MULTI PING SELECT TIME UNWATCH WAIT"),
    "operator": "UNWATCH",
    "viewer": "CLIENT|SETNAME EXEC INFO MULTI PING SCAN SELECT TIME",
}
"""Role -> commands that name no key."""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "run": {
        **dict.fromkeys(KINDS, "HGET HMGET WATCH"),
        "learner": "EXISTS EXPIRE HGET HINCRBY HMGET HSET UNLINK WATCH",
        "operator": "HGET UNLINK WATCH",
        "viewer": "HGET HMGET TTL",
    },
    "applied": {
        **dict.fromkeys(KINDS, "HGET HSET"),
        "learner": "EXPIRE HGET HSET UNLINK",
        "operator": "UNLINK",
    },
    "bundle": {
        **dict.fromkeys(KINDS, "HEXISTS HMGET"),
        "learner": "EXPIRE HEXISTS HSET UNLINK",
        "operator": "UNLINK",
    },
    "weights": {
        **dict.fromkeys(KINDS, "HGET HMGET"),
        "learner": "EXPIRE HGET HMGET HSET UNLINK",
        "operator": "UNLINK",
    },
    "unrolls:0": {
        "learner": "EXPIRE UNLINK XACK XDEL XGROUP|CREATE XLEN XPENDING XRANGE XREADGROUP",
        "actor": "XADD XLEN XRANGE",
        "operator": "UNLINK",
        "viewer": "XLEN XPENDING",
    },
    "room": {"learner": "EXPIRE UNLINK ZADD", "actor": "BZPOPMIN", "operator": "UNLINK"},
    "suspects": {"learner": "EXPIRE HDEL HGET HSET UNLINK", "operator": "UNLINK"},
    "dead": {"learner": "EXPIRE UNLINK XADD", "operator": "UNLINK"},
    "actors": {
        **dict.fromkeys(KINDS, "HMGET HSET"),
        "learner": "EXPIRE HDEL HGET HGETALL HSET UNLINK",
        "actor": "HDEL HEXISTS HMGET HSET",
        "evaluator": "HSET",
        "operator": "UNLINK",
        "viewer": "HGET HGETALL",
    },
    "incarnations": {
        **dict.fromkeys(KINDS, "HINCRBY"),
        "learner": "EXPIRE HGET HGETALL HINCRBY HMGET UNLINK",
        "evaluator": "HGET HINCRBY HSET WATCH",
        "operator": "HGETALL UNLINK",
    },
    "control": {
        **dict.fromkeys(KINDS, "HGETALL"),
        "learner": "EXPIRE HGETALL HSET UNLINK",
        "actor": "HGETALL HMGET",
        "evaluator": "HGETALL HSET",
        "operator": "HINCRBY HSET UNLINK",
        "viewer": "HGETALL",
    },
    "requests": {"learner": "EXPIRE UNLINK XADD XRANGE", "operator": "UNLINK XADD"},
    "tickets": {"learner": "EXPIRE LLEN LMOVE LPOP RPUSH UNLINK", "actor": "BLMOVE LMOVE", "operator": "UNLINK"},
    "held:{actor}.{incarnation}": {
        "learner": "DEL EXPIRE LLEN LMOVE UNLINK",
        "actor": "BLMOVE DEL LINDEX LLEN LMOVE",
        "operator": "UNLINK",
    },
    "ledger": {
        "learner": "EXPIRE HGET HGETALL HINCRBY HMGET UNLINK",
        "actor": "HGET HINCRBY",
        "operator": "UNLINK",
        "viewer": "HGETALL",
    },
    "highest": {"learner": "EXPIRE UNLINK ZADD ZRANGE", "operator": "UNLINK"},
    "metrics": {"learner": "EXPIRE UNLINK XADD XRANGE", "operator": "UNLINK", "viewer": "XRANGE"},
    "evaluations": {"learner": "EXPIRE UNLINK XRANGE", "evaluator": "XADD", "operator": "UNLINK"},
    "evaluated": {"learner": "EXPIRE HMGET HSET UNLINK", "evaluator": "HGET HMGET HSET", "operator": "UNLINK"},
}
"""Name of a row of `keys.TABLE` -> role -> the commands that it sends with such a key. `KINDS`: what any kind sends."""


def users(namespace: str, server: Server) -> dict[str, str]:
    """Return the line of an ACL file for each role's user, which has no password and so cannot log in yet.

    Raises:
        ConfigError: The namespace is not allowed.
    """
    return {role: f"user {user_name(namespace, role)} {_rules(role, namespace, server)}" for role in ROLES}


def user_name(namespace: str, role: str) -> str:
    """Return the name of a role's user."""
    return f"distrl-{namespace}-{role}"


def _rules(user: str, namespace: str, server: Server) -> str:
    """Return the rules of a user, which begin with none.

    A selector, in parentheses, grants commands with certain keys alone. Redis 6.2 has none: there, the user may use all
    its commands with all its keys.
    """
    granted = _granted(user)
    start = ["reset", "on", "resetchannels", *map(_allowed, _without_key(user))]
    if server == "6.2":
        rows = {row for rows in granted.values() for row in rows}
        return " ".join([*start, *map(_allowed, granted), *_patterns(rows, namespace)])
    selectors: dict[frozenset[str], list[str]] = {}  # rows -> commands: one selector has to hold all keys of a command
    for command, rows in granted.items():
        selectors.setdefault(frozenset(rows), []).append(_allowed(command))
    limited = (f"({' '.join([*commands, *_patterns(rows, namespace)])})" for rows, commands in selectors.items())
    return " ".join([*start, *limited])


def _patterns(rows: Set[str], namespace: str) -> list[str]:
    """Return the rules that allow the keys of these rows."""
    if len(rows) == len(TABLE):
        return [f"~{namespace_pattern(namespace)}"]
    return [f"~{row_pattern(row, namespace)}" for row in TABLE if row.name in rows]


def _granted(user: str) -> dict[str, set[str]]:
    """Return command -> names of the rows whose keys the user may name in it."""
    granted: dict[str, set[str]] = {}
    for row, of_roles in COMMANDS.items():
        for role in INCLUDED.get(user, (user,)):
            for command in of_roles.get(role, "").split():
                granted.setdefault(command, set()).add(row)
    return dict(sorted(granted.items()))


def _without_key(user: str) -> list[str]:
    return sorted({command for role in INCLUDED.get(user, (user,)) for command in WITHOUT_KEY[role].split()})


def _allowed(command: str) -> str:
    return f"+{command.lower()}"
