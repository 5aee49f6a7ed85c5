"""A layer that only TensorFlow can export."""

import keras


class Ranks(keras.layers.Layer):
    """Adds to each feature its place among all, from 0 to 1."""

    def call(self, x):
        places = keras.ops.argsort(keras.ops.argsort(x, axis=-1), axis=-1)
        return x + keras.ops.cast(places, x.dtype) / x.shape[-1]
