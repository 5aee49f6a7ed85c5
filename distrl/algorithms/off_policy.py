"""Actor-critics from a replay memory: a policy and its critics with target copies, moved by one compiled step."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from distrl.algorithms.algorithm import PRIORITIES, Algorithm, Networks, Update
from distrl.algorithms.hooks import stated, stated_fields
from distrl.algorithms.maths.critic_losses import critic_targets, expected
from distrl.algorithms.maths.losses import masked_mean
from distrl.algorithms.maths.returns import batch_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.maths.td_targets import item_priorities
from distrl.algorithms.views import Rows, StepView, by_step, steps_of
from distrl.config.algorithms import AlgorithmContext
from distrl.config.algorithms.off_policy import CriticsSection, TargetsSection
from distrl.config.heads import DeterministicPolicyHeadParameters, HeadParameters, QValueHeadParameters
from distrl.config.network import GRUMiddlewareParameters, LSTMMiddlewareParameters, NetworkParameters
from distrl.errors import ConfigError
from distrl.networks.actions.family import Tensor
from distrl.networks.copies import Copies
from distrl.networks.framework.differentiation import Objective, Part
from distrl.networks.heads.losses import huber, squared_error
from distrl.networks.network import Network, action_input
from distrl.networks.objective import regularization
from distrl.networks.steps import Step, held
from distrl.types import Batch, BoxSpec, Contributions, EnvSpec, FloatArray


@dataclass(frozen=True)
class ActionScale:
    """Maps one action from the environment's scale to [-1, 1]; both arrays are float32 [n]."""

    middle: FloatArray
    half_width: FloatArray

    @classmethod
    def of(cls, action: BoxSpec) -> Self:
        """Return the scale of an action within bounds."""
        low, high = np.array(action.low, np.float64), np.array(action.high, np.float64)
        return cls((0.5 * (low + high)).astype(np.float32), (0.5 * (high - low)).astype(np.float32))

    def __call__(self, actions: Tensor) -> Tensor:
        """Scale actions, float32 [..., n]."""
        return (actions - self.middle) / self.half_width

    def inverse(self, scaled: Tensor) -> Tensor:
        """Return scaled actions in the environment's scale, float32 [..., n]."""
        return scaled * self.half_width + self.middle


def action_scales(spec: EnvSpec, algorithm: str) -> dict[str, ActionScale]:
    """Return the scale of every action, each a box within bounds.

    Raises:
        ConfigError: An action has the name of an observation.
    """
    scales = {}
    for name, action in spec.actions.items():
        assert isinstance(action, BoxSpec)  # as the section's `check_actions` says
        if (given := action_input(name)) in spec.observations:
            raise ConfigError(
                f"algorithm {algorithm}: action {name!r} of {spec.id} and an observation are both called {given!r}; "
                "rename one of them"
            )
        scales[name] = ActionScale.of(action)
    return scales


class PolicyTerms(NamedTuple):
    """Terms of the policy's loss at some observations.

    Attributes:
        worth: float32 [N]. Value of the policy's actions; the policy's loss is minus its mean.
        further: float32 [N]. Added to the loss for variables that are trained beside the networks; None: nothing.
        metrics: Name -> scalar, or float32 [N], whose mean is meant.
    """

    worth: Tensor
    further: Tensor | None = None
    metrics: Mapping[str, Tensor] = {}


class CriticTerms(NamedTuple):
    """Terms of the critics' loss beside their errors.

    Attributes:
        penalty: float32 [N]. Added to the loss of the critics, all together.
        further, metrics: As of `PolicyTerms`.
    """

    penalty: Tensor
    further: Tensor | None = None
    metrics: Mapping[str, Tensor] = {}


class OffPolicyActorCritic(Algorithm):
    """Base of actor-critics from replay: policy and critics learn in one compiled step, with an optimizer each.

        critics  sum over i of mean(`critic_loss`(Q_i(o, a), y)), y = r + gamma^k V(o'); Q and V: `critic_values`;
                 and the mean of a penalty, if the algorithm has one: `critic_terms`
        policy   -mean(`policy_terms`(o)), through critics that are held

    Each loss moves only its own variables. "main" is the policy, which actors run. "critic" holds all critics, separate
    networks with the structure of the section `network`, and their target copy. Critics get actions scaled to [-1, 1],
    so that the unit of the actions does not matter.

    Attributes:
        heads: The policy's heads, unless the configuration has one of the same kind.
        policy_has_target: Whether the policy has a target copy too.
        main, critic, scales, noise: Made by `build`; `noise` is the random generator of the losses.
    """

    Parameters: ClassVar[type[CriticsSection]] = CriticsSection
    heads: ClassVar[tuple[HeadParameters, ...]]
    policy_has_target: ClassVar[bool] = False
    parameters: CriticsSection
    main: Copies
    critic: Copies
    scales: dict[str, ActionScale]
    noise: keras.random.SeedGenerator

    _networks: Networks
    _step: Step | None = None
    _states: list[object]

    @property
    def critic_head(self) -> HeadParameters:
        """Head of the critics; `num_output_head_copies` is their number."""
        return QValueHeadParameters(num_output_head_copies=2)

    @property
    def policy_period(self) -> int:
        """Policy and target copies move with every so manyth update of the critics."""
        return 1

    @abstractmethod
    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return the value of the policy's own actions, by critics that are `held`.

        Args:
            view: M observations.
            taken: The actions taken at these, scaled, [M, ...] by name.
        """

    @abstractmethod
    def critic_values(self, before: StepView, taken: Rows, after: StepView) -> tuple[list[Tensor], Tensor]:
        """Return what the critics learn from, by the online critics and by the critics that targets come from.

        Args:
            before, after: Observations before and after N steps.
            taken: Their actions, scaled, [N, ...] by name.

        Returns:
            Every critic's values of the actions taken, float32 [N] each; and the values of the next states, float32
            [N]. For distributions: [N, M] atoms each, and [N, K] samples.
        """

    def critic_terms(
        self, before: StepView, taken: Rows, after: StepView, values: Sequence[Tensor]
    ) -> CriticTerms | None:
        """Return what the critics' loss has beside their errors; here nothing.

        Args:
            before, taken, after: See `critic_values`.
            values: Every critic's values of the actions taken.
        """
        del before, taken, after, values
        return None

    def build(self, spec: EnvSpec) -> Networks:
        """Build the policy, and the critics with a target copy if the section has a rate for it.

        Raises:
            ConfigError: An action is not continuous within bounds, or `network` does not fit the algorithm.
        """
        self.parameters.check_actions(spec)
        self.scales = self.scales_of(spec)
        network, seed = self.context.network, self.context.seed
        self.main = Copies(
            self.policy_network(network),
            spec,
            self.configured_heads(),
            has_target=self.policy_has_target,
            has_global=False,
            name="main",
            seed=seed,
        )
        self.critic = Copies(
            self.critic_network(network),
            spec,
            (self._configured_critic_head(),),
            has_target=isinstance(self.parameters, TargetsSection),
            has_global=False,
            name="critic",
            seed=seed,
        )
        others = self.further_networks(spec)
        self._networks = {"main": self.main, "critic": self.critic, **others}
        self.add_coefficients(self.main)
        self.noise = keras.random.SeedGenerator(seed)
        self.main.beside = {"noise": {"state": self.noise.state}}
        further = self.further_parts()
        parts = [self.main.part(self.policy_period), self.critic.part(), *(each.part() for each in others.values())]
        states = [state for network in self._networks.values() for state in network.step_states]
        count = self.critic.optimizer.iterations
        self._step = Step(
            self.loss, [*parts, *further], [*states, self.noise.state], [count], replicas=self.context.replicas
        )
        trained_beside = [variable for part in further for variable in part.trainable]
        self._states = [*states, self.noise.state, count, *trained_beside]
        return self._networks

    def scales_of(self, spec: EnvSpec) -> dict[str, ActionScale]:
        """Return the scales in which critics get actions; ConfigError if they cannot get them."""
        return action_scales(spec, self.parameters.name)

    def further_networks(self, spec: EnvSpec) -> Networks:
        """Return networks beside policy and critics, which learn by the terms called `further`; here none."""
        del spec
        return {}

    def policy_network(self, network: NetworkParameters) -> NetworkParameters:
        """Return the structure and the optimizer of the policy: those of the section `network`."""
        return network

    def critic_network(self, network: NetworkParameters) -> NetworkParameters:
        """Return the structure of every critic and their optimizer."""
        rate = self.parameters.critic_learning_rate or network.learning_rate
        changed: dict[str, object] = {"use_separate_networks_per_head": True, "learning_rate": rate}
        if self.parameters.critic_layers is not None and not network.has_memory:
            layers = {"scheme": self.parameters.critic_layers}
            changed["middleware_parameters"] = network.middleware_parameters.model_copy(update=layers)
        return network.model_copy(update=changed)

    def _configured_critic_head(self) -> HeadParameters:
        """Return the critics' head; behind memory it has layers of its own, as only there the action comes in."""
        head, middleware = self.critic_head, self.context.network.middleware_parameters
        if isinstance(middleware, LSTMMiddlewareParameters):
            width = middleware.number_of_lstm_cells
        elif isinstance(middleware, GRUMiddlewareParameters):
            width = middleware.number_of_gru_cells
        else:
            return head
        return head.model_copy(update={"units": self.parameters.critic_layers or (width,)})

    def further_parts(self) -> list[Part]:
        """Return variables that are trained beside the networks; `build` calls this once it has made them."""
        return []

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Move the target copies, then all that learns, in one compiled step: hops 7 to 9.

        Args:
            batch: Transitions of a replay memory, T = 1, or sequences.
        """
        if self._step is None:
            raise RuntimeError("update was called before build")
        assert isinstance(batch, Batch)  # as `parameters.ships` says
        metrics = self._step(batch)
        priorities = metrics.pop(PRIORITIES)
        # After the step, which uses the actors' statistics. The next version normalises by all rows so far.
        if metrics["finite"]:
            for network in networks.values():
                network.statistics.observe(batch)
        return Update(metrics, priorities)

    def compile(self, networks: Networks, batch: Batch) -> None:
        """Compile the step for batches of this form."""
        if self._step is None:
            raise RuntimeError("compile was called before build")
        self._step.compile(batch)

    def objective(self, networks: Networks) -> Objective | None:
        return Objective(self.loss, self._states)

    def steer(self, networks: Networks, context: AlgorithmContext) -> None:
        """Set the learning rate of every optimizer that has none of its own, and the coefficients."""
        super().steer(networks, context)
        if self.parameters.critic_learning_rate is not None:
            for name in self._networks.keys() - {"main"}:
                networks[name].set_learning_rate(self.parameters.critic_learning_rate)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of all losses, which `Step` differentiates by the variables of each.

        Returns:
            The sum, and policy_loss, critic_loss, those of `policy_terms` and `critic_terms`, mean_value (of the first
            critic), mean_target, mean_td_error (absolute), of each of several critics mean_q_<i> and mean_td_error_<i>,
            i from 1, and the priorities: the mean of |y - Q_i| over the critics, of sequences as `item_priorities`.
        """
        parameters = self.parameters
        self._follow()
        acting = [copy for copy in (self.main.online, self.main.target) if copy is not None]
        steps, before, after = steps_of(batch, parameters.replay.item.burn_in_steps, acting)
        taken = self.scaled({name: by_step(rows) for name, rows in steps.actions.items()})
        terms = stated_fields(self, "policy_terms", self.policy_terms(before, taken), PolicyTerms)
        rows = (steps.valid.shape[0] * steps.valid.shape[1],)
        worth, metrics = stated(self, "policy_terms", terms.worth, rows), terms.metrics
        values, next_values = self.critic_values(before, taken, after)
        targets = critic_targets(
            by_step(learned_rewards(steps, parameters)),
            by_step(batch_discounts(steps, parameters.discount)),
            next_values,
        )
        weights = 1.0 if steps.importance_weights is None else steps.importance_weights

        def mean(rows: Tensor, weights: Tensor | float = 1.0) -> Tensor:
            return masked_mean(weights * ops.reshape(rows, steps.valid.shape), steps.valid)

        policy_loss = -mean(worth, weights)
        critic_loss = sum(
            mean(stated(self, "critic_loss", self.critic_loss(value, targets), rows), weights) for value in values
        )
        further = [terms.further]
        if (beside := self.critic_terms(before, taken, after, values)) is not None:
            critic_loss = critic_loss + mean(stated(self, "critic_terms", beside.penalty, rows), weights)
            further, metrics = [*further, beside.further], {**metrics, **beside.metrics}
        total = self.main.online.heads[0].parameters.loss_weight * policy_loss + critic_loss
        total = sum((mean(term, weights) for term in further if term is not None), total)
        for network in self._networks.values():
            total = sum(regularization(network.online), total)
        metrics = {**metrics, **_of_critics(values, targets)}
        errors = ops.reshape(metrics["mean_td_error"], steps.valid.shape)
        return total, {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            **{name: mean(value) if len(value.shape) else value for name, value in metrics.items()},
            PRIORITIES: item_priorities(errors, steps.valid),
        }

    def critic_loss(self, values: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of one critic, float32 [N]: half the squared error, or Huber's."""
        regression = huber if self.critic.parameters.replace_mse_with_huber_loss else squared_error
        return regression(targets - values)

    def scaled(self, actions: Rows) -> dict[str, Tensor]:
        """Scale actions [N, n] from the environment's bounds to [-1, 1]."""
        return {name: scale(actions[name]) for name, scale in self.scales.items()}

    def values(self, critics: Network, view: StepView, scaled: Rows, *, training: bool = False) -> list[Tensor]:
        """Return the output of every critic for actions that `scaled` returned: float32 [N, ...] each."""
        outputs = view.outputs(critics, {action_input(name): rows for name, rows in scaled.items()}, training=training)
        return [outputs[name] for name in critics.outputs]

    def held_values(self, view: StepView, scaled: Rows) -> list[Tensor]:
        """Return `values` of the online critics, whose gradient reaches only the actions."""
        with held(self.critic.online):
            return self.values(self.critic.online, view, scaled, training=True)

    def _follow(self) -> None:
        """Move the target copies towards the networks after the last update, inside this compiled step."""
        if not isinstance(self.parameters, TargetsSection):
            return
        rate: Tensor | float = self.parameters.target_update_rate
        if self.policy_period > 1:
            due = self.critic.optimizer.iterations.value % self.policy_period == 0
            rate = ops.where(due, rate, 0.0)
        for network in (self.main, self.critic):
            if network.target is not None:
                network.follow(rate)


class TargetedActorCritic(OffPolicyActorCritic):
    """Base of actor-critics whose targets come from the target copies; the section has their rate."""

    @abstractmethod
    def next_values(self, view: StepView) -> Tensor:
        """Return the values of the next states: float32 [N], or [N, K] samples of the distribution of each."""

    def critic_values(self, before: StepView, taken: Rows, after: StepView) -> tuple[list[Tensor], Tensor]:
        next_values = self.next_values(after)
        values = self.values(self.critic.online, before, taken, training=True)
        rows, *samples = values[0].shape  # the numbers of samples may differ
        return values, stated(self, "next_values", next_values, (rows, *(None for _ in samples)))

    def target_values(self, view: StepView, scaled: Rows) -> list[Tensor]:
        """Return `values` of the target critics."""
        assert self.critic.target is not None
        return self.values(self.critic.target, view, scaled)


class DeterministicActorCritic(TargetedActorCritic):
    """Base of actor-critics whose policy mu is deterministic and climbs the first critic: -mean Q_1(o, mu(o)).

    The gradient of that loss is the deterministic policy gradient (Silver et al. 2014, equation 9).
    """

    heads = (DeterministicPolicyHeadParameters(),)
    policy_has_target = True

    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return the first critic's values of the policy's actions."""
        del taken
        return PolicyTerms(self.held_values(view, self.policy_actions(view))[0])

    def policy_actions(self, view: StepView) -> dict[str, Tensor]:
        """Return the policy's actions [N, n] by name, scaled to [-1, 1]."""
        return self._actions(self.main.online, view, training=True)

    def target_actions(self, view: StepView) -> dict[str, Tensor]:
        """Return the target policy's actions [N, n] by name, scaled to [-1, 1]."""
        assert self.main.target is not None
        return self._actions(self.main.target, view, training=False)

    def _actions(self, policy: Network, view: StepView, *, training: bool) -> dict[str, Tensor]:
        outputs = view.outputs(policy, {}, training=training)
        return self.scaled({action: outputs[policy.heads[0].name] for action in self.scales})  # there is one


def _of_critics(values: list[Tensor], targets: Tensor) -> dict[str, Tensor]:
    """Return metrics of the critics' values of the actions taken, float32 [N] each; see `OffPolicyActorCritic.loss`."""
    means, wanted = [expected(value) for value in values], expected(targets)
    errors = [ops.abs(wanted - mean) for mean in means]
    metrics = {"mean_value": means[0], "mean_target": wanted, "mean_td_error": sum(errors) / len(errors)}
    if len(values) > 1:
        for number, (mean, error) in enumerate(zip(means, errors, strict=True), 1):
            metrics |= {f"mean_q_{number}": mean, f"mean_td_error_{number}": error}
    return metrics
