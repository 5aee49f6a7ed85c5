"""Categories travel as whole numbers; networks compute with them bit by bit as with one-hot rows of real numbers."""

from dataclasses import replace

import numpy as np
import pytest

from distrl.actors.policy import Policy
from distrl.config.heads import EmbeddingHeadParameters, PolicyHeadParameters, ValueHeadParameters
from distrl.errors import ConfigError
from distrl.networks.policy import bundle
from distrl.types import ArraySpec, DiscreteSpec, EnvSpec, OneHot, Weights

ONE = ArraySpec((1,), "uint16", 0.0, 499.0, one_hot=OneHot((), (500,), (7,)))
SEVERAL = ArraySpec((4,), "uint8", 0.0, 4.0, one_hot=OneHot((2, 2), (2, 3, 1, 5), (0, 1, -2, 9)))
STACK = ArraySpec((6,), "uint8", 0.0, 2.0, frames=3, one_hot=OneHot((2,), (2, 3), (0, 0)))
SPECS = {
    "one": {"observation": ONE},
    "several": {"observation": SEVERAL},
    "stack": {"observation": STACK},
    "beside": {
        "camera": ArraySpec((4, 4, 1), "uint8", 0.0, 255.0),
        "speed": ArraySpec((2,), "float32"),
        "state": SEVERAL,
    },
}
NETWORKS = {
    "plain": {},
    "lstm": {"middleware_parameters": {"kind": "lstm", "number_of_lstm_cells": 5, "scheme": [6]}},
    "separate": {"use_separate_networks_per_head": True},
}
HEADS = (PolicyHeadParameters(), ValueHeadParameters(), EmbeddingHeadParameters())


def spec_of(name):
    return EnvSpec("Categories-v0", SPECS[name], {"action": DiscreteSpec(3)})


def numbers(spec, shape, seed=0):
    """Observations of `spec` by name, [*shape, ...], each number within its choices."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, array in spec.observations.items():
        if array.categories is not None:
            made[name] = rng.integers(0, array.categories.choices, (*shape, *array.shape)).astype(array.dtype)
        elif array.dtype == "uint8":
            made[name] = rng.integers(0, 256, (*shape, *array.shape), np.uint8)
        else:
            made[name] = rng.standard_normal((*shape, *array.shape)).astype(array.dtype)
    return made


def slow_rows(array, given):
    """One row after the other: 1 at the place of each number, behind the choices before it; all else as it is."""
    if array.one_hot is None:
        return given
    flat = given.reshape(-1, given.shape[-1])
    rows = []
    for row in flat:
        parts = []
        for place, number in enumerate(row):
            part = [0.0] * array.one_hot.choices[place % len(array.one_hot.choices)]
            part[number] = 1.0
            parts += part
        rows.append(parts)
    return np.float32(rows).reshape(*given.shape[:-1], -1)


def met(spec, given):
    return {name: slow_rows(array, given[name]) for name, array in spec.observations.items()}


@pytest.mark.parametrize("array", [ONE, SEVERAL, STACK])
def test_rows_are_those_of_the_slow_twin(array):
    given = numbers(EnvSpec("E", {"x": array}, {}), (2, 3))["x"]
    np.testing.assert_array_equal(array.expand(given), slow_rows(array, given), strict=True)
    assert array.expand(given).shape[2:] == array.expanded.shape
    assert array.expanded.frames == array.frames


@pytest.mark.parametrize("network", ["plain", "lstm", "separate"])
@pytest.mark.parametrize("name", SPECS)
def test_weights_and_outputs_are_bit_by_bit_those_of_one_hot_rows(build, name, network):
    spec = spec_of(name)
    categories, rows = (build(given, HEADS, **NETWORKS[network]) for given in (spec, spec.expanded))
    assert all(map(np.array_equal, categories.get_weights(), rows.get_weights()))
    assert categories.weight_names == rows.weight_names
    given = numbers(spec, (5, 4))
    state = {name: np.zeros((4, *array.shape), np.float32) for name, array in categories.recurrent_state.items()}
    valid = np.ones((4, 4), np.bool_)
    for found, expected in zip(
        categories.unroll(given, state, valid).items(), rows.unroll(met(spec, given), state, valid).items(), strict=True
    ):
        assert found[0] == expected[0]
        np.testing.assert_array_equal(np.asarray(found[1]), np.asarray(expected[1]))


def test_a_number_beyond_its_choices_is_a_row_of_zeros(build):
    network = build(spec_of("one"), middleware_parameters={"scheme": "Empty"})
    assert np.array_equal(network.predict({"observation": np.uint16([[500]])}, ["value"]), np.float32([0.0]))


@pytest.mark.parametrize("name", ["several", "stack"])
def test_running_statistics_are_of_one_hot_rows(wrap, batch_for, name):
    spec = spec_of(name)
    chosen = {"input_embedders_parameters": {"observation": {"normalize": True}}}
    categories, rows = (wrap(spec=given, **chosen) for given in (spec, spec.expanded))
    batch = batch_for(rows.online)._replace(observations=numbers(spec, (4, 4)))
    categories.statistics.observe(batch)
    rows.statistics.observe(batch._replace(observations=met(spec, batch.observations)))
    found, expected = (each.statistics.moments["observation"] for each in (categories, rows))
    assert found.mean.shape == spec.observations["observation"].expanded.shape
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.squares, expected.squares)
    assert all(map(np.array_equal, categories.online.get_weights(), rows.online.get_weights()))


@pytest.mark.parametrize("name", ["one", "beside", "stack"])
def test_an_exported_policy_takes_whole_numbers(build, disturb, tmp_path, name):
    spec = spec_of(name)
    network = build(spec)
    policy = Policy(bundle.export_bundle(network, cache_dir=tmp_path))
    disturb(network, 1)
    policy.set_weights(Weights(1, network.policy_weights()))
    given = numbers(spec, (7,))
    found = policy.step(given, {}).outputs
    for output, expected in zip(found.values(), network.predict(given), strict=True):
        np.testing.assert_allclose(output, expected, atol=1e-5)
    # The twin that takes rows has the same weights.
    rows = build(spec.expanded)
    rows.set_weights(network.get_weights())
    assert all(map(np.array_equal, network.predict(given), rows.predict(met(spec, given))))


def test_an_embedder_takes_categories_for_a_vector(build):
    with pytest.raises(ConfigError, match=r"tokens are whole numbers \[length\] .*, not float32 \[11\] from 0"):
        build(spec_of("several"), input_embedders_parameters={"observation": {"kind": "tokens"}})


def test_specs_with_other_choices_are_other_specs():
    other = replace(SEVERAL, one_hot=replace(SEVERAL.one_hot, choices=(2, 3, 5, 1)))
    assert other != SEVERAL
    assert other.expanded == SEVERAL.expanded
