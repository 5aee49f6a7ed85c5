"""DQfD (Hester et al. 2018, arXiv:1704.03732): deep Q-learning that begins from demonstrations."""

from collections.abc import Mapping

from keras import ops

from distrl.algorithms.dqn import Dqn
from distrl.algorithms.maths.offline import margin_loss
from distrl.algorithms.maths.td_targets import mean_over_choices
from distrl.algorithms.q_learning import TemporalDifferences
from distrl.config.algorithms.offline import DqfdParameters
from distrl.networks.actions.family import Tensor
from distrl.types import DEMONSTRATIONS, Batch


class Dqfd(Dqn):
    """Double DQN over one and over n steps, and a margin by which demonstrated choices shall be better than others:

        loss = mean of w (J_1 + lambda_1 J_n + lambda_2 d J_E)
        J_E  = max_a (Q(o, a) + margin 1(a != a_E)) - Q(o, a_E)

    d is 1 for demonstrated steps, `Batch.extras["demonstrations"]`; without this extra nothing is a demonstration. The
    paper's fourth term is `network.l2_regularization`. Of single transitions J_1 is over `replay.item.n_step` steps.
    """

    Parameters = DqfdParameters
    parameters: DqfdParameters

    def temporal_differences(self, outputs: Mapping[str, Tensor], batch: Batch) -> TemporalDifferences:
        """Return the differences over one step. Demonstrations have the bonus in their priorities."""
        found = self._differences(outputs, batch, n_step=1)
        if DEMONSTRATIONS not in batch.extras:
            return found
        bonus = self.parameters.demonstration_bonus * batch.extras[DEMONSTRATIONS]
        return found._replace(priorities=found.priorities + bonus)

    def further_losses(self, outputs: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return weighted losses: n_step_loss, and margin_loss if the batch says what is a demonstration."""
        parameters, further = self.parameters, {}
        if parameters.n_step_weight:
            several = self._differences(outputs, batch, parameters.replay.item.n_step)
            further["n_step_loss"] = parameters.n_step_weight * several.losses
        if DEMONSTRATIONS in batch.extras:
            values, made = self.choice_values(outputs), self.choices_made(batch)
            margins = [
                margin_loss(rows[:-1], choices, parameters.margin) for rows, choices in zip(values, made, strict=True)
            ]
            marks = ops.cast(batch.extras[DEMONSTRATIONS], "float32")
            further["margin_loss"] = parameters.margin_weight * marks * mean_over_choices(margins)
        return further
