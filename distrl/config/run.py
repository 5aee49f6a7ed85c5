"""RunConfig: the one frozen tree that describes a training."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from distrl.config.algorithms import (
    AlgorithmParameters,
    ExternalAlgorithmParameters,
    ImpalaParameters,
    ProximalSection,
)
from distrl.config.environment import EnvironmentConfig
from distrl.config.evaluation import EvaluationConfig
from distrl.config.exploration import ExplorationParameters, tells_probabilities
from distrl.config.network import NetworkParameters
from distrl.config.section import Section
from distrl.config.tensorboard import OF_ROWS, TensorBoardConfig


class ActorsConfig(Section):
    """The fleet of actors."""

    count: int = Field(2, ge=0)
    """Actor processes. 0: deterministic mode, everything in one process without threads."""
    max_count: int | None = Field(None, ge=1)
    """Most actors that `distrl scale` may ask for; null: 4 for each core of the machine, or 1,000 on a cluster."""
    environments: int = Field(64, ge=1)
    """Environments of each actor."""
    unroll_length_steps: int = Field(32, ge=1)
    """T: steps of every environment in one unroll."""
    weight_mixing_rate: float = Field(1.0, gt=0.0, le=1.0)
    """rate of set_weights(weights, rate): new = rate * given + (1 - rate) * old."""
    restart_budget: int = Field(20, ge=0)
    """Restarts of one role within ten minutes before the run gives up."""


class MemoryConfig(Section):
    """The memory backend."""

    url: str | None = None
    """redis://, rediss:// or unix://; null starts an embedded redis-server. actors.count: 0 uses none."""
    queue_batches: int = Field(2, ge=1)
    """Producers wait while this many batches are queued: fresh data matters more than a full queue."""
    queue_bytes: int = Field(67108864, ge=65536)
    """Producers also wait while this many bytes are queued."""
    give_up_s: float = Field(60.0, gt=0.0)
    """How long a role retries a Redis that is unreachable, or refuses for a while, before it exits with 6."""


class LearnerConfig(Section):
    """The learner."""

    backend: Literal["tensorflow", "jax"] = "tensorflow"
    """The framework that computes updates."""
    batch_size: int | None = Field(None, ge=1)
    """Unrolls in one update, or gradients that are applied together; null: 4 unrolls, or every gradient by itself.
    With a replay memory: transitions sampled for one update."""
    replicas: int = Field(1, ge=1)
    """Devices of the learner's host that share every batch; more than one with JAX alone."""
    sync_timeout_s: float = Field(30.0, gt=0.0)
    """Gradient actors in rounds: how long a round waits for the gradient of a worker, from its first gradient on. A
    worker that waits that long for the next round asks whether its gradient was lost, and then sends another one."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where updates are computed; auto: a GPU where the framework finds one."""
    threads: int = Field(1, ge=1)
    """Numeric threads of the learner process."""
    stall_timeout_s: float = Field(300.0, gt=0.0)
    """Without an update for this long, the run ends with exit code 4."""


class CheckpointConfig(Section):
    """When to save and how much to keep."""

    every_s: float | None = Field(60.0, gt=0.0)
    """Seconds from one checkpoint to the next; null: not by time."""
    every_updates: int | None = Field(None, ge=1)
    """Updates from one checkpoint to the next; null: not by updates."""
    keep: int = Field(5, ge=1)
    """Newest checkpoints kept, besides the best: by the newest evaluation, or by the mean return of the last 100
    episodes where there is no `evaluation`."""


class StopConfig(Section):
    """When training is done: whichever holds first. None set: until stopped."""

    mean_return: float | None = None
    """Mean return of the last 100 episodes reaches this."""
    evaluation_return: float | None = None
    """Mean return of one of `evaluation`'s evaluations reaches this."""
    env_steps: int | None = Field(None, ge=1)
    """Environment steps that were trained on."""
    updates: int | None = Field(None, ge=1)
    """Updates of the learner."""
    minutes: float | None = Field(None, gt=0.0)
    """Minutes of training."""


LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


class LaunchConfig(Section):
    """Where roles run."""

    launcher: Literal["process", "ray"] = "process"
    """Processes of this machine, or actors of a Ray cluster."""
    ray_address: str | None = None
    """The address of a Ray cluster; null: a cluster of the run's own."""
    log_level: LogLevel = "info"
    """Lowest level that roles log."""


_MEAN = "scale_down_gradients_by_number_of_workers_for_sync_training"


class RunConfig(Section):
    """Everything a run is made of. YAML files and `--set` paths are exactly these names."""

    seed: int = Field(1, ge=0)
    """Root of all randomness: weights, environments, actions, samples."""
    environment: EnvironmentConfig = EnvironmentConfig()
    algorithm: AlgorithmParameters = ImpalaParameters()
    """The algorithm, and the terms of its loss."""
    exploration: ExplorationParameters | None = None
    """How actors explore; null: as the algorithm does by default."""
    network: NetworkParameters = NetworkParameters()
    actors: ActorsConfig = ActorsConfig()
    memory: MemoryConfig = MemoryConfig()
    learner: LearnerConfig = LearnerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    stop: StopConfig = StopConfig()
    tensorboard: TensorBoardConfig = TensorBoardConfig()
    launch: LaunchConfig = LaunchConfig()

    @property
    def deterministic(self) -> bool:
        """One process, in-memory backend, no threads, deterministic operations."""
        return self.actors.count == 0

    @property
    def sequences_per_batch(self) -> int:
        """N: unrolls in a batch x environments of an actor; of a replay memory, what is sampled."""
        return self.batch_size * (1 if self.algorithm.replay_parameters else self.actors.environments)

    @property
    def batch_size(self) -> int:
        """Unrolls, gradients, or transitions sampled from the replay memory, in one update."""
        return self.learner.batch_size or self.algorithm.batch_size

    @property
    def unrolls_at_once(self) -> int:
        """Entries of the stream that the learner takes together: a batch, or one by one into the replay memory."""
        return 1 if self.algorithm.replay_parameters else self.batch_size

    @property
    def heat_up_steps(self) -> int:
        """Environment steps that a replay memory must hold before there is an update; 0 without one."""
        replay = self.algorithm.replay_parameters
        return 0 if replay is None else replay.min_size_steps

    @property
    def exploring(self) -> ExplorationParameters | None:
        """How actors explore; None: by the policy's distribution alone."""
        return self.exploration or self.algorithm.exploration

    @property
    def device(self) -> Literal["auto", "cpu", "gpu"]:
        """Where the learner computes: `learner.device`, unless `network.force_cpu`."""
        return "cpu" if self.network.force_cpu else self.learner.device

    @property
    def in_rounds(self) -> bool:
        """Gradient actors wait for each other: one gradient of every worker makes one update."""
        return self.algorithm.rounds

    @property
    def undeclared(self) -> bool:
        """The algorithm is a class of the user's own that has not been asked yet what its actors ship."""
        return isinstance(self.algorithm, ExternalAlgorithmParameters) and self.algorithm.declared is None

    @model_validator(mode="after")
    def _combination_is_possible(self) -> Self:
        if not self.undeclared:
            self._check_algorithm()
        if self.actors.max_count is not None and self.actors.count > self.actors.max_count:
            raise ValueError(
                f"actors.count: {self.actors.count} is more than actors.max_count: {self.actors.max_count}; "
                "set one of them"
            )
        if self.deterministic and self.launch.launcher == "ray":
            raise ValueError("launch.launcher: ray needs actors.count >= 1; actors.count: 0 is one process")
        if self.actors.weight_mixing_rate < 1.0 and (self.algorithm.max_staleness_updates == 0 or self.in_rounds):
            which = f"algorithm {self.algorithm.name}" if self.in_rounds else "algorithm.max_staleness_updates: 0"
            raise ValueError(
                f"actors.weight_mixing_rate < 1 mixes old weights into every policy, which {which} forbids; "
                "set one of them"
            )
        if self.deterministic and self.memory.url is not None:
            raise ValueError("memory.url has no use with actors.count: 0, which keeps everything in one process")
        if self.network.force_cpu and self.learner.device == "gpu":
            raise ValueError("network.force_cpu: true contradicts learner.device: gpu; set one of them")
        if self.stop.evaluation_return is not None and self.evaluation.every_env_steps is None:
            raise ValueError(
                f"stop.evaluation_return: {self.stop.evaluation_return:g} waits for evaluations, and there are none; "
                "set evaluation.every_env_steps"
            )
        if self.launch.ray_address is not None and self.launch.launcher != "ray":
            raise ValueError("launch.ray_address needs launch.launcher: ray")
        every_s = self.tensorboard.histograms_every_s
        if self.deterministic and every_s != TensorBoardConfig().histograms_every_s:
            raise ValueError(
                f"tensorboard.histograms_every_s: {every_s:g} has no use with actors.count: 0, whose every snapshot is "
                "a look; leave it out"
            )
        self._check_meta()
        return self

    def _check_algorithm(self) -> None:
        """Refuses what does not go with the algorithm."""
        if self.learner.replicas > 1:
            self._check_replicas()
        self._check_gradient_actors()
        self._check_rounds()
        if self.exploring is not None:
            self._check_exploration(self.exploring)
        self._check_replay()
        self._check_minibatches()
        of_rows = [label for label in self.tensorboard.labels if label in OF_ROWS]
        if of_rows and self.algorithm.ships == "gradients":
            name = self.algorithm.name
            raise ValueError(
                f"tensorboard.labels: {of_rows[0]} is of unrolls; actors of algorithm {name} ship gradients"
            )

    def _check_meta(self) -> None:
        """Refuses names of settings beside the settings themselves."""
        if not self.tensorboard.meta:
            return
        for path in _paths(self):
            for name in self.tensorboard.meta:
                if name in (path, path.rpartition(".")[2]):
                    raise ValueError(f"tensorboard.meta: {name} is the name of a setting, {path}; take another one")

    def _check_replicas(self) -> None:
        if self.learner.backend != "jax":
            raise ValueError(
                f"learner.replicas: {self.learner.replicas} devices need learner.backend: jax; "
                "the TensorFlow learner has one"
            )
        if self.algorithm.ships != "unrolls":
            raise ValueError(
                f"learner.replicas share batches of unrolls; actors of algorithm {self.algorithm.name} ship gradients"
            )
        if self.network.optimizer_type == "LBFGS":
            raise ValueError("learner.replicas: network.optimizer_type LBFGS searches on one device")
        if self.sequences_per_batch % self.learner.replicas:
            raise ValueError(
                f"learner.replicas: {self.learner.replicas} devices cannot share {self.sequences_per_batch} sequences "
                "(learner.batch_size x actors.environments) evenly"
            )

    def _check_exploration(self, exploration: ExplorationParameters) -> None:
        """Refuses what the algorithm could not tell from its own policy's actions."""
        name, learns_from = self.algorithm.name, self.algorithm.learns_from
        # That of distrl's own algorithms by default fits them.
        where = "exploration" if self.exploration is not None else "algorithm.declared.exploration"
        if learns_from == "own policy" and (exploration.kind != "policy" or exploration.random_steps):
            what = f"kind: {exploration.kind}" if exploration.kind != "policy" else "random_steps"
            raise ValueError(
                f"{where}.{what} is of algorithms that correct for it; {name} learns from the actions of its own "
                "policy alone: leave it out"
            )
        if learns_from == "known probabilities" and not tells_probabilities(exploration):
            raise ValueError(
                f"{where}.kind: {exploration.kind} knows no probabilities of its actions, by which {name} weighs "
                "them; use policy, epsilon_greedy, boltzmann, noisy_network or parameter_noise"
            )

    def _check_minibatches(self) -> None:
        """Refuse minibatches that cannot be made; `check_memory` looks at those of networks with memory."""
        algorithm, items = self.algorithm, self.sequences_per_batch
        items_are, factors = "sequences", "learner.batch_size x actors.environments"
        if isinstance(algorithm, ProximalSection) and algorithm.steps_per_batch > 1:
            items *= self.actors.unroll_length_steps
            items_are, factors = "rows", f"{factors} x actors.unroll_length_steps"
        elif not isinstance(algorithm, ImpalaParameters) or algorithm.minibatches == 1:
            return
        if items % algorithm.minibatches:
            raise ValueError(
                f"algorithm.minibatches: {algorithm.minibatches} equal parts cannot be made of the {items} {items_are} "
                f"of a batch ({factors}); choose a divisor"
            )
        if self.network.optimizer_type == "LBFGS":
            raise ValueError(
                f"network.optimizer_type: LBFGS needs whole batches; algorithm {algorithm.name} takes minibatches"
            )
        if items // algorithm.minibatches % self.learner.replicas:
            raise ValueError(
                f"learner.replicas: {self.learner.replicas} devices cannot share {items // algorithm.minibatches} "
                f"{items_are} evenly, a minibatch of algorithm {algorithm.name}"
            )

    def _check_gradient_actors(self) -> None:
        """Refuses what only gradient actors look at where there are none, and what contradicts the algorithm."""
        name, network = self.algorithm.name, self.network
        if self.algorithm.ships == "unrolls":
            for field in ("async_training", "shared_optimizer", _MEAN):
                if getattr(network, field) != NetworkParameters.model_fields[field].default:
                    raise ValueError(f"network.{field} is of gradient actors; those of algorithm {name} ship unrolls")
            return
        if network.async_training is not None and network.async_training == self.in_rounds:
            raise ValueError(f"network.async_training: {network.async_training} contradicts algorithm.name: {name}")
        if not self.in_rounds and not getattr(network, _MEAN):
            raise ValueError(f"network.{_MEAN} is of workers that wait for each other (a2c), not of {name}")
        if network.optimizer_type == "LBFGS":
            raise ValueError(f"network.optimizer_type: LBFGS needs whole batches; {name} applies single gradients")

    def _check_rounds(self) -> None:
        """Refuses what rounds leave no room for, and what only rounds look at."""
        name, memory = self.algorithm.name, MemoryConfig()
        if not self.in_rounds:
            if self.learner.sync_timeout_s != LearnerConfig().sync_timeout_s:
                raise ValueError(f"learner.sync_timeout_s is of workers that wait for each other (a2c), not of {name}")
            return
        if self.learner.batch_size is not None:
            raise ValueError(f"learner.batch_size: {name} applies one gradient of every worker; leave it out")
        if self.algorithm.max_staleness_updates is not None:
            raise ValueError(f"algorithm.max_staleness_updates: {name} is synchronous in any case; leave it out")
        if (self.memory.queue_batches, self.memory.queue_bytes) != (memory.queue_batches, memory.queue_bytes):
            raise ValueError(f"memory.queue_batches, memory.queue_bytes: {name} queues one gradient of every worker")

    def _check_replay(self) -> None:
        """Refuses what could never be sampled, and what only works on unrolls in the order in which they come."""
        replay, name = self.algorithm.replay_parameters, self.algorithm.name
        if replay is None:
            return
        for path, value, why in (
            ("algorithm.max_staleness_updates", self.algorithm.max_staleness_updates, "keeps unrolls however old"),
            ("algorithm.reward_normalization", self.algorithm.reward_normalization, "keeps rewards as they came"),
        ):
            if value is not None:
                raise ValueError(f"{path}: the replay memory of {name} {why}; leave it out")
        if self.network.optimizer_type == "LBFGS":
            raise ValueError(f"network.optimizer_type: LBFGS needs the same batch again; {name} samples another one")
        actors, unroll_steps = self.actors, self.actors.unroll_length_steps * self.actors.environments
        least = max(actors.count, 1) * unroll_steps
        if replay.capacity_steps < least:
            raise ValueError(
                f"algorithm.replay.capacity_steps: {replay.capacity_steps} is less than one unroll of every actor: "
                f"{least} steps (actors.count x environments x unroll_length_steps)"
            )
        if (kept := replay.slots(unroll_steps) * unroll_steps) < replay.min_size_steps:
            raise ValueError(
                f"algorithm.replay.min_size_steps: {replay.min_size_steps} can never be there: whole unrolls of "
                f"{unroll_steps} steps make {kept} of capacity_steps: {replay.capacity_steps}"
            )
        wanted = replay.steps_before_update(self.batch_size, actors.unroll_length_steps)
        if self.stop.env_steps is not None and self.stop.env_steps < wanted:
            raise ValueError(
                f"stop.env_steps: {self.stop.env_steps} is over before anything is learned; the first update needs "
                f"{wanted} (algorithm.replay.min_size_steps, and learner.batch_size by samples_per_insert)"
            )


def _paths(section: BaseModel, prefix: str = "") -> Iterator[str]:
    """Dotted paths of settings, sections before what is in them; names in users' own mappings are none."""
    for name in type(section).model_fields:
        yield f"{prefix}{name}"
        value = getattr(section, name)
        inner = value if isinstance(value, dict) else {"": value}
        for key, each in inner.items():
            if isinstance(each, BaseModel):
                yield from _paths(each, f"{prefix}{name}.{key}." if key else f"{prefix}{name}.")
