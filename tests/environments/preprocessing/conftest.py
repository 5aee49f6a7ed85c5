"""Steps as YAML would give them, and what they make of single arrays."""

import numpy as np
import pytest

from distrl.config.environment import EnvironmentConfig
from distrl.environments.preprocessing.pipeline import Pipeline
from distrl.types import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec


@pytest.fixture
def pipeline():
    """pipeline(observations, *steps): observations are one ArraySpec or several by name, steps are mappings."""

    def make(observations, *steps, actions=None):
        arrays = {"observation": observations} if isinstance(observations, ArraySpec) else observations
        kinds = {"action": DiscreteSpec(2)} if actions is None else actions
        kinds = {"action": kinds} if not isinstance(kinds, dict) else kinds
        config = EnvironmentConfig.model_validate({"preprocessing": list(steps)})
        return Pipeline(config.preprocessing, EnvSpec("Task", arrays, kinds))

    return make


@pytest.fixture
def through(pipeline):
    """through(array, *steps, low=None, high=None): what comes out for one observation, checked against its spec."""

    def run(array, *steps, low=None, high=None):
        made = pipeline(ArraySpec(array.shape, array.dtype.name, low, high), *steps)
        out = made.observations({"observation": array[None]}, np.ones(1, bool))["observation"][0]
        spec = made.spec.observations["observation"]
        assert (out.shape, out.dtype.name) == (spec.shape, spec.dtype)
        return out

    return run


@pytest.fixture
def acted(pipeline):
    """acted(spec, chosen, *steps): what an environment with one action gets for the policy's choices [B, ...]."""

    def run(spec, chosen, *steps):
        made = pipeline(ArraySpec((1,), "float32"), *steps, actions=spec)
        return made.spec.actions["action"], made.actions({"action": np.asarray(chosen)})["action"]

    return run


@pytest.fixture
def box():
    """box(low, high, n=1): a box of n numbers in the same bounds."""
    return lambda low, high, n=1: BoxSpec((n,), (low,) * n, (high,) * n)
