"""Preparation of a learner: it builds or restores the networks, takes over the run and uploads the policy bundle."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from distrl.algorithms import built, make_algorithm
from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.config import RunConfig
from distrl.data_store.checkpoints import RECORDED_REPLAY, REPLAY
from distrl.learner.batches import Batches, Collected, StreamBatches
from distrl.learner.checkpointing import Checkpointer
from distrl.learner.feeding import feed_threads
from distrl.learner.intake import BLOCK_S, Intake, Item
from distrl.learner.learner import Learner
from distrl.learner.mirror import Mirror
from distrl.learner.origin import FORGOTTEN_VERSIONS, Origin, Place, find_origin, look_into_store
from distrl.learner.policy_files import forget_best, kept_best, write_bundle
from distrl.learner.prefetch import Ahead
from distrl.learner.publisher import Publisher, StalenessBound, Tickets
from distrl.learner.replay_batches import Arrivals, ReplayBatches
from distrl.learner.replay_set_up import begin_replay, is_saved, make_replay, only_saved, unroll_schema
from distrl.learner.rounds import RoundBatches, Rounds
from distrl.learner.state import LearnerState, better
from distrl.learner.stop_conditions import StopConditions
from distrl.learner.weight_source import begin_with_named
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.gradient_codec import GradientSchema
from distrl.memory_backend.inbox import Inbox
from distrl.memory_backend.ledger import EntryOutcome
from distrl.memory_backend.registry import Registry
from distrl.memory_backend.stream import QueueCaps
from distrl.metrics.counters import Waits
from distrl.networks.contributions import contribution_shapes
from distrl.networks.framework import backend as numeric_backend
from distrl.networks.framework.placement import placement
from distrl.networks.framework.precision import fastest
from distrl.networks.policy.bundle import export_bundle
from distrl.networks.weights import is_mixed
from distrl.replay.memory import Replay
from distrl.types import Array, EnvSpec, PolicyBundle
from distrl.unroll_schema import UnrollSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """The parts of a learner that has taken over the run, has uploaded the policy bundle, and is about to publish.

    `Session` and `attendants` put them together.

    Attributes:
        replay: The memory that actors' unrolls come into, or that of the data in a run without actors; None: no memory.
        saved_replays: The memories that checkpoints hold, by name.
        failed_over: Whether Redis has failed over, and no learner has recovered from that.
        mirror: Stores checkpoints and policy in the data store; None without one.
        waits: Measures where the learner's time goes.
        conditions: When the training is over.
        recorded: The memory of the data; None: the run has none, or it has not been made yet.
    """

    config: RunConfig
    spec: EnvSpec
    run_dir: Path
    algorithm: Algorithm
    networks: Networks
    origin: Origin
    backend: Backend
    staleness: StalenessBound
    bundle: PolicyBundle
    replay: Replay | None
    saved_replays: Mapping[str, Replay]
    failed_over: bool
    mirror: Mirror | None
    waits: Waits
    conditions: StopConditions
    recorded: Replay | None = None

    @property
    def state(self) -> LearnerState:
        """The learner's counts."""
        return self.origin.state

    def recover_ledger(self) -> int:
        """Bring the ledger in line with `state`; return the number of new fail-overs of Redis."""
        return self.backend.ledger.recover(self.state.trained_unrolls, _outcome(self.replay))

    def make_source(
        self,
        stop: Callable[[], bool],
        act: Callable[[], None] | None = None,
        used: Callable[[Sequence[Item]], None] = lambda _items: None,
    ) -> StreamBatches | RoundBatches | Arrivals:
        """Make the source of the learner's batches, or of arrivals for its replay memory, on the receiving lane.

        Args:
            stop: Read whenever there is no entry.
            act: Makes the next unroll, called whenever there is no entry. None: other processes do, and are waited for.
            used: See `Intake`.
        """
        rounds = self._rounds()
        size = self.config.unrolls_at_once
        intake = Intake(
            Inbox(self.backend, size, BLOCK_S if act is None else 0.0),
            self.backend,
            self.schema(),
            Tickets(self.backend, self.staleness),
            staleness=self.staleness if rounds is None else StalenessBound(0),
            applied=self.state.applied,
            version=self.state.weights_version,
            newest_version=None if self.replay is None else lambda: self.state.weights_version,
            largest_gap=QueueCaps.of(self.config).held_at_most(self.config.actors.count),
            wanted=None if rounds is None else rounds.takes,
            idle=act or (lambda: None),
            used=used,
        )
        if self.replay is not None:
            return Arrivals(intake, size, stop)
        if rounds is not None:
            return RoundBatches(intake, rounds, stop)
        if isinstance(intake.schema, GradientSchema):
            return StreamBatches(intake, size, stop)
        threads = feed_threads(self.config, intake.schema)
        normalized = {name for network in self.networks.values() for name in network.online.normalized_inputs}
        place = placement(self.config.learner.replicas, intake.schema.frames, normalized)
        return StreamBatches(intake, size, stop, threads, place)

    def make_batches(self, source: Ahead[Any]) -> Batches:
        """Make the learner's side of a source of `make_source`."""
        if self.replay is None:
            return Collected(source)
        return ReplayBatches(
            source,
            self.replay,
            size=self.config.batch_size,
            state=self.state,
            waits=self.waits,
            ended=self.conditions.reached,
        )

    def make_learner(self, batches: Batches) -> Learner:
        """Make the learner, which publishes on the connection of its thread."""
        publisher = self.make_publisher()
        auto, dtype = self.config.network.compute_dtype == "auto", self.networks["main"].online.parameters.compute_dtype
        log.info("the network computes in %s: %s", dtype, fastest().why if auto else "network.compute_dtype")
        return Learner(self.algorithm, self.networks, self.state, batches, publisher, self._weights, self.waits)

    def _weights(self) -> dict[str, Array]:
        """Return the weights with which actors act."""
        network, exploring = self.networks["main"], self.config.exploring
        # Gradient actors also need weights that acting does not read, such as the scales of noise.
        gradients = self.algorithm.parameters.ships == "gradients"
        weights = network.published_weights() if gradients else network.online.policy_weights()
        noisy = exploring is not None and exploring.kind == "noisy_network"
        return weights | network.online.noise_weights() if noisy else weights

    def make_checkpointer(self) -> Checkpointer:
        """Make the writer of the run's checkpoints."""
        directory, saved = self.run_dir / "checkpoints", self.origin.saved
        replays = self.saved_replays
        return Checkpointer(self.config, directory, self.networks, self.state, replays=replays, saved=saved)

    def make_publisher(self) -> Publisher:
        """Make the publisher on the connection of the learner's thread.

        Statistics stay exact: 16 bits would lose what is left of a large observation once its mean is taken away.
        """
        variables, dtype = self.networks["main"].online.variables, self.config.network.wire_dtype
        trained = {name: dtype for name, variable in variables.items() if is_mixed(variable)}
        return Publisher(self.backend, self.config.batch_size, self.staleness, trained)

    def schema(self) -> UnrollSchema | GradientSchema:
        """Schema of every entry of the stream."""
        network = self.networks["main"].online
        schema = unroll_schema(self.config, self.spec, network.recurrent_state)
        if self.algorithm.parameters.ships == "gradients":
            steps, metrics = schema.unroll_length_steps * schema.environments, self.config.environment.metric_columns
            normalizes = bool(schema.reward_moments)
            return GradientSchema.of(
                steps, *contribution_shapes(network), normalizes_rewards=normalizes, metrics=metrics
            )
        return schema

    def _rounds(self) -> Rounds | None:
        if not self.algorithm.parameters.rounds:
            return None
        # The one actor of deterministic mode is none of `actors.count`.
        workers = 1 if self.config.deterministic else self.config.started_actors
        return Rounds(workers, self.backend.receiving.registry.control, self.config.learner.sync_timeout_s)


def prepare(config: RunConfig, spec: EnvSpec, place: Place, run_id: str, backend: Backend) -> Parts:
    """Build the networks, restore the run's state if there is one, and take the run over.

    Raises:
        CheckpointError: See `find_origin`.
        StoreError: See `look_into_store`.
        ConfigError: See `built` and `begin_with_named`.
    """
    run_dir = place.run_dir
    numeric_backend.configure(
        device=config.device,
        threads=config.learner.threads,
        deterministic=config.deterministic,
        seed=config.seed,
    )
    algorithm = make_algorithm(config)
    networks = built(algorithm, spec)
    stored = look_into_store(config.checkpoint, place, run_id)
    origin = find_origin(place if stored is None else stored.place, networks, run_id, backend)
    if stored is not None and stored.note is not None:
        origin = replace(origin, note=f"has {stored.note}").noting(origin.note)
    state = origin.state
    state.begin_metrics(config.environment.metrics, config.environment.metric_rules)
    if config.evaluation.every_env_steps is not None:
        state.begin_evaluations(config.evaluation.judged_by(config.environment.metrics))
    if origin.note is not None:
        log.warning("the learner %s", origin.note)
    if config.learner.init_from is not None and not origin.resumed:
        taken = begin_with_named(networks, config.learner.init_from)
        log.info("the learner %s", taken)
        origin = origin.noting(taken)
    main = networks["main"]
    make = partial(make_replay, config, spec, main.online.recurrent_state, state.updates, algorithm.bootstrap)
    saves = is_saved(config)
    replay, unrestored = begin_replay(make, _with_memories(run_dir, origin) if saves else None, state)
    origin = origin.noting(unrestored)
    saved_replays = {REPLAY: replay} if replay is not None and saves else {}
    restore_evaluations(run_dir / "policy", state, backend.registry, origin)
    rewards = None if main.rewards is None else main.rewards.described()
    steps = config.actors.unroll_length_steps
    bundle = export_bundle(main.online, exploration=config.exploring, rewards=rewards, unroll_steps=steps)
    write_bundle(run_dir / "policy", bundle)
    backend.weights.put_bundle(bundle)
    backend = backend.become_learner()
    published = backend.weights.version()
    failed_over = backend.ledger.recover(state.trained_unrolls, _outcome(replay)) > 0
    # Versions never go back; in a new run the restored version itself is free.
    state.weights_version = max(state.weights_version, published + 1, 1) + failed_over * FORGOTTEN_VERSIONS
    staleness = StalenessBound(config.algorithm.max_staleness_updates)
    mirror = None if stored is None else stored.mirror(config.checkpoint, backend.launch, _has_begun(state))
    return Parts(
        *(config, spec, run_dir, algorithm, networks, origin, backend, staleness, bundle, replay, saved_replays),
        *(failed_over, mirror, Waits(), StopConditions(config.stop, state)),
    )


def with_recorded_memory(parts: Parts, config: RunConfig) -> Parts:
    """Return the parts with the memory of the data, which is empty, and with how a checkpoint's was drawn from.

    Args:
        config: The configuration with the settings of that memory.

    Raises:
        ConfigError: See `make_replay`.
        CheckpointError: The checkpoint's was of other data.
    """
    state, recurrent_state = parts.state, parts.networks["main"].online.recurrent_state
    arguments = config, parts.spec, recurrent_state, state.updates, parts.algorithm.bootstrap
    folder, saved_replays = None, dict(parts.saved_replays)
    parameters = config.algorithm.replay_parameters
    assert parameters is not None  # as `DataConfig.check` says
    if parameters.checkpoint:
        folder = _with_memories(parts.run_dir, parts.origin)
    name = RECORDED_REPLAY
    if folder is not None and config.learns_from_data:
        name = only_saved(folder, state.updates) or name  # earlier versions had one name for all
    replay, unrestored = begin_replay(partial(make_replay, *arguments, recorded=True), folder, state, name)
    assert replay is not None
    if parameters.checkpoint:
        saved_replays[RECORDED_REPLAY] = replay
    counted = replay if parts.replay is None else parts.replay
    origin = parts.origin.noting(unrestored)
    return replace(parts, recorded=replay, replay=counted, saved_replays=saved_replays, origin=origin)


def _with_memories(run_dir: Path, origin: Origin) -> Path | None:
    """Return the checkpoints beside which the state's replay memories may be; published weights have none: None."""
    return run_dir / "checkpoints" if origin.resumed and origin.saved else None


def _has_begun(state: LearnerState) -> Callable[[], bool]:
    """Return whether the learner has taken unrolls in, or has learned since now."""
    before = state.updates
    return lambda: state.trained_unrolls > 0 or state.updates > before


def _outcome(replay: Replay | None) -> EntryOutcome:
    """Return what becomes of unrolls that are used."""
    return EntryOutcome.TRAINED if replay is None else EntryOutcome.STORED


def restore_evaluations(policy: Path, state: LearnerState, registry: Registry, origin: Origin) -> None:
    """Restore the progress and the best of earlier launches' evaluations, before evaluators start.

    A checkpoint may be older than the best evaluation, which a worse one must not replace.

    Args:
        policy: The directory policy/ of the run. A best evaluation in it is removed if the training begins anew. One
            that was judged by another result stays until there is a new best, and does not count.
        state: Its `best_by` is that of this launch.
    """
    if not origin.resumed:
        forget_best(policy)
        return
    if not origin.saved:  # the state is of published weights: this launch's evaluations are read again
        state.best_score = registry.restored_score()
    if (kept := kept_best(policy)) is not None:
        state.best_evaluation_return = better(state.best_evaluation_return, kept.mean_return)
        if kept.best_by == state.best_by:
            state.best_score = better(state.best_score, kept.score)
        else:
            log.warning(
                "the best evaluation so far was judged by %s; the next one that has %s replaces it",
                *(kept.best_by, state.best_by),
            )
            state.best_score = None  # its weights are not kept any more
    registry.restore_evaluated(state.evaluation_env_steps or 0, state.best_score)
