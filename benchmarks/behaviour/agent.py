"""One training of an agent of bsuite's own.

python -m benchmarks.behaviour.agent AGENT BSUITE_ID SEED EPISODES FOLDER
"""

import importlib
import sys

import numpy as np


def main(agent: str, bsuite_id: str, seed: str, episodes: str, folder: str) -> None:
    """Train; bsuite's log goes into the folder."""
    import bsuite
    from bsuite.baselines import experiment

    np.random.seed(int(seed))  # the agents' replay and exploration draw from it
    environment = bsuite.load_and_record_to_csv(bsuite_id, folder, overwrite=True)
    environment.raw_env._rng = np.random.RandomState(int(seed))  # bsuite's own is 0, whatever the seed
    make = importlib.import_module(f"bsuite.baselines.jax.{agent}").default_agent
    made = make(environment.observation_spec(), environment.action_spec(), seed=int(seed))
    experiment.run(made, environment, int(episodes))


if __name__ == "__main__":
    main(*sys.argv[1:])
