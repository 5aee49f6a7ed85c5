"""The data store's part in the origin of a learner's state: a newer checkpoint is fetched before it is chosen."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from distrl.config.run import CheckpointConfig
from distrl.data_store import checkpoints
from distrl.data_store.fetching import fetch_newest, own_position, written
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import Position, StoredRun
from distrl.errors import StoreError
from distrl.learner.mirror import Mirror
from distrl.learner.origin import Place

log = logging.getLogger(__name__)
RETRY_S = 2.0


class Stored(NamedTuple):
    """A run's folder in the data store, compared with the learner's directory.

    Attributes:
        after: Highest claim there.
        held: The checkpoint from which the learner goes on, if it goes on from one.
        place: The directory. It counts as the run's own if its checkpoints are the run's, or there are none: what the
            store does not have has never been.
        note: What was fetched and why, for operators; None: nothing.
    """

    run: StoredRun
    after: int
    held: Position | None
    place: Place
    note: str | None

    def mirror(self, config: CheckpointConfig, launch: str, begun: Callable[[], bool]) -> Mirror:
        """Store what the directory has, once the learner has `begun` to take unrolls in."""
        return Mirror(
            self.run,
            self.place.run_dir,
            after=self.after,
            base=self.held,
            launch=launch,
            keep=config.keep,
            give_up_s=config.store_give_up_s,
            begun=begun,
        )


def look_into_store(config: CheckpointConfig, place: Place, run_id: str) -> Stored | None:
    """Fetch the newest checkpoint if the store has a newer one than the directory; None without a store.

    A store that does not answer is passed over where the directory is the run's own and has its state.

    Raises:
        StoreError: It does not answer within `store_give_up_s`, and nothing here tells how far the run has come.
        CheckpointError: No checkpoint in the store is valid, and none is here.
    """
    if config.store is None:
        return None
    run = StoredRun(open_objects(config.store), run_id, place.back)
    until = time.monotonic() + config.store_give_up_s
    while True:
        try:
            fetched = fetch_newest(run, place.run_dir, ("policy/",), log.info)
            break
        except StoreError as error:
            whose, writer = written(place.run_dir)
            held = own_position(place.run_dir, run_id)
            if place.own and (held is not None or not place.resumed_update):
                log.warning("the data store is not looked into, as it does not answer: %s", error)
                return Stored(run, writer if whose == run_id else 0, held, place, None)
            if time.monotonic() > until:
                raise
            log.warning("the data store does not answer: %s; tried again in %g s", error, RETRY_S)
            time.sleep(RETRY_S)
    own = (
        place.own or written(place.run_dir)[0] == run_id or not checkpoints.newest_first(place.run_dir / "checkpoints")
    )
    return Stored(run, fetched.writer, fetched.held, replace(place, own=own), "; ".join(fetched.notes) or None)
