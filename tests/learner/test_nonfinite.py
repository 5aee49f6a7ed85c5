"""An update that is not finite names the numbers of its batch that are far from 1."""

import numpy as np
import pytest

from distrl.learner.nonfinite import large_numbers
from distrl.types import Batch


def batch(rewards, **observations):
    arrays = {name: np.array(values) for name, values in observations.items()}
    ones = np.ones(1, np.float32)
    return Batch(arrays, {}, np.float32(rewards), ones, ones, ones, ones, {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (batch([1.0], state=np.float32([-1e3, 5.0]), token=[10**6]), ""),
        (
            batch([1.0], state=np.float32([-3e7, 5.0]), other=np.float32([2e4])),
            "; observation 'state' reaches 3.0e+07, see network.input_embedders_parameters.state.normalize, or a step "
            "of environment.preprocessing",
        ),
        (
            batch([-5000.0], state=np.float32([0.0])),
            "; rewards reach 5.0e+03, see algorithm.reward_scale, or algorithm.reward_normalization",
        ),
        ((), ""),
    ],
)
def test_large_numbers_are_named_with_what_makes_them_smaller(given, said):
    assert large_numbers(given) == said
