import pytest

from benchmarks.peers.results import Measured


@pytest.fixture
def measured():
    """measured(contender, task, repetition, **figures): a run that went well."""

    def make(contender, task="cartpole", repetition=1, **figures):
        names = ("failure", "steps_per_s", "first_update_s", "solved_s", "mean_return", "pss_bytes", "cpu_us_per_step")
        usual = {**dict.fromkeys(names), "env_steps": 100, "wall_s": 40.0, "load": 0.5, "configuration": "c"}
        where = {"date": "2026-01-02", "machine": "2 cores (X)", "commit": "abc1234", "seconds": 30.0}
        return Measured(contender=contender, task=task, repetition=repetition, **{**usual, **where, **figures})

    return make
