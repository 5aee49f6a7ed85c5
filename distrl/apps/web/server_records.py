"""Records of policy servers: `distrl serve` writes them in a run's directory, and the dashboard reads them.

A server writes serving/HOST-PORT.json every `EVERY_S`, and removes it when it ends in order. A record that is older
than `STALE_S` is of a server that is gone.
"""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

FOLDER = "serving"
EVERY_S = 2.0
STALE_S = 10.0
FEWEST = 5
"""Fewest values of which an interval is computed."""
_Z = 1.959964
"""0.975-quantile of the normal distribution."""
Count = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations from the mean, by Welford's method."""

    count: Count = 0
    mean: float = 0.0
    m2: Annotated[float, Field(ge=0.0)] = 0.0

    def plus(self, other: "Moments") -> "Moments":
        """Return those of both sets of values."""
        count = self.count + other.count
        if count == 0:
            return self
        step = other.mean - self.mean
        share = other.count / count
        return Moments(count, self.mean + step * share, self.m2 + other.m2 + step * step * self.count * share)

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval of the mean, by Student's t; None of fewer than `FEWEST` values."""
        return None if self.count < FEWEST else quantile_of_t(self.count - 1) * math.sqrt(self.squared_error)

    @property
    def squared_error(self) -> float:
        """Square of the mean's standard error, of at least two values."""
        return self.m2 / (self.count - 1) / self.count


def half_of_difference(one: Moments, other: Moments) -> float | None:
    """Return half of the 95 % interval of the difference of two means, by Welch's method; None as `Moments.half`."""
    if min(one.count, other.count) < FEWEST:
        return None
    squared_error = one.squared_error + other.squared_error
    if squared_error == 0.0:
        return 0.0
    share = one.squared_error / squared_error
    freedom = 1.0 / (share**2 / (one.count - 1) + (1.0 - share) ** 2 / (other.count - 1))
    return quantile_of_t(freedom) * math.sqrt(squared_error)


def quantile_of_t(freedom: float) -> float:
    """Return the 0.975-quantile of Student's t, off by less than 0.3 % from 4 degrees of freedom on.

    Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.5.
    """
    z = _Z
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


class Latencies(NamedTuple):
    """Quantiles in seconds, from the arrival of a request to its reply."""

    p50_s: float
    p95_s: float
    p99_s: float


class Point(NamedTuple):
    """Numbers of one interval; `at` is its end, in seconds since 1970."""

    at: float
    actions_per_s: float
    p99_s: float | None


class ServedPolicy(BaseModel):
    """A policy of a server.

    Attributes:
        name: "main" or "canary".
        source: Where its versions come from, as the command line names it.
        version: The newest one.
        share: Of new sessions that act with it, 0 to 1.
        returns: Of all its episodes that have ended.
        versions: Version -> the returns of its episodes, of the newest versions.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    source: str
    version: Count
    share: float
    returns: Moments
    versions: dict[Count, Moments]


class ServerRecord(BaseModel):
    """A server at one moment.

    Attributes:
        address: Host and port, as other hosts reach them.
        started, written: In seconds since 1970.
        connections: By HTTP and WebSocket.
        waiting: Observations that wait for their batch.
        actions: Since it began.
        actions_per_s: Over the last interval, as the next one.
        latencies: None without requests.
        failures: Status -> requests to act that got it, since it began.
        history: The last ten minutes, oldest first.
    """

    model_config = ConfigDict(frozen=True)

    address: str
    host: str
    pid: Count
    started: float
    written: float
    environment: str
    policies: list[ServedPolicy]
    sessions: Count
    connections: Count
    waiting: Count
    actions: Count
    actions_per_s: float
    latencies: Latencies | None
    failures: dict[Count, Count]
    history: list[Point]
