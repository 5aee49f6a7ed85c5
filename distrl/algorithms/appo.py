"""APPO: asynchronous PPO (Petrenko et al. 2020, arXiv:2006.11751): PPO's loss on slightly old unrolls.

Actors continue while the learner learns. The surrogate's ratio, to the policy that acted, corrects for the age of the
step itself; V-trace corrects for the age of the following steps, in targets and advantages.
"""

from distrl.algorithms.maths.returns import Returns, corrected_gae, step_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.ppo import Ppo
from distrl.config.algorithms.ppo import AppoParameters
from distrl.networks.actions.family import Tensor
from distrl.types import Batch


class Appo(Ppo):
    """PPO whose returns are corrected by V-trace, unless `correction: none`."""

    Parameters = AppoParameters
    parameters: AppoParameters

    def returns(self, values: Tensor, log_rhos: Tensor, batch: Batch) -> Returns:
        """Return value targets and advantages, corrected for the age of the policy; see `Ppo.returns`."""
        parameters = self.parameters
        if parameters.correction == "none":
            return super().returns(values, log_rhos, batch)
        return corrected_gae(
            values=values,
            rewards=learned_rewards(batch, parameters),
            discounts=step_discounts(batch.terminated, parameters.discount),
            valid=batch.valid,
            log_rhos=log_rhos,
            rho_bar=parameters.rho_bar,
            c_bar=parameters.c_bar,
            trace_lambda=parameters.gae_lambda,
        )
