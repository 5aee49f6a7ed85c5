"""Your own network: convolutions over a picture, attention over its places, and the other observations beside it.

    distrl train --env my_package:MyEnvironment --set network.model=examples.own_network:Attention

Write a class like this. Its `call` receives every observation by name, raw as the environment returns it, and
returns one vector per row, the input of the middleware and the heads. Actors need neither this file nor Keras: they
run the network as ONNX.
"""

import math

import keras
from keras import ops


class Attention(keras.Model):
    """Self-attention over the places of a picture (Vaswani et al. 2017), and the mean over all places."""

    def __init__(self, picture: str = "camera", filters: int = 16, name: str = "model") -> None:
        super().__init__(name=name)
        self.picture = picture
        self.see = keras.layers.Conv2D(filters, 3, strides=2, activation="relu")
        self.attend = keras.layers.MultiHeadAttention(num_heads=2, key_dim=filters // 2)

    def call(self, observations):
        seen = self.see(ops.cast(observations[self.picture], self.compute_dtype) / 255.0)
        places = ops.reshape(seen, (-1, seen.shape[1] * seen.shape[2], seen.shape[3]))  # [batch, places, filters]
        vectors = [ops.mean(places + self.attend(places, places), axis=1)]
        for name in sorted(set(observations) - {self.picture}):
            rest = ops.cast(observations[name], self.compute_dtype)
            vectors.append(ops.reshape(rest, (-1, math.prod(rest.shape[1:]))))
        return ops.concatenate(vectors, axis=-1)
