"""One line of `distrl doctor`: the state of one thing, and advice if it needs any."""

from typing import Literal, NamedTuple

Health = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """One line of the report; an error keeps a training from running or from going on."""

    health: Health
    name: str
    found: str
    advice: str = ""
