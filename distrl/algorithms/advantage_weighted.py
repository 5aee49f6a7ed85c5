"""Actor-critics whose policy imitates recorded actions, weighted by their advantages: AWAC and IQL.

Critics get continuous actions within bounds; the policy is of any distribution over these.
"""

from keras import ops

from distrl.algorithms.algorithm import Networks
from distrl.algorithms.maths.critic_losses import smallest
from distrl.algorithms.maths.offline import advantage_weights, expectile_loss, normalized_weights
from distrl.algorithms.off_policy import PolicyTerms, TargetedActorCritic
from distrl.algorithms.views import Rows, StepView
from distrl.config.algorithms.offline import AwacParameters, IqlParameters
from distrl.config.heads import HeadParameters, PolicyHeadParameters, ValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.actions.joint import JointDistribution
from distrl.networks.copies import Copies
from distrl.networks.framework.differentiation import Part
from distrl.types import EnvSpec


class AdvantageWeightedActorCritic(TargetedActorCritic):
    """Base of actor-critics with the policy's loss -mean(w log pi(a|o)), where w grows with the advantage of a."""

    heads = (PolicyHeadParameters(),)
    _distribution: JointDistribution

    def further_parts(self) -> list[Part]:
        self._distribution = JointDistribution(self.main.online.actions)
        return super().further_parts()

    def log_probability(self, view: StepView, taken: Rows) -> Tensor:
        """Return log pi of scaled actions, float32 [N], as densities in the environment's scale."""
        actions = {name: scale.inverse(taken[name]) for name, scale in self.scales.items()}
        return self._distribution.log_probability(view.outputs(self.main.online, {}, training=True), actions)


class Awac(AdvantageWeightedActorCritic):
    """The advantage is over the policy's own actions (Nair et al. 2020, algorithm 1 and equation 13):

        critics  y = r + gamma^k min Q'(o', a'), a' ~ pi
        policy   -mean(w log pi(a|o)),   w = exp(beta A) / mean exp(beta A)
        A        min Q(o, a) - min Q(o, a_pi), a_pi ~ pi

    As in the authors' code one action is drawn for V, and weights are divided by their mean over the batch.
    """

    Parameters = AwacParameters
    parameters: AwacParameters

    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return weighted log-probabilities, and the metric mean_advantage."""
        values, own = (smallest(self.held_values(view, actions)) for actions in (taken, self.draw(view)))
        advantages = ops.stop_gradient(values - own)
        weights = normalized_weights(advantages, view.valid, self.parameters.beta)
        return PolicyTerms(weights * self.log_probability(view, taken), metrics={"mean_advantage": advantages})

    def next_values(self, view: StepView) -> Tensor:
        """Return the smaller value of one action drawn from the policy."""
        return smallest(self.target_values(view, self.draw(view)))

    def draw(self, view: StepView) -> dict[str, Tensor]:
        """Draw actions [N, n] by name, scaled to [-1, 1] and clipped to that, as an environment clips them."""
        outputs = view.outputs(self.main.online, {}, training=True)
        drawn = self.scaled(self._distribution.sample(outputs, self.noise))
        return {name: ops.stop_gradient(ops.clip(rows, -1.0, 1.0)) for name, rows in drawn.items()}


class Iql(AdvantageWeightedActorCritic):
    """Implicit Q-learning: no action but recorded ones is ever valued (Kostrikov et al. 2021, equations 5 to 7).

        value    |tau - 1(u < 0)| u^2,   u = min Q'(o, a) - V(o)
        critics  y = r + gamma^k V(o')
        policy   -mean(min(exp(beta u), max_weight) log pi(a|o))

    All three move in one step, by the networks before it. V is a network of its own, "value", with the critics' layers.
    As in the authors' code (`policy.py`, `learner.py`) the policy is a Gaussian whose mean tanh keeps within the
    bounds, with a deviation that depends on no state. Another distribution can be configured.
    """

    Parameters = IqlParameters
    parameters: IqlParameters
    value: Copies

    def configured_heads(self) -> list[HeadParameters]:
        """Return the policy's head; `auto` is a bounded Gaussian."""
        (head,) = super().configured_heads()
        assert isinstance(head, PolicyHeadParameters)
        return [head.model_copy(update={"distribution": "bounded_gaussian"}) if head.distribution == "auto" else head]

    def further_networks(self, spec: EnvSpec) -> Networks:
        """Return the network of V."""
        self.value = Copies(
            self.critic_network(self.context.network),
            spec,
            (ValueHeadParameters(),),
            has_target=False,
            has_global=False,
            name="value",
            seed=self.context.seed,
        )
        return {"value": self.value}

    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return weighted log-probabilities, the value's loss, and metrics: value_loss, mean_advantage, mean_weight."""
        parameters = self.parameters
        errors = ops.stop_gradient(smallest(self.target_values(view, taken))) - self.state_values(view)
        weights = advantage_weights(errors, parameters.beta, parameters.max_weight)
        value_losses = expectile_loss(errors, parameters.expectile)
        metrics = {"value_loss": value_losses, "mean_advantage": errors, "mean_weight": weights}
        return PolicyTerms(weights * self.log_probability(view, taken), value_losses, metrics)

    def next_values(self, view: StepView) -> Tensor:
        """Return V of the next states."""
        return self.state_values(view)

    def state_values(self, view: StepView) -> Tensor:
        """Return V, float32 [N]."""
        return view.outputs(self.value.online, {}, training=True)["value"]
