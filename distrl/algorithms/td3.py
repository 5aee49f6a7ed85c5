"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477): a deterministic policy for continuous actions, and two critics.

The critics learn from the smaller value of both.
"""

from typing import ClassVar

import keras
from keras import ops

from distrl.algorithms.maths.critic_losses import smallest, smoothed_actions
from distrl.algorithms.off_policy import DeterministicActorCritic
from distrl.algorithms.views import StepView
from distrl.config.algorithms.off_policy import Td3Parameters, Td3Section
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
