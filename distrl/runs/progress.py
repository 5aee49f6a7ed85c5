"""Progress of a run towards each of its stop conditions, and the estimated time left."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from distrl.config.stop import BUDGETS, StopConfig
from distrl.metrics.snapshot import Snapshot, amount, info_column, number

_SLOPE_POINTS = 30
_LEAST_POINTS = 5
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Goal:
    """One stop condition; `now` and `eta_s` are None while unknown, and `unit` is "count", "return" or "minutes"."""

    name: str
    now: float | None
    target: float
    eta_s: float | None
    unit: str = "count"

    @property
    def fraction(self) -> float:
        """Progress from 0 to 1. A return counts from 0, where many environments start."""
        if self.now is None or self.target <= 0:
            return 1.0 if self.now is not None and self.now >= self.target else 0.0
        return min(max(self.now / self.target, 0.0), 1.0)


class History:
    """Recent mean returns over time."""

    def __init__(self, length: int = 120) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=length)  # (wall_s, mean return)

    def add(self, snapshot: Snapshot) -> None:
        """Record the mean return of a snapshot that is newer than the last one."""
        wall_s, value = number(snapshot.get("wall_s")), number(snapshot.get("mean_return_100"))
        if wall_s is not None and value is not None and (not self._points or wall_s > self._points[-1][0]):
            self._points.append((wall_s, value))

    def sparkline(self, width: int) -> str:
        """Return the newest `width` values as blocks between their minimum and maximum; "" for fewer than two."""
        return sparkline([value for _, value in self._points][-width:])

    def slope_per_s(self) -> float | None:
        """Return the least-squares slope of the newest values; None for fewer than five of them."""
        points = [*self._points][-_SLOPE_POINTS:]
        if len(points) < _LEAST_POINTS:
            return None
        mean_t = sum(t for t, _ in points) / len(points)
        mean_v = sum(v for _, v in points) / len(points)
        spread = sum((t - mean_t) ** 2 for t, _ in points)
        return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread


def goals(snapshot: Snapshot, stop: StopConfig, history: History) -> list[Goal]:
    """Return every stop condition that is set, the return first."""
    found = []
    if stop.mean_return is not None:
        now, slope = number(snapshot.get("mean_return_100")), history.slope_per_s()
        eta_s = None if now is None else _eta_s(stop.mean_return - now, slope)
        found.append(Goal("return", now, stop.mean_return, eta_s, "return"))
    if stop.evaluation_return is not None:
        now = number(snapshot.get("evaluation_mean_return"))
        found.append(Goal("evaluation", now, stop.evaluation_return, None, "return"))
    found += [
        Goal(key, number(snapshot.get(info_column(key))), wanted, None, "return")
        for key, wanted in stop.metrics.items()
    ]
    for field, name, _ in BUDGETS:
        if (target := getattr(stop, field)) is not None:
            now = amount(snapshot, field)
            found.append(Goal(name, now, target, _eta_s(target - now, number(snapshot.get(f"{field}_per_s")))))
    if stop.minutes is not None:
        wall_s = amount(snapshot, "wall_s")
        found.append(Goal("minutes", wall_s / 60, stop.minutes, max(60 * stop.minutes - wall_s, 0.0), "minutes"))
    return found


def sparkline(values: Sequence[float]) -> str:
    """Return one block per value, ▁ for the minimum and █ for the maximum."""
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in values)


def _eta_s(rest: float, rate_per_s: float | None) -> float | None:
    """Return the seconds left at this rate; None without a rate, or for more than a month."""
    if rest <= 0:
        return 0.0
    if rate_per_s is None or rate_per_s <= 0 or rest / rate_per_s > 30 * 86400:
        return None
    return rest / rate_per_s
