"""The deterministic family in NumPy: the output is the action."""

import numpy as np

from distrl.networks.actions.deterministic import DeterministicSampler, DeterministicSpec

SPEC = DeterministicSpec((-1.0, 0.0), (1.0, 0.5), "deterministic_policy")
OUTPUT = np.float32([[0.25, 0.5], [np.nextafter(np.float32(-1.0), np.float32(-2.0)), 0.125]])


def test_the_output_is_the_action_within_the_bounds():
    sampler, rng = DeterministicSampler(SPEC), np.random.default_rng(0)
    actions, log_probabilities = sampler.sample(OUTPUT, rng)
    np.testing.assert_array_equal(actions, np.float32([[0.25, 0.5], [-1.0, 0.125]]), strict=True)
    np.testing.assert_array_equal(log_probabilities, np.zeros(2, np.float32), strict=True)
    np.testing.assert_array_equal(sampler.mode(OUTPUT), actions, strict=True)
    assert rng.random() == np.random.default_rng(0).random()  # nothing was drawn


def test_another_action_is_never_taken():
    actions = np.float32([[0.25, 0.5], [-1.0, 0.25]])
    assert DeterministicSampler(SPEC).log_probability(OUTPUT, actions).tolist() == [0.0, -np.inf]
