"""Ray Tune over distrl: each trial is a training, and every snapshot of it a result.

pip install 'ray[tune]'
python examples/ray_tune.py
"""

import contextlib
from pathlib import Path

from ray import tune

import distrl


def trainable(settings, folder):
    """Train under settings, by their dotted paths, in a directory named like the trial; report every snapshot."""
    config = distrl.load("cartpole-impala", sets=[f"{path}={value}" for path, value in settings.items()])
    run_dir = folder / tune.get_context().get_trial_id()
    with contextlib.closing(distrl.iterate(config, run_dir=run_dir, view="silent")) as snapshots:
        for snapshot in snapshots:
            tune.report({name: value for name, value in snapshot.items() if value is not None})


def search(settings, trials, folder, storage=None):
    """Train runs of two CPUs each. `folder` has their directories, `storage` Ray Tune's own files."""
    here = tune.with_parameters(trainable, folder=Path(folder).absolute())  # Ray Tune changes the working directory
    tuner = tune.Tuner(
        tune.with_resources(here, {"cpu": 2}),
        param_space=settings,
        tune_config=tune.TuneConfig(num_samples=trials),
        run_config=tune.RunConfig(storage_path=storage, verbose=1),
    )
    return tuner.fit()


if __name__ == "__main__":
    rates = tune.loguniform(1e-4, 1e-2)
    found = search({"actors.count": 0, "network.learning_rate": rates}, trials=4, folder="runs/tune")
    best = found.get_best_result("mean_return_100", "max")
    print(best.config, best.metrics["mean_return_100"], best.metrics["trial_id"])
