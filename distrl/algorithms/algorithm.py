"""The seam between an algorithm and everything else: its section of the configuration, its networks, and one update.

    Parameters  read by all roles: settings, and what actors ship
    build       once, in the learner: the networks, and the compiled step
    update      per batch: hops 7 to 9 of a trajectory's life

An algorithm whose update is a gradient step on one loss needs only `heads` and `loss`: see `GradientAlgorithm`. They
also suffice for gradient actors, which compute the gradient themselves and ship it in place of the unroll.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from distrl.config.algorithms import AlgorithmContext, AlgorithmSection
from distrl.config.heads import HeadParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor, UndrawnFamily
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.contributions import GradientStep, apply_contributions
from distrl.networks.copies import Copies
from distrl.networks.framework.differentiation import Objective
from distrl.networks.steps import TrainStep
from distrl.types import Batch, Contributions, Differentiated, EnvSpec, FloatArray

Networks = dict[str, Copies]
"""An algorithm's networks by name; actors run the policy of "main"."""


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


class Bootstrap(NamedTuple):
    """An ensemble in which each item of the replay memory is learned by some of the members.

    Attributes:
        members: Members of the ensemble.
        probability: Probability with which a member learns from an item.
    """

    members: int
    probability: float


PRIORITIES = "priorities"
"""Name of the metric of a loss that holds the items' new priorities."""


class Algorithm(ABC):
    """Base class of algorithms.

    Attributes:
        Parameters: Class of the section `algorithm`: declarations for all roles, and settings. A class of the user's
            own may nest it; those of distrl are in `config/algorithms/`.
        context: All that is known of the run before `build`.
        parameters: The section `algorithm`, an instance of `Parameters`.
    """

    Parameters: ClassVar[type[AlgorithmSection]] = AlgorithmSection
    parameters: AlgorithmSection

    def __init__(self, context: AlgorithmContext) -> None:
        assert isinstance(context.parameters, self.Parameters)
        self.context = context
        self.parameters = context.parameters
        self._coefficients: dict[str, Any] = {}

    @property
    def heads(self) -> tuple[HeadParameters, ...]:
        """Heads of "main", usually a class attribute: `heads = (PolicyHeadParameters(), ValueHeadParameters())`."""
        return ()

    def configured_heads(self) -> list[HeadParameters]:
        """Return `heads`, replaced by the configuration's heads of the same kinds.

        Raises:
            ConfigError: The configuration has a head that the algorithm lacks, a head twice or in several copies, or a
                setting of a loss that the algorithm defines.
        """
        configured = {head.kind: head for head in self.context.network.heads_parameters}
        name, kinds = self.parameters.name, [head.kind for head in self.heads]
        for head in self.context.network.heads_parameters:
            where = f"network.heads_parameters: {head.kind}"
            if head.kind not in kinds:
                raise ConfigError(f"{where}: algorithm {name} has the heads {', '.join(kinds)}; leave {head.kind} out")
            if head is not configured[head.kind] or head.num_output_head_copies > 1:
                raise ConfigError(f"{where}: algorithm {name} has one head of this kind, not several")
            if unused := head.changed_loss_settings:
                raise ConfigError(f"{where}: {unused[0]} is a part of a loss that algorithm {name} states itself")
        return [configured.get(head.kind, head) for head in self.heads]

    @abstractmethod
    def build(self, spec: EnvSpec) -> Networks:
        """Build the algorithm's networks for this environment, with fresh weights."""

    @abstractmethod
    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one update of `networks`, which `build` returned, with all its epochs.

        Args:
            batch: Unrolls, or gradients if `parameters.ships` is "gradients".
        """

    def compile(self, networks: Networks, batch: Batch) -> None:
        """Compile `update` for batches of this form, and change nothing.

        The learner calls it while actors start. An algorithm that leaves it out compiles with its first update.

        Args:
            batch: Its values mean nothing.
        """
        return

    @property
    def bootstrap(self) -> Bootstrap | None:
        """The ensemble for which the replay memory adds `bootstrap_masks` to batches; None: it adds none.

        Known after `build`.
        """
        return None

    def objective(self, networks: Networks) -> Objective | None:
        """Return the loss that `update` differentiates, for diagnostics; None if the algorithm does not provide it.

        It may depend on several networks, each moved only by its own terms.
        """
        del networks
        return None

    def add_coefficients(self, network: Copies) -> None:
        """Make the numbers of `parameters.live` variables of a network's steps; call it before a step is made."""
        self._coefficients = {
            name: network.online.add_coefficient(name, getattr(self.parameters, name)) for name in self.parameters.live
        }

    def coefficient(self, name: str) -> Tensor | float:
        """Return one of `parameters.live` as a variable of the step; before `build`, its configured value."""
        variable = self._coefficients.get(name)
        return float(getattr(self.parameters, name)) if variable is None else variable.value

    def steer(self, networks: Networks, context: AlgorithmContext) -> None:
        """Apply settings that operators changed, between two updates: the learning rate, and the coefficients.

        Args:
            context: The run's current settings. Only those of `config.live_settings` differ.
        """
        if context.network.optimizer_type != "LBFGS":
            for network in networks.values():
                network.set_learning_rate(context.network.learning_rate)
        for name, variable in self._coefficients.items():
            variable.assign(getattr(context.parameters, name))


class GradientAlgorithm(Algorithm):
    """An algorithm with one network, "main", and one gradient step per batch. A subclass states `heads` and `loss`.

    If actors ship gradients, actors and learner build the same network with a global copy. In an actor the global copy
    holds the published weights and the online copy acts. In the learner gradients move the global copy, and the online
    copy is published.

    Attributes:
        has_target: Whether there is a target copy, whose outputs the loss gets as `target/<name>`. The subclass moves
            it by `update_target_network`.
        distribution: Joint distribution of all actions that are drawn from one; known after `build`.
    """

    has_target: ClassVar[bool] = False
    distribution: JointDistribution
    _step: TrainStep | None = None
    _gradient_step: GradientStep | None = None

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
        ships_gradients, replay = self.parameters.ships == "gradients", self.parameters.replay_parameters
        network = Copies(
            self.context.network,
            spec,
            self.configured_heads(),
            has_target=self.has_target,
            has_global=ships_gradients,  # otherwise the learner alone contributes them
            name="main",
            seed=self.context.seed,
            reward_normalization=self.parameters.reward_normalization,
            burn_in_steps=0 if replay is None else replay.item.burn_in_steps,
        )
        self.add_coefficients(network)
        specs = network.online.actions
        self.distribution = JointDistribution(
            {action: spec for action, spec in specs.items() if not isinstance(spec, UndrawnFamily)}
        )
        if ships_gradients:
            self._gradient_step = GradientStep(network.online, self.loss)
        else:
            self._step = self.train_step(network)
        return {"main": network}

    def objective(self, networks: Networks) -> Objective | None:
        return networks["main"].objective(self.loss)

    def train_step(self, network: Copies) -> TrainStep:
        """Return the step of `update` on a batch of unrolls: one step by the gradient of `loss`."""
        return network.train_step(self.loss, self.context.replicas)

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

    def compile(self, networks: Networks, batch: Batch) -> None:
        """Compile the step for batches of this form."""
        if self._step is not None:
            self._step.compile(networks["main"].statistics.with_normal_rewards(batch))

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

    @property
    def _takes_mean(self) -> bool:
        """Whether gradients that are applied together are averaged instead of summed."""
        return not self.parameters.rounds or (
            self.context.network.scale_down_gradients_by_number_of_workers_for_sync_training
        )
