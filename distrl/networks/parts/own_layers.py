"""Keras layers of distrl's own: noisy dense, dropout, batch renormalisation, and an LSTM over one input's sequence."""

from typing import Any

import keras


class NoisyDense(keras.layers.Layer):  # type: ignore[misc]
    """``y = x (μ_w + σ_w ⊙ ε_w) + μ_b + σ_b ⊙ ε_b`` while training, ``y = x μ_w + μ_b`` otherwise.

    Factorised Gaussian noise (section 3, equations 10 and 11): ε_w[i, j] = f(ε_i) f(ε_j) and ε_b[j] = f(ε_j) with
    f(x) = sgn(x) sqrt|x|, drawn anew at every call and shared by its batch. With p inputs, μ starts uniform in
    ± 1 / sqrt(p) and every σ at sigma0 / sqrt(p).

    The weights are called kernel (μ_w), bias (μ_b), kernel_sigma and bias_sigma, so that kernel and bias are those of a
    dense layer in its place.

    Args:
        sigma0: Initial deviation of the noise, times sqrt(p).
        use_bias: Adds μ_b and its noise.
        kernel_regularizer: Acts only on μ_w.
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        *,
        sigma0: float = 0.5,
        use_bias: bool = True,
        kernel_regularizer: Any = None,
        seed: int,
        name: str,
    ) -> None:
        super().__init__(name=name)
        self.units = units
        self.activation = activation
        self.sigma0 = sigma0
        self.use_bias = use_bias
        self.kernel_regularizer = kernel_regularizer
        self._seed = seed
        # Named, as a name that counts generators would differ from process to process.
        self.noise = keras.random.SeedGenerator(seed, name=f"{name}_noise")

    @property
    def sigmas(self) -> list[Any]:
        """Scales of the noise: weights that only training reads."""
        return [self.kernel_sigma, self.bias_sigma] if self.use_bias else [self.kernel_sigma]

    def build(self, input_shape: tuple[Any, ...]) -> None:
        inputs = input_shape[-1]
        bound = float(inputs) ** -0.5
        sigma = keras.initializers.Constant(self.sigma0 * bound)
        means = [keras.initializers.RandomUniform(-bound, bound, seed=self._seed + offset) for offset in (0, 1)]
        self.kernel = self.add_weight(
            name="kernel", shape=(inputs, self.units), initializer=means[0], regularizer=self.kernel_regularizer
        )
        self.kernel_sigma = self.add_weight(name="kernel_sigma", shape=(inputs, self.units), initializer=sigma)
        if self.use_bias:
            self.bias = self.add_weight(name="bias", shape=(self.units,), initializer=means[1])
            self.bias_sigma = self.add_weight(name="bias_sigma", shape=(self.units,), initializer=sigma)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """[..., p] -> [..., units], with noise while training."""
        kernel, bias = self.kernel, self.bias if self.use_bias else None
        if training:
            rows, columns = self._draw(inputs.shape[-1]), self._draw(self.units)
            kernel = kernel + self.kernel_sigma * (rows[:, None] * columns[None, :])
            bias = None if bias is None else bias + self.bias_sigma * columns
        outputs = keras.ops.matmul(inputs, kernel)
        outputs = outputs if bias is None else outputs + bias
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)

    def _draw(self, count: int) -> Any:
        noise = keras.random.normal((count,), dtype=self.compute_dtype, seed=self.noise)
        return keras.ops.sign(noise) * keras.ops.sqrt(keras.ops.abs(noise))


class Dropout(keras.layers.Layer):  # type: ignore[misc]
    """Zeroes each element with probability `rate` while training and scales the others by 1 / (1 - rate).

    Keras' own layer names its generator by counting all generators of the process, so that no checkpoint could find its
    state again; this one is named after the layer.
    """

    def __init__(self, rate: float, *, seed: int, name: str) -> None:
        super().__init__(name=name)
        self.rate = rate
        self.noise = keras.random.SeedGenerator(seed, name=f"{name}_noise")
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        """[...] -> [...], unchanged unless training."""
        if not training or self.rate == 0.0:
            return inputs
        return keras.random.dropout(inputs, self.rate, seed=self.noise)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape


class BatchRenormalization(keras.layers.Layer):  # type: ignore[misc]
    """``gamma x^ + beta`` over the last axis (Ioffe 2017, arXiv:1702.03275, algorithm 1).

        inference  x^ = (x - mean) / deviation, by running moments
        training   x^ = r (x - mean_B) / deviation_B + d, by the batch's moments, where, as constants to the gradient,
                   r = clip(deviation_B / deviation, 1 / r_max, r_max), d = clip((mean_B - mean) / deviation, +- d_max)

    Where nothing is clipped, the value of x^ is the same in both, and only its gradient knows of the batch. Then the
    running moments move by `1 - momentum` towards the batch's. A deviation is sqrt(variance + epsilon).

    During the first `warm_up_updates` batches r is 1 and d is 0. Keras' own renormalisation has no such beginning.
    Moments are computed in float32.
    """

    def __init__(
        self,
        *,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        r_max: float = 3.0,
        d_max: float = 5.0,
        warm_up_updates: int = 100_000,
        name: str,
    ) -> None:
        super().__init__(name=name)
        self.momentum = momentum
        self.epsilon = epsilon
        self.r_max = r_max
        self.d_max = d_max
        self.warm_up_updates = warm_up_updates

    def build(self, input_shape: tuple[Any, ...]) -> None:
        shape = input_shape[-1:]
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones")
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros")
        self.moving_mean = self.add_weight(name="moving_mean", shape=shape, initializer="zeros", trainable=False)
        self.moving_variance = self.add_weight(name="moving_variance", shape=shape, initializer="ones", trainable=False)
        # A floating number, so that averages over workers of a run are of one kind; exact up to 16 million.
        self.updates = self.add_weight(name="updates", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """[batch, ..., n] -> the same shape."""
        ops = keras.ops
        x = ops.cast(inputs, "float32")
        mean, variance = self.moving_mean.value, self.moving_variance.value
        deviation = ops.sqrt(variance + self.epsilon)
        if training and self.trainable:
            axes = tuple(range(len(x.shape) - 1))
            of_batch, batch_variance = ops.mean(x, axis=axes), ops.var(x, axis=axes)
            batch_deviation = ops.sqrt(batch_variance + self.epsilon)
            r, d = self._correction(of_batch, batch_deviation, mean, deviation)
            normal = r * (x - of_batch) / batch_deviation + d
            self.moving_mean.assign(self._moved(mean, of_batch))
            self.moving_variance.assign(self._moved(variance, batch_variance))
            self.updates.assign(self.updates.value + 1.0)
        else:
            normal = (x - mean) / deviation
        return ops.cast(self.gamma.value * normal + self.beta.value, inputs.dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape

    def _correction(self, of_batch: Any, batch_deviation: Any, mean: Any, deviation: Any) -> tuple[Any, Any]:
        """Return r and d, float32 [n] each, constants to the gradient."""
        ops = keras.ops
        warm = self.updates.value >= self.warm_up_updates
        r = ops.clip(batch_deviation / deviation, 1.0 / self.r_max, self.r_max)
        d = ops.clip((of_batch - mean) / deviation, -self.d_max, self.d_max)
        return ops.stop_gradient(ops.where(warm, r, 1.0)), ops.stop_gradient(ops.where(warm, d, 0.0))

    def _moved(self, running: Any, of_batch: Any) -> Any:
        return keras.ops.stop_gradient(self.momentum * running + (1.0 - self.momentum) * of_batch)


class SequenceLSTM(keras.layers.Layer):  # type: ignore[misc]
    """An LSTM over axis 1 that starts from zeros at every call (Hochreiter & Schmidhuber 1997).

    The sequence arrives whole, such as the words of an instruction. Padding, rows that hold nothing but `mask_value`,
    changes neither state nor output, wherever it stands. A sequence of padding alone gives zeros.

    Args:
        return_sequences: Return the output of every row, zeros for padding, instead of the last.
        mask_value: The number that padding consists of; None: there is no padding.
        dropout: Probability to zero an element of the input while training. Padding stays padding.
    """

    def __init__(
        self,
        units: int,
        *,
        return_sequences: bool = False,
        mask_value: float | None = None,
        dropout: float = 0.0,
        seed: int,
        name: str,
    ) -> None:
        super().__init__(name=name)
        self.units = units
        self.return_sequences = return_sequences
        self.mask_value = mask_value
        self.dropout = Dropout(dropout, seed=seed + 2, name=f"{name}_dropout")
        self.lstm = keras.layers.LSTM(
            units,
            return_sequences=return_sequences,
            kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
            recurrent_initializer=keras.initializers.Orthogonal(seed=seed + 1),
            seed=seed + 3,  # for its unused dropout; Keras would draw one
            use_cudnn=False,  # refuses sequences that are padding throughout
            name="lstm",
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self.lstm.build(input_shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """[batch, length, width] -> [batch, units], or [batch, length, units] with `return_sequences`."""
        kept = self.dropout(inputs, training=training)
        if self.mask_value is None:
            return self.lstm(kept)
        mask = keras.ops.any(keras.ops.not_equal(inputs, self.mask_value), axis=-1)  # [batch, length]
        outputs = self.lstm(kept, mask=mask)
        return outputs * keras.ops.cast(mask, outputs.dtype)[..., None] if self.return_sequences else outputs

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units) if self.return_sequences else (input_shape[0], self.units)
