"""NAF (Gu et al. 2016, arXiv:1603.00748): Q-learning of continuous actions by a normalised advantage function.

The value is quadratic in the action, so that the best action is an output of the network.
"""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.algorithm import PRIORITIES, GradientAlgorithm, Loss, Networks, Update
from distrl.algorithms.maths.critic_losses import critic_targets, weighted_mean
from distrl.algorithms.maths.returns import batch_discounts
from distrl.algorithms.maths.rewards import learned_rewards
from distrl.algorithms.off_policy import ActionScale
from distrl.config.algorithms.off_policy import NafParameters
from distrl.config.heads import NAFHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.heads.losses import huber, naf_value, squared_error
from distrl.networks.objective import TARGET
from distrl.types import Batch, BoxSpec, Contributions, EnvSpec


class Naf(GradientAlgorithm):
    """Q-learning with a target copy that follows with every update (algorithm 1):

        y = r + gamma^k V'(o'),   loss = mean((y - Q(o, a))^2 / 2)
        Q(o, a) = V(o) - (a - mu(o))^T L L^T (a - mu(o)) / 2

    V' is the target copy's value of its best action. Actions are scaled to [-1, 1], so that their unit does not matter.
    """

    Parameters = NafParameters
    parameters: NafParameters
    heads = (NAFHeadParameters(),)
    has_target = True
    _action: str
    _scale: ActionScale

    def build(self, spec: EnvSpec) -> Networks:
        """Build the network and its target copy.

        Raises:
            ConfigError: There are several actions, or one that is not continuous within bounds.
        """
        self.parameters.check_actions(spec)
        networks = super().build(spec)
        ((self._action, action),) = spec.actions.items()  # as the head says
        assert isinstance(action, BoxSpec)  # as `check_actions` says
        self._scale = ActionScale.of(action)
        return networks

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one gradient step; then the target copy moves towards the network."""
        update = super().update(networks, batch)
        if update.metrics["finite"]:
            networks["main"].update_target_network(self.parameters.target_update_rate)
        return update

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of transitions, T = 1.

        Args:
            outputs: "naf/value" float32 [2, N], "naf/mu" [2, N, n], "naf/lower" [2, N, n, n], and those of the target
                copy as "target/…".

        Returns:
            The head's loss; mean_value (of the actions taken), mean_target (of these), mean_td_error (absolute), and
            the priorities |y - Q|.
        """
        parameters, weights = self.parameters, batch.importance_weights
        targets = critic_targets(
            learned_rewards(batch, parameters)[0],
            batch_discounts(batch, parameters.discount)[0],
            outputs[f"{TARGET}naf/value"][1],
        )
        value, mu, lower = (outputs[f"naf/{part}"][0] for part in ("value", "mu", "lower"))
        values = naf_value(value, self._scale(mu), lower, self._scale(batch.actions[self._action][0]))
        errors = targets - values
        regression = huber if self.context.network.replace_mse_with_huber_loss else squared_error
        sizes = ops.abs(errors)
        metrics = {
            "mean_value": ops.mean(values),
            "mean_target": ops.mean(targets),
            "mean_td_error": ops.mean(sizes),
            PRIORITIES: sizes,
        }
        return Loss({"naf": weighted_mean(regression(errors), weights)}, metrics)
