"""DQN (Mnih et al. 2015) with its extensions: double, dueling, n steps, prioritised replay; and Ape-X.

The name apex selects Horgan et al. 2018, arXiv:1803.00933: the same loss with all extensions, and many actors that
explore differently and compute first priorities.
"""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.algorithm import PRIORITIES, GradientAlgorithm, Loss, Networks, Update
from distrl.algorithms.maths.losses import masked_mean
from distrl.algorithms.maths.returns import batch_discounts, n_step
from distrl.algorithms.maths.td_targets import chosen_values, greedy_values, item_priorities, mean_over_choices
from distrl.config.algorithms.q_learning import QLearningSection
from distrl.config.heads import DuelingQHeadParameters, HeadParameters, QHeadParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.actions.values import ValuesSpecs, choices_made, valued, values_of_choices
from distrl.networks.framework.backend import Outputs
from distrl.networks.heads.losses import huber
from distrl.networks.objective import TARGET, outputs_of
from distrl.networks.weights import to_numpy
from distrl.types import Batch, Contributions, EnvSpec, FloatArray

TD_LOSS = "td_loss"


class Dqn(GradientAlgorithm):
    """Q-learning from replay with a target network:

        y = sum_{i<n} gamma^i r_{t+i} + gamma^n (1 - terminated) Q_target(o_{t+n}, argmax_a Q(o_{t+n}, a))
        loss = mean of w (y - Q(o_t, a_t))^2

    With `double`, Q in the argmax is the online network's, else the target network's. w are the importance weights of
    prioritised replay (Schaul et al. 2016). With `network.replace_mse_with_huber_loss` the square is Huber's loss.
    """

    Parameters = QLearningSection
    parameters: QLearningSection
    has_target = True
    choices: dict[str, ValuesSpecs]
    _updates: int | None = None
    _td_loss: Outputs | None = None

    @property
    def heads(self) -> tuple[HeadParameters, ...]:
        return (DuelingQHeadParameters() if self.parameters.dueling else QHeadParameters(),)

    def build(self, spec: EnvSpec) -> Networks:
        """Build the Q-network and its target; raise ConfigError if they cannot serve the environment."""
        networks = super().build(spec)
        self.choices = valued(networks["main"].online.actions)
        return networks

    def update(self, networks: Networks, batch: Batch | Contributions) -> Update:
        """Make one gradient step, and move the target network if it is due."""
        main, parameters = networks["main"], self.parameters
        if self._updates is None:  # a resumed training goes on counting; the optimizer's count is in the checkpoint
            self._updates = int(to_numpy(main.optimizer.iterations))
        update = super().update(networks, batch)
        if update.metrics["finite"]:
            self._updates += 1
            if self._updates % parameters.target_update_every_updates == 0:
                main.update_target_network(parameters.target_update_rate)
        return update

    def loss(self, outputs: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Return the loss of transitions, T = 1, or of sequences.

        Args:
            outputs: The values of choices, "<head>/q…" and "target/<head>/q…", float32 [T+1, N, A].
            batch: [T, N].

        Returns:
            The head's loss; td_loss (the same), mean_q (of the choices made) and mean_td_error (absolute); with
            prioritised replay, the items' new priorities.
        """
        taken, errors = self._td_errors(outputs, batch)
        losses = self._losses(errors)
        weights = 1.0 if batch.importance_weights is None else batch.importance_weights
        loss = masked_mean(weights * losses, batch.valid)
        sizes = mean_over_choices([ops.abs(error) for error in errors])
        metrics = {
            TD_LOSS: loss,
            "mean_q": masked_mean(mean_over_choices(taken), batch.valid),
            "mean_td_error": masked_mean(sizes, batch.valid),
        }
        if self.parameters.prioritized:
            metrics[PRIORITIES] = item_priorities(sizes, batch.valid)
        return Loss({self.heads[0].kind: loss}, metrics)

    def td_loss(self, networks: Networks, batch: Batch) -> FloatArray:
        """Compute the loss of each item, without importance weights; nothing is updated.

        Returns:
            float32 [N].
        """
        main = networks["main"]
        assert main.target is not None
        online, target = main.online, main.target

        def of_items(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
            _, errors = self._td_errors(*outputs_of(online, batch, target, training=False))
            return 0.0, {TD_LOSS: self._losses(errors)[0]}

        if self._td_loss is None:
            self._td_loss = Outputs(of_items, [*online.model.variables, *target.model.variables])
        return self._td_loss(main.statistics.with_normal_rewards(batch))[TD_LOSS]

    def _td_errors(self, outputs: Mapping[str, Tensor], batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """Return Q(o_t, a_t) and y - Q(o_t, a_t) of every choice, float32 [T, N]; only the first has a gradient."""
        parameters = self.parameters
        online = values_of_choices(outputs, self.choices)
        slow = values_of_choices(outputs, self.choices, TARGET)
        choosing = online if parameters.double else slow
        best = [greedy_values(values, by) for values, by in zip(slow, choosing, strict=True)]
        returns = n_step(  # of a transition, whose reward holds n of them already, the one step that it is
            values=mean_over_choices(best),
            rewards=parameters.reward_scale * batch.rewards,
            discounts=batch_discounts(batch, parameters.discount),
            valid=batch.valid,
            steps=parameters.replay.item.n_step,
        )
        made = choices_made(batch.actions, self.choices)
        taken = [chosen_values(values[:-1], choices) for values, choices in zip(online, made, strict=True)]
        return taken, [returns.value_targets - values for values in taken]

    def _losses(self, errors: list[Tensor]) -> Tensor:
        """Return losses of errors, float32 [T, N]: the paper's square, without ½, or Huber's, with ½."""
        regression = huber if self.context.network.replace_mse_with_huber_loss else ops.square
        return mean_over_choices([regression(error) for error in errors])
