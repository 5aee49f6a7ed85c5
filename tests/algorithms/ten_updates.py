"""Ten updates of a network from the same weights and batches, on the backend of this process."""

import json
import sys
from pathlib import Path

import numpy as np

from distrl.algorithms import make_algorithm
from distrl.config import RunConfig
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

T, N, UPDATES = 6, 8, 10


def batch(rng, shape, states):
    rows = (T + 1, N, *shape)
    image = len(shape) == 3
    shown = rng.integers(0, 256, rows).astype("uint8") if image else rng.standard_normal(rows).astype("float32")
    return Batch(
        observations={"observation": shown},
        actions={"action": rng.integers(0, 3, (T, N)).astype("int32")},
        rewards=rng.standard_normal((T, N)).astype("float32"),
        terminated=rng.random((T, N)) < 0.1,
        truncated=rng.random((T, N)) < 0.1,
        valid=rng.random((T, N)) < 0.8,
        behaviour_log_probabilities=np.log(rng.uniform(0.2, 0.6, (T, N))).astype("float32"),
        recurrent_state={
            name: rng.standard_normal((N, *spec.shape)).astype("float32") for name, spec in states.items()
        },
    )


def flat(network):
    groups = network.state_arrays().items()
    return {f"{group}|{path}": array for group, arrays in groups for path, array in arrays.items()}


def begin(main, initial):
    """Restore the network from the file, or write it."""
    if not initial.exists():
        np.savez(initial, **flat(main))
        return
    groups = {group: {} for group in main.state_arrays()}
    for key, array in np.load(initial, allow_pickle=False).items():
        group, path = key.split("|")
        groups[group][path] = array
    main.restore(groups)


def train(folder, name, parameters, when):
    """Write the state after all updates, and the metrics of each.

    Args:
        parameters: `NetworkParameters`; those of "conv" see images.
        when: Part of the files' names; the first training writes its initial weights for the next one.
    """
    shape, dtype = ((9, 9, 2), "uint8") if name == "conv" else ((4,), "float32")
    config = {
        "network": parameters | {"learning_rate": 0.003},
        "actors": {"environments": 2, "unroll_length_steps": T},
        "learner": {"batch_size": 4},
    }
    algorithm = make_algorithm(RunConfig.model_validate(config))
    networks = algorithm.build(EnvSpec("x", {"observation": ArraySpec(shape, dtype)}, {"action": DiscreteSpec(3)}))
    main, rng = networks["main"], np.random.default_rng(0)
    begin(main, folder / f"{name}-initial.npz")
    states = main.online.recurrent_state
    told = [algorithm.update(networks, batch(rng, shape, states)).metrics for _ in range(UPDATES)]
    np.savez(folder / f"{name}-{when}.npz", **flat(main))
    (folder / f"{name}-{when}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
