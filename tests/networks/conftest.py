"""Small networks of every make, batches that fit them, and weights like those of a training."""

import numpy as np
import pytest

from distrl.config.heads import PolicyHeadParameters, ValueHeadParameters
from distrl.config.network import NetworkParameters
from distrl.networks.copies import Copies
from distrl.networks.network import Network
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

VECTOR = EnvSpec("Vector-v0", {"observation": ArraySpec((4,), "float32")}, {"action": DiscreteSpec(2)})
POLICY_AND_VALUE = (PolicyHeadParameters(), ValueHeadParameters())
SMALL = {"middleware_parameters": {"scheme": [8]}}


def rows_of(array, shape, rng):
    """Random rows of one array of an environment: float32 [*shape, ...]."""
    shape = (*shape, *array.shape)
    if np.issubdtype(np.dtype(array.dtype), np.floating):
        return rng.standard_normal(shape).astype(array.dtype)
    high = 255 if array.high is None else int(array.high)
    return rng.integers(0, high + 1, shape).astype(array.dtype)


@pytest.fixture
def vector():
    """A spec: four numbers in, two choices out."""
    return VECTOR


@pytest.fixture
def build():
    """build(spec, heads, seed=1, **parameters): one network copy, with a hidden layer of 8 unless told otherwise."""

    def make(spec=VECTOR, heads=POLICY_AND_VALUE, seed=1, **parameters):
        return Network(NetworkParameters(**(SMALL | parameters)), spec, heads, "main", seed)

    return make


@pytest.fixture
def wrap():
    """wrap(has_target=…, has_global=…, **parameters): copies of a network like that of `build`."""

    def make(
        has_target=False,
        has_global=False,
        *,
        heads=POLICY_AND_VALUE,
        spec=VECTOR,
        seed=1,
        shared=None,
        rewards=None,
        **parameters,
    ):
        return Copies(
            NetworkParameters(**(SMALL | parameters)),
            spec,
            heads,
            has_target=has_target,
            has_global=has_global,
            name="main",
            seed=seed,
            shared_global=shared,
            reward_normalization=rewards,
        )

    return make


@pytest.fixture
def inputs_for():
    """inputs_for(spec, 5, seed): random observations [5, ...] by name."""

    def make(spec, batch, seed=0):
        rng = np.random.default_rng(seed)
        return {name: rows_of(array, (batch,), rng) for name, array in spec.observations.items()}

    return make


@pytest.fixture
def batch_for():
    """batch_for(network, T, N, seed): random unrolls that fit it; a fifth of the rows is not valid."""

    def make(network, steps=3, sequences=4, seed=0):
        rng, spec = np.random.default_rng(seed), network.spec
        rows = (steps, sequences)
        return Batch(
            observations={
                name: rows_of(array, (steps + 1, sequences), rng) for name, array in spec.observations.items()
            },
            actions={name: rows_of(action.array, rows, rng) for name, action in spec.actions.items()},
            rewards=rng.standard_normal(rows).astype(np.float32),
            terminated=rng.random(rows) < 0.1,
            truncated=rng.random(rows) < 0.1,
            valid=rng.random(rows) < 0.8,
            behaviour_log_probabilities=rng.normal(-1.0, 0.2, rows).astype(np.float32),
            recurrent_state={
                name: rng.normal(0.0, 0.5, (sequences, *state.shape)).astype(state.dtype)
                for name, state in network.recurrent_state.items()
            },
        )

    return make


@pytest.fixture
def disturb():
    """disturb(network, seed): other weights than the initial ones, biases and running statistics included."""

    def change(network, seed):
        rng = np.random.default_rng(seed)
        for variable in network.model.weights:
            shape = tuple(variable.shape)
            if variable.trainable:
                fan_in = max(1, int(np.prod(shape[:-1])))
                variable.assign(rng.standard_normal(shape) / np.sqrt(fan_in))
            else:
                variable.assign(rng.uniform(0.5, 1.5, shape))  # among them variances, which are positive

    return change


@pytest.fixture
def same_state():
    """same_state(left, right): two results of `state_arrays` are equal bit by bit."""

    def check(left, right):
        assert left.keys() == right.keys()
        for group in left:
            assert left[group].keys() == right[group].keys()
            for path in left[group]:
                np.testing.assert_array_equal(left[group][path], right[group][path], err_msg=f"{group} {path}")

    return check
