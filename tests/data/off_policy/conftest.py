"""Policies that an earlier version saved, and data sets of what they have acted."""

import shutil
from pathlib import Path

import pytest

from distrl.apps.commands.main import main

EARLIER = Path(__file__).parents[2] / "earlier"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """CartPole with IMPALA, and Pendulum with SAC: a run's directory, and a data set of its policy, by name."""
    folder, found = tmp_path_factory.mktemp("earlier"), {}
    for name, episodes in (("cartpole", 150), ("pendulum", 20)):
        run, data = folder / name, folder / f"{name}-v0"
        shutil.copytree(EARLIER / name, run)
        settings = (
            (run / "config.yaml").read_text().replace("    n_step: 1 ", "    item: {kind: transition, n_step: 1} ")
        )
        (run / "config.yaml").write_text(settings)
        assert main(["record", str(run), "--episodes", str(episodes), "--output", str(data)]) == 0
        found[name] = run, data
    return found
