"""RunConfig: the frozen tree that describes a training."""

import math
import os
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from distrl.config.algorithms import (
    AlgorithmContext,
    AlgorithmParameters,
    AlgorithmSection,
    ExternalAlgorithmParameters,
)
from distrl.config.algorithms.actor_critics import ImpalaParameters
from distrl.config.environment import EnvironmentConfig, InfoKey
from distrl.config.evaluation import EvaluationConfig
from distrl.config.exploration import ExplorationParameters, check_exploration
from distrl.config.kubernetes import KubernetesConfig
from distrl.config.network import NetworkParameters
from distrl.config.secrets import refuse_password
from distrl.config.section import Section
from distrl.config.slurm import SlurmConfig
from distrl.config.stores import checked_store_url, is_store_url
from distrl.config.tensorboard import TensorBoardConfig
from distrl.config.trackers import TrackersConfig

TLS_SCHEMES = ("rediss", "valkeys")
"""First letters of the schemes of TLS, also of Sentinels and Clusters."""


class AutoscaleConfig(Section):
    """The number of actors that follows from how long learner and actors wait for each other."""

    enabled: bool = False
    """Whether the run chooses its number of actors itself. `distrl autoscale` and `distrl scale` change that later."""
    min_count: int = Field(1, ge=1)
    """Fewest actors."""
    max_count: int | None = Field(None, ge=1)
    """Most actors; null: as many as `distrl scale` may request, see `actors.max_count`."""
    window_s: float = Field(60.0, gt=0.0)
    """Seconds of undisturbed training that one judgement takes: several updates, and several unrolls of an actor."""
    lower_after_s: float = Field(300.0, ge=0.0)
    """How long every judgement must be for fewer actors before there are fewer."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.max_count is not None and self.min_count > self.max_count:
            raise ValueError(f"min_count: {self.min_count} is more than max_count: {self.max_count}; set one of them")
        return self

    def check(self, run: "RunConfig") -> None:
        """Refuse it for runs whose number of actors is fixed, and bounds that contradict those of the run."""
        if self.enabled and run.deterministic:
            raise ValueError("actors.autoscale.enabled needs actors.count >= 1; actors.count: 0 is one process")
        if self.enabled and not run.undeclared and run.algorithm.rounds:
            raise ValueError(
                f"actors.autoscale.enabled: {run.algorithm.name} makes each update of one gradient of every actor: "
                "their number is the size of its batch; leave it out"
            )
        most = run.actors.max_count
        for name in ("min_count", "max_count"):
            value = getattr(self, name)
            if most is not None and value is not None and value > most:
                raise ValueError(
                    f"actors.autoscale.{name}: {value} is more than actors.max_count: {most}; set one of them"
                )


class ActorsConfig(Section):
    """The fleet of actors."""

    count: int = Field(2, ge=0)
    """Actor processes. 0: deterministic mode, everything in one process without threads."""
    max_count: int | None = Field(None, ge=1)
    """Most actors that `distrl scale` may request; null: 4 for each core of the machine, or 1,000 on a cluster."""
    environments: int = Field(64, ge=1)
    """Environments of each actor."""
    unroll_length_steps: int = Field(32, ge=1)
    """T: steps of every environment in one unroll."""
    weight_mixing_rate: float = Field(1.0, gt=0.0, le=1.0)
    """rate of set_weights(weights, rate): new = rate * given + (1 - rate) * old."""
    restart_budget: int = Field(20, ge=0)
    """Restarts of one role within ten minutes before the run gives up."""
    autoscale: AutoscaleConfig = AutoscaleConfig()

    def check(self, run: "RunConfig") -> None:
        """Refuse settings that contradict other sections."""
        if self.max_count is not None and self.count > self.max_count:
            raise ValueError(
                f"actors.count: {self.count} is more than actors.max_count: {self.max_count}; set one of them"
            )
        algorithm = run.algorithm
        if self.weight_mixing_rate < 1.0 and (algorithm.max_staleness_updates == 0 or algorithm.rounds):
            which = f"algorithm {algorithm.name}" if algorithm.rounds else "algorithm.max_staleness_updates: 0"
            raise ValueError(
                f"actors.weight_mixing_rate < 1 mixes old weights into every policy, which {which} forbids; "
                "set one of them"
            )
        self.autoscale.check(run)


class TlsConfig(Section):
    """Certificates for a Redis named by rediss://; each file is on every host that connects, under the same path.

    With `memory.listen`, certificate and key are those of the server, which the learner's host alone needs.
    """

    ca_file: str | None = None
    """PEM file of the authority that has signed the server's certificate; null: those that the system trusts."""
    cert_file: str | None = None
    """PEM file of this client's certificate, where the server wants one."""
    key_file: str | None = None
    """PEM file of its private key, without a passphrase; only its owner may read it."""

    @field_validator("*")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        """Make a path count from the current directory of the launch, not of each role."""
        return None if path is None else os.path.abspath(os.path.expanduser(path))


class MemoryConfig(Section):
    """The memory backend."""

    url: str | None = None
    """redis://, unix://, redis+sentinel:// or redis+cluster://, with rediss for TLS; null starts an embedded
    redis-server. actors.count: 0 uses none. It holds no password: that is in the environment variable
    DISTRL_REDIS_PASSWORD, or in the file that DISTRL_REDIS_PASSWORD_FILE names."""
    listen: str | None = None
    """Where the embedded redis-server listens for other hosts, with a password in the run directory's redis.password.
    auto: this host's address on its default route; a network like 10.1.0.0/16: this host's address there; or HOST,
    HOST:PORT. null: it has a unix socket alone."""
    tls: TlsConfig = TlsConfig()
    namespace: str = Field("default", pattern=r"^[A-Za-z0-9-]{1,50}$")
    """Part of every Redis key of the run, so that access rules can tell the runs of several teams apart. A role that
    joins by hand adds `?namespace=…` to its URL."""
    queue_batches: int = Field(2, ge=1)
    """Actors wait while this many batches are queued: fresh data matters more than a full queue."""
    queue_bytes: int = Field(67108864, ge=65536)
    """Actors also wait while this many bytes are queued."""
    compression: Literal["none", "zstd", "lz4"] = "none"
    """How actors compress unrolls on their way to the learner: worth it for images over a network, not for vectors or
    over a unix socket (docs/performance.md). `zstd` and `lz4` need the extra `compression` on every host of the run."""
    give_up_s: float = Field(60.0, gt=0.0)
    """How long a role retries when Redis is unreachable or refuses commands, before it exits with code 6."""
    keep_s: int = Field(86400, ge=600)
    """How long the Redis of `memory.url` keeps a run's keys after its supervisor and learner have died; these renew
    the time every ten seconds. At least twice `give_up_s`, as they cannot renew it in an outage. A Redis that evicts
    keys with a time to live first (maxmemory-policy volatile-…) keeps them until `distrl runs --redis-url URL --remove
    ID`."""

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str | None) -> str | None:
        # Its ConfigError passes through pydantic, whose own error would show the value.
        if url is not None:
            refuse_password(url, "memory.url")
        return url

    def check(self, run: "RunConfig") -> None:
        """Refuse settings that the run would not use."""
        for field in ("url", "listen", "namespace", "tls", "compression", "keep_s"):
            if run.deterministic and self.is_changed(field):
                raise ValueError(
                    f"memory.{field} has no use with actors.count: 0, which keeps everything in one process"
                )
        if self.url is not None and self.listen is not None:
            raise ValueError(
                "memory.listen is for the embedded Redis, and memory.url names another one; set one of them"
            )
        self._check_tls()
        if self.is_changed("keep_s") and self.url is None:
            raise ValueError("memory.keep_s has no use without memory.url: the embedded Redis ends with the run")
        if self.url is not None and self.keep_s < 2.0 * self.give_up_s:
            raise ValueError(
                f"memory.keep_s: {self.keep_s} is too short: in an outage of memory.give_up_s: {self.give_up_s:g} the "
                f"keys are not renewed; set it to {2.0 * self.give_up_s:g} or more"
            )
        if self.compression != "none" and not run.undeclared and run.algorithm.ships != "unrolls":
            raise ValueError(
                f"memory.compression: {self.compression} is for unrolls; actors of {run.algorithm.name} ship "
                "gradients, which hardly get shorter"
            )
        if run.algorithm.rounds and (self.is_changed("queue_batches") or self.is_changed("queue_bytes")):
            name = run.algorithm.name
            raise ValueError(f"memory.queue_batches, memory.queue_bytes: {name} queues one gradient of every worker")

    @property
    def reachable(self) -> bool:
        """Whether roles on other hosts reach the run's Redis."""
        return self.url is not None or self.listen is not None

    def _check_tls(self) -> None:
        """Refuse files of TLS that no connection would use, and a server's certificate without its key."""
        if not self.is_changed("tls"):
            return
        if self.listen is not None:
            if self.tls.cert_file is None or self.tls.key_file is None:
                raise ValueError("memory.listen with memory.tls needs the server's memory.tls.cert_file and key_file")
        elif self.url is None or not self.url.startswith(TLS_SCHEMES):
            raise ValueError(
                "memory.tls has no use without a memory.url that asks for TLS: rediss://…, or memory.listen"
            )


class LearnerConfig(Section):
    """The learner."""

    backend: Literal["tensorflow", "jax"] = "tensorflow"
    """The framework that computes updates."""
    batch_size: int | None = Field(None, ge=1)
    """Unrolls in one update, or gradients that are applied together; null: the algorithm's default, for example 4
    unrolls or one gradient. With a replay memory: transitions sampled for one update."""
    replicas: int = Field(1, ge=1)
    """Devices of the learner's host that share every batch; more than one only with JAX."""
    sync_timeout_s: float = Field(30.0, gt=0.0)
    """Gradient actors in rounds: how long a round waits for a worker's gradient after the first one has arrived. A
    worker that waits that long for the next round checks whether its gradient was lost, and sends another one."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Device of the updates; auto: a GPU if the framework finds one."""
    threads: int = Field(1, ge=1)
    """Numeric threads of the learner process."""
    init_from: str | None = None
    """Weights that a new training begins with: a run (its newest checkpoint), RUN@STEP, RUN@best, a checkpoint's
    directory, a file of `distrl export`, or a run's policy/. A path on the learner's host; a relative one is made
    absolute where the configuration is loaded. Resumed launches do not use it again. null: fresh weights."""
    stall_timeout_s: float = Field(300.0, gt=0.0)
    """After so long without an update, the run ends with exit code 4. A role that takes longer than half of it, and
    than `environment.step_timeout_s`, to import and make its environment is killed, counted and replaced, and the
    trial before the launch fails then."""

    @field_validator("init_from")
    @classmethod
    def _is_absolute(cls, name: str | None) -> str | None:
        return name if name is None or is_store_url(name) else os.path.abspath(name)

    def check(self, run: "RunConfig") -> None:
        """Refuse settings that contradict the network or the algorithm."""
        if run.network.force_cpu and self.device == "gpu":
            raise ValueError("network.force_cpu: true contradicts learner.device: gpu; set one of them")
        if not run.undeclared:
            if self.replicas > 1:
                self._check_replicas(run)
            self._check_rounds(run.algorithm)

    def _check_replicas(self, run: "RunConfig") -> None:
        if self.backend != "jax":
            raise ValueError(
                f"learner.replicas: {self.replicas} devices need learner.backend: jax; the TensorFlow learner has one"
            )
        if run.algorithm.ships != "unrolls":
            raise ValueError(
                f"learner.replicas share batches of unrolls; actors of algorithm {run.algorithm.name} ship gradients"
            )
        if run.network.optimizer_type == "LBFGS":
            raise ValueError("learner.replicas: network.optimizer_type LBFGS searches on one device")
        if run.sequences_per_batch % self.replicas:
            raise ValueError(
                f"learner.replicas: {self.replicas} devices cannot share {run.sequences_per_batch} sequences "
                "(learner.batch_size x actors.environments) evenly"
            )

    def _check_rounds(self, algorithm: AlgorithmSection) -> None:
        name = algorithm.name
        if algorithm.rounds and self.batch_size is not None:
            raise ValueError(f"learner.batch_size: {name} applies one gradient of every worker; leave it out")
        if not algorithm.rounds and self.is_changed("sync_timeout_s"):
            raise ValueError(f"learner.sync_timeout_s is of workers that wait for each other (a2c), not of {name}")


class CheckpointConfig(Section):
    """When to save and how much to keep."""

    every_s: float | None = Field(60.0, gt=0.0)
    """Seconds from one checkpoint to the next; null: not by time. With actors.count: 0 never by time, so that a run is
    repeatable."""
    every_updates: int | None = Field(None, ge=1)
    """Updates from one checkpoint to the next; null: not by updates. With actors.count: 0, null means after 100
    unrolls, or after more where these have fewer than 25,000 steps."""
    keep: int = Field(5, ge=1)
    """Number of newest checkpoints kept, in addition to the best one, by the newest evaluation or, without
    `evaluation`, by the mean return of the last 100 episodes."""
    store: str | None = None
    """Data store that gets a copy of every checkpoint, of the policy and of the run's files, in a folder named by the
    run's id: s3://bucket/path, gs://bucket/path, az://container/path, or file:///path for a disk that hosts share.
    Credentials come from the environment, as usual for that store (docs/cluster.md); null: none."""
    store_give_up_s: float = Field(60.0, gt=0.0)
    """How long the end of a training waits for the store to take its last checkpoint, before it ends with code 6."""

    @property
    def end_s(self) -> int:
        """Longest time that the end of a training waits for a store that does not answer: learner, then parent."""
        return 0 if self.store is None else 2 * math.ceil(self.store_give_up_s)

    @field_validator("store")
    @classmethod
    def _is_store(cls, url: str | None) -> str | None:
        return None if url is None else checked_store_url(url, "checkpoint.store")

    def check(self, run: "RunConfig") -> None:
        """Refuse settings that the run would not use, and an end that the supervisor would take for a stall."""
        if self.store is None and self.is_changed("store_give_up_s"):
            raise ValueError("checkpoint.store_give_up_s has no use without checkpoint.store")
        if self.store is not None and self.store_give_up_s >= run.learner.stall_timeout_s:
            raise ValueError(
                f"checkpoint.store_give_up_s: {self.store_give_up_s:g} must be less than learner.stall_timeout_s: "
                f"{run.learner.stall_timeout_s:g}, after which the run has stalled"
            )


class StopConfig(Section):
    """Conditions that end the training; the first one to hold ends it. Without any, it trains until stopped."""

    mean_return: float | None = None
    """Mean return of the last 100 episodes reaches this."""
    evaluation_return: float | None = None
    """Mean return of an evaluation reaches this, see `evaluation`."""
    env_steps: int | None = Field(None, ge=1)
    """Environment steps that were trained on."""
    metrics: dict[InfoKey, float] = Field(default_factory=dict)
    """Key of `environment.metrics` -> mean of the last 100 episodes that it reaches; one of several is enough."""
    episodes: int | None = Field(None, ge=1)
    """Episodes of all actors that ended. As for the others, the learner looks after every update."""
    updates: int | None = Field(None, ge=1)
    """Updates of the learner."""
    minutes: float | None = Field(None, gt=0.0)
    """Minutes of training."""

    def check(self, run: "RunConfig") -> None:
        """Refuse conditions on evaluations and metrics that there are not, and an end before the first update."""
        if self.evaluation_return is not None and run.evaluation.every_env_steps is None:
            raise ValueError(
                f"stop.evaluation_return: {self.evaluation_return:g} waits for evaluations, and there are none; "
                "set evaluation.every_env_steps"
            )
        if undeclared := [key for key in self.metrics if key not in run.environment.metrics]:
            raise ValueError(
                f"stop.metrics.{undeclared[0]} waits for a metric that is not in environment.metrics; declare it there "
                f"(for example {undeclared[0]}: sum), or leave it out"
            )
        replay = run.algorithm.replay_parameters
        if self.env_steps is None or replay is None:
            return
        least = replay.steps_before_update(run.batch_size, run.actors.unroll_length_steps)
        if self.env_steps < least:
            raise ValueError(
                f"stop.env_steps: {self.env_steps} is over before anything is learned; the first update needs "
                f"{least} (algorithm.replay.min_size_steps, and learner.batch_size by samples_per_insert)"
            )


LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


class LaunchConfig(Section):
    """Where roles run, and how they log."""

    launcher: Literal["process", "ray"] = "process"
    """Run roles as processes of this machine, or as actors of a Ray cluster."""
    ray_address: str | None = None
    """The address of a Ray cluster; null: a cluster of the run's own."""
    wait_for_nodes: bool = False
    """Start on a Ray cluster that is too small for all roles, because an autoscaler adds nodes."""
    start_actors: bool = True
    """Whether the run starts `actors.count` actors. false: actors of other hosts join it (`distrl actors`), and
    `actors.count` is the number that you expect."""
    wait_s: float = Field(0.0, ge=0.0)
    """How long a launch waits for the Redis of `memory.url`, and for the end of an earlier launch of the run, where a
    cluster manager starts them together."""
    sigterm_exit_code: int = Field(0, ge=0, le=255)
    """Exit code of a training that SIGTERM has ended in order. A cluster manager that starts again what has failed, and
    not what has ended with 0, needs another one: 143."""
    log_level: LogLevel = "info"
    """Lowest level that roles log."""
    print_logs: bool = False
    """Print the lines that roles log among the run's own, where roles are Ray actors: a Ray job's log then has them."""
    role_rows_s: float | None = Field(None, gt=0.0)
    """Seconds between two rows of every role in the run directory's roles.csv: steps, speed, memory, shares of a core
    and of waiting. null: no such file."""

    def check(self, run: "RunConfig") -> None:
        """Refuse Ray in deterministic mode, a Ray address without Ray, and a run that no actor can join."""
        if not self.start_actors:
            if run.deterministic:
                raise ValueError("launch.start_actors: false needs actors.count >= 1; actors.count: 0 is one process")
            if not run.memory.reachable:
                raise ValueError(
                    "launch.start_actors: false: actors of other hosts cannot reach an embedded Redis; name one that "
                    "they can with --redis-url, or let this one listen for them: --set memory.listen=auto"
                )
        elif run.environment.spec_file is not None:
            raise ValueError(
                f"environment.spec_file: {run.environment.spec_file} is for a host without the environment, which "
                "starts no actors; add --no-actors (launch.start_actors: false)"
            )
        if run.deterministic and self.launcher == "ray":
            raise ValueError("launch.launcher: ray needs actors.count >= 1; actors.count: 0 is one process")
        if self.ray_address is not None and self.launcher != "ray":
            raise ValueError("launch.ray_address needs launch.launcher: ray")
        if self.wait_s and run.memory.url is None:
            raise ValueError(
                "launch.wait_s has no use without memory.url: the run's own Redis starts and ends with it; for a job "
                "on Kubernetes set kubernetes.values.learner.waitSeconds"
            )
        if self.wait_for_nodes and self.ray_address is None:
            raise ValueError(
                "launch.wait_for_nodes needs launch.ray_address: no autoscaler adds nodes to the run's own"
            )


class RunConfig(Section):
    """The configuration of a run. YAML files and `--set` paths use exactly these names."""

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
    trackers: TrackersConfig = TrackersConfig()
    launch: LaunchConfig = LaunchConfig()
    slurm: SlurmConfig = SlurmConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()

    @property
    def deterministic(self) -> bool:
        """One process, in-memory backend, no threads, deterministic operations."""
        return self.actors.count == 0

    @property
    def end_s(self) -> int:
        """Longest time that the end of a training waits for a data store or trackers that do not answer."""
        return self.checkpoint.end_s + (math.ceil(self.trackers.give_up_s) if self.trackers.used else 0)

    @property
    def making_timeout_s(self) -> float:
        """Longest time to import and make an environment: a role that hangs is replaced before the run stalls."""
        return max(self.environment.step_timeout_s, 0.5 * self.learner.stall_timeout_s)

    @property
    def other_environments(self) -> dict[str, EnvironmentConfig]:
        """`evaluation.other_environments`, each as the evaluator makes it."""
        others = self.evaluation.other_environments
        return {name: other.beside(self.environment) for name, other in others.items()}

    @property
    def started_actors(self) -> int:
        """Number of actors that the run starts; further ones may join."""
        return self.actors.count if self.launch.start_actors else 0

    @property
    def sequences_per_batch(self) -> int:
        """N: unrolls in a batch x environments of an actor; of a replay memory, what is sampled."""
        return self.batch_size * (1 if self.algorithm.replay_parameters else self.actors.environments)

    @property
    def batch_size(self) -> int:
        """Unrolls, gradients, or sampled transitions in one update."""
        return self.learner.batch_size or self.algorithm.batch_size

    @property
    def unrolls_at_once(self) -> int:
        """Entries of the stream that the learner takes together: a batch, or single ones for the replay memory."""
        return 1 if self.algorithm.replay_parameters else self.batch_size

    @property
    def state_rows(self) -> range:
        """Rows of an unroll before which it holds the policy's recurrent state."""
        replay = self.algorithm.replay_parameters
        return range(1) if replay is None else replay.item.state_rows(self.actors.unroll_length_steps)

    @property
    def heat_up_steps(self) -> int:
        """Environment steps that a replay memory must hold before there is an update; 0 without one."""
        replay = self.algorithm.replay_parameters
        return 0 if replay is None else replay.min_size_steps

    @property
    def exploring(self) -> ExplorationParameters | None:
        """How actors explore; None: only by the policy's distribution."""
        return self.exploration or self.algorithm.exploration

    @property
    def device(self) -> Literal["auto", "cpu", "gpu"]:
        """Where the learner computes: `learner.device`, unless `network.force_cpu`."""
        return "cpu" if self.network.force_cpu else self.learner.device

    @property
    def undeclared(self) -> bool:
        """Whether the algorithm is a user's class whose declarations have not been read yet."""
        return isinstance(self.algorithm, ExternalAlgorithmParameters) and self.algorithm.declared is None

    @property
    def algorithm_context(self) -> AlgorithmContext:
        """All that the algorithm may know of the run."""
        return AlgorithmContext(
            parameters=self.algorithm,
            network=self.network,
            seed=self.seed,
            unroll_length_steps=self.actors.unroll_length_steps,
            sequences_per_batch=self.sequences_per_batch,
            replicas=self.learner.replicas,
        )

    @model_validator(mode="after")
    def _combination_is_possible(self) -> Self:
        if not self.undeclared:
            self._check_algorithm()
        for section in (self.actors, self.launch, self.memory, self.learner, self.checkpoint, self.stop):
            section.check(self)
        self.evaluation.check(self.environment.metrics)
        self.tensorboard.check(_paths(self), deterministic=self.deterministic)
        return self

    def _check_algorithm(self) -> None:
        """Refuse settings that contradict the algorithm."""
        algorithm, actors = self.algorithm, self.actors
        algorithm.check(self.algorithm_context)
        self.network.check_gradient_actors(algorithm.name, ships=algorithm.ships, in_rounds=algorithm.rounds)
        if self.exploring is not None:
            # The defaults of distrl's own algorithms fit them.
            where = "exploration" if self.exploration is not None else "algorithm.declared.exploration"
            check_exploration(self.exploring, where, algorithm.name, algorithm.learns_from)
        if algorithm.replay_parameters is not None:
            unroll_steps = actors.unroll_length_steps * actors.environments
            algorithm.replay_parameters.check_capacity(max(actors.count, 1), unroll_steps)
        if algorithm.ships == "gradients":
            self.tensorboard.check_gradient_actors(algorithm.name)


def _paths(section: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of settings, each section before its contents, without names in users' own mappings."""
    for name in type(section).model_fields:
        yield f"{prefix}{name}"
        value = getattr(section, name)
        inner = value if isinstance(value, dict) else {"": value}
        for key, each in inner.items():
            if isinstance(each, BaseModel):
                yield from _paths(each, f"{prefix}{name}.{key}." if key else f"{prefix}{name}.")
