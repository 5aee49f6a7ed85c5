"""Fitted behaviour: the probabilities of data whose policy is known."""

import numpy as np

from distrl.data.off_policy.behaviour import chosen, counted, normal
from distrl.data.off_policy.features import RandomFeatures, standardised

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(6_000, 2)).astype(np.float32)
FEATURES = RandomFeatures(2, 60, np.random.default_rng(1))(standardised(ROWS))


def test_a_table_counts():
    observations, actions = np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0])
    np.testing.assert_allclose(np.exp(counted(observations, actions)), [2 / 3, 2 / 3, 1 / 3, 1.0])


def test_choices_are_fitted_by_logistic_regression():
    logits = np.stack([ROWS[:, 0], np.sin(2 * ROWS[:, 1]), np.zeros(len(ROWS))], axis=1)
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actions = (RNG.random(len(ROWS))[:, None] > true.cumsum(axis=1)).sum(axis=1)
    fitted = np.exp(chosen(FEATURES, actions, 3))
    errors = np.abs(fitted - true[np.arange(len(ROWS)), actions])
    assert errors.mean() < 0.03
    best = np.log(true[np.arange(len(ROWS)), actions]).mean()
    assert np.log(fitted).mean() > best - 0.01


def test_real_numbers_are_fitted_as_normal():
    mean = np.stack([ROWS[:, 0] * 2, np.cos(ROWS[:, 1])], axis=1)
    noise = RNG.normal(size=mean.shape)
    true = (-0.5 * noise**2 - np.log([0.5, 0.2]) - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    fitted = normal(FEATURES, mean + noise * [0.5, 0.2])
    assert np.abs(fitted - true).mean() < 0.1
