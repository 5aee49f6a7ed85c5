"""A training in one process whose actor lags by a fixed number of updates, with or without V-trace's correction.

    python -m benchmarks.lagged_training --lag 10 --preset cartpole-impala --seed 1 --run-dir runs/lagged

Two parts of the ordinary program are replaced: the actor fetches weights that are `lag` versions old, and
`--no-correction` replaces IMPALA by the same loss with importance weights of 1, as if unrolls were the current
policy's.
"""

import argparse
import functools
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import distrl
from distrl.launch import one_process
from distrl.memory_backend.backend import Backend, connect
from distrl.memory_backend.weights import Published, WeightStore
from distrl.terminal.console import make_view
from distrl.types import Batch


class LaggedWeights:
    """A weight store whose reader gets weights that are `lag` versions old, in the beginning the first ones.

    Its one reader fetches once for every version, as the actor of deterministic mode does.
    """

    def __init__(self, store: WeightStore, lag: int) -> None:
        self._store = store
        self._recent: deque[Published] = deque(maxlen=lag + 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)  # all but `fetch` as it is

    def fetch(self) -> Published | None:
        """Return the oldest of the newest lag + 1 versions."""
        newest = self._store.fetch()
        if newest is not None and (not self._recent or newest.version > self._recent[-1].version):
            self._recent.append(newest)
        return self._recent[0] if self._recent else None


def lagged_backend(*arguments: Any, lag: int, **options: Any) -> Backend:
    """Return a backend with `LaggedWeights`."""
    backend = connect(*arguments, **options)
    backend.weights = LaggedWeights(backend.weights, lag)
    return backend


def without_correction() -> None:
    """Replace IMPALA by IMPALA without importance weights."""
    from distrl.algorithms import impala
    from distrl.algorithms.algorithm import Loss

    class Uncorrected(impala.Impala):
        def loss(self, outputs: Mapping[str, Any], batch: Batch) -> Loss:
            acting = {name: rows[:-1] for name, rows in outputs.items()}
            current = self.distribution.log_probability(acting, batch.actions)
            return super().loss(outputs, batch._replace(behaviour_log_probabilities=current))

    impala.Impala = Uncorrected  # where `make_algorithm` looks it up


def main(arguments: list[str] | None = None) -> int:
    """Train; return the run's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lag", type=int, required=True, metavar="UPDATES")
    parser.add_argument("--no-correction", action="store_true")
    parser.add_argument("--preset", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="PATH=VALUE")
    parser.add_argument("--quiet", action="store_true")
    given = parser.parse_args(arguments)
    one_process.connect = functools.partial(lagged_backend, lag=given.lag)
    # A checkpoint during the training would make the actor start again, with the newest weights.
    sets = [*given.sets, "checkpoint.every_s=null", "checkpoint.every_updates=1000000"]
    loaded = distrl.load(given.preset, sets=sets, flags={"--seed": given.seed, "--actors": 0})
    if given.no_correction:
        one_process.select_framework(loaded.config.learner.backend)
        without_correction()
    view = make_view(quiet=given.quiet, run_dir=given.run_dir)
    return distrl.train(loaded, run_dir=given.run_dir, view=view).exit_code


if __name__ == "__main__":
    raise SystemExit(main())
