"""LearnerConfig: on what the learner computes, how much at once, and what it begins with."""

import os
from typing import Any, Literal

from pydantic import Field, field_validator

from distrl.config.algorithms import AlgorithmSection
from distrl.config.network import NetworkParameters
from distrl.config.section import Section
from distrl.config.stores import is_store_url

MOST_FEED_THREADS = 64


class LearnerConfig(Section):
    """The learner."""

    backend: Literal["tensorflow", "jax"] = "tensorflow"
    """The framework that computes updates."""
    batch_size: int | None = Field(None, ge=1)
    """Unrolls in one update, or gradients that are applied together; null: the algorithm's default, for example 4
    unrolls or one gradient. With a replay memory: items sampled for one update; `data.share` adds recorded ones."""
    replicas: int = Field(1, ge=1)
    """Devices of the learner's host that share every batch; more than one only with JAX."""
    sync_timeout_s: float = Field(30.0, gt=0.0)
    """Gradient actors in rounds: how long a round waits for a worker's gradient after the first one has arrived. A
    worker that waits that long for the next round checks whether its gradient was lost, and sends another one."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Device of the updates; auto: a GPU if the framework finds one."""
    threads: int = Field(1, ge=1)
    """Numeric threads of the learner process."""
    feed_threads: int | Literal["auto"] = "auto"
    """Threads that join unrolls to the next batch while the learner makes an update; only for batches of unrolls,
    without a replay memory. auto: as many as cores are left beside the run's actors and `threads`, at most four, and
    one for small observations. Deterministic mode has one."""
    init_from: str | None = None
    """Weights that a new training begins with: a run (its newest checkpoint), RUN@STEP, RUN@best, a checkpoint's
    directory, a file of `distrl export`, or a run's policy/. A path on the learner's host; a relative one is made
    absolute where the configuration is loaded. Resumed launches do not use it again. null: fresh weights."""
    stall_timeout_s: float = Field(300.0, gt=0.0)
    """After so long without an update, the run ends with exit code 4; the compilation of the first update may take
    ten times as long and does not count. A role that takes longer than half of it, and than
    `environment.step_timeout_s`, to import and make its environment is killed, counted and replaced, and the trial
    before the launch fails then."""

    @field_validator("init_from")
    @classmethod
    def _is_absolute(cls, name: str | None) -> str | None:
        return name if name is None or is_store_url(name) else os.path.abspath(name)

    @field_validator("feed_threads", mode="before")
    @classmethod
    def _is_a_number_of_threads(cls, threads: Any) -> Any:
        if threads != "auto" and not (type(threads) is int and 1 <= threads <= MOST_FEED_THREADS):
            raise ValueError(f"must be auto or a number from 1 to {MOST_FEED_THREADS}, not {threads!r}")
        return threads

    def check(self, network: NetworkParameters) -> None:
        """Refuse a device that contradicts the network."""
        if network.force_cpu and self.device == "gpu":
            raise ValueError("network.force_cpu: true contradicts learner.device: gpu; set one of them")

    def check_updates(self, algorithm: AlgorithmSection, network: NetworkParameters, sequences: int) -> None:
        """Refuse settings that contradict what the algorithm declares.

        Args:
            sequences: N, as in `RunConfig.sequences_per_batch`.
        """
        if self.replicas > 1:
            self._check_replicas(algorithm, network, sequences)
        self._check_rounds(algorithm)
        if self.feed_threads != "auto" and (algorithm.ships != "unrolls" or algorithm.replay_parameters is not None):
            raise ValueError(f"learner.feed_threads join unrolls to batches; {algorithm.name} makes none of them")

    def _check_replicas(self, algorithm: AlgorithmSection, network: NetworkParameters, sequences: int) -> None:
        if self.backend != "jax":
            raise ValueError(
                f"learner.replicas: {self.replicas} devices need learner.backend: jax; the TensorFlow learner has one"
            )
        if algorithm.ships != "unrolls":
            raise ValueError(
                f"learner.replicas share batches of unrolls; actors of algorithm {algorithm.name} ship gradients"
            )
        if network.optimizer_type == "LBFGS":
            raise ValueError("learner.replicas: network.optimizer_type LBFGS searches on one device")
        if sequences % self.replicas:
            raise ValueError(
                f"learner.replicas: {self.replicas} devices cannot share {sequences} sequences "
                "(learner.batch_size x actors.environments) evenly"
            )

    def _check_rounds(self, algorithm: AlgorithmSection) -> None:
        name = algorithm.name
        if algorithm.rounds and self.batch_size is not None:
            raise ValueError(f"learner.batch_size: {name} applies one gradient of every worker; leave it out")
        if not algorithm.rounds and self.is_changed("sync_timeout_s"):
            raise ValueError(f"learner.sync_timeout_s is of workers that wait for each other (a2c), not of {name}")
