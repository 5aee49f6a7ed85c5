"""The limit of failed attempts per address, kept only in memory."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

FAILURES = 10
"""Most failures of an address; then it waits until one failure is `FORGIVE_S` old."""
FORGIVE_S = 60.0
MOST_ADDRESSES = 10_000
REPORT_S = 60.0
"""Failures of one address are logged in one line per that long."""
_LOG = logging.getLogger(__name__)


class Failures:
    """Counts failed attempts of a kind (`what`) per address, and logs them without the presented secret."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._times: OrderedDict[str, list[float]] = OrderedDict()
        self._reported: dict[str, float] = {}
        self._unreported: dict[str, int] = {}

    def wait_s(self, address: str) -> float:
        """Return how long an address must wait before its next attempt."""
        times = self._recent(network_of(address))
        return max(times[-FAILURES] + FORGIVE_S - self._clock(), 0.0) if len(times) >= FAILURES else 0.0

    def add(self, address: str) -> None:
        """Record a failed attempt."""
        network = network_of(address)
        self._times[network] = [*self._recent(network), self._clock()][-FAILURES:]
        self._times.move_to_end(network)
        while len(self._times) > MOST_ADDRESSES:
            oldest, _ = self._times.popitem(last=False)
            self._reported.pop(oldest, None)
            self._unreported.pop(oldest, None)
        self._report(network)

    def _recent(self, network: str) -> list[float]:
        return [at for at in self._times.get(network, ()) if self._clock() - at < FORGIVE_S]

    def _report(self, network: str) -> None:
        count = self._unreported.get(network, 0) + 1
        if self._clock() - self._reported.get(network, float("-inf")) < REPORT_S:
            self._unreported[network] = count
            return
        self._reported[network], self._unreported[network] = self._clock(), 0
        _LOG.warning("wrong %s from %s: %d", self._what, network, count)


def network_of(address: str) -> str:
    """Return the address, or the /64 of an IPv6 address, as every host has that many addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(parsed, IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else f"{IPv6Address(int(parsed) >> 64 << 64)}/64"
    return address
