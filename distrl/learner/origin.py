"""The origin of a learner's state: a checkpoint of its directory, the published weights, or fresh networks.

A learner may start on a host that does not see the run's directory. It first fetches what the data store has, if there
is one, and compares the directory with the run's state in Redis, so that a training never silently begins anew.
"""

import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from distrl.algorithms.algorithm import Networks
from distrl.config.checkpoint import CheckpointConfig
from distrl.data_store.checkpoints import LoadedCheckpoint, load_newest, newest_first
from distrl.data_store.fetching import fetch_newest, own_position, written
from distrl.data_store.opening import open_objects
from distrl.data_store.stored_run import CheckpointPosition, GoingBack, StoredRun
from distrl.errors import CheckpointError, DecodeError, StoreError
from distrl.learner.mirror import Mirror
from distrl.learner.state import LearnerState
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import decode_weights
from distrl.memory_backend.weights import Published
from distrl.types import Array

log = logging.getLogger(__name__)

FORGOTTEN_VERSIONS = 10_000
"""How much higher a learner begins whose predecessor has not survived a fail-over: actors may hold versions that Redis
has forgotten."""
RETRY_S = 2.0
"""Time until a data store that does not answer is asked again."""


@dataclass(frozen=True)
class Place:
    """A learner's directory.

    Attributes:
        own: Whether it is the run's directory: its run.json names the run.
        resumed_update: Update of the checkpoint from which the run resumes; 0 for a new training.
        back: The run's return to that checkpoint, if the data store has later ones.
    """

    run_dir: Path
    own: bool = True
    resumed_update: int = 0
    back: GoingBack | None = None

    def __str__(self) -> str:
        return f"{self.run_dir} on {socket.gethostname()}"


@dataclass(frozen=True)
class Origin:
    """The state with which a learner begins.

    Attributes:
        resumed: Whether `state` continues a training.
        saved: Whether the directory's newest checkpoint holds `state`.
        note: A message for operators, which completes a sentence about the learner; None: no message.
    """

    state: LearnerState
    resumed: bool
    saved: bool = True
    note: str | None = None

    def noting(self, note: str | None) -> "Origin":
        """Return it with one more message; None: there is none."""
        return self if note is None else replace(self, note="; it ".join(filter(None, (self.note, note))))


def find_origin(place: Place, networks: Networks, run_id: str, backend: Backend) -> Origin:
    """Set `networks` to the newest available state of the run, and return its origin.

    That is the newest checkpoint in the run's own directory. In another directory a checkpoint counts only if it
    belongs to this run and is no older than published weights from which the learner could continue.

    Raises:
        CheckpointError: The run has a state, but no checkpoint of it is here and the published weights do not hold all
            of it; or the checkpoints here are of another run, damaged, or of other networks.
    """
    loaded, published = load_newest(place.run_dir / "checkpoints"), _learned(backend)
    fresh = LearnerState(run_id=run_id, launch=backend.launch)
    share = "share the run's directory between all hosts that may run its learner"
    if loaded is not None and not place.own:
        _check_launch(loaded, place, run_id, backend.launch, share)
    unshared = f"writes checkpoints and policy to {place} alone, which is not the run's directory; {share}"
    elsewhere = None if place.own else unshared
    if loaded is not None and (place.own or published is None or not _is_older(loaded, published)):
        return _from_checkpoint(loaded, networks, fresh, elsewhere)
    if published is None:
        if place.resumed_update:
            raise CheckpointError(
                f"the run goes on from update {place.resumed_update}, and {place} has no checkpoint; {share}"
            )
        return Origin(fresh, resumed=False, note=elsewhere)
    what = f"no checkpoint of the run is in {place}"
    try:
        state = _from_published(published, networks, fresh, backend)
    except CheckpointError as error:
        cannot = f"the published weights (version {published.version}) cannot be gone on from: {error}"
        if loaded is not None:
            return _from_checkpoint(loaded, networks, fresh, f"goes on from an old checkpoint, as {cannot}; {share}")
        if place.own and not place.resumed_update:  # it died before its first checkpoint
            return Origin(fresh, resumed=False, note=f"begins anew: {what} yet, and {cannot}")
        raise CheckpointError(f"{what}, and {cannot}; {share}") from error
    why = what if loaded is None else f"{place} has an older checkpoint"
    note = f"goes on from the published weights (version {published.version}, update {state.updates}): {why}"
    note += "; the optimizer begins anew"
    return Origin(state, resumed=True, saved=False, note=note if place.own else f"{note}; {share}")


def _learned(backend: Backend) -> Published | None:
    """Return the published weights, if an earlier learner of this run has trained them."""
    ledger = backend.ledger.counts()
    return backend.weights.fetch() if ledger.used > ledger.rolled_back else None


def _is_older(loaded: LoadedCheckpoint, published: Published) -> bool:
    return LearnerState.from_meta(loaded.meta).env_steps < published.progress.env_steps


def _check_launch(loaded: LoadedCheckpoint, place: Place, run_id: str, launch: str, share: str) -> None:
    """Raise CheckpointError if a checkpoint outside the run's directory is not of this launch: it may be older."""
    found = loaded.meta.get("run_id"), loaded.meta.get("launch")
    if found != (run_id, launch):
        whose = f"another run, {found[0]}" if found[0] != run_id else f"an earlier launch of {run_id}"
        raise CheckpointError(f"{place} has checkpoints of {whose}, and no run.json of {run_id}; {share}")


def _from_checkpoint(loaded: LoadedCheckpoint, networks: Networks, fresh: LearnerState, note: str | None) -> Origin:
    state = restore(loaded, networks)
    for path, reason in loaded.rejected:
        log.warning("passed over %s: %s", path.name, reason)
    log.info("restored %s", loaded.path.name)
    return Origin(state.for_launch(fresh.run_id, fresh.launch), resumed=True, note=note)


def restore(loaded: LoadedCheckpoint, networks: Networks) -> LearnerState:
    """Set `networks` to a checkpoint, and return its state.

    Raises:
        CheckpointError: It belongs to other networks.
    """
    groups: dict[str, dict[str, Mapping[str, Array]]] = {}  # {"main.online": values} -> {"main": {"online": values}}
    for key, values in loaded.arrays.items():
        name, _, group = key.partition(".")
        groups.setdefault(name, {})[group] = values
    if odd := sorted(groups.keys() - networks.keys()):
        raise CheckpointError(f"{loaded.path} holds network {odd[0]}, configured are {', '.join(networks)}")
    for name, network in networks.items():
        try:
            network.restore(groups.get(name, {}))
        except CheckpointError as error:
            raise CheckpointError(f"{loaded.path} does not fit the configuration: {error}") from error
    return LearnerState.from_meta(loaded.meta)


def _from_published(published: Published, networks: Networks, fresh: LearnerState, backend: Backend) -> LearnerState:
    """Set `networks` to the published weights; return the state that Redis holds of the run.

    Raises:
        CheckpointError: The training has more state than its weights. Nothing was changed.
    """
    if len(networks) > 1:
        raise CheckpointError(f"the training has the networks {', '.join(networks)}, and only main is published")
    try:
        arrays = decode_weights(published.blob).arrays
    except DecodeError as error:
        raise CheckpointError(f"they cannot be decoded: {error}") from error
    snapshots = backend.registry.snapshots("0")
    told = snapshots[-1][1] if snapshots else {}
    meta = fresh.to_meta()
    state = LearnerState.from_meta(meta | {name: told[name] for name in meta if told.get(name) is not None})
    networks["main"].adopt(arrays, state.trained_steps)
    state.env_steps, state.episodes, state.updates = published.progress
    state.weights_version = published.version
    ledger = backend.ledger.counts()
    state.applied, state.trained_unrolls = backend.unrolls.highest(), ledger.used - ledger.rolled_back
    return state


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
    held: CheckpointPosition | None
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
    own = place.own or written(place.run_dir)[0] == run_id or not newest_first(place.run_dir / "checkpoints")
    return Stored(run, fetched.writer, fetched.held, replace(place, own=own), "; ".join(fetched.notes) or None)
