"""Heads: from the shared features to one named output each. `HEADS` is the list of what a network can end in."""

from collections.abc import Callable
from typing import Any

import keras

from distrl.networks.layers import dense
from distrl.types import DiscreteSpec

POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


def policy_head(features: Any, action: DiscreteSpec, *, seed: int) -> tuple[str, Any]:
    """Logits of a categorical policy.

    The kernel starts at a hundredth of the usual scale, so that the first policy is nearly uniform whatever the
    observation (Andrychowicz et al. 2021, section 3.2: the choice that mattered most among initialisations).

    Args:
        features: Keras tensor float32 [batch, features].
        action: The discrete actions, A of them.
        seed: The network's seed.

    Returns:
        ("logits", Keras tensor float32 [batch, A]).
    """
    return "logits", dense(action.n, "none", name="policy_head", seed=seed, gain=POLICY_GAIN)(features)


def value_head(features: Any, action: DiscreteSpec, *, seed: int) -> tuple[str, Any]:
    """State value.

    Args:
        features: Keras tensor float32 [batch, features].
        action: Unused; every head is called alike.
        seed: The network's seed.

    Returns:
        ("value", Keras tensor float32 [batch]).
    """
    column = dense(1, "none", name="value_head", seed=seed, gain=VALUE_GAIN)(features)
    return "value", keras.ops.squeeze(column, axis=-1)  # [batch, 1] -> [batch]


HEADS: dict[str, Callable[..., tuple[str, Any]]] = {"policy": policy_head, "value": value_head}
