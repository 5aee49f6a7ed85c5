"""Messages of the protocol: requests to act in JSON or msgpack, and their replies.

    request   observation | observations, session, begins, greedy, want, id
    reply     action | actions, version, policy, session, id, and what was wanted

A reply has plain numbers, lists and maps only, so that every msgpack and JSON library reads it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from distrl import wire
from distrl.errors import DecodeError, DistrlError

WANTS = frozenset({"log_probability", "value", "distribution"})
FIELDS = frozenset({"observation", "observations", "session", "begins", "greedy", "want", "id"})
MOST_ROWS = 1024
"""Most observations of one message."""
LONGEST_NAME = 128
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
class ActRequest:
    """A request to act.

    Attributes:
        observations: One or several, each as the environment shows it.
        single: The message had one observation, not a list of them.
        session: Identifier of its session; None: there is none.
        begins: The observation is the first of an episode.
        greedy: The most probable action; None: as the server is set.
        want: Members of `WANTS`.
        id: Repeated in the reply.
    """

    observations: list[Any]
    single: bool
    session: str | int | None
    begins: bool
    greedy: bool | None
    want: frozenset[str]
    id: str | int | None


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
    several = "observations" in message
    if several == ("observation" in message):
        raise RefusedError(400, "a message has either observation, or observations for several at once")
    observations = list(_several(message["observations"])) if several else [message["observation"]]
    session, request_id = (_name(message, field) for field in ("session", "id"))
    if several and session is not None:
        raise RefusedError(400, "observations of one session come one by one: send observation")
    want = message.get("want")
    return ActRequest(
        observations,
        not several,
        session,
        bool(_switch(message, "begins")),
        _switch(message, "greedy"),
        _NOTHING if want is None else _wanted(want),
        request_id,
    )


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
