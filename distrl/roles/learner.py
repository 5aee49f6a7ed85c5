"""The learner role: joins a run, builds or restores the networks, and trains until done or asked to stop."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.errors import MemoryBackendError
from distrl.memory_backend.compression import require_library
from distrl.memory_backend.records import RoleStatus
from distrl.roles.description import RunAddress
from distrl.roles.framework import import_framework
from distrl.roles.join import JoinedRole, log
from distrl.roles.plan import Role
from distrl.runs.run_directory import is_directory_of

if TYPE_CHECKING:
    from distrl.learner.attendants.attendant import Attendant
    from distrl.learner.batches import Batches
    from distrl.learner.preparation import Parts
    from distrl.learner.session import Session


WAITING_S = 3.0
"""Wait from which the learner's state is "waiting"; between two batches it always waits a little."""


class LearnerRole(JoinedRole):
    """The learner of a run; when stopped, it finishes the current update, saves and returns."""

    def __init__(self, role: Role, address: RunAddress, stop: threading.Event) -> None:
        super().__init__(role, address, stop)
        self._session: Session | None = None
        self._notice = ""
        self._waited = (self._entered_at, 0.0)  # when the newest heartbeat was made, and seconds waited until then
        self._enter("starting: importing the framework")

    def _work(self, cleanup: ExitStack) -> str:
        """Train, and return the stop reason, which the control hash then holds as well."""
        description = self._run.description
        require_library(description.config.memory.compression)
        self._backend.add_lane(self._run.open_backend("learner feed").engine)
        import_framework(description.config.learner.backend)
        # Imported here: the framework takes seconds, which the heartbeat reports.
        from distrl.learner.origin import Place
        from distrl.learner.preparation import prepare
        from distrl.learner.session import Session

        self._enter("starting: building the network")
        run_dir = Path(description.run_dir)
        own = is_directory_of(run_dir, description.run_id, description.launch)
        place = Place(run_dir, own, description.start.update, description.start.back)
        parts = prepare(description.config, description.spec, place, description.run_id, self._backend)
        of_actors = partial(self._of_actors, parts, cleanup)
        has_data = bool(parts.config.data.sets)
        parts, batches, beside = self._with_data(parts, of_actors) if has_data else (parts, *of_actors())
        self._session = Session(parts, batches, self._backend.registry.add_snapshot, self._stop.is_set, beside)
        try:
            reason = self._session.run()
        except MemoryBackendError:
            raise  # Redis is gone, or the run is another learner's
        except Exception:
            self._end_run()  # a successor would train to the same end, from an older checkpoint
            raise
        log.info("stopped: %s", reason)
        self._end_run()
        return reason

    def _of_actors(self, parts: "Parts", cleanup: ExitStack) -> "tuple[Batches, list[Attendant]]":
        """Return batches of what actors ship, and the attendants that go with them."""
        from distrl.data.run_recording import recording
        from distrl.learner.attendants.compilation import Compilation
        from distrl.learner.prefetch import Prefetch

        record, recorders = recording(parts, self._report)
        feed: Prefetch[Any] = Prefetch(parts.make_source(self._stop.is_set, used=record), self._stop.is_set)
        cleanup.callback(feed.close)
        cleanup.callback(self._stop.set)  # before the feed is closed, which waits for its thread
        feed.waits_on = self._waits_on
        return parts.make_batches(feed), [*recorders, Compilation(parts)]

    def _waits_on(self) -> bool:
        assert self._session is not None  # it collects
        return self._session.waits_on()

    def _with_data(
        self, parts: "Parts", of_actors: "Callable[[], tuple[Batches, list[Attendant]]]"
    ) -> "tuple[Parts, Batches, list[Attendant]]":
        """Return batches with recorded items, the attendants that go with them, and parts with the memory of these."""
        from distrl.data.filling import with_data

        return with_data(parts, of_actors, self._stop.is_set)

    def _report(self, notice: str) -> None:
        """Put a line for the user into the heartbeat."""
        self._notice = notice
        log.info("%s", notice)

    def _end_run(self) -> None:
        """Report the stop condition that has ended the training, if one has."""
        if self._session is not None and self._session.reached is not None:
            self._backend.registry.set_control(stop=self._session.reached)

    def status(self) -> RoleStatus:
        """The heartbeat; `last_step_age_s` is the age of the last update."""
        now = self._awake.look()
        if self._session is None:
            return self._identity()
        (since, before_s), self._waited = self._waited, (now, self._session.waits.total_s("unrolls"))
        state = self._session.learner.state
        waits = self._session.waits.under_way_s("unrolls") > WAITING_S
        return replace(
            self._identity(),
            incarnation=self._session.fence,
            state="waiting: unrolls" if waits else self._session.activity,
            env_steps=state.env_steps,
            env_steps_per_s=0.0 if waits else self._session.reporter.env_steps_per_s,
            weights_version=state.weights_version,
            last_step_age_s=self._awake.age_s(self._session.progressed_at),
            blocked_share=min((self._waited[1] - before_s) / max(now - since, 1e-9), 1.0),
            waits={"unrolls": 1.0} if waits else self._session.reporter.time_shares,
            notice=self._notice,
        )
