"""Control requests of pages, and how they are applied to a live run through its `Steering`."""

import json
import time
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from distrl.apps.dashboard.bodies import parsed, require_in_time
from distrl.errors import ConfigError
from distrl.memory_backend.steering import Steering

MOST_ACTORS = 10_000
Action = Literal["pause", "resume", "stop", "scale", "checkpoint", "evaluate", "set"]


class ControlRequest(BaseModel):
    """The body of a control request.

    Attributes:
        value: For "scale" the number of actors; for "set" {"path": …, "value": …}; otherwise none.
        deadline: Seconds since 1970 by the server's clock after which the request is refused; None: no deadline.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Action
    value: int | dict[str, Any] | None = None
    deadline: float | None = Field(None, allow_inf_nan=False)

    @classmethod
    def read(cls, body: bytes) -> "ControlRequest":
        """Parse a request in JSON, or raise ConfigError."""
        return parsed(cls, body, "; send {action, value} in JSON")


def apply(request: ControlRequest, hands: Steering, now: Callable[[], float] = time.time) -> str:
    """Carry out a request, unless its deadline has passed; return a line that confirms it."""
    require_in_time(request.deadline, now())
    if request.action == "scale":
        actors = _whole(request.value)
        hands.scale(actors)
        return f"requested {actors} {'actor' if actors == 1 else 'actors'}"
    if request.action == "set":
        path, value = _assignment(request.value)
        hands.change({path: value})
        return f"requested {path} = {value if isinstance(value, str) else json.dumps(value)}"
    getattr(hands, request.action)()
    return f"{request.action} requested"


def _whole(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST_ACTORS:
        raise ConfigError(f"scale wants a number of actors from 1 to {MOST_ACTORS:,}")
    return value


def _assignment(value: object) -> tuple[str, float | int | str]:
    if not isinstance(value, dict) or value.keys() != {"path", "value"} or not isinstance(value["path"], str):
        raise ConfigError("set wants a path and its value")
    if not isinstance(value["value"], float | int | str):
        raise ConfigError(f"{value['path']} wants a number or a word")
    return value["path"], value["value"]
