"""The session around the learner's loop: train, and let the attendants work, until a stop condition holds."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from distrl.config import RunConfig
from distrl.learner.attendants import attendants
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.reporter import Reporter, Snapshot
from distrl.learner.batches import Batches, Trained
from distrl.learner.preparation import Parts
from distrl.learner.stop_conditions import ASKED


class Session:
    """Runs the learner until a stop condition of the configuration holds or a stop is requested.

    Args:
        batches: Of `Parts.make_batches`, or those of a data set.
        publish: Publishes metrics snapshots.
        stop: Returns whether a stop is requested.
        own: Attendants of the caller.

    Attributes:
        reached: The stop condition that ended the training; set before the last save.
        fence: Number of the learner's token.
        waits: Measures where the learner's time goes.
    """

    reached: str | None = None

    def __init__(
        self,
        parts: Parts,
        batches: Batches,
        publish: Callable[[Snapshot], None],
        stop: Callable[[], bool],
        own: Sequence[Attendant] = (),
    ) -> None:
        self.fence, self.waits = parts.backend.fence.number, parts.waits
        self._stop = stop
        self._conditions, self._batches = parts.conditions, batches
        self.learner = parts.make_learner(self._batches)
        self.reporter = Reporter(
            parts.config, parts.state, parts.backend, parts.waits, publish, parts.replay, parts.origin.note
        )
        self._attendants = attendants(
            parts,
            self.learner,
            self.reporter,
            own,
            stop=stop,
            attend=self.attend,
            steer=self.steer,
            saved=self.saved,
        )

    @property
    def activity(self) -> str:
        """The learner's activity, for heartbeats."""
        return self.reporter.activity or self.reporter.compiling or self._batches.activity

    @property
    def progressed_at(self) -> float:
        """Monotonic time of the last update, or of an unroll that came into a replay memory later."""
        return max(self.learner.last_update_at, self._batches.progressed_at)

    def run(self) -> str:
        """Train; return the stop reason: a field of `stop`, or 'asked'.

        Raises:
            NonFiniteError: The update was not applied or published, and no checkpoint was written after it.
            UnsavedError: The training has ended, and its last updates could not be saved in the run's directory.
            StoreError: They are saved there, and the data store does not take them.
        """
        for attendant in self._attendants:
            attendant.begin()
        self.learner.start()
        self.reporter.activity = ""
        try:
            reason = self._train()
            self.reached = None if reason == ASKED else reason
            self.reporter.activity = "stopping"
            self.learner.publish_newest()
            for attendant in self._attendants:
                attendant.end(reason)
        except BaseException as error:
            self._close(error)
            raise
        self._close(None)
        self.reporter.report(reason)
        return reason

    def _train(self) -> str:
        for attendant in self._attendants:
            attendant.started()
        while (reason := self._conditions.reached()) is None and not self._stop():
            trained = self.learner.step()
            if trained is None:
                return self._conditions.reached() or ASKED
            self._conditions.count_time()
            self.reporter.record(trained)
            self.attend(trained)
        return reason or ASKED

    def waits_on(self) -> bool:
        """Attend while the learner waits for unrolls; return whether it is to wait on: minutes pass meanwhile."""
        self.attend()
        return self._conditions.reached() is None

    def attend(self, trained: Trained | None = None) -> None:
        """Let all attendants work; None: the learner waits."""
        for attendant in self._attendants:
            attendant.attend(trained)

    def steer(self, config: RunConfig) -> None:
        """Hand the configuration in force to all attendants."""
        for attendant in self._attendants:
            attendant.steer(config)

    def saved(self, updates: int) -> None:
        """Let all attendants know of a complete checkpoint."""
        for attendant in self._attendants:
            attendant.saved(updates)

    def _close(self, error: BaseException | None) -> None:
        """Close all attendants, also if one of them fails."""
        with ExitStack() as closing:
            for attendant in reversed(self._attendants):
                closing.callback(attendant.close, error)
