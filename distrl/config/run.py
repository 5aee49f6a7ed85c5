"""RunConfig: the one frozen tree that describes a training."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from distrl.config.algorithms import ImpalaParameters
from distrl.config.network import NetworkParameters
from distrl.config.section import Section


class EnvironmentConfig(Section):
    """Which environment, and how one actor steps several of them."""

    id: str = "CartPole-v1"
    """A gymnasium id, or package.module:Class."""
    vectorization: Literal["auto", "own", "sync"] = "auto"
    """own: the environment's own vector entry point; sync: gymnasium's SyncVectorEnv; auto: own where there is one."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    step_timeout_s: float = Field(60.0, gt=0.0)
    """An actor whose last environment step is older than this is killed, counted and replaced."""


class ActorsConfig(Section):
    """The fleet of actors."""

    count: int = Field(2, ge=0)
    """Actor processes. 0: deterministic mode, everything in one process without threads."""
    environments: int = Field(64, ge=1)
    """Environments of each actor."""
    unroll_length_steps: int = Field(32, ge=1)
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
    give_up_s: float = Field(60.0, gt=0.0)
    """How long a role retries an unreachable Redis before it exits with 6."""


class LearnerConfig(Section):
    """The learner."""

    backend: Literal["tensorflow"] = "tensorflow"
    batch_size: int = Field(4, ge=1)
    """Unrolls in one update."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    threads: int = Field(1, ge=1)
    """Numeric threads of the learner process."""
    stall_timeout_s: float = Field(300.0, gt=0.0)


class CheckpointConfig(Section):
    """When to save and how much to keep."""

    every_s: float | None = Field(60.0, gt=0.0)
    every_updates: int | None = Field(None, ge=1)
    keep: int = Field(5, ge=1)
    """Newest checkpoints kept, besides the best."""


class StopConfig(Section):
    """When training is done: whichever holds first. None set: until stopped."""

    mean_return: float | None = None
    """Mean return of the last 100 episodes reaches this."""
    env_steps: int | None = Field(None, ge=1)
    updates: int | None = Field(None, ge=1)
    minutes: float | None = Field(None, gt=0.0)


class LaunchConfig(Section):
    """Where roles run."""

    launcher: Literal["process", "ray"] = "process"
    ray_address: str | None = None


class RunConfig(Section):
    """Everything a run is made of. YAML files and `--set` paths are exactly these names."""

    seed: int = Field(1, ge=0)
    environment: EnvironmentConfig = EnvironmentConfig()
    algorithm: ImpalaParameters = ImpalaParameters()
    network: NetworkParameters = NetworkParameters()
    actors: ActorsConfig = ActorsConfig()
    memory: MemoryConfig = MemoryConfig()
    learner: LearnerConfig = LearnerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    stop: StopConfig = StopConfig()
    launch: LaunchConfig = LaunchConfig()

    @property
    def deterministic(self) -> bool:
        """One process, in-memory backend, no threads, deterministic operations."""
        return self.actors.count == 0

    @property
    def sequences_per_batch(self) -> int:
        """N: unrolls in a batch x environments of an actor."""
        return self.learner.batch_size * self.actors.environments

    @model_validator(mode="after")
    def _combination_is_possible(self) -> Self:
        if self.deterministic and self.launch.launcher == "ray":
            raise ValueError("launch.launcher: ray needs actors.count >= 1; actors.count: 0 is one process")
        if self.algorithm.max_staleness_updates == 0 and self.actors.weight_mixing_rate < 1.0:
            raise ValueError(
                "actors.weight_mixing_rate < 1 mixes old weights into every policy, which "
                "algorithm.max_staleness_updates: 0 forbids; set one of them"
            )
        if self.deterministic and self.memory.url is not None:
            raise ValueError("memory.url has no use with actors.count: 0, which keeps everything in one process")
        if self.launch.ray_address is not None and self.launch.launcher != "ray":
            raise ValueError("launch.ray_address needs launch.launcher: ray")
        return self
