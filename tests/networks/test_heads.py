import keras
import numpy as np

from distrl.networks.heads import HEADS, policy_head, value_head
from distrl.types import DiscreteSpec

FEATURES = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)


def built(head):
    features = keras.Input((16,))
    name, output = head(features, DiscreteSpec(3), seed=1)
    return name, keras.Model(features, output)


def test_policy_head_starts_nearly_uniform():
    name, model = built(policy_head)
    logits = np.asarray(model(FEATURES))
    assert name == "logits"
    assert logits.shape == (5, 3)
    assert 0.0 < np.abs(logits).max() < 0.1
    kernel = np.asarray(model.weights[0])
    np.testing.assert_allclose(kernel.T @ kernel, 1e-4 * np.eye(3), atol=1e-9)


def test_value_head_is_one_number_per_row():
    name, model = built(value_head)
    kernel, bias = (np.asarray(weight) for weight in model.weights)
    assert name == "value"
    np.testing.assert_allclose(np.asarray(model(FEATURES)), (FEATURES @ kernel + bias)[:, 0], rtol=1e-5)


def test_heads_by_name():
    assert {"policy": policy_head, "value": value_head} == HEADS
