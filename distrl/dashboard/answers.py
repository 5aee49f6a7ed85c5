"""Answers in JSON: any data that files or Redis hold can be encoded."""

import json
import math
from typing import Any

from starlette.responses import JSONResponse


def encoded(data: Any) -> str:
    """ASCII JSON that every browser reads; numbers that JSON does not know become null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError:  # rare, so that the data is searched only then
        return json.dumps(_known(data), separators=(",", ":"))


class Answer(JSONResponse):
    """`encoded` as a response."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return encoded(content).encode()


def _known(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _known(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_known(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return None if isinstance(data, int) and data.bit_length() > 1024 else data
