"""DDPG (Lillicrap et al. 2016, arXiv:1509.02971): a deterministic policy for continuous actions, and one critic."""

from distrl.algorithms.off_policy import DeterministicActorCritic
from distrl.algorithms.views import StepView
from distrl.config.algorithms.off_policy import DdpgParameters
from distrl.config.heads import QValueHeadParameters
from distrl.networks.actions.family import Tensor


class Ddpg(DeterministicActorCritic):
    """Deep deterministic policy gradient (algorithm 1).

        critic  y = r + gamma^k Q'(o', mu'(o'))
        policy  -mean Q(o, mu(o)), with every update

    Q' and mu' are target copies, which follow with every update.
    """

    Parameters = DdpgParameters
    parameters: DdpgParameters
    critic_head = QValueHeadParameters()

    def next_values(self, view: StepView) -> Tensor:
        """Return the target critic's values of the target policy's actions."""
        (values,) = self.target_values(view, self.target_actions(view))
        return values
