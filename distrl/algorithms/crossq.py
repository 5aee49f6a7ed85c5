"""CrossQ (Bhatt et al. 2024, arXiv:1902.05605): a soft actor-critic without target copies.

Batch renormalisation takes their place, where actions of the batch and of the policy are normalised together.
"""

from keras import ops

from distrl import nest
from distrl.algorithms.maths.critic_losses import smallest, soft_value
from distrl.algorithms.sac import SoftActorCritic
from distrl.algorithms.views import Rows, RowView, StepView
from distrl.config.algorithms.off_policy import CrossqParameters
from distrl.config.layers import BatchRenormLayer, LayerParameters
from distrl.config.network import FCMiddlewareParameters, NetworkParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.parts.schemes import resolve
from distrl.networks.steps import held


class Crossq(SoftActorCritic):
    """SAC whose critics see (o, a) and (o', a') in one batch, by one set of weights (section 3):

        Q(o, a), Q(o', a') = critics of both halves, in training
        critics  y = r + gamma^k (min Q(o', a') - alpha log pi(a'|o')), a constant
        policy   as SAC's, with every `policy_every_updates`-th update, through critics in inference

    As in the authors' code a' is drawn by the policy in inference and is a constant of the loss, and the running
    moments of the critics are those of the joint batches alone. Those of the policy move with every update, before a'
    is drawn.
    """

    Parameters = CrossqParameters
    parameters: CrossqParameters

    @property
    def policy_period(self) -> int:
        return self.parameters.policy_every_updates

    def policy_network(self, network: NetworkParameters) -> NetworkParameters:
        return self._normalized(super().policy_network(network))

    def critic_network(self, network: NetworkParameters) -> NetworkParameters:
        return self._normalized(super().critic_network(network))

    def critic_values(self, before: StepView, taken: Rows, after: StepView) -> tuple[list[Tensor], Tensor]:
        """Return values of both halves of the joint batch; of the next states soft ones, each of one drawn action."""
        # Constants: by the joint batch's moments the critics' loss would otherwise move the policy.
        drawn, log_probabilities = nest.map(ops.stop_gradient, self.draw(after, training=False))
        assert isinstance(before, RowView)  # as the section's `check` says
        assert isinstance(after, RowView)
        both = RowView(
            ops.concatenate([before.valid, after.valid]),
            {name: ops.concatenate([rows, after.observations[name]]) for name, rows in before.observations.items()},
        )
        actions = {name: ops.concatenate([rows, drawn[name]]) for name, rows in taken.items()}
        joint = [ops.split(values, 2) for values in self.values(self.critic.online, both, actions, training=True)]
        next_values = soft_value(smallest([there for _, there in joint]), log_probabilities, self.temperature)
        return [here for here, _ in joint], next_values

    def held_values(self, view: StepView, scaled: Rows) -> list[Tensor]:
        """Return values of the online critics, held and by their running moments."""
        with held(self.critic.online):
            return self.values(self.critic.online, view, scaled)

    def _normalized(self, network: NetworkParameters) -> NetworkParameters:
        """Return the network with a normalisation before its middleware and after each of the middleware's layers."""
        normalization = BatchRenormLayer(
            momentum=self.parameters.batch_norm_momentum, warm_up_updates=self.parameters.batch_norm_warm_up_updates
        )
        middleware = network.middleware_parameters
        assert isinstance(middleware, FCMiddlewareParameters)  # as the section's `check` says
        scheme: list[LayerParameters] = [normalization]
        for layer in resolve(middleware.scheme, "middleware"):
            scheme += [layer, normalization]
        changed = middleware.model_copy(update={"scheme": tuple(scheme)})
        return network.model_copy(update={"middleware_parameters": changed})
