"""The registry of a run: its roles, requests of operators, metrics and evaluations."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from math import isfinite
from typing import Any, TypedDict, TypeVar, Unpack

from pydantic import TypeAdapter, ValidationError

from distrl.config.live_settings import Value
from distrl.errors import FencedError, printable
from distrl.memory_backend.engine import Command, Reply, RunStore
from distrl.memory_backend.keys import (
    FIRST_JOINED,
    HIGHEST_NUMBER,
    checked_actor,
    entry_order,
    is_number,
    number_or_zero,
)
from distrl.memory_backend.records import (
    ERRANDS,
    WHOLE,
    WORDS,
    BestEvaluation,
    Control,
    Demand,
    Errand,
    Evaluation,
    HostLoad,
    Producer,
    Request,
    RoleStatus,
    SupervisorStatus,
)
from distrl.role_kinds import KINDS

# One snapshot a second: enough to draw the last minutes; `metrics.csv` has the whole history. A longer stream would
# make Redis grow for the first half hour of every run, by a kilobyte each.
SNAPSHOTS = 200
EVALUATIONS = 2000
REQUESTS = 200

_SETTING = "set "
"""First part of the control hash's fields that hold settings; their paths follow."""

_COUNTS = (
    *(b"target_actors", b"min_actors", b"max_actors"),
    *(f"{errand}.{which}".encode() for errand in ERRANDS for which in ("asked", "done")),
)
"""Fields of the control hash that hold numbers."""

_SUPERVISOR = "supervisor"
"""Field of the hash `actors` with the heartbeat of the supervisor, which is no role."""

_STATUS = TypeAdapter(RoleStatus)
_OWN_FIELDS = [entry.name for entry in fields(RoleStatus) if entry.name not in ("waits", "machine")]
_SUPERVISOR_STATUS = TypeAdapter(SupervisorStatus)
_EVALUATION = TypeAdapter(Evaluation)
_NOT_PLAIN = ("metrics", "others", "best_by", "estimates")
_MOST = 10**18
"""Bound above all numbers that distrl writes; larger ones would make sums overflow."""
log = logging.getLogger(__name__)

Item = TypeVar("Item")


class Requests(TypedDict, total=False):
    """Fields of the control hash that `Registry.set_control` writes, beside settings."""

    paused: bool
    stop: str
    target_actors: int
    target_forced: bool
    autoscale: bool
    min_actors: int
    max_actors: int
    stacks: str
    networks_from: str


class Registry:
    """The roles that take part in the run, the requests of its operators, its snapshots and evaluations.

    Attributes:
        ignored: Kind -> number of ignored items of that kind that another program has written.
    """

    def __init__(self, run: RunStore) -> None:
        self._run, self._engine, self._keys = run, run.engine, run.keys
        self.ignored: Counter[str] = Counter()
        self._odd: dict[str, frozenset[str]] = {}  # kind -> fields that were ignored when they were last read
        self._passed: dict[str, tuple[int, ...]] = {}  # stream -> newest entry that was ignored

    def claim_actor(self) -> int:
        """Return the id of an actor that joins, `FIRST_JOINED` or above, which no other actor has.

        Repeated over a broken connection it can skip an id.
        """
        while True:
            claimed = self._run.write_one("HINCRBY", self._keys.incarnations, "joined", 1)
            actor = FIRST_JOINED - 1 + int(claimed)
            # A fail-over may have lost the newest claims. Heartbeats of their actors are back within a second.
            if not self._engine.call("HEXISTS", self._keys.actors, f"actor:{actor}"):
                return actor

    def register_actor(self, actor: int) -> int:
        """Return the actor's new incarnation, from 1. Repeated over a broken connection it can skip a number.

        Raises:
            ConfigError: The id is not allowed.
        """
        return self.register(checked_actor(actor))

    def register(self, role: int | str) -> int:
        """Return the new incarnation of an actor, or of another role by its name."""
        incarnation = int(self._run.write_one("HINCRBY", self._keys.incarnations, role, 1))
        self._run.confirm("the registration of this role")
        return incarnation

    def check_evaluator(self, incarnation: int) -> None:
        """Raise FencedError if there is a newer evaluator."""
        _check_newest(incarnation, self._engine.call("HGET", self._keys.incarnations, "evaluator"))

    def is_registered(self, producer: Producer) -> bool:
        actor, incarnation = producer
        return 1 <= incarnation <= number_or_zero(self._engine.call("HGET", self._keys.incarnations, actor))

    def keep_registered(self, producers: Iterable[Producer]) -> None:
        """Register producers again whose registration Redis has forgotten; the next incarnations are above theirs.

        If an actor registers meanwhile, or if the connection breaks, numbers may be skipped.
        """
        newest: dict[int, int] = {}
        for actor, incarnation in producers:
            newest[actor] = max(incarnation, newest.get(actor, 0))
        if not newest:
            return
        told = self._engine.call("HMGET", self._keys.incarnations, *newest)
        missing = [
            (actor, incarnation - number_or_zero(value))
            for (actor, incarnation), value in zip(newest.items(), told, strict=True)
        ]
        commands: list[Command] = [
            ("HINCRBY", self._keys.incarnations, actor, count) for actor, count in missing if count > 0
        ]
        if commands:
            self._run.write(commands)

    def beat(self, status: RoleStatus) -> None:
        """Replace the role's heartbeat, dated by `clock`."""
        dated = json.dumps({**asdict(status), "at": self.clock()})
        self._run.write_one("HSET", self._keys.actors, status.key, dated)

    def beat_supervisor(self, status: SupervisorStatus) -> None:
        """Replace the supervisor's heartbeat, dated by `clock`."""
        dated = json.dumps({**asdict(status), "at": self.clock()})
        self._run.write_one("HSET", self._keys.actors, _SUPERVISOR, dated)

    def supervisor(self) -> SupervisorStatus | None:
        """Return the supervisor's newest heartbeat; None before the first, or if another program has written it."""
        text: bytes | None = self._engine.call("HGET", self._keys.actors, _SUPERVISOR)
        found = None if text is None else _supervisor(text)
        self._ignore_fields("the supervisor's heartbeat", ["supervisor"] if text is not None and found is None else [])
        return found

    def clock(self) -> float:
        """Return the seconds since 1970 by the clock of Redis."""
        seconds, microseconds = self._engine.call("TIME")
        return float(f"{seconds}.{microseconds:06d}")

    def roles(self) -> list[RoleStatus]:
        """Return the newest heartbeat of every role, ordered by role and id; others' entries are ignored."""
        beats: dict[bytes, bytes] = self._engine.call("HGETALL", self._keys.actors)
        beats.pop(_SUPERVISOR.encode(), None)
        statuses = {name: _status(name, beat) for name, beat in beats.items()}
        self._ignore_fields("a heartbeat", [_words(name) for name, status in statuses.items() if status is None])
        known = [status for status in statuses.values() if status is not None]
        return sorted(known, key=lambda status: (status.role, status.id))

    def heartbeats(self, keys: Sequence[str]) -> list[RoleStatus]:
        """Return the newest heartbeats of the roles with these `RoleStatus.key`, without those that have sent none."""
        beats = self._engine.call("HMGET", self._keys.actors, *keys) if keys else []
        known = [_status(key.encode(), beat) for key, beat in zip(keys, beats, strict=True) if beat is not None]
        return [status for status in known if status is not None]

    def forget(self, role: str) -> None:
        """Remove the heartbeat of a role that was retired, by its key; its incarnations stay registered."""
        self._run.write_one("HDEL", self._keys.actors, role)

    def control(self) -> Control:
        """Return the operators' requests; fields that `set_control` and `demand` do not write are ignored."""
        told: dict[bytes, bytes] = self._engine.call("HGETALL", self._keys.control)
        control, odd = _control(told)
        self._ignore_fields("what operators ask", odd)
        return control

    def set_control(self, *, settings: Mapping[str, Value] | None = None, **requests: Unpack[Requests]) -> None:
        """Change the given fields and single settings; all others stay."""
        told: dict[str, Any] = {
            name: int(value) if isinstance(value, bool) else value for name, value in requests.items()
        }
        told |= {_SETTING + path: json.dumps(value) for path, value in (settings or {}).items()}
        if told:
            self._run.write_one("HSET", self._keys.control, *[part for field in told.items() for part in field])

    def demand(self, errand: Errand) -> int:
        """Request an errand. If the connection breaks, the request may count twice."""
        return int(self._run.write_one("HINCRBY", self._keys.control, f"{errand}.asked", 1))

    def fulfil(self, errand: Errand, number: int, refused: str = "") -> None:
        """Record that the requests up to the `number`-th have been fulfilled, or why the last one was refused."""
        self._run.write_one("HSET", self._keys.control, f"{errand}.done", number, f"{errand}.refused", refused)
        self._run.confirm(f"that the {errand} is done")

    def add_request(self, request: Request) -> None:
        """Append one request; about the newest `REQUESTS` are kept. If the connection breaks, it may appear twice."""
        fields = ("by", request.by, "what", request.what)
        self._run.write_one("XADD", self._keys.requests, "MAXLEN", "~", REQUESTS, "*", *fields)

    def requests(self, after: str) -> list[tuple[str, Request]]:
        """Return (id, request) of all newer than the id `after`, or of all with '0'."""
        return self._known(self._keys.requests, after, "a request", _request)

    def add_snapshot(self, snapshot: Mapping[str, float | int | str | None]) -> None:
        text = json.dumps(dict(snapshot))
        self._run.write_one("XADD", self._keys.metrics, "MAXLEN", "~", SNAPSHOTS, "*", "json", text)

    def snapshots(self, after: str) -> list[tuple[str, dict[str, float | int | str | None]]]:
        """Return (id, snapshot) of all newer than the id `after`, or of all with '0'."""
        return self._known(self._keys.metrics, after, "numbers", _snapshot)

    def add_evaluation(self, evaluation: Evaluation, weights: bytes, incarnation: int) -> None:
        """Append one evaluation, exactly once; about the newest `EVALUATIONS` are kept, and the best one's weights.

        Raises:
            FencedError: `incarnation` is not the newest, or the run was launched again; nothing was changed.
        """
        keys, text = self._keys, json.dumps(asdict(evaluation))

        def prepare(newest: Reply, replies: Sequence[Reply]) -> Sequence[Command]:
            # Another launch after this read has removed the guard's key, and the transaction is refused.
            self._run.check_launch(replies[0])
            _check_newest(incarnation, newest)
            best = _float(replies[1])
            commands: list[Command] = [
                ("HSET", keys.incarnations, "evaluator", incarnation),  # which Redis may have forgotten
                ("XADD", keys.evaluations, "MAXLEN", "~", EVALUATIONS, "*", "json", text),
                ("HSET", keys.evaluated, "env_steps", evaluation.env_steps),
            ]
            if evaluation.score is not None and (best is None or evaluation.score > best):
                told = ("score", repr(evaluation.score), "json", text, "blob", weights)
                commands.append(("HSET", keys.evaluated, *told))
            return commands

        guard: Command = ("HGET", keys.incarnations, "evaluator")
        reads: list[Command] = [("HGET", keys.run, "launch"), ("HGET", keys.evaluated, "score")]
        self._engine.exactly_once(guard, prepare, "telling an evaluation", applied=keys.applied, reads=reads)

    def evaluations(self, after: str) -> list[tuple[str, Evaluation]]:
        """Return (id, evaluation) of all newer than the id `after`, or of all with '0'."""
        return self._known(self._keys.evaluations, after, "an evaluation", _evaluation)

    def best_evaluation(self) -> BestEvaluation | None:
        """Return this launch's best evaluation with its weights, read together."""
        text, weights = self._engine.call("HMGET", self._keys.evaluated, "json", "blob")
        if text is None:
            return None
        found = _evaluation({b"json": text})
        if found is None or weights is None:
            self._ignore_fields("the best evaluation", ["json"])
            return None
        return BestEvaluation(found, weights)

    def restore_evaluated(self, env_steps: int, best_score: float | None = None) -> None:
        """Restore the progress and the best score of evaluations for this launch's evaluators; neither goes back."""
        best = () if best_score is None else ("restored_score", repr(best_score))
        self._run.write_one("HSET", self._keys.evaluated, "restored_env_steps", env_steps, *best)

    def best_score(self) -> float | None:
        """Return the best score of this launch's evaluations and of `restore_evaluated`; None without any."""
        told = self._engine.call("HMGET", self._keys.evaluated, "score", "restored_score")
        return max((value for value in map(_float, told) if value is not None), default=None)

    def restored_score(self) -> float | None:
        """Return the score of `restore_evaluated`; None without any."""
        return _float(self._engine.call("HGET", self._keys.evaluated, "restored_score"))

    def evaluated_env_steps(self) -> int:
        """Return the progress of this launch or of `restore_evaluated`, whichever is more."""
        told = self._engine.call("HMGET", self._keys.evaluated, "env_steps", "restored_env_steps")
        return max(map(number_or_zero, told))

    def _known(
        self, key: str, after: str, what: str, read: Callable[[Mapping[bytes, bytes]], Item | None]
    ) -> list[tuple[str, Item]]:
        """Return (id, item) of the entries that `read` can parse; the others are ignored and counted."""
        entries: list[tuple[bytes, Any]] = self._engine.call("XRANGE", key, f"({after}", "+")
        found = [(entry_id.decode(), read(fields)) for entry_id, fields in entries]
        passed = self._passed.get(key, (0, 0))  # by a caller that has found nothing newer since
        odd = [entry_id for entry_id, item in found if item is None and entry_order(entry_id) > passed]
        self._passed[key] = max([passed, *map(entry_order, odd)])
        self._ignore(what, odd)
        return [(entry_id, item) for entry_id, item in found if item is not None]

    def _ignore_fields(self, what: str, names: Iterable[str]) -> None:
        """Call `_ignore` for fields that are read repeatedly: each counts once."""
        before = self._odd.get(what, frozenset())
        self._odd[what] = frozenset(names)
        self._ignore(what, sorted(self._odd[what] - before))

    def _ignore(self, what: str, names: Iterable[str]) -> None:
        """Count an item that another program has written, and log the first of a kind."""
        for name in names:
            if not self.ignored[what]:
                log.info("ignored %s that distrl has not written into Redis (%.40s)", what, ascii(name))
            self.ignored[what] += 1


def _check_newest(incarnation: int, newest: bytes | None) -> None:
    if incarnation < number_or_zero(newest):
        raise FencedError(
            f"another evaluator has taken over (incarnation {number_or_zero(newest)}, ours {incarnation})"
        )


def _words(text: bytes) -> str:
    return text.decode(errors="replace")


def _float(text: bytes | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _json(text: bytes | None) -> Any:
    """Return the decoded text; None if it is no JSON."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):  # brackets within brackets without end
        return None


def _is_plain(value: object) -> bool:
    """Return whether it can be a value of a heartbeat or a setting; numbers must be within bounds."""
    if isinstance(value, int | float):
        return -_MOST <= value <= _MOST  # false of NaN
    return value is None or isinstance(value, str)


def _fits(value: object, kind: type) -> bool:
    """Return whether it is a word, a whole number or any number, as the snapshot's entry `kind` must be."""
    if isinstance(value, int):
        return kind is not str and _is_plain(value)
    return type(value) is kind


def _status(field: bytes, text: bytes) -> RoleStatus | None:
    try:
        status = _STATUS.validate_json(text)
    except ValidationError:
        return None
    kind = KINDS.get(status.role)
    numbered = kind is not None and 0 <= status.id <= (HIGHEST_NUMBER if kind.numbered else 0)
    plain = all(map(_is_plain, (*status.waits.values(), *_values(status, _OWN_FIELDS), *_load_values(status.machine))))
    if not (numbered and plain and field == status.key.encode()):
        return None
    gpus = () if status.machine is None else status.machine.gpus
    if all(map(str.isprintable, (status.host, status.state, *status.waits, *(gpu.name for gpu in gpus)))):
        return status
    waits = {printable(name): share for name, share in status.waits.items()}
    machine = status.machine and replace(
        status.machine, gpus=tuple(replace(gpu, name=printable(gpu.name)) for gpu in gpus)
    )
    host, state = printable(status.host), printable(status.state)
    return replace(status, host=host, state=state, waits=waits, machine=machine)


def _values(record: object, names: Iterable[str]) -> Iterator[Any]:
    """Return the values of some fields. dataclasses.asdict copies deeply, which takes ten times as long."""
    return (getattr(record, name) for name in names)


def _load_values(load: HostLoad | None) -> Iterator[Any]:
    if load is not None:
        yield from (load.cores, load.busy_share, load.memory_mb, load.memory_used_mb)
        for gpu in load.gpus:
            yield from (gpu.name, gpu.busy_share, gpu.memory_mb, gpu.memory_used_mb)


def _supervisor(text: bytes) -> SupervisorStatus | None:
    try:
        status = _SUPERVISOR_STATUS.validate_json(text)
    except ValidationError:
        return None
    plain = all(map(_is_plain, asdict(status).values()))
    return (
        replace(status, host=printable(status.host), wanted_because=printable(status.wanted_because)) if plain else None
    )


def _request(fields: Mapping[bytes, bytes]) -> Request | None:
    by, what = fields.get(b"by"), fields.get(b"what")
    return None if by is None or what is None else Request(_words(by), _words(what))


def _snapshot(fields: Mapping[bytes, bytes]) -> dict[str, float | int | str | None] | None:
    found = _json(fields.get(b"json"))
    if not isinstance(found, dict):
        return None
    known = {printable(name): _shown(value) for name, value in found.items()}
    kinds = {name: str if name in WORDS else int if name in WHOLE else float for name in known}
    fits = all(value is None or _fits(value, kinds[name]) for name, value in known.items())
    return known if fits else None


def _shown(value: Any) -> Any:
    """Return a snapshot's value for terminals and files. An algorithm's own metrics may have any type."""
    if isinstance(value, str):
        return printable(value)
    return None if isinstance(value, float) and not isfinite(value) else value


def _evaluation(fields: Mapping[bytes, bytes]) -> Evaluation | None:
    try:
        return _shown_evaluation(_EVALUATION.validate_json(fields.get(b"json", b"")))
    except ValidationError:
        return None


def _shown_evaluation(found: Evaluation) -> Evaluation | None:
    """Return an evaluation with its names for terminals and files; None if distrl cannot have written it."""
    told = [value for name, value in asdict(found).items() if name not in _NOT_PLAIN]
    estimated = [value for one in found.estimates for value in (one.value, one.low, one.high, one.effective_episodes)]
    numbers = [*found.metrics.values(), *estimated]
    finite = all(value is None or isfinite(value) for value in numbers)  # of any size
    others = {printable(name): _shown_evaluation(other) for name, other in found.others.items()}
    known = {name: other for name, other in others.items() if other is not None}
    if not (finite and all(map(_is_plain, told)) and len(known) == len(others)):
        return None
    metrics = {printable(name): value for name, value in found.metrics.items()}
    estimates = tuple(
        replace(one, estimator=printable(one.estimator), problem=one.problem and printable(one.problem))
        for one in found.estimates
    )
    return replace(found, metrics=metrics, others=known, best_by=printable(found.best_by), estimates=estimates)


def _control(told: Mapping[bytes, bytes]) -> tuple[Control, list[str]]:
    """Return the decoded fields, and the names of fields that distrl does not write."""
    stop = told.get(b"stop")
    settings, odd = _settings(told)
    counts = {name: told[name] for name in _COUNTS if name in told}
    target, least, most = (_count(counts.get(name)) for name in (b"target_actors", b"min_actors", b"max_actors"))
    control = Control(
        paused=told.get(b"paused") == b"1",
        stop=None if stop is None else printable(_words(stop)),
        target_actors=target,
        target_forced=told.get(b"target_forced") == b"1",
        autoscale={b"1": True, b"0": False}.get(told.get(b"autoscale", b"")),
        min_actors=least,
        max_actors=most,
        stacks=_words(told.get(b"stacks", b"")),
        settings=settings,
        networks_from=_words(told.get(b"networks_from", b"")),
        **{errand: _demand(told, errand) for errand in ERRANDS},
    )
    return control, [*odd, *[_words(name) for name, value in counts.items() if not is_number(value)]]


def _count(text: bytes | None) -> int | None:
    return int(text) if text is not None and is_number(text) else None


def _settings(told: Mapping[bytes, bytes]) -> tuple[dict[str, Value], list[str]]:
    """Return path -> value, and the fields without a valid value."""
    found: dict[str, Value] = {}
    odd = []
    for name, text in told.items():
        path, value = _words(name), _json(text)
        if not path.startswith(_SETTING):
            continue
        if _is_plain(value) and (value is not None or text == b"null"):
            found[path.removeprefix(_SETTING)] = value
        else:
            odd.append(path)
    return found, odd


def _demand(told: Mapping[bytes, bytes], errand: Errand) -> Demand:
    asked, done = (number_or_zero(told.get(f"{errand}.{which}".encode())) for which in ("asked", "done"))
    return Demand(asked, done, printable(_words(told.get(f"{errand}.refused".encode(), b""))))
