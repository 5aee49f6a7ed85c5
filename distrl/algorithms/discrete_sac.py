"""SAC for one discrete action (Christodoulou 2019, arXiv:1910.07207): expectations over all choices, without a draw."""

from keras import ops

from distrl.algorithms.maths.critic_losses import expected_soft_value, smallest, temperature_loss
from distrl.algorithms.maths.td_targets import chosen_values
from distrl.algorithms.off_policy import ActionScale, PolicyTerms, TargetedActorCritic
from distrl.algorithms.sac import EntropyActorCritic
from distrl.algorithms.views import Rows, StepView
from distrl.config.algorithms.off_policy import ENTROPY_SHARE, DiscreteSacParameters
from distrl.config.heads import HeadParameters, PolicyHeadParameters, QHeadParameters
from distrl.networks.actions.family import MASKED, Tensor, policy_output
from distrl.networks.network import Network
from distrl.networks.steps import held
from distrl.types import EnvSpec


class DiscreteSac(TargetedActorCritic, EntropyActorCritic):
    """A softmax policy, two critics with a value for each choice, and a temperature alpha.

        critics      y = r + gamma^k sum_a' pi(a'|o') (min Q'(o', a') - alpha log pi(a'|o'))
        policy       mean(sum_a pi(a|o) (alpha log pi(a|o) - min Q(o, a)))
        temperature  mean(alpha (H(pi(.|o)) - target entropy)), by the logarithm of alpha

    (algorithm 1). A choice that a mask forbids has no part in them. The target entropy counts allowed choices alone.
    """

    Parameters = DiscreteSacParameters
    parameters: DiscreteSacParameters
    heads = (PolicyHeadParameters(),)
    _action: str

    @property
    def critic_head(self) -> HeadParameters:
        return QHeadParameters(num_output_head_copies=2)

    def scales_of(self, spec: EnvSpec) -> dict[str, ActionScale]:
        """Return none: critics have a value for each choice, and get no action."""
        (self._action,) = spec.actions  # as the section's `check_actions` says
        return {}

    def scaled(self, actions: Rows) -> dict[str, Tensor]:
        """Return choices as they are."""
        return dict(actions)

    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return soft values of the states, the temperature's loss, and metrics: temperature, entropy (nats)."""
        del taken
        temperature, logits = self.temperature, self._logits(view)
        log_probabilities = ops.log_softmax(logits, axis=-1)
        with held(self.critic.online):
            values = smallest(self.all_values(self.critic.online, view, training=True))
        entropies = -ops.sum(ops.exp(log_probabilities) * log_probabilities, axis=-1)
        return PolicyTerms(
            expected_soft_value(values, log_probabilities, ops.stop_gradient(temperature)),
            temperature_loss(temperature, -entropies, self._target_entropies(logits)),
            {"temperature": temperature, "entropy": entropies},
        )

    def next_values(self, view: StepView) -> Tensor:
        """Return soft values of the states, by the target critics."""
        assert self.critic.target is not None
        log_probabilities = ops.log_softmax(self._logits(view), axis=-1)
        values = smallest(self.all_values(self.critic.target, view))
        return expected_soft_value(values, log_probabilities, self.temperature)

    def values(self, critics: Network, view: StepView, scaled: Rows, *, training: bool = False) -> list[Tensor]:
        """Return every critic's values of the choices made, float32 [N] each."""
        made = scaled[self._action]
        return [chosen_values(values, made) for values in self.all_values(critics, view, training=training)]

    def all_values(self, critics: Network, view: StepView, *, training: bool = False) -> list[Tensor]:
        """Return every critic's values of all choices, float32 [N, A] each."""
        outputs = view.outputs(critics, {}, training=training)
        return [outputs[f"{head.name}/q"] for head in critics.heads]

    def _logits(self, view: StepView) -> Tensor:
        """Return the policy's logits, float32 [N, A]."""
        return view.outputs(self.main.online, {}, training=True)[policy_output(self._action)]

    def _target_entropies(self, logits: Tensor) -> Tensor | float:
        """Return the target of all states, or of each by its number of allowed choices, float32 [N]."""
        if self.parameters.target_entropy is not None:
            return self.parameters.target_entropy
        allowed = ops.sum(ops.cast(logits > -0.5 * MASKED, "float32"), axis=-1)
        return ENTROPY_SHARE * ops.log(ops.maximum(allowed, 1.0))
