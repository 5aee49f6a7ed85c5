"""`stop.minutes` by the supervisor's clock, which goes on while no learner trains."""

from distrl.roles.suspend_clock import AwakeClock


class TimeLimit:
    """Time from the moment at which the first learner began to train.

    The learner counts its time of training itself, and a learner that dies takes along what no checkpoint holds.

    Args:
        minutes: `stop.minutes`.
        trained_s: Seconds of training in earlier launches.
    """

    def __init__(self, minutes: float | None, trained_s: float, awake: AwakeClock) -> None:
        self._left_s = float("inf") if minutes is None else 60.0 * minutes - trained_s
        self._awake = awake
        self._began: float | None = None

    def is_over(self, *, trains: bool) -> bool:
        """Return whether the time is over; the first call with `trains` begins it."""
        if self._began is None and trains:
            self._began = self._awake.look()
        return self._began is not None and self._awake.age_s(self._began) >= self._left_s
