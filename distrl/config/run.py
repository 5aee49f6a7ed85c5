"""RunConfig: the frozen tree that describes a training."""

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from distrl.config.actors import ActorsConfig
from distrl.config.algorithms import AlgorithmContext, AlgorithmParameters, ExternalAlgorithmParameters
from distrl.config.algorithms.actor_critics import ImpalaParameters
from distrl.config.checkpoint import CheckpointConfig
from distrl.config.data import DataConfig
from distrl.config.environment import EnvironmentConfig
from distrl.config.evaluation import EvaluationConfig
from distrl.config.exploration import ExplorationParameters, check_exploration
from distrl.config.launch import LaunchConfig
from distrl.config.learner import LearnerConfig
from distrl.config.memory import MemoryConfig
from distrl.config.network import NetworkParameters
from distrl.config.recording import RecordingConfig
from distrl.config.replay import ReplayParameters
from distrl.config.section import Section
from distrl.config.stop import StopConfig
from distrl.config.tensorboard import TensorBoardConfig


class RunConfig(Section):
    """The configuration of a run, as far as it trains. YAML files and `--set` paths use exactly these names.

    Applications add sections of their own in a subclass (`distrl/apps/config/configuration.py`).
    """

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
    data: DataConfig = DataConfig()
    recording: RecordingConfig = RecordingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    stop: StopConfig = StopConfig()
    tensorboard: TensorBoardConfig = TensorBoardConfig()
    launch: LaunchConfig = LaunchConfig()

    @property
    def deterministic(self) -> bool:
        """One process, in-memory backend, no threads, deterministic operations."""
        return self.launch.is_here(self.actors.count, learns_from_data=self.learns_from_data)

    @property
    def learns_from_data(self) -> bool:
        """Whether recorded episodes take the place of actors."""
        return self.data.replaces_actors

    @property
    def applications(self) -> dict[str, Any]:
        """Sections that applications have added, as data."""
        return self.model_dump(mode="json", exclude={*RunConfig.model_fields})

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
        """N: unrolls in a batch x environments of an actor; of a replay memory, what is sampled, recorded items too."""
        live = self.batch_size * (1 if self.algorithm.replay_parameters else self.actors.environments)
        return live + self.data.items_beside(self.batch_size)

    @property
    def batch_size(self) -> int:
        """Unrolls, gradients, or sampled items of actors in one update."""
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
    def live_replay(self) -> ReplayParameters | None:
        """Settings of the replay memory that actors' unrolls come into; None if there is none."""
        return self.data.live(self.algorithm.replay_parameters)

    @property
    def heat_up_steps(self) -> int:
        """Environment steps that a replay memory must hold before there is an update; 0 without one."""
        replay = self.live_replay
        return 0 if replay is None else replay.min_size_steps

    @property
    def _first_update_steps(self) -> int:
        """Environment steps before the first update of a replay memory; 0 without one."""
        replay = self.live_replay
        return 0 if replay is None else replay.steps_before_update(self.batch_size, self.actors.unroll_length_steps)

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
            learns_from_data=self.learns_from_data,
        )

    @model_validator(mode="after")
    def _combination_is_possible(self) -> Self:
        if not self.undeclared:
            self._check_algorithm()
        self.actors.check(self.algorithm, None if self.undeclared else self.exploring, self.launch)
        self.launch.check(self.memory, self.environment, self.actors.count, learns_from_data=self.learns_from_data)
        self.memory.check(self.algorithm, deterministic=self.deterministic)
        self.learner.check(self.network)
        if not self.undeclared:
            self.learner.check_updates(self.algorithm, self.network, self.sequences_per_batch)
        self.checkpoint.check(self.learner.stall_timeout_s)
        self.stop.check(self.evaluation, self.environment.metrics, self._first_update_steps)
        self.evaluation.check(self.environment, self.data)
        self.tensorboard.check(_paths(self), deterministic=self.deterministic)
        return self

    def _check_algorithm(self) -> None:
        """Refuse settings that contradict the algorithm."""
        algorithm, actors = self.algorithm, self.actors
        algorithm.check(self.algorithm_context)
        self.data.check(
            algorithm,
            self.environment,
            actors=actors.count,
            batch_size=self.batch_size,
            last_update=self.stop.updates,
        )
        self.recording.check(algorithm, self.environment, learns_from_data=self.learns_from_data)
        self.network.check_gradient_actors(algorithm.name, ships=algorithm.ships, in_rounds=algorithm.rounds)
        if self.exploring is not None:
            # The defaults of distrl's own algorithms fit them.
            where = "exploration" if self.exploration is not None else "algorithm.declared.exploration"
            check_exploration(self.exploring, where, algorithm.name, algorithm.learns_from)
        if (replay := self.live_replay) is not None:
            unroll_steps = actors.unroll_length_steps * actors.environments
            replay.check_capacity(max(actors.count, 1), unroll_steps)
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
