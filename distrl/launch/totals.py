"""The numbers of a launch that its supervisor and its summary need."""

from distrl.metrics.snapshot import Snapshot
from distrl.observers.fleet_state import FleetState
from distrl.observers.observer import Observer


class Totals(Observer):
    """Keeps the first and the newest snapshot, and the most memory that each role has taken.

    Attributes:
        latest: The newest snapshot; empty before the first.
        peak_rss_mb: Name of a role -> highest resident memory, MB (10^6 bytes).
    """

    def __init__(self) -> None:
        self.latest: Snapshot = {}
        self.peak_rss_mb: dict[str, float] = {}
        self._first: Snapshot = {}

    def snapshot(self, snapshot: Snapshot) -> None:
        self.latest = snapshot
        self._first = self._first or snapshot

    def roles(self, fleet: FleetState) -> None:
        for role in fleet.roles:
            name = role.name
            self.peak_rss_mb[name] = max(self.peak_rss_mb.get(name, 0.0), role.peak_rss_mb)

    def rate(self, name: str) -> float:
        """Return the increase per second since the first snapshot of this launch; with one snapshot, its own rate."""
        elapsed_s = _known(self.latest, "wall_s") - _known(self._first, "wall_s")
        if elapsed_s <= 0.0:
            return _known(self._first, f"{name}_per_s")
        return (_known(self.latest, name) - _known(self._first, name)) / elapsed_s


def _known(snapshot: Snapshot, name: str) -> float:
    return float(snapshot.get(name) or 0.0)
