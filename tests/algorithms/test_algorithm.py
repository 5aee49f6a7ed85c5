"""The seam: what a new algorithm has to give, and what it gets for it."""

import keras
import numpy as np
import pytest

from distrl.algorithms import ALGORITHMS, make_algorithm
from distrl.algorithms.algorithm import GradientAlgorithm, Loss, MemorySpec
from distrl.config import RunConfig
from distrl.config.algorithms import ALGORITHMS as PARAMETERS
from distrl.types import ArraySpec, Batch, DiscreteSpec, EnvSpec

SPEC = EnvSpec(id="toy", observations={"observation": ArraySpec((2,), "float32")}, action=DiscreteSpec(2))


def config(**sections):
    network = {"middleware_parameters": {"units": ()}, "optimizer_type": "SGD", "learning_rate": 0.5}
    network |= sections.pop("network", {})
    return RunConfig.model_validate({"network": network, **sections})


def batch(steps=2, sequences=3):
    rows = (steps, sequences)
    return Batch(
        observations={"observation": np.ones((steps + 1, sequences, 2), "float32")},
        actions=np.zeros(rows, "int32"),
        rewards=np.ones(rows, "float32"),
        terminated=np.zeros(rows, bool),
        truncated=np.zeros(rows, bool),
        valid=np.ones(rows, bool),
        behaviour_log_probabilities=np.full(rows, np.log(0.5), "float32"),
        recurrent_state={},
    )


class TowardsThree(GradientAlgorithm):
    """All that a new algorithm needs: pulls every value towards 3."""

    heads = ("value",)

    def loss(self, outputs, batch):
        """Half the squared distance of all T+1 values from 3."""
        values = outputs["value"]
        return Loss(0.5 * keras.ops.mean((values - 3.0) ** 2), {"mean_value": keras.ops.mean(values)})


def test_two_attributes_are_an_algorithm():
    algorithm = TowardsThree(config())
    networks = algorithm.build(SPEC)
    assert list(networks) == ["main"]
    first = algorithm.update(networks, batch()).metrics
    assert first["loss"] == pytest.approx(0.5 * (first["mean_value"] - 3.0) ** 2, rel=1e-5)
    assert first["finite"] is True
    for _ in range(20):
        last = algorithm.update(networks, batch()).metrics
    assert last["mean_value"] == pytest.approx(3.0, abs=1e-3)


def test_the_step_is_compiled_once():
    algorithm = TowardsThree(config())
    calls = []
    loss = algorithm.loss
    algorithm.loss = lambda outputs, batch: calls.append(1) or loss(outputs, batch)
    networks = algorithm.build(SPEC)
    for _ in range(3):
        algorithm.update(networks, batch())
    assert len(calls) == 1


def test_without_a_target_there_is_none():
    main = TowardsThree(config()).build(SPEC)["main"]
    assert list(main.copies) == ["online"]


def test_equal_seeds_start_equal_and_others_do_not():
    first, same, other = (
        TowardsThree(config(seed=seed)).build(SPEC)["main"].online.get_weights() for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first[0], same[0])
    assert not np.array_equal(first[0], other[0])


def test_update_before_build_is_an_error():
    with pytest.raises(RuntimeError, match="before build"):
        TowardsThree(config()).update({}, batch())


def test_memory_is_what_the_configuration_says():
    algorithm = make_algorithm(
        config(
            actors={"unroll_length_steps": 20},
            learner={"batch_size": 6},
            algorithm={"name": "impala", "max_staleness_updates": 2},
        )
    )
    assert algorithm.memory == MemorySpec(
        kind="stream", ships="unrolls", unroll_length_steps=20, batch_size=6, max_staleness_updates=2
    )


def test_every_algorithm_has_parameters_of_the_same_name():
    assert ALGORITHMS.keys() == PARAMETERS.keys()
    for name, parameters in PARAMETERS.items():
        assert parameters().name == name
