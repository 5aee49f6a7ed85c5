"""A learner's life around its loop: build or restore, then train, report and save until a stop condition holds."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distrl import nest
from distrl.algorithms import make_algorithm
from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.config import RunConfig
from distrl.errors import FencedError, MemoryBackendError
from distrl.learner.checkpointer import Checkpointer, restore
from distrl.learner.evaluations import EvaluationReader, restore_evaluations
from distrl.learner.feed import BLOCK_S, Feed
from distrl.learner.learner import Learner, NonFiniteBatchError
from distrl.learner.policy_files import write_bundle
from distrl.learner.publisher import Publisher
from distrl.learner.replay_feed import ReplayFeed, UnrollSource
from distrl.learner.replay_set_up import make_replay, restore_replay
from distrl.learner.reporter import Reporter, Snapshot
from distrl.learner.rounds import Rounds
from distrl.learner.saver import Saver
from distrl.learner.state import LearnerState
from distrl.learner.stopping import ASKED, stop_reason
from distrl.memory_backend.backend import Backend
from distrl.memory_backend.codec import UnrollSchema
from distrl.memory_backend.gradient_codec import GradientSchema
from distrl.memory_backend.narrow import WireDtype
from distrl.memory_backend.replay import Replay
from distrl.metrics.counters import Waits
from distrl.networks import backend as numeric_backend
from distrl.networks.bundle import export_bundle
from distrl.networks.relu_zeros import ReluZeros
from distrl.networks.weights import is_mixed
from distrl.types import Batch, Contributions, EnvSpec

log = logging.getLogger(__name__)
LOOK_AFTER_S = 5.0
"""Of training, after which the learner measures what is of use to snapshots alone."""
LOOK_SHARE = 0.02
"""Of the learner's time, at most, that such measurements take."""


@dataclass(frozen=True)
class Prepared:
    """A learner that holds the fence, has put the policy bundle, and is about to publish."""

    config: RunConfig
    spec: EnvSpec
    run_dir: Path
    algorithm: Algorithm
    networks: Networks
    state: LearnerState
    backend: Backend
    fence: int
    replay: Replay | None = None

    def make_feed(self, backend: Backend, stop: Callable[[], bool], block_s: float = BLOCK_S) -> Feed:
        """The feed, on the connection of whichever thread is to run it; it asks `stop` after a wait of `block_s`."""
        memory = self.algorithm.memory
        return Feed(
            backend,
            self._schema(),
            batch_size=self.config.unrolls_at_once if self.replay else memory.batch_size,
            max_staleness_updates=memory.max_staleness_updates,
            fence=self.fence,
            applied=self.state.applied,
            first_version=self.state.weights_version,
            stop=stop,
            block_s=block_s,
            rounds=self._rounds(backend) if memory.rounds else None,
            newest_version=None if self.replay is None else lambda: self.state.weights_version,
        )

    def _schema(self) -> UnrollSchema | GradientSchema:
        """What every entry of the stream must look like."""
        length, environments = self.algorithm.memory.unroll_length_steps, self.config.actors.environments
        network = self.networks["main"]
        normalizes = network.rewards is not None
        if self.algorithm.memory.ships == "gradients":
            shapes = network.contribution_shapes()
            return GradientSchema.of(length * environments, *shapes, normalizes_rewards=normalizes)
        state = network.online.assembly.recurrent_state
        return UnrollSchema.of(
            self.spec,
            length,
            environments,
            state,
            normalizes_rewards=normalizes,
            tells_priorities=self.config.algorithm.tells_priorities,
        )

    def _rounds(self, backend: Backend) -> Rounds:
        workers = max(self.config.actors.count, 1)  # the one of deterministic mode is none of `actors.count`
        return Rounds(workers, backend.registry.control, self.config.learner.sync_timeout_s)

    def make_session(
        self,
        feed: UnrollSource,
        report: Callable[[Snapshot], None],
        stop: Callable[[], bool],
        after_save: Callable[[int], None] | None = None,
        evaluate: Callable[[], None] | None = None,
    ) -> "Session":
        return Session(self, feed, report, stop, after_save, evaluate)


def prepare(config: RunConfig, spec: EnvSpec, run_dir: Path, run_id: str, backend: Backend) -> Prepared:
    """Builds the networks, restores the newest checkpoint of `run_dir` if there is one, and takes over the run.

    Raises:
        CheckpointError: The checkpoint belongs to other networks.
    """
    numeric_backend.configure(
        device=config.device,
        threads=config.learner.threads,
        deterministic=config.deterministic,
        seed=config.seed,
    )
    algorithm = make_algorithm(config)
    networks = algorithm.build(spec)
    state, resumed = _restore_or_start(run_dir / "checkpoints", networks, run_id)
    main = networks["main"]
    replay = make_replay(config, spec, main.online.assembly.recurrent_state, state.updates)
    if resumed and (outliving := _outliving(replay, config)) is not None:
        restore_replay(run_dir / "checkpoints", outliving, state)
    restore_evaluations(run_dir / "policy", state, backend.registry, resumed=resumed)
    rewards = None if main.rewards is None else main.rewards.described()
    bundle = export_bundle(main.online, exploration=config.exploring, rewards=rewards)
    write_bundle(run_dir / "policy", bundle)
    backend.weights.put_bundle(bundle)
    fence = backend.acquire_fence()
    published = backend.weights.version()
    # Versions never go back; in a new run the restored version itself is free.
    state.weights_version = max(state.weights_version, published + 1, 1)
    ledger = backend.ledger.counts()
    rolled_back = ledger.trained - ledger.rolled_back - state.trained_unrolls
    if rolled_back > 0:
        backend.ledger.roll_back(rolled_back, fence)
    return Prepared(config, spec, run_dir, algorithm, networks, state, backend, fence, replay)


def _restore_or_start(checkpoints: Path, networks: Networks, run_id: str) -> tuple[LearnerState, bool]:
    """The newest valid checkpoint's state, `networks` set to it; or a fresh one. And whether there was a checkpoint."""
    restored = restore(checkpoints, networks)
    if restored is None:
        return LearnerState(run_id=run_id), False
    state, loaded = restored
    for path, reason in loaded.rejected:
        log.warning("passed over %s: %s", path.name, reason)
    log.info("restored %s", loaded.path.name)
    return state.for_run(run_id), True


class Session:
    """Runs the learner until a stop condition of the configuration holds or somebody asks.

    Args:
        report: Takes metrics snapshots.
        after_save: Called after each checkpoint with the number of updates (deterministic mode reseeds its actor).
        evaluate: Called after each update, before evaluations are looked for (deterministic mode has no evaluator).
    """

    def __init__(
        self,
        prepared: Prepared,
        feed: UnrollSource,
        report: Callable[[Snapshot], None],
        stop: Callable[[], bool],
        after_save: Callable[[int], None] | None = None,
        evaluate: Callable[[], None] | None = None,
    ) -> None:
        config, state = prepared.config, prepared.state
        self._config = config
        self._report = report
        self._stop = stop
        self._evaluate = evaluate
        self._evaluations = EvaluationReader.of(config, prepared.backend.registry)
        self._networks = prepared.networks
        self._log_dir = prepared.run_dir / "logs"
        self._policy_dir = prepared.run_dir / "policy"
        waits = self._waits = Waits()
        publisher = Publisher(prepared.backend, prepared.fence, prepared.algorithm.memory, wire_dtypes(prepared))
        replay = self._replay = prepared.replay
        self.fence = prepared.fence
        self.learner = Learner(
            prepared.algorithm,
            prepared.networks,
            state,
            feed if replay is None else self._sampling(prepared, feed, replay),
            publisher,
            prepared.backend,
            prepared.fence,
            waits,
            replay,
            acts_with_noise=config.exploring is not None and config.exploring.kind == "noisy_network",
        )
        self._reporter = Reporter(config, state, prepared.backend, waits, replay)
        checkpointer = Checkpointer(
            prepared.run_dir / "checkpoints",
            config.checkpoint,
            prepared.networks,
            state,
            replay=_outliving(replay, config),
            by_evaluation=self._evaluations is not None,
            on_thread=not config.deterministic,
        )
        self._saver = Saver(
            checkpointer,
            self.learner,
            prepared.networks["main"],
            self._policy_dir,
            self._reporter,
            strict=config.deterministic,
            after_save=after_save,
        )
        self._relu_zeros = ReluZeros(prepared.networks["main"].online)
        # In deterministic mode two runs look at the same updates, however long it takes.
        self._look_at = 0.0 if config.deterministic else time.monotonic() + LOOK_AFTER_S
        self._began = time.monotonic() - state.wall_s
        self.activity = "starting"

    def _sampling(self, prepared: Prepared, source: UnrollSource, replay: Replay) -> ReplayFeed:
        return ReplayFeed(
            source,
            replay,
            batch_size=prepared.config.batch_size,
            state=prepared.state,
            backend=prepared.backend,
            fence=prepared.fence,
            waits=self._waits,
            done=lambda: self._ended() is not None,
            taken_in=self._taken_in,
        )

    def _taken_in(self) -> None:
        """An unroll came into the replay memory; until there are updates, that is all there is to tell of."""
        self.learner.progressed()
        self.activity = self._doing()

    def _doing(self) -> str:
        limiter = None if self._replay is None else self._replay.limiter
        return "training" if limiter is None or not limiter.filling else limiter.progress

    @property
    def waits_for_unrolls_s(self) -> float:
        """For how long by now; 0 while it does something."""
        return self._waits.under_way_s("unrolls")

    @property
    def env_steps_per_s(self) -> float:
        return self._reporter.env_steps_per_s

    def run(self) -> str:
        """Trains; returns why it ended: a field of `stop`, or 'asked'.

        Raises:
            NonFiniteError: Nothing of that update was applied or published, and no checkpoint was written after it.
        """
        self.learner.start()
        self.activity = self._doing()
        try:
            reason = self._train()
            self.activity = "stopping"
            self._look_at_evaluations(at_once=True)
            self.learner.publish_newest()
            self._saver.save_what_is_left()
        except FencedError:
            self._saver.close(abandon=True)  # the checkpoints are another learner's now
            raise
        except MemoryBackendError:
            self._saver.save_what_is_left()  # what was learned needs no Redis
            raise
        finally:
            self._saver.close()
        self._report(self._reporter.snapshot(stop_reason=reason))
        return reason

    def _train(self) -> str:
        state = self.learner.state
        while (reason := self._ended()) is None and not self._stop():
            try:
                outcome = self.learner.step()
            except NonFiniteBatchError as error:
                self._dump(error)
                raise
            if outcome is None:
                return self._ended() or ASKED
            state.wall_s = time.monotonic() - self._began
            self._reporter.record(*outcome)
            self._look_at_evaluations()
            self._saver.save_if_due()
            if self._reporter.due:
                self._look_into(outcome[0].batch)
                self._report(self._reporter.snapshot())
        return reason or ASKED

    def _ended(self) -> str | None:
        """The stop condition that holds by now."""
        state = self.learner.state
        state.wall_s = time.monotonic() - self._began
        return stop_reason(self._config.stop, state)

    def _look_at_evaluations(self, *, at_once: bool = False) -> None:
        """Takes note of new evaluations; the very weights of a best one are kept."""
        if self._evaluations is None:
            return
        if self._evaluate is not None and not at_once:
            with self._waits.measure("evaluation"):
                self._evaluate()
        found = self._evaluations.new(at_once=at_once)
        is_best = [self.learner.state.observe_evaluation(one.mean_return, one.env_steps) for one in found]
        if any(is_best):
            self._evaluations.keep_best(self._policy_dir)

    def _look_into(self, batch: Batch | Contributions) -> None:
        """Measures what takes time and is of use to snapshots alone."""
        began = time.monotonic()
        if began < self._look_at or not isinstance(batch, Batch):  # of gradients, the actors had the rows
            return
        with self._waits.measure("relu zeros"):
            self._reporter.record_relu_zeros(self._relu_zeros(batch))
        if not self._config.deterministic:
            self._look_at = began + (time.monotonic() - began) / LOOK_SHARE

    def _dump(self, error: NonFiniteBatchError) -> None:
        """Saves the batch that was not finite beside the log, for whoever looks for the cause."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        path = self._log_dir / f"nonfinite-batch-{error.number}.npz"
        arrays = {name.replace("/", "."): array for name, array in nest.leaves(_tree(error.parcel.batch))}
        rewards = self._networks["main"].rewards
        if rewards is not None:  # the scale that the update saw
            arrays |= {name.replace("/", "."): array for name, array in rewards.published().items()}
        np.savez(path, allow_pickle=False, **arrays)
        error.args = (f"{error}; the batch is in {path}",)


def _tree(batch: Batch | Contributions) -> nest.Tree:
    """A batch as a tree of arrays; of gradients, those alone."""
    if isinstance(batch, Batch):
        return batch._asdict()
    return {f"actor-{given.header.actor}-{i}": given.differentiated.gradients for i, given in enumerate(batch)}


def _outliving(replay: Replay | None, config: RunConfig) -> Replay | None:
    """The replay memory if checkpoints hold it."""
    parameters = config.algorithm.replay_parameters
    if parameters is None:
        return None
    saved = config.deterministic if parameters.checkpoint is None else parameters.checkpoint
    return replay if saved else None


def wire_dtypes(prepared: Prepared) -> dict[str, WireDtype]:
    """`network.wire_dtype` of every weight that is trained.

    Statistics stay exact: 16 bits would lose what is left of a large observation once its mean is taken away.
    """
    online = prepared.networks["main"].online
    dtype = prepared.config.network.wire_dtype
    return {name: dtype for name, variable in online.variables.items() if is_mixed(variable)}
