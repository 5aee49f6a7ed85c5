"""The interface of algorithms: their use of the memory, their networks, and one update.

    memory    read once, before the launch: how unrolls are made and how old they may be
    build     called once, in the learner: makes the networks and the compiled step
    update    called per batch: hops 7 to 9 of a trajectory's life

An algorithm whose update is a gradient step on one loss needs only `heads` and `loss`: see `GradientAlgorithm`. They
also suffice for gradient actors, which compute the gradient themselves and ship it in place of the unroll.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from distrl.config import RunConfig
from distrl.config.algorithms import AlgorithmSection
from distrl.config.heads import HeadParameters
from distrl.config.replay import ReplayParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor, UndrawnFamily
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.contributions import GradientStep, apply_contributions
from distrl.networks.framework.differentiation import Objective
from distrl.networks.steps import TrainStep
from distrl.networks.wrapper import NetworkWrapper
from distrl.types import Batch, Contributions, Differentiated, EnvSpec, FloatArray

Networks = dict[str, NetworkWrapper]
"""An algorithm's networks by name; actors run the policy of "main"."""


@dataclass(frozen=True, kw_only=True)
class MemorySpec:
    """An algorithm's use of the memory backend.

    Attributes:
        kind: stream: every unroll is trained on once, in order of arrival. replay: unrolls go into a replay memory on
            the learner's side of the stream, and batches are sampled from it.
        ships: Payload of actors: unrolls, or gradients of them.
        rounds: Whether gradient actors wait for each other: one gradient of each of them makes one update.
        unroll_length_steps: T.
        batch_size: Unrolls, gradients, or items sampled from the replay memory, in one update. A round has one gradient
            of every actor instead.
        max_staleness_updates: 0: synchronous. k: nothing older than k updates. None: bounded only by the queue.
        replay: Parameters of the replay memory; None for streams.
    """

    ships: Literal["unrolls", "gradients"] = "unrolls"
    rounds: bool = False
    unroll_length_steps: int
    batch_size: int
    max_staleness_updates: int | None
    replay: ReplayParameters | None = None

    @property
    def kind(self) -> Literal["stream", "replay"]:
        return "stream" if self.replay is None else "replay"

    @staticmethod
    def of(config: RunConfig) -> "MemorySpec":
        """Return the memory's use as configured, in the section `algorithm` first."""
        return MemorySpec(
            ships=config.algorithm.ships,
            rounds=config.in_rounds,
            unroll_length_steps=config.actors.unroll_length_steps,
            batch_size=config.batch_size,
            max_staleness_updates=config.algorithm.max_staleness_updates,
            replay=config.algorithm.replay_parameters,
        )


@dataclass(frozen=True, slots=True)
class Update:
    """The outcome of one update.

    Attributes:
        metrics: name -> number; among them loss, gradient_norm and finite, False if the update was not applied.
        priorities: float32 [N]. New priorities of the sampled items; None: unchanged.
    """

    metrics: Mapping[str, float | bool]
    priorities: FloatArray | None = None


class Loss(NamedTuple):
    """Terms to minimise, and metrics to report.

    Attributes:
        terms: Head name -> scalar. Their sum, weighted by the heads' `loss_weight`, is minimised with regularisation.
        metrics: Name -> scalar; `PRIORITIES`, if it is there, is float32 [N], one number per sampled item.
    """

    terms: dict[str, Tensor]
    metrics: dict[str, Tensor]


PRIORITIES = "priorities"
"""Name of the metric of a loss that holds the items' new priorities."""


class Algorithm(ABC):
    """Base class of algorithms.

    Attributes:
        Parameters: In a user's class, the section `algorithm` of its configurations. distrl's own algorithms have them
            in `config/algorithms/`.
        memory: Its use of the memory backend.
    """

    Parameters: ClassVar[type[AlgorithmSection]] = AlgorithmSection
    memory: MemorySpec

    @abstractmethod
    def __init__(self, config: RunConfig) -> None:
        """Read the configuration; the environment is not known yet.

        Args:
            config: The run's configuration; its section `algorithm` holds the algorithm's parameters.
        """

    @abstractmethod
    def build(self, spec: EnvSpec) -> Networks:
        """Build the algorithm's networks for this environment, with fresh weights."""

    @abstractmethod
    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one update of `networks`, which `build` returned, with all its epochs.

        Args:
            batch: Unrolls, or gradients if `memory.ships` is "gradients".
        """

    def objective(self, networks: Networks) -> Objective | None:
        """Return the loss that `update` differentiates, for diagnostics; None if the algorithm does not provide it.

        It may depend on several networks, each moved only by its own terms.
        """
        del networks
        return None

    def steer(self, networks: Networks, config: RunConfig) -> None:
        """Apply settings that operators changed, between two updates: the learning rate, and more in subclasses.

        Args:
            config: The run's current configuration. Only settings of `config.live_settings` differ.
        """
        if config.network.optimizer_type != "LBFGS":
            for network in networks.values():
                network.set_learning_rate(config.network.learning_rate)


class GradientAlgorithm(Algorithm):
    """An algorithm with one network, "main", and one gradient step per batch. A subclass states `heads` and `loss`.

    If actors ship gradients, actors and learner build the same network with a global copy. In an actor the global copy
    holds the published weights and the online copy acts. In the learner gradients move the global copy, and the online
    copy is published.

    Attributes:
        heads: The network's heads, unless the configuration has others of the same kinds.
        has_target: Whether there is a target copy, whose outputs the loss gets as "target/<name>". The subclass moves
            it by `update_target_network`.
        coefficients: Names of numbers in the section `algorithm` that may change while training; `loss` reads them by
            `coefficient`.
        config: The run's configuration.
        distribution: Joint distribution of all actions that are drawn from one; known after `build`.
    """

    heads: tuple[HeadParameters, ...]
    has_target: ClassVar[bool] = False
    coefficients: ClassVar[tuple[str, ...]] = ()
    distribution: JointDistribution

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.memory = MemorySpec.of(config)
        self._step: TrainStep | None = None
        self._gradient_step: GradientStep | None = None
        self._coefficients: dict[str, Any] = {}

    @abstractmethod
    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of one batch, in `keras.ops`; traced once and compiled.

        Args:
            outputs: Outputs of the heads for all T+1 observations, by name, each [T+1, N, ...].
            batch: The unrolls, [T, N].
        """

    def build(self, spec: EnvSpec) -> Networks:
        """Build the network "main".

        Raises:
            ConfigError: `network` does not fit the algorithm or the environment.
        """
        network = NetworkWrapper(
            self.config.network,
            spec,
            self._heads(),
            has_target=self.has_target,
            has_global=self.memory.ships == "gradients",  # otherwise the learner alone contributes them
            name="main",
            seed=self.config.seed,
            reward_normalization=self.config.algorithm.reward_normalization,
            burn_in_steps=0 if self.memory.replay is None else self.memory.replay.item.burn_in_steps,
        )
        self._coefficients = {
            name: network.online.add_coefficient(name, getattr(self.config.algorithm, name))
            for name in self.coefficients
        }
        specs = network.online.actions
        self.distribution = JointDistribution(
            {action: spec for action, spec in specs.items() if not isinstance(spec, UndrawnFamily)}
        )
        if self.memory.ships == "gradients":
            self._gradient_step = GradientStep(network.online, self.loss)
        else:
            self._step = self.train_step(network)
        return {"main": network}

    def coefficient(self, name: str) -> Tensor | float:
        """Return one of `coefficients` as a variable of the step; before `build`, its configured value."""
        variable = self._coefficients.get(name)
        return float(getattr(self.config.algorithm, name)) if variable is None else variable.value

    def objective(self, networks: Networks) -> Objective | None:
        return networks["main"].objective(self.loss)

    def steer(self, networks: Networks, config: RunConfig) -> None:
        super().steer(networks, config)
        for name, variable in self._coefficients.items():
            variable.assign(getattr(config.algorithm, name))

    def train_step(self, network: NetworkWrapper) -> TrainStep:
        """Return the step of `update` on a batch of unrolls: one step by the gradient of `loss`."""
        return network.train_step(self.loss, self.config.learner.replicas)

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one compiled gradient step on the online copy; shipped gradients move the global copy instead."""
        if self._step is None and isinstance(batch, Batch):
            raise RuntimeError("update was called before build")
        network = networks["main"]
        scale = {} if network.rewards is None else {"reward_deviation": network.rewards.deviation}  # of this update
        if not isinstance(batch, Batch):
            return Update(apply_contributions(network, batch, mean=self._takes_mean) | scale)
        assert self._step is not None  # as `build` left it
        metrics = self._step(network.statistics.with_normal_rewards(batch))
        priorities = metrics.pop(PRIORITIES, None)
        # After the step, which uses the actors' statistics. The next version normalises by all rows so far.
        if metrics["finite"]:
            network.statistics.observe(batch)
        return Update(metrics | scale, priorities)

    def differentiate(self, networks: Networks, batch: Batch) -> Differentiated:
        """Compute the gradient of a gradient actor's own unroll; the online copy's weights stay unchanged.

        Rewards are normalised by the statistics that were published with the weights that acted.
        """
        if self._gradient_step is None:
            raise RuntimeError("differentiate was called before build, or of an algorithm that ships unrolls")
        return self._gradient_step(networks["main"].statistics.with_normal_rewards(batch))

    def reseed(self, seeds: np.random.SeedSequence) -> None:
        """Reseed the random generators of `differentiate`, those of dropout and noise."""
        if self._gradient_step is not None:
            self._gradient_step.reseed(seeds)

    def _heads(self) -> list[HeadParameters]:
        """Return the network's heads."""
        return configured_heads(self.config, self.heads)

    @property
    def _takes_mean(self) -> bool:
        """Whether gradients that are applied together are averaged instead of summed."""
        return not self.memory.rounds or (
            self.config.network.scale_down_gradients_by_number_of_workers_for_sync_training
        )


def configured_heads(config: RunConfig, heads: Sequence[HeadParameters]) -> list[HeadParameters]:
    """Return an algorithm's heads, replaced by the configuration's heads of the same kinds.

    Raises:
        ConfigError: The configuration has a head that the algorithm lacks, a head twice or in several copies, or a
            setting of a loss that the algorithm defines.
    """
    configured = {head.kind: head for head in config.network.heads_parameters}
    name = config.algorithm.name
    kinds = [head.kind for head in heads]
    for head in config.network.heads_parameters:
        where = f"network.heads_parameters: {head.kind}"
        if head.kind not in kinds:
            raise ConfigError(f"{where}: algorithm {name} has the heads {', '.join(kinds)}")
        if head is not configured[head.kind] or head.num_output_head_copies > 1:
            raise ConfigError(f"{where}: algorithm {name} has one head of this kind, not several")
        if unused := head.changed_loss_settings:
            raise ConfigError(f"{where}: {unused[0]} is a part of a loss that algorithm {name} states itself")
    return [configured.get(head.kind, head) for head in heads]
