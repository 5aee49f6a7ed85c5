"""Bodies of requests that change something: parsed in JSON, and refused after their deadline."""

import time
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from distrl.errors import ConfigError

Body = TypeVar("Body", bound=BaseModel)


class TooLateError(ConfigError):
    """A request after its deadline."""


def parsed(model: type[Body], body: bytes, hint: str = "") -> Body:
    """Parse a body.

    Args:
        hint: End of the message about a body that does not fit.

    Raises:
        ConfigError: It names the first problem.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the body"
        raise ConfigError(f"{where}: {problem['msg']}{hint}") from error


def require_in_time(deadline: float | None, now: float | None = None) -> None:
    """Raise TooLateError after a deadline, in seconds since 1970 by the server's clock; None: no deadline."""
    late_s = 0.0 if deadline is None else (time.time() if now is None else now) - deadline
    if late_s > 0.0:
        raise TooLateError(f"the request came {late_s:.0f} s too late and was not carried out; repeat it")
