"""TD3 (Fujimoto et al. 2018, arXiv:1802.09477): a deterministic policy for continuous actions, and two critics.

The critics learn from the smaller value of both.
"""

import keras
from keras import ops

from distrl.algorithms.maths.critic_losses import smoothed_actions
from distrl.algorithms.off_policy import OffPolicyActorCritic, PolicyTerms, Rows
from distrl.config.algorithms.off_policy import Td3Parameters
from distrl.config.heads import DeterministicPolicyHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.assembly import Assembly


class Td3(OffPolicyActorCritic):
    """Deterministic policy gradient with the paper's three remedies for overestimated values.

        critics  y = r + gamma^k min Q'(o', mu'(o') + noise), the noise clipped (target policy smoothing, section 5.3)
        policy   -mean Q_1(o, mu(o)), with every `policy_every_updates`-th update of the critics (section 5.2)

    Targets use the smaller value of both critics (section 4.2). All target copies move when the policy moves.
    """

    Parameters = Td3Parameters
    parameters: Td3Parameters
    heads = (DeterministicPolicyHeadParameters(),)
    policy_has_target = True

    @property
    def policy_period(self) -> int:
        return self.parameters.policy_every_updates

    def policy_terms(self, observations: Rows) -> PolicyTerms:
        """Return the first critic's values of the policy's actions."""
        actions = self._actions(self.main.online, observations, training=True)
        return PolicyTerms(self.held_values(observations, actions)[0])

    def next_values(self, observations: Rows) -> Tensor:
        """Return the smaller value of the target policy's actions, with noise."""
        assert self.main.target is not None
        assert self.critic.target is not None
        parameters = self.parameters
        actions = self._actions(self.main.target, observations, training=False)
        noisy = {
            name: smoothed_actions(
                rows,
                parameters.target_noise * keras.random.normal(ops.shape(rows), seed=self.noise),
                parameters.target_noise_clip,
            )
            for name, rows in actions.items()
        }
        return ops.minimum(*self.values(self.critic.target, observations, noisy))

    def _actions(self, policy: Assembly, observations: Rows, *, training: bool) -> dict[str, Tensor]:
        """Return a copy's actions [N, n] by name, scaled to [-1, 1]."""
        outputs = policy.model(dict(observations), training=training)
        return self.scaled({action: outputs[policy.heads[0].name] for action in self.scales})  # there is one
