"""Recurrence inside one input: an LSTM over a sequence that arrives whole, such as the words of an instruction."""

from typing import Any

import keras

from distrl.networks.parts.noisy import Dropout


class SequenceLSTM(keras.layers.Layer):  # type: ignore[misc]
    """An LSTM over axis 1 that starts from zeros at every call (Hochreiter & Schmidhuber 1997).

    Padding, rows that hold nothing but `mask_value`, changes neither state nor output; it comes after the sequence, but
    nothing depends on that. A sequence that is padding throughout gives zeros.

    Args:
        units: Width of the state.
        return_sequences: Return the output of every row, zeros for padding, instead of the last.
        mask_value: What padding is made of; None: there is none.
        dropout: Probability to zero an element of the input while training. Padding stays padding.
        seed: Of the initial weights and the dropout.
        name: Unique within the network.
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
            seed=seed + 3,  # of its own dropout, which is never used; else another one in every process
            use_cudnn=False,  # refuses sequences that are padding throughout
            name="lstm",
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights for inputs of this shape."""
        self.lstm.build(input_shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The layer's output.

        Args:
            inputs: [batch, length, width].
            training: Whether to drop inputs.

        Returns:
            [batch, units], or [batch, length, units] with `return_sequences`.
        """
        kept = self.dropout(inputs, training=training)
        if self.mask_value is None:
            return self.lstm(kept)
        mask = keras.ops.any(keras.ops.not_equal(inputs, self.mask_value), axis=-1)  # [batch, length]
        outputs = self.lstm(kept, mask=mask)
        return outputs * keras.ops.cast(mask, outputs.dtype)[..., None] if self.return_sequences else outputs

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """[batch, length, width] -> [batch, units] or [batch, length, units]."""
        return (*input_shape[:-1], self.units) if self.return_sequences else (input_shape[0], self.units)
