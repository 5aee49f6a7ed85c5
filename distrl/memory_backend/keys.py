"""Every Redis key of a run: a table, and the functions that make the keys. No key exists that is not a row here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from distrl.errors import ConfigError, MemoryBackendError
from distrl.types import UnrollHeader

PROTOCOL_VERSION = 5
"""Version of keys, entry fields and payloads; a role refuses a run of another version."""

GROUP = "learner"
"""Name of the consumer group and its one consumer: a restarted learner finds its predecessor's pending entries."""

HIGHEST_NUMBER = 10**18 - 1
"""Highest actor id, incarnation, sequence, version and count of steps that `entry_header` reads."""

FIRST_JOINED = 10_000
"""Least actor id that `Registry.claim_actor` gives; the supervisor counts its own actors from 0."""

INCARNATIONS = 16
"""Number of an actor's newest incarnations whose tickets are looked for. The supervisor has reclaimed older ones, and
an incarnation that another program has forged costs no more than that."""

DEFAULT_NAMESPACE = "default"
_NAMESPACE = re.compile(r"[A-Za-z0-9-]{1,50}")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Row:
    """One key; `access.COMMANDS` says which role reads and writes it.

    `Backend.delete` ends a run's keys; those of a run that has died end together, see `Backend.keep`.
    """

    name: str  # follows distrl:<namespace>:{<run>}:
    type: Literal["hash", "list", "stream", "zset"]
    content: str
    bound: str


TABLE = (
    Row(
        "run",
        "hash",
        "protocol, distrl_version, launch (token of the launch that made it), config, signature, fence and "
        "learner (the learner's token: its number and its holder), history (of the data, as its server names it)",
        "8 fields",
    ),
    Row(
        "applied", "hash", "client -> number of its newest operation that must be applied once", "one field per client"
    ),
    Row("bundle", "hash", "policy bundle: graph, description, sha256", "one bundle"),
    Row("weights", "hash", "version, blob, env_steps, episodes, updates, server_time_s", "one version"),
    Row(
        "unrolls:0",
        "stream",
        "unrolls for the learner, with its consumer group; fields as in stream.py",
        "queue caps, or one batch, + one unroll per actor, by admission at the producer; never trimmed",
    ),
    Row(
        "room",
        "zset",
        "a token for each entry that the learner removed last; an actor that waits takes one and looks again",
        "one per entry that is removed at once",
    ),
    Row(
        "suspects",
        "hash",
        "entry id -> how often a learner has begun to decode what its predecessor left, and not come to an end",
        "entries that a learner died of",
    ),
    Row("dead", "stream", "rejected payloads: first 64 KiB, sha256, reason, header fields", "100 entries"),
    Row(
        "actors",
        "hash",
        "actor:<id>, learner:<id>, evaluator:<id>, supervisor -> heartbeat as JSON",
        "one field per role, and one",
    ),
    Row(
        "incarnations",
        "hash",
        "actor, or the word evaluator -> newest incarnation; joined -> how many ids were given to actors that joined",
        "one field per actor",
    ),
    Row(
        "control",
        "hash",
        "paused, stop, target_actors, target_forced, autoscale, min_actors, max_actors, stacks (whose); checkpoint and "
        "evaluation: .asked, .done; 'set <path>' -> value as JSON",
        "12 fields and one per setting",
    ),
    Row("requests", "stream", "by, what: what operators asked, for the event log", "about 200"),
    Row("tickets", "list", "free permissions to start an unroll", "k + 1 batches"),
    Row("held:{actor}.{incarnation}", "list", "tickets a producer has taken", "one ticket"),
    Row("ledger", "hash", "counts; fields as in ledger.py", "15 fields"),
    Row("highest", "zset", "actor.incarnation -> highest sequence acknowledged", "one field per incarnation"),
    Row("metrics", "stream", "snapshots as JSON", "about 200 entries"),
    Row("evaluations", "stream", "what greedy episodes beside the training came to, as JSON", "about 2000 entries"),
    Row(
        "evaluated",
        "hash",
        "json, mean_return and blob (weights) of the best evaluation; env_steps and restored_env_steps of the last",
        "one version",
    ),
)


class RunKeys:
    """The keys of one run. The braces put all of them into one hash slot of Redis Cluster.

    Raises:
        ConfigError: `run_id` or `namespace` has characters that have a meaning in Redis' patterns.
    """

    def __init__(self, run_id: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        _check_namespace(namespace)
        self.run_id = checked_run_id(run_id)
        self.prefix = prefix = f"distrl:{namespace}:{{{run_id}}}:"
        self.run = prefix + "run"
        self.applied = prefix + "applied"
        self.bundle = prefix + "bundle"
        self.weights = prefix + "weights"
        self.unrolls = prefix + "unrolls:0"
        self.room = prefix + "room"
        self.suspects = prefix + "suspects"
        self.dead = prefix + "dead"
        self.actors = prefix + "actors"
        self.incarnations = prefix + "incarnations"
        self.control = prefix + "control"
        self.requests = prefix + "requests"
        self.tickets = prefix + "tickets"
        self.ledger = prefix + "ledger"
        self.highest = prefix + "highest"
        self.metrics = prefix + "metrics"
        self.evaluations = prefix + "evaluations"
        self.evaluated = prefix + "evaluated"

    def held(self, producer: tuple[int, int]) -> str:
        """Key of the tickets that a producer holds."""
        return f"{self.prefix}held:{producer_field(producer)}"

    def all_held(self, incarnations: Mapping[bytes, bytes]) -> list[str]:
        """Return the keys of the tickets that registered actors may hold, the newest `INCARNATIONS` of each actor.

        Args:
            incarnations: The hash `incarnations`; its fields that are no actors' are ignored.
        """
        newest = {int(name): number_or_zero(value) for name, value in incarnations.items() if is_number(name)}
        return [
            self.held((actor, incarnation))
            for actor, last in newest.items()
            for incarnation in range(max(last - INCARNATIONS, 0) + 1, last + 1)
        ]

    def all(self, incarnations: Mapping[bytes, bytes]) -> list[str]:
        """Return every key of the run: of all rows of the table, whether they exist or not."""
        names = [row.name for row in TABLE if "{" not in row.name]
        return [*(self.prefix + name for name in names), *self.all_held(incarnations)]


def checked_run_id(run_id: str) -> str:
    """Return the run id.

    Raises:
        ConfigError: It has characters that have a meaning in Redis' patterns.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(f"run id {run_id!r} is not allowed; use letters, digits, '.', '_' and '-' (at most 100)")
    return run_id


def _check_namespace(namespace: str) -> None:
    if not _NAMESPACE.fullmatch(namespace):
        raise ConfigError(f"memory.namespace {namespace!r} is not allowed; use letters, digits and '-' (at most 50)")


def runs_pattern(namespace: str | None) -> str:
    """Return the pattern of the key `run` of every run, in all namespaces or in one."""
    return f"distrl:{namespace or '*'}:{{*}}:run"


def row_pattern(row: Row, namespace: str) -> str:
    """Return the pattern of a row's key in every run of a namespace.

    Raises:
        ConfigError: The namespace is not allowed.
    """
    name, varies, _ = row.name.partition("{")
    return namespace_pattern(namespace).removesuffix("*") + name + (varies and "*")


def namespace_pattern(namespace: str) -> str:
    """Return the pattern of every key of every run of a namespace.

    Raises:
        ConfigError: The namespace is not allowed.
    """
    _check_namespace(namespace)
    return f"distrl:{namespace}:{{*}}:*"


def run_of(key: str) -> tuple[str, str] | None:
    """Return (namespace, run id) of a key `run`; None for any other key."""
    found = re.fullmatch(rf"distrl:({_NAMESPACE.pattern}):\{{({_RUN_ID.pattern})\}}:run", key)
    return None if found is None else (found[1], found[2])


def split_namespace(url: str) -> tuple[str, str | None]:
    """Take the option `namespace` out of a URL.

    Returns:
        The URL without it, and the namespace; None where there is none.

    Raises:
        ConfigError: The namespace has characters that have a meaning in Redis' patterns.
    """
    address, mark, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    rest = urlencode([option for option in options if option[0] != "namespace"])
    found = dict(options).get("namespace")
    if found is None:
        return url, None
    _check_namespace(found)
    return address + (mark + rest if rest else ""), found


def with_namespace(url: str, namespace: str) -> str:
    """Return the URL of a memory backend with the namespace of its runs as an option.

    Raises:
        ConfigError: The URL has another one.
    """
    address, given = split_namespace(url)
    if given is not None and namespace not in (given, DEFAULT_NAMESPACE):
        raise ConfigError(f"memory.namespace {namespace!r} and the URL's namespace {given!r} differ; give one of them")
    chosen = given or namespace
    if chosen == DEFAULT_NAMESPACE:
        return address
    return f"{address}{'&' if '?' in address else '?'}namespace={chosen}"


def producer_field(producer: tuple[int, int]) -> str:
    """Return 'actor.incarnation'."""
    return f"{producer[0]}.{producer[1]}"


def producer_of(field: bytes) -> tuple[int, int] | None:
    """Invert `producer_field`; None for other texts."""
    actor, _, incarnation = field.partition(b".")
    return (int(actor), int(incarnation)) if is_number(actor) and is_number(incarnation) else None


def entry_fields(header: UnrollHeader, payload: bytes) -> dict[bytes, bytes]:
    """Return the plain fields of a stream entry."""
    return {
        b"actor": b"%d" % header.actor,
        b"incarnation": b"%d" % header.incarnation,
        b"sequence": b"%d" % header.sequence,
        b"version": b"%d" % header.weights_version,
        b"steps": b"%d" % header.env_steps,
        b"payload": payload,
    }


def entry_header(fields: dict[bytes, bytes]) -> UnrollHeader | None:
    """Return the header in an entry's fields; None unless all five are plain decimals up to `HIGHEST_NUMBER`."""
    values = []
    for name in (b"actor", b"incarnation", b"sequence", b"version", b"steps"):
        text = fields.get(name, b"")
        if not is_number(text):
            return None
        values.append(int(text))
    return UnrollHeader(*values)


def entry_order(entry_id: str) -> tuple[int, ...]:
    """Return the sort key of a stream entry's id."""
    return tuple(int(part) for part in entry_id.split("-"))


def is_number(text: bytes) -> bool:
    """Return whether the text is a plain decimal number up to `HIGHEST_NUMBER`."""
    return text.isdigit() and len(text) <= 18  # bytes.isdigit is ASCII alone: no sign, no space, no other script


def number_or_zero(text: bytes | None) -> int:
    """Return a number that distrl has written; 0 if there is none, or if another program has written something else."""
    return int(text) if text is not None and is_number(text) else 0


def checked_number(text: bytes | None, what: str) -> int:
    """Return a whole number that distrl has written; 0 if there is none.

    Args:
        text: The value in Redis.
        what: Name of the value, for the error.

    Raises:
        MemoryBackendError: It is no whole number: another program has written it.
    """
    if text is None:
        return 0
    if not is_number(text.removeprefix(b"-")):
        raise MemoryBackendError(f"{what} is {text[:40]!r} in Redis, which distrl has not written; start a new run")
    return int(text)


def checked_actor(actor: int) -> int:
    """Return the actor's id.

    Raises:
        ConfigError: `entry_header` would not read it, and no unroll of the actor would be accepted.
    """
    if not 0 <= actor <= HIGHEST_NUMBER:
        raise ConfigError(f"actor id {actor} is not allowed; use a number from 0 to {HIGHEST_NUMBER:,}")
    return actor
