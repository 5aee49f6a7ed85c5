"""What a network's gradient is taken of: every head's loss times its weight, and then regularisation.

The same sum serves the learner's compiled step, whose algorithm states one loss per head over unrolls, and Coach's
methods, where every head has a loss of its own over single rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras import ops

from distrl.config.network import NetworkParameters
from distrl.networks.actions.family import Tensor
from distrl.networks.assembly import Assembly
from distrl.networks.framework.differentiation import LossFunction
from distrl.types import Batch

UnrollLoss = Callable[[dict[str, Tensor], Batch], tuple[Mapping[str, Tensor], dict[str, Tensor]]]
"""(outputs: name -> [T+1, N, ...], batch [T, N]) -> (head name -> scalar loss, name -> scalar metric)."""


TARGET = "target/"
"""What names of the target copy's outputs begin with."""


def outputs_of(assembly: Assembly, batch: Batch, target: Assembly | None, *, training: bool) -> dict[str, Tensor]:
    """What a loss sees: the heads' outputs for every row, [T+1, N, ...], and the target copy's under `TARGET`.

    Args:
        training: As of `Assembly.unroll`; the target copy is never in training, and its outputs have no gradient.
    """
    rows = (batch.observations, batch.recurrent_state, batch.valid)
    outputs = assembly.unroll(*rows, training=training)
    if target is not None:
        slow = target.unroll(*rows, training=False)
        outputs |= {f"{TARGET}{name}": ops.stop_gradient(output) for name, output in slow.items()}
    return outputs


def over_unrolls(
    assembly: Assembly, parameters: NetworkParameters, loss: UnrollLoss, target: Assembly | None = None
) -> LossFunction:
    """The objective of a batch of unrolls.

    Args:
        target: The target copy, if the loss reads its outputs, by `TARGET` and their names. They have no gradient.

    Raises:
        KeyError: While tracing, if `loss` names a head that the network does not have, or leaves one out.
    """

    def objective(batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        terms, metrics = loss(outputs_of(assembly, batch, target, training=True), batch)
        return weighted_sum(assembly, parameters, terms), metrics

    return objective


def weighted_sum(assembly: Assembly, parameters: NetworkParameters, terms: Mapping[str, Tensor]) -> Tensor:
    """Every head's loss times its weight, and regularisation: what is minimised, a scalar.

    Args:
        terms: Head name -> scalar loss.

    Raises:
        KeyError: `terms` names a head that the network does not have, or leaves one out.
    """
    weights = {head.name: head.parameters.loss_weight for head in assembly.heads}
    if terms.keys() != weights.keys():
        raise KeyError(f"the loss is of heads {sorted(terms)}, the network has {sorted(weights)}")
    total = sum(weights[name] * term for name, term in terms.items())
    for term in regularization(assembly, parameters):
        total = total + term
    return total


RANDOM_STATES = "random_states"
"""Under this name `over_rows` tells where random generators have got to."""


def over_rows(
    assembly: Assembly, parameters: NetworkParameters, fetches: Sequence[str], random_states: Sequence[Any]
) -> LossFunction:
    """Coach's objective: every head's own loss, a mean over rows times importance weights.

    The function takes {"inputs", "targets" (by index of head), "weights" [batch]} and tells "losses" (one per head,
    then one per regularisation), the fetches, and the values of `random_states` after its draws, stacked.

    Raises:
        ValueError: While tracing, if no head tells a fetch.
    """

    def objective(data: Any) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = assembly.model(data["inputs"], training=True)
        losses: list[Tensor] = []
        told: dict[str, Tensor] = {}
        for index, head in enumerate(assembly.heads):
            target = data["targets"][index]
            loss = ops.mean(data["weights"] * head.loss(outputs, target))
            losses.append(head.parameters.loss_weight * loss)
            told |= {f"{head.name}/{name}": value for name, value in head.fetches(outputs, target).items()}
        if unknown := [name for name in fetches if name not in told]:
            raise ValueError(f"nothing to fetch by the name {unknown[0]!r}; there are {', '.join(told) or 'none'}")
        losses += regularization(assembly, parameters)
        named = {"losses": ops.stack(losses), **{name: told[name] for name in fetches}}
        if random_states:
            named[RANDOM_STATES] = ops.stack([state.value for state in random_states])
        return sum(losses), named

    return objective


def regularization(assembly: Assembly, parameters: NetworkParameters) -> list[Tensor]:
    """``l2_regularization`` times half the sum of squares of all trainable weights; then what single layers ask for."""
    terms = []
    if parameters.l2_regularization > 0.0:
        squares = sum(ops.sum(ops.square(variable.value)) for variable in assembly.model.trainable_variables)
        terms.append(0.5 * parameters.l2_regularization * squares)
    return [*terms, *assembly.model.losses]
