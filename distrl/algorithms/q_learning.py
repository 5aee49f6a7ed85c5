"""Q-learning from replay: what its algorithms share beside the temporal difference, which each states itself."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from distrl.algorithms.algorithm import PRIORITIES, GradientAlgorithm, Loss, Networks, Update
from distrl.algorithms.hooks import stated, stated_fields
from distrl.algorithms.maths.losses import masked_mean
from distrl.algorithms.maths.td_targets import item_priorities
from distrl.config.algorithms.q_learning import QLearningSection
from distrl.networks.actions.family import Tensor
from distrl.networks.actions.values import ValuesSpecs, valued
from distrl.networks.framework.backend import Outputs
from distrl.networks.objective import outputs_of
from distrl.networks.weights import to_numpy
from distrl.types import Batch, Contributions, EnvSpec, FloatArray

TD_LOSS = "td_loss"


class TemporalDifferences(NamedTuple):
    """The steps of a batch compared with the values of choices; all float32 [T, N], any number where not valid.

    Attributes:
        losses: Loss of each step, without importance weights; the only one with a gradient that counts.
        values: Q(o_t, a_t), of several choices their mean.
        errors: |y - Q(o_t, a_t)|.
        priorities: The sizes that prioritised replay follows.
        targets: y; of distributions the mean, of several choices or members their mean.
    """

    losses: Tensor
    values: Tensor
    errors: Tensor
    priorities: Tensor
    targets: Tensor


class QLearning(GradientAlgorithm):
    """Base of algorithms that learn the values of choices from a replay memory, with a target network.

        loss = mean of w l(o_t, a_t), l the `losses` of `temporal_differences` and `further_losses`

    w are the importance weights of prioritised replay (Schaul et al. 2016).

    Attributes:
        choices: Action -> where the values of its choices are; known after `build`.
    """

    parameters: QLearningSection
    has_target = True
    choices: dict[str, ValuesSpecs]
    _updates: int | None = None
    _td_loss: Outputs | None = None

    @abstractmethod
    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Compare the values of the choices made with those of what came after.

        Args:
            outputs: Outputs of the head, "<head>…" and "target/<head>…", float32 [T+1, N, …].
            batch: [T, N].
        """

    def further_losses(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return losses of each step beside the temporal difference's, float32 [T, N] by name; here none.

        Their means are added to the loss, and are metrics of these names. For the arguments see `temporal_differences`.
        """
        del outputs, batch
        return {}

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
            outputs: See `temporal_differences`.
            batch: [T, N].

        Returns:
            The head's loss; td_loss (the same without further losses), these by name, mean_q (of the choices made),
            mean_target (of these) and mean_td_error (absolute); with prioritised replay, the items' new priorities.
        """
        found = stated_fields(
            self, "temporal_differences", self.temporal_differences(outputs, batch), TemporalDifferences
        )
        for rows in found:
            stated(self, "temporal_differences", rows, batch.valid.shape)
        weights = 1.0 if batch.importance_weights is None else batch.importance_weights
        further = {
            name: masked_mean(weights * stated(self, "further_losses", rows, batch.valid.shape), batch.valid)
            for name, rows in self.further_losses(outputs, batch).items()
        }
        td_loss = masked_mean(weights * found.losses, batch.valid)
        metrics = {
            TD_LOSS: td_loss,
            **further,
            "mean_q": masked_mean(found.values, batch.valid),
            "mean_target": masked_mean(found.targets, batch.valid),
            "mean_td_error": masked_mean(found.errors, batch.valid),
        }
        if self.parameters.prioritized:
            metrics[PRIORITIES] = item_priorities(found.priorities, batch.valid)
        return Loss({self.heads[0].kind: sum(further.values(), td_loss)}, metrics)

    def td_loss(self, networks: Networks, batch: Batch) -> FloatArray:
        """Compute the loss of each transition, without importance weights; nothing is updated.

        Returns:
            float32 [N].
        """
        main = networks["main"]
        assert main.target is not None
        online, target = main.online, main.target

        def of_items(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
            found = self.temporal_differences(*outputs_of(online, batch, target, training=False))
            return 0.0, {TD_LOSS: found.losses[0]}

        if self._td_loss is None:
            self._td_loss = Outputs(of_items, [*online.model.variables, *target.model.variables])
        return self._td_loss(main.statistics.with_normal_rewards(batch))[TD_LOSS]
