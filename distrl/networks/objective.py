"""The scalar that training minimises: every head's loss times its weight, plus regularisation.

The algorithm gives one loss per head, over unrolls.
"""

from collections.abc import Callable, Mapping

from keras import ops

from distrl import nest
from distrl.networks.actions.family import Tensor
from distrl.networks.framework.differentiation import LossFunction
from distrl.networks.network import Network
from distrl.types import Batch

UnrollLoss = Callable[[dict[str, Tensor], Batch], tuple[Mapping[str, Tensor], dict[str, Tensor]]]
"""(outputs: name -> [T+1, N, ...], batch [T, N]) -> (head name -> scalar loss, name -> scalar metric)."""


TARGET = "target/"
"""Prefix of the names of the target copy's outputs."""


def outputs_of(
    network: Network, batch: Batch, target: Network | None, *, training: bool, burn_in_steps: int = 0
) -> tuple[dict[str, Tensor], Batch]:
    """Return the heads' outputs for every row, [T+1, N, ...], with the target copy's under `TARGET`, and these rows.

    Args:
        training: As for `Network.unroll`. The target copy is never in training, and its outputs have no gradient.
        burn_in_steps: Rows at the start that only bring the stored recurrent state up to date, by each copy's own
            weights and without a gradient (Kapturowski et al. 2019, section 3). Outputs and batch are without them.
    """
    trained = after_rows(batch, burn_in_steps)

    def unrolled(copy: Network, *, training: bool) -> dict[str, Tensor]:
        state = batch.recurrent_state
        if burn_in_steps:
            first = {name: rows[:burn_in_steps] for name, rows in batch.observations.items()}
            state = copy.state_after(first, state, batch.valid[:burn_in_steps])
        return copy.unroll(trained.observations, state, trained.valid, training=training)

    outputs = unrolled(network, training=training)
    if target is not None:
        slow = unrolled(target, training=False)
        outputs |= {f"{TARGET}{name}": ops.stop_gradient(output) for name, output in slow.items()}
    return outputs, trained


def after_rows(batch: Batch, rows: int) -> Batch:
    """Return a batch without its first rows; the recurrent state before the row that is first then is not known."""
    if not rows:
        return batch
    bare = batch._replace(recurrent_state={}, reward_moments={}, importance_weights=None)
    rest: Batch = nest.map(lambda array: array[rows:], bare)
    return rest._replace(reward_moments=batch.reward_moments, importance_weights=batch.importance_weights)


def over_unrolls(
    network: Network, loss: UnrollLoss, target: Network | None = None, burn_in_steps: int = 0
) -> LossFunction:
    """Return the objective of a batch of unrolls.

    Args:
        target, burn_in_steps: See `outputs_of`; `loss` sees nothing of the burn-in.

    Raises:
        KeyError: While tracing, if `loss` names an unknown head or omits one.
    """

    def objective(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        terms, metrics = loss(*outputs_of(network, batch, target, training=True, burn_in_steps=burn_in_steps))
        return weighted_sum(network, terms), metrics

    return objective


def weighted_sum(network: Network, terms: Mapping[str, Tensor]) -> Tensor:
    """Return every head's loss times its weight, plus regularisation, as a scalar.

    Args:
        terms: Head name -> scalar loss.

    Raises:
        KeyError: `terms` names an unknown head or omits one.
    """
    weights = {head.name: head.parameters.loss_weight for head in network.heads}
    if terms.keys() != weights.keys():
        raise KeyError(f"the loss is of heads {sorted(terms)}, the network has {sorted(weights)}")
    total = sum(weights[name] * term for name, term in terms.items())
    for term in regularization(network):
        total = total + term
    return total


def regularization(network: Network) -> list[Tensor]:
    """Return ``l2_regularization`` times half the sum of squares of trainable weights, then the layers' own terms."""
    terms = []
    strength = network.parameters.l2_regularization
    if strength > 0.0:
        squares = sum(ops.sum(ops.square(variable.value)) for variable in network.model.trainable_variables)
        terms.append(0.5 * strength * squares)
    return [*terms, *network.model.losses]
