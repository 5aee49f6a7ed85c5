"""`python read_hostile.py KIND PATH...`: reads forged files under an audit hook, and prints what came of it.

checkpoints DIRECTORY...    the newest valid checkpoint of each directory
policies RUN...             the policy of each run's directory
configurations FILE...      each as a configuration
numpy FILE...               each with NumPy as it can be told to: what the hook must notice is there
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from watch import Watch, bound_memory, forget_peak, memory_mb

from distrl.config.load import load
from distrl.data_store.checkpoints import load_newest
from distrl.errors import DistrlError
from distrl.learner.policy_files import read_policy


def checkpoint(path):
    loaded = load_newest(path)
    return {
        "step": loaded.step,
        "value": float(loaded.arrays["main.online"]["w"][0]),
        "rejected": [reason for _, reason in loaded.rejected],
    }


def policy(path):
    return {"version": read_policy(path).weights.version}


def configuration(path):
    return {"seed": load(file=path).config.seed}


def unpickled(path):
    with np.load(path, allow_pickle=True) as arrays:
        return {"names": [name for name in arrays if arrays[name] is not None]}


READERS = {"checkpoints": checkpoint, "policies": policy, "configurations": configuration, "numpy": unpickled}


def main():
    read, paths, told = READERS[sys.argv[1]], [Path(path) for path in sys.argv[2:]], {}
    read(paths[0])  # the first one is good, and what is imported late has been
    watch = Watch()
    bound_memory()
    resident_mb = memory_mb("VmRSS")
    forget_peak()
    for path in paths:
        try:
            with watch.armed():
                told[path.name] = read(path)
        except DistrlError as error:
            told[path.name] = {"refused": f"{type(error).__name__}: {error}"}
        except Exception as error:  # whatever it is, it is what this looks for
            told[path.name] = {"crash": f"{type(error).__name__}: {error}"[:500]}
    growth_mb = memory_mb("VmHWM") - resident_mb
    print(
        json.dumps({"told": told, "noticed": watch.noticed, "sprung": os.environ.get("TRAP"), "growth_mb": growth_mb})
    )


if __name__ == "__main__":
    main()
