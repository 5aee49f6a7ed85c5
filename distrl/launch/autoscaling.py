"""The supervisor's part of autoscaling: what it sees of a run becomes the number of actors that the run wants."""

import time
from collections.abc import Callable, Sequence

from distrl.config import RunConfig
from distrl.launch.actors_wanted import Bounds, Seen, Wanted, look
from distrl.memory_backend.records import Control, RoleStatus
from distrl.roles.plan import ACTORS_ON_CLUSTER, most_actors

GAP_S = 5.0
"""Longer gaps between two looks mean that Redis did not answer, or that the machine was suspended."""
ACTING = ("acting", "differentiating", "waiting: room", "waiting: ticket", "waiting: round")
"""States of actors that take part in the training."""


class Autoscaling:
    """Keeps the wanted number of actors of one run, from each look of its supervisor at the run's roles.

    Attributes:
        enabled: Whether the supervisor follows that number.
    """

    def __init__(self, config: RunConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self.enabled = config.actors.autoscale.enabled
        self._least, self._most = config.actors.autoscale.min_count, config.actors.autoscale.max_count
        self._allowed = most_actors(config) or config.actors.max_count or ACTORS_ON_CLUSTER
        self._state = Wanted(config.actors.count)
        self._looked_at = clock()
        self._disturbed_at, self._disturbed_by = self._looked_at, "the run is starting"

    @property
    def wanted(self) -> int | None:
        """Number of actors that the run wants; None where the number is part of the algorithm."""
        return None if self._config.algorithm.rounds else self._state.actors

    @property
    def reason(self) -> str:
        """The reason, in words."""
        if self._config.algorithm.rounds:
            return f"{self._config.algorithm.name} makes each update of one gradient of every actor"
        return self._state.words

    def obey(self, control: Control, target: int) -> None:
        """Take over what operators have requested.

        Args:
            target: Number of actors that the run has now, from which autoscaling goes on when it is switched on.
        """
        if control.autoscale is None or self._config.algorithm.rounds:
            return
        if control.autoscale and not self.enabled:
            self._state = Wanted(target)
        self.enabled = control.autoscale
        if control.autoscale:
            self._least, self._most = control.min_actors or 1, control.max_actors or None

    def restart(self, actors: int) -> None:
        """Measure anew from this number of actors, which an operator has chosen."""
        self._state = Wanted(actors)

    def look(self, control: Control, roles: Sequence[RoleStatus]) -> None:
        """Bring the wanted number up to date after one more look at the run.

        Args:
            roles: Heartbeats of the roles that are up, without actors that are not the run's to start.
        """
        now = self._clock()
        elapsed_s, self._looked_at = now - self._looked_at, now
        disturbed, brief = self._disturbance(elapsed_s, control, roles)
        if disturbed and not brief:
            self._disturbed_at, self._disturbed_by = now, disturbed
        elif not disturbed and _learner(roles).last_step_age_s >= now - self._disturbed_at:
            # Actors began anew: until their first unrolls are there, the learner waits however many they are.
            disturbed = f"no update has followed yet ({self._disturbed_by})"
        self._state = look(self._state, _seen(roles, elapsed_s, disturbed, brief=brief), self._bounds())

    def _bounds(self) -> Bounds:
        """Return the bounds in force. Where tickets bound staleness, more actors than tickets only wait."""
        config, pace = self._config, self._config.actors.autoscale
        most = self._allowed if self._most is None else min(self._most, self._allowed)
        staleness = config.algorithm.max_staleness_updates
        if staleness is not None:
            most = min(most, config.batch_size * (staleness + 1))
        least = min(self._least, self._allowed)
        return Bounds(least, max(least, most), pace.window_s, pace.lower_after_s)

    def _disturbance(self, elapsed_s: float, control: Control, roles: Sequence[RoleStatus]) -> tuple[str, bool]:
        """Return why this look counts for nothing, "" if it counts, and whether what was seen before still counts."""
        if control.paused:
            return "paused", False
        if control.stop is not None:
            return "stopping", False
        if elapsed_s > GAP_S:
            return f"nothing was seen of the run for {elapsed_s:.0f} s", False
        if not any(role.role == "learner" for role in roles):
            return "no learner is up", False
        learner = _learner(roles)
        if learner.state not in ("training", "waiting: unrolls"):
            return f"the learner is {learner.state}", False
        if not learner.waits:
            return "the learner has made no update yet", False
        if learner.state == "training" and learner.last_step_age_s > self._config.actors.autoscale.window_s:
            return f"the learner has made no update for {learner.last_step_age_s:.0f} s", False
        if not any(map(_acts, roles)):
            return "no actor has finished an unroll", False
        if any(role.role == "evaluator" and role.state == "evaluating" for role in roles):
            return "evaluating", True
        return "", False


def _learner(roles: Sequence[RoleStatus]) -> RoleStatus:
    return next(role for role in roles if role.role == "learner")


def _acts(role: RoleStatus) -> bool:
    """Return whether the learner gets unrolls of the actor; a first unroll may take longer than a window."""
    return role.role == "actor" and role.state in ACTING and role.env_steps > 0


def _seen(roles: Sequence[RoleStatus], elapsed_s: float, disturbed: str, *, brief: bool) -> Seen:
    if disturbed:
        return Seen(elapsed_s, disturbed=disturbed, brief=brief)
    actors = [role for role in roles if _acts(role)]
    return Seen(
        elapsed_s,
        starving=_learner(roles).blocked_share,
        blocked=sum(role.blocked_share for role in actors) / len(actors),
        refused=sum(role.waits.get("waiting: room", 0.0) for role in actors) / len(actors),
        actors=len(actors),
        steps_per_s=sum(role.env_steps_per_s for role in actors),
    )
