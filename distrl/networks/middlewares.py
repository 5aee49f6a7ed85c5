"""Middlewares: from the merged embedding to the features that all heads share."""

from typing import Any

from distrl.config.network import MiddlewareParameters
from distrl.networks.layers import dense


def transform(embedding: Any, parameters: MiddlewareParameters, *, seed: int) -> Any:
    """Applies the dense middleware; layers are called ``middleware_dense_<index>``.

    Args:
        embedding: Keras tensor float32 [batch, width].
        parameters: Layers; none leaves the embedding as it is.
        seed: The network's seed.

    Returns:
        Keras tensor float32 [batch, features].
    """
    features = embedding
    for index, units in enumerate(parameters.units):
        features = dense(units, parameters.activation, name=f"middleware_dense_{index}", seed=seed)(features)
    return features
