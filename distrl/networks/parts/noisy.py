"""Layers that draw random numbers while training: noisy dense layers and dropout."""

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
        units: Width of the output.
        activation: Function of the result; None is linear.
        sigma0: Initial deviation of the noise, times sqrt(p).
        use_bias: Adds μ_b and its noise.
        kernel_regularizer: Of μ_w alone.
        seed: Of the initial weights and of the noise.
        name: Unique within the network.
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
        """How strong the noise is: weights that only training reads."""
        return [self.kernel_sigma, self.bias_sigma] if self.use_bias else [self.kernel_sigma]

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Creates the weights for inputs of this shape."""
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
        """The layer's output.

        Args:
            inputs: [..., p].
            training: Whether to draw noise.

        Returns:
            [..., units].
        """
        kernel, bias = self.kernel, self.bias if self.use_bias else None
        if training:
            rows, columns = self._draw(inputs.shape[-1]), self._draw(self.units)
            kernel = kernel + self.kernel_sigma * (rows[:, None] * columns[None, :])
            bias = None if bias is None else bias + self.bias_sigma * columns
        outputs = keras.ops.matmul(inputs, kernel)
        outputs = outputs if bias is None else outputs + bias
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[..., p] -> [..., units]."""
        return (*input_shape[:-1], self.units)

    def _draw(self, count: int) -> Any:
        noise = keras.random.normal((count,), dtype=self.compute_dtype, seed=self.noise)
        return keras.ops.sign(noise) * keras.ops.sqrt(keras.ops.abs(noise))


class Dropout(keras.layers.Layer):  # type: ignore[misc]
    """Zeroes each element with probability `rate` while training and scales the others by 1 / (1 - rate).

    Keras' own layer names its generator by counting all generators of the process, so that no checkpoint could find its
    state again; this one is named after the layer.

    Args:
        rate: In [0, 1).
        seed: Of the draws.
        name: Unique within the network.
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
        """[...] -> [...]."""
        return input_shape
