"""TQC (Kuznetsov et al. 2020, arXiv:2005.04269): truncated quantile critics, a soft actor-critic.

Critics learn the distribution of returns; the largest of their atoms are left out of the targets.
"""

from collections.abc import Sequence

from keras import ops

from distrl.algorithms.maths.critic_losses import expected, soft_value, truncated_mixture
from distrl.algorithms.off_policy import TargetedActorCritic
from distrl.algorithms.sac import SoftActorCritic
from distrl.algorithms.views import StepView
from distrl.config.algorithms.off_policy import TqcParameters
from distrl.config.heads import HeadParameters, QuantileQValueHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.losses import quantile_regression


class Tqc(TargetedActorCritic, SoftActorCritic):
    """N critics of M quantiles theta each, and targets from the kN smallest of all NM quantiles left.

    critics  y_j = r + gamma^k (z_j(o', a') - alpha log pi(a'|o')), z the `truncated_mixture` of the target critics
             loss of each: 1/M sum over its quantiles of the mean over j of Huber's quantile loss
    policy   mean(alpha log pi(a|o) - mean of all quantiles), none of them dropped
    """

    Parameters = TqcParameters
    parameters: TqcParameters

    @property
    def critic_head(self) -> HeadParameters:
        parameters = self.parameters
        return QuantileQValueHeadParameters(quantiles=parameters.quantiles, num_output_head_copies=parameters.critics)

    def next_values(self, view: StepView) -> Tensor:
        """Return the atoms of the truncated mixture with their share of the entropy: float32 [N, atoms]."""
        actions, log_probabilities = self.draw(view)
        atoms = self.target_values(view, actions)
        mixture = truncated_mixture(atoms, self.parameters.dropped_quantiles)
        return soft_value(mixture, log_probabilities, self.temperature)

    def critic_loss(self, values: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over quantiles [N, M] of their loss towards atoms [N, kN]: float32 [N]."""
        return quantile_regression(values, targets) / self.parameters.quantiles

    def worth(self, values: Sequence[Tensor]) -> Tensor:
        return expected(ops.concatenate(values, axis=-1))
