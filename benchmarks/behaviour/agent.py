"""One training of an agent of bsuite's own: `python -m benchmarks.behaviour.agent AGENT BSUITE_ID SEED FOLDER`."""

import importlib
import sys

import numpy as np


def main(agent: str, bsuite_id: str, seed: str, folder: str) -> None:
    """Train for bsuite's number of episodes; its log goes into the folder."""
    import bsuite
    from bsuite.baselines import experiment

    np.random.seed(int(seed))  # the agents' replay and exploration draw from it
    environment = bsuite.load_and_record_to_csv(bsuite_id, folder, overwrite=True)
    make = importlib.import_module(f"bsuite.baselines.jax.{agent}").default_agent
    made = make(environment.observation_spec(), environment.action_spec(), seed=int(seed))
    experiment.run(made, environment, environment.bsuite_num_episodes)


if __name__ == "__main__":
    main(*sys.argv[1:])
