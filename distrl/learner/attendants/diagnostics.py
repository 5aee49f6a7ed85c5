"""Diagnostics: ReLU sparsity, TensorBoard histograms, and the batch of an update that was not finite."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from distrl import nest
from distrl.algorithms.algorithm import Algorithm, Networks
from distrl.config import RunConfig
from distrl.errors import ConfigError
from distrl.learner.attendants.attendant import Attendant
from distrl.learner.attendants.reporter import Reporter
from distrl.learner.batches import Trained
from distrl.learner.nonfinite import NonFiniteBatchError
from distrl.learner.state import LearnerState
from distrl.metrics.counters import Waits
from distrl.metrics.event_file import EventFile
from distrl.networks.copies import Copies
from distrl.networks.inspection import Activations, LossInspection, ReluZeros, few_sequences
from distrl.types import Array, Batch, Contributions

log = logging.getLogger(__name__)
LOOK_AFTER_S = 5.0
"""Seconds of training before relu layers are inspected."""
LOOK_SHARE = 0.02
"""Most of the learner's time that the inspection takes."""
ROWS = 256
"""Rows of a batch whose activations are recorded; images make them large."""


class Diagnostics(Attendant):
    """Records zeros of relu layers for snapshots, and histograms for `tensorboard.labels` in an event file.

    Raises:
        ConfigError: A label needs the algorithm's objective, which it does not have.
    """

    def __init__(
        self,
        config: RunConfig,
        algorithm: Algorithm,
        networks: Networks,
        state: LearnerState,
        run_dir: Path,
        reporter: Reporter,
        waits: Waits,
    ) -> None:
        self._state, self._reporter, self._waits = state, reporter, waits
        self._relu_zeros = ReluZeros(networks["main"].online)
        # In deterministic mode two runs inspect the same updates, however long it takes.
        self._deterministic = config.deterministic
        self._at = 0.0 if config.deterministic else time.monotonic() + LOOK_AFTER_S
        histograms = config.tensorboard.looks  # a label needs them
        self._histograms = Histograms(config, algorithm, networks, run_dir) if histograms else None

    def attend(self, trained: Trained | None) -> None:
        """Record what is due before a snapshot. Gradients have no rows to inspect."""
        if trained is None or not self._reporter.due:
            return
        batch = trained.made.batch
        if self._histograms is not None and self._histograms.due:
            with self._waits.measure("histograms"):
                self._histograms.write(batch, self._state.env_steps)
        began = time.monotonic()
        if began < self._at or not isinstance(batch, Batch):
            return
        with self._waits.measure("relu zeros"):
            self._reporter.relu_zeros = self._relu_zeros(batch)
        if not self._deterministic:
            self._at = began + (time.monotonic() - began) / LOOK_SHARE

    def close(self, error: BaseException | None) -> None:
        if self._histograms is not None:
            self._histograms.close()


class NonFiniteBatches(Attendant):
    """Saves the batch of an update that was not finite beside the log.

    Args:
        network: Network whose scale of rewards the update used.
    """

    def __init__(self, log_dir: Path, network: Copies) -> None:
        self._log_dir, self._network = log_dir, network

    def close(self, error: BaseException | None) -> None:
        """Save the batch if it has ended the training, and name the file in the error."""
        if not isinstance(error, NonFiniteBatchError):
            return
        path = self._log_dir / f"nonfinite-batch-{error.number}.npz"
        arrays = {name.replace("/", "."): np.asarray(array) for name, array in nest.leaves(_tree(error.batch))}
        if self._network.rewards is not None:  # the scale that the update saw
            scale = self._network.rewards.published()
            arrays |= {name.replace("/", "."): array for name, array in scale.items()}
        try:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            np.savez(path, allow_pickle=False, **arrays)
        except OSError as late:  # the error that has ended the training counts
            error.args = (f"{error}; the batch cannot be written: {late}",)
        else:
            error.args = (f"{error}; the batch is in {path}",)


def _tree(batch: Batch | Contributions) -> nest.Tree:
    """Return a batch, or gradients, as a tree of arrays."""
    if isinstance(batch, Batch):
        return batch._asdict()
    return {f"actor-{given.header.actor}-{i}": given.differentiated.gradients for i, given in enumerate(batch)}


class Histograms:
    """Writes the histograms and scalars of `tensorboard.labels`, every `tensorboard.histograms_every_s`.

    A full disk costs points, not the training; it is logged once.

    Raises:
        ConfigError: See `Diagnostics`.
    """

    def __init__(self, config: RunConfig, algorithm: Algorithm, networks: Networks, run_dir: Path) -> None:
        self._parameters = config.tensorboard
        self._networks = networks
        # By updates in deterministic mode, so that two runs record the same ones.
        self._every_s = 0.0 if config.deterministic else config.tensorboard.histograms_every_s
        self._folder = config.tensorboard.folder(run_dir) / "learner"
        main = networks["main"].online
        self._activations = Activations(main)
        self._losses: LossInspection | None = None
        if self._parameters.differentiates and algorithm.parameters.ships == "unrolls":
            objective = algorithm.objective(networks)
            if objective is None:
                raise ConfigError(
                    f"tensorboard.labels: {', '.join(self._parameters.differentiates)}: algorithm "
                    f"{config.algorithm.name} does not say what it minimises (Algorithm.objective); leave them out"
                )
            self._losses = LossInspection(networks, objective)
        self._file: EventFile | None = None
        self._refused = False
        self._next_at = 0.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next_at

    def write(self, batch: Batch | Contributions, env_steps: int) -> None:
        """Write a point of everything that the labels select."""
        found = [(tag, value) for tag, value in self._found(batch) if self._parameters.wants(tag)]
        try:
            self._file = self._file or EventFile(self._folder)
            for tag, value in found:
                if isinstance(value, float):
                    self._file.scalar(tag, value, env_steps)
                else:
                    self._file.histogram(tag, value, env_steps)
            self._file.flush()
        except OSError as error:
            if not self._refused:
                log.warning("histograms cannot be kept: %s", error)
            self._refused = True
        else:
            self._refused = False
        self._next_at = time.monotonic() + self._every_s

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # logged by the last write
                self._file.close()

    def _found(self, batch: Batch | Contributions) -> Iterator[tuple[str, float | Array]]:
        has = self._parameters.has
        if has("variables"):
            for network in self._networks.values():
                yield from ((f"variables/{name}", array) for name, array in network.online.named_weights().items())
        if isinstance(batch, Batch):
            yield from self._of_rows(batch)
        elif self._parameters.differentiates:
            yield from self._of_gradients(_mean_gradients(batch))

    def _of_rows(self, batch: Batch) -> Iterator[tuple[str, float | Array]]:
        has = self._parameters.has
        if has("inputs", "states"):
            for name, rows in batch.observations.items():
                yield f"states/{name}", np.asarray(rows)[:-1][batch.valid]
        if has("inputs", "actions"):
            for name, rows in batch.actions.items():
                yield f"actions/{name}", rows[batch.valid]
        if has("inputs", "rewards"):
            yield "rewards/reward", batch.rewards[batch.valid]
        if has("activations"):
            for layer, rows in self._activations(few_sequences(batch, ROWS)).items():
                yield f"activations/{layer}", rows
        if self._losses is not None:
            yield from self._of_losses(self._losses, self._networks["main"].statistics.with_normal_rewards(batch))

    def _of_losses(self, losses: LossInspection, batch: Batch) -> Iterator[tuple[str, float | Array]]:
        found = losses(batch)
        if self._parameters.has("losses"):
            yield "loss/without_regularization", found.loss - sum(found.regularization.values())
        if self._parameters.has("regularization"):
            yield from ((f"regularization/{name}", term) for name, term in found.regularization.items())
        yield from self._of_gradients(found.gradients)

    def _of_gradients(self, gradients: Mapping[str, Array]) -> Iterator[tuple[str, float | Array]]:
        for name, gradient in gradients.items():
            if self._parameters.has("gradients", "gradients_scalar"):
                yield f"gradients/{name}/mean", float(gradient.mean())
                yield f"gradients/{name}/variance", float(gradient.var())
            if self._parameters.has("gradients", "gradients_histogram"):
                yield f"gradients/{name}", gradient


def _mean_gradients(given: Contributions) -> dict[str, Array]:
    """Return the mean over the workers' clipped gradients of one update."""
    told = [contribution.differentiated.gradients for contribution in given]
    return {name: np.mean([gradients[name] for gradients in told], axis=0) for name in told[0]}
