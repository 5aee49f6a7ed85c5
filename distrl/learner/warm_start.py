"""A warm start: a new training begins with the weights of another one, where names and shapes are the same.

Weights are what a network's copies are made of, with the statistics that normalise observations. Optimizers, counters,
schedules, replay memories, the scale of rewards and numbers beside the networks (SAC's temperature) begin anew.
"""

from collections.abc import Sequence
from functools import partial

from distrl.algorithms.algorithm import Networks
from distrl.errors import CheckpointError
from distrl.learner.weight_source import Source

_MOST_LAYERS = 6
"""Most layers that a report lists by name."""


def begin_with(networks: Networks, source: Source) -> str:
    """Set all copies of `networks` to the weights; return a line on what was taken and what was not.

    Raises:
        CheckpointError: No weight is taken, or one of the same name has another shape. Networks may have changed.
    """
    taken, new, unused = [], [], []
    frozen: list[str] = []
    for name, network in networks.items():
        given = source.weights.get(name, {})
        try:
            got = network.take(given, partial(source.rows_behind, name))
        except CheckpointError as error:
            raise CheckpointError(
                f"{source.name} has another network: {error}; configure the network as it was there, or begin without"
            ) from error
        here = network.online.weight_names
        taken += got
        frozen += network.online.frozen
        new += sorted(set(here) - set(got), key=here.index)
        unused += [each for each in given if each not in network.online.variables]
    unused += [each for name, given in source.weights.items() if name not in networks for each in given]
    if not taken:
        raise CheckpointError(
            f"{source.name} has no weight of the same name as this run: there {_layers(unused)}, here {_layers(new)}"
        )
    parts = [f"begins with the weights of {source.name}: took {len(taken)} of {len(taken) + len(new)}"]
    parts += [f"new: {_layers(new)}"] if new else []
    parts += [f"not used: {_layers(unused)}"] if unused else []
    if frozen:
        fresh = len(set(frozen) - set(taken))
        parts.append(f"frozen: {len(frozen)} weights" + (f", {fresh} of them new" if fresh else ""))
    return "; ".join(parts)


def _layers(names: Sequence[str]) -> str:
    """Return the layers of weights, at most `_MOST_LAYERS` by name."""
    layers = list(dict.fromkeys(name.rpartition("/")[0] or name for name in names))
    more = f" and {len(layers) - _MOST_LAYERS} more" if len(layers) > _MOST_LAYERS else ""
    return f"{', '.join(layers[:_MOST_LAYERS])}{more}" if layers else "none"
