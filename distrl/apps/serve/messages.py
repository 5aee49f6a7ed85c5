"""Messages of the protocol: requests to act in JSON or msgpack, and their replies.

    request   observation | observations, session, begins, greedy, want, id
              and of the step before: reward, terminated, truncated, metrics, step
    reply     action | actions, version, policy, session, id, learns, and what was wanted
              at an episode's end: return, steps, version, policy, session, id

A reply has plain numbers, lists and maps only, so that every msgpack and JSON library reads it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distrl import wire
from distrl.errors import DecodeError, DistrlError

WANTS = frozenset({"log_probability", "value", "distribution"})
RESULTS = ("reward", "terminated", "truncated", "metrics", "step")
"""Fields that report what came of the session's newest action."""
FIELDS = frozenset({"observation", "observations", "session", "begins", "greedy", "want", "id", *RESULTS})
MOST_METRICS = 64
MOST_ROWS = 1024
"""Most observations of one message."""
LONGEST_NAME = 128
LARGEST = float(np.finfo(np.float32).max)
LARGEST_LEARNED = 1e9
"""Largest reward, and number in an observation that is learned from: losses square what is made of them, in float32."""
MOST_ITEMS = 65_536
"""Most elements of a msgpack message that are no arrays of NumPy."""


class RefusedError(DistrlError):
    """A request that is not carried out.

    Attributes:
        status: As of HTTP.
        wait_s: Seconds after which a repetition may succeed; None: not by waiting.
        names: Session and id of a message that is no request, for its reply.
    """

    def __init__(self, status: int, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.wait_s = wait_s
        self.names: dict[str, Any] = {}


class Codec(NamedTuple):
    """A format of messages.

    Attributes:
        subprotocol: Its name for WebSocket.
    """

    subprotocol: str
    media_type: bytes
    load: Callable[[Any], Any]
    dump: Callable[[Any], bytes]


def _load_json(body: bytes | str) -> Any:
    try:
        return json.loads(body.decode() if isinstance(body, bytes) else body)
    except (ValueError, RecursionError) as error:  # also texts that are not UTF-8, and whole numbers of 4,300 digits
        raise RefusedError(400, f"the message is not JSON: {str(error)[:200]}") from error


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def _dump_json(tree: Any) -> bytes:
    return _ENCODE(tree).encode()


def _load_msgpack(body: bytes) -> Any:
    try:
        return wire.unpack(body, max_items=MOST_ITEMS)
    except DecodeError as error:
        raise RefusedError(400, f"the message is not msgpack: {str(error)[:200]}") from error


JSON = Codec("json", b"application/json", _load_json, _dump_json)
MSGPACK = Codec("msgpack", b"application/msgpack", _load_msgpack, wire.pack)
CODECS = (JSON, MSGPACK)


def codec_of_media_type(content_type: bytes) -> Codec:
    """Return the codec of a content type; JSON if there is none.

    Raises:
        RefusedError: It is another one.
    """
    if content_type in (b"", JSON.media_type):
        return JSON
    name = content_type.partition(b";")[0].strip().lower()
    if name in (b"application/msgpack", b"application/x-msgpack", b"application/vnd.msgpack"):
        return MSGPACK
    if name in (JSON.media_type, b"application/x-www-form-urlencoded"):  # the latter is what curl -d says
        return JSON
    raise RefusedError(415, "the content type is neither application/json nor application/msgpack")


@dataclass(slots=True)
class StepResult:
    """The result of a session's newest action, as its client reports it.

    Attributes:
        reward: At most `LARGEST_LEARNED` in magnitude.
        terminated, truncated: How the step ended the episode; both may be true.
        metrics: As `info` of an environment.
        step: Number of the action in its episode, from 0; None: the client does not count.
    """

    reward: float
    terminated: bool
    truncated: bool
    metrics: dict[str, float]
    step: int | None

    @property
    def ends(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


@dataclass(slots=True)
class ActRequest:
    """A request to act, a report of an episode's end, or both a result and the request that follows it.

    Attributes:
        observations: One or several, each as the environment shows it; none: an episode has terminated.
        single: The message had one observation, not a list of them.
        session: Identifier of its session; None: there is none.
        begins: The observation is the first of an episode.
        greedy: The most probable action; None: as the server is set.
        want: Members of `WANTS`.
        id: Repeated in the reply.
        result: Of the session's newest action; None: the message reports none.
    """

    observations: list[Any]
    single: bool
    session: str | int | None
    begins: bool
    greedy: bool | None
    want: frozenset[str]
    id: str | int | None
    result: StepResult | None = None

    @property
    def ends(self) -> bool:
        """Whether it reports the end of an episode, and asks for no action."""
        return self.result is not None and self.result.ends


_NOTHING: frozenset[str] = frozenset()


def request_of(message: Any) -> ActRequest:
    """Check a message to act.

    Raises:
        RefusedError: It says the first problem, and has the message's names.
    """
    try:
        return _checked(message)
    except RefusedError as error:
        if isinstance(message, dict):
            error.names = {field: message[field] for field in ("session", "id") if _is_name(message.get(field))}
        raise


def _checked(message: Any) -> ActRequest:
    if not isinstance(message, dict):
        raise RefusedError(400, f"a message is a map of fields, not {type(message).__name__}")
    if len(message) == 1 and "observation" in message:  # the usual one
        return ActRequest([message["observation"]], True, None, False, None, _NOTHING, None)
    if unknown := message.keys() - FIELDS:
        names = ", ".join(sorted(str(name)[:40] for name in unknown)[:3])
        raise RefusedError(400, f"unknown field: {names}; there are {', '.join(sorted(FIELDS))}")
    result = _result(message)
    several, single = "observations" in message, message.get("observation") is not None
    if several == single and (several or result is None or not result.terminated):
        raise RefusedError(400, "a message has either observation, or observations for several at once")
    observations = list(_several(message["observations"])) if several else [message.get("observation")]
    session, request_id = (_name(message, field) for field in ("session", "id"))
    if several and session is not None:
        raise RefusedError(400, "observations of one session come one by one: send observation")
    if result is not None and session is None:
        raise RefusedError(400, "a reward, or an end, is of a session's episode: name the session")
    begins = bool(_switch(message, "begins"))
    if result is not None and begins:
        raise RefusedError(400, "begins: a first observation comes without the fields " + ", ".join(RESULTS))
    want = message.get("want")
    return ActRequest(
        observations if several or single else [],
        not several,
        session,
        begins,
        _switch(message, "greedy"),
        _NOTHING if want is None else _wanted(want),
        request_id,
        result,
    )


def _result(message: Mapping[str, Any]) -> StepResult | None:
    """Return what a message reports of the newest action; None: nothing."""
    if message.keys().isdisjoint(RESULTS):
        return None
    reward = _number(message, "reward", LARGEST_LEARNED)
    terminated, truncated = (bool(_switch(message, field)) for field in ("terminated", "truncated"))
    if truncated and not terminated and message.get("observation") is None:
        raise RefusedError(
            400, "truncated: send the last observation too; the value of what would have followed needs it"
        )
    metrics = {} if message.get("metrics") is None else message["metrics"]
    if not isinstance(metrics, dict) or len(metrics) > MOST_METRICS:
        raise RefusedError(400, f"metrics is a map of at most {MOST_METRICS} names to numbers")
    step = message.get("step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**53):
        raise RefusedError(400, "step is a whole number: how many actions of the episode came before this one")
    known = {  # also truth values, such as is_success
        str(name)[:LONGEST_NAME]: float(value) if isinstance(value, bool) else _number(metrics, name)
        for name, value in metrics.items()
    }
    return StepResult(reward, terminated, truncated, known, step)


def _number(message: Mapping[Any, Any], field: Any, largest: float = LARGEST) -> float:
    value: Any = message.get(field)
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if is_number and abs(value) <= largest:  # NaN is not; before `float`, which large whole numbers do not survive
        return float(value)
    what = "missing" if value is None else f"not a number from {-largest:.2g} to {largest:.2g}"
    raise RefusedError(400, f"{str(field)[:LONGEST_NAME]} is {what}")


def _several(given: Any) -> Any:
    count = len(given) if isinstance(given, list | tuple) or getattr(given, "ndim", 0) > 0 else 0
    if not 0 < count <= MOST_ROWS:
        raise RefusedError(400, f"observations are a list of 1 to {MOST_ROWS:,} observations")
    return given


def _switch(message: Mapping[str, Any], field: str) -> bool | None:
    value = message.get(field)
    if value is not None and not isinstance(value, bool):
        raise RefusedError(400, f"{field} is true or false")
    return value


def _name(message: Mapping[str, Any], field: str) -> str | int | None:
    value: str | int | None = message.get(field)
    if value is None or _is_name(value):
        return value
    raise RefusedError(400, f"{field} is a text of at most {LONGEST_NAME} characters, or a whole number below 2^53")


def _is_name(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_NAME
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53


def _wanted(want: Any) -> frozenset[str]:
    if isinstance(want, list | tuple) and all(isinstance(name, str) for name in want) and WANTS.issuperset(want):
        return frozenset(want)
    raise RefusedError(400, f"want is a list of {', '.join(sorted(WANTS))}")


def error_reply(error: RefusedError, request: ActRequest | None = None) -> dict[str, Any]:
    """Return the reply to a request that is refused."""
    reply: dict[str, Any] = {"error": " ".join(str(error).split())[:500], "status": error.status}
    if error.wait_s is not None:
        reply["wait_s"] = error.wait_s
    return reply | (error.names if request is None else named(request))


def named(request: ActRequest) -> dict[str, Any]:
    """Return the fields of a reply that name its request."""
    names: dict[str, Any] = {}
    if request.session is not None:
        names["session"] = request.session
    if request.id is not None:
        names["id"] = request.id
    return names
