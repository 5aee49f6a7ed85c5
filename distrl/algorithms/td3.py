"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477): a deterministic policy for continuous actions, and two critics.

The critics learn from the smaller value of both. TD3+BC is the same for recorded steps.
"""

from typing import ClassVar

import keras
from keras import ops

from distrl.algorithms.maths.critic_losses import smallest, smoothed_actions
from distrl.algorithms.maths.losses import masked_mean
from distrl.algorithms.off_policy import DeterministicActorCritic, PolicyTerms
from distrl.algorithms.views import Rows, StepView
from distrl.config.algorithms.off_policy import Td3Parameters, Td3Section
from distrl.config.algorithms.offline import Td3BcParameters
from distrl.networks.actions.family import Tensor


class Td3(DeterministicActorCritic):
    """Deterministic policy gradient with the paper's three remedies for overestimated values.

        critics  y = r + gamma^k min Q'(o', mu'(o') + noise), the noise clipped (target policy smoothing, section 5.3)
        policy   -mean Q_1(o, mu(o)), with every `policy_every_updates`-th update of the critics (section 5.2)

    Targets use the smaller value of both critics (section 4.2). All target copies move when the policy moves.
    """

    Parameters: ClassVar[type[Td3Section]] = Td3Parameters
    parameters: Td3Section

    @property
    def policy_period(self) -> int:
        return self.parameters.policy_every_updates

    def next_values(self, view: StepView) -> Tensor:
        """Return the smaller value of the target policy's actions, with noise."""
        parameters = self.parameters
        noisy = {
            name: smoothed_actions(
                rows,
                parameters.target_noise * keras.random.normal(ops.shape(rows), seed=self.noise),
                parameters.target_noise_clip,
            )
            for name, rows in self.target_actions(view).items()
        }
        return smallest(self.target_values(view, noisy))


class Td3Bc(Td3):
    """TD3 whose policy also stays near recorded actions (Fujimoto and Gu 2021, arXiv:2106.06860, equations 3 and 5):

        policy   -lambda mean Q_1(o, mu(o)) + mean (mu(o) - a)^2,   lambda = alpha / mean |Q_1(o, mu(o))|

    lambda is a constant to the gradient. Actions are scaled to [-1, 1], and the square is a mean over their numbers.
    """

    Parameters = Td3BcParameters
    parameters: Td3BcParameters

    def policy_terms(self, view: StepView, taken: Rows) -> PolicyTerms:
        """Return weighted values less squared distances, and metrics: imitation_loss, value_scale (lambda)."""
        actions = self.policy_actions(view)
        values = self.held_values(view, actions)[0]
        size = ops.maximum(masked_mean(ops.abs(values), view.valid), 1e-8)
        scale = ops.stop_gradient(self.parameters.value_weight / size)
        differences = ops.concatenate([actions[name] - taken[name] for name in actions], axis=-1)
        distances = ops.mean(ops.square(differences), axis=-1)
        return PolicyTerms(scale * values - distances, metrics={"imitation_loss": distances, "value_scale": scale})
